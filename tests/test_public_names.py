from __future__ import annotations

import doctest
import importlib
import json
import pkgutil
import subprocess
import sys
import types
from pathlib import Path

import pytest

import abcdp

INTERFACE = Path(__file__).parent / "golden" / "interface.json"


def interface():
    """Every public name, and every command with its help, arguments and options."""
    from typer.main import get_command

    from abcdp.cli.app import app

    def told(command):
        options = [
            {
                "name": option.name,
                "spellings": [*option.opts, *option.secondary_opts],
                "kind": str(option.type_descriptor.annotation),
                "required": option.required,
                "default": None if callable(option.default) else option.default,
                "help": getattr(option, "help", None),
            }
            for option in command.params
        ]
        return {
            "help": command.help,
            "options": options,
            "commands": {name: told(one) for name, one in sorted(getattr(command, "commands", {}).items())},
        }

    theory = sorted(
        name
        for name, value in vars(abcdp.theory).items()
        if getattr(value, "__module__", "") == "abcdp.theory" and name[0] != "_"
    )
    names = {"abcdp": abcdp.__all__, "abcdp.theory": theory, "abcdp.models": abcdp.models.__all__}
    return json.loads(json.dumps({"names": names, "command line": told(get_command(app))}, default=str))


def test_names_and_command_line_are_what_they_were():
    """What users wrote goes on working; whoever adds something runs this file and shows the difference."""
    assert interface() == json.loads(INTERFACE.read_text())


def test_all_lists_what_is_exported():
    later = {"Ledger", "audit", "plots"}  # loaded when first asked for
    assert all(getattr(abcdp, name) for name in later)
    public = later | {
        name
        for name, value in vars(abcdp).items()
        if not name.startswith("_") and (not isinstance(value, types.ModuleType) or name in abcdp.__all__)
    }
    assert public | {"__version__"} - {"annotations"} == set(abcdp.__all__) | ({"annotations"} & public)
    assert abcdp.__all__ == sorted(abcdp.__all__, key=lambda n: (not n.isupper(), n[0].islower(), n))


def test_importing_loads_nothing_heavy():
    code = "import sys, abcdp; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {
        "matplotlib",
        "arviz_plots",
        "typer",
        "rich",
        "sqlalchemy",
        "opendp",
        "dask",
        "fastapi",
        "numba",
        "xarray",
        "pandas",
    }
    assert not heavy & set(loaded)
    assert "scipy" not in loaded


def test_no_function_hides_a_module_of_its_name():
    """Whoever imports `abcdp.inference.posterior` gets the module, whatever the package shows under that name."""
    for name in MODULES:
        importlib.import_module(name)
    hidden = [
        name
        for name in MODULES
        if not isinstance(getattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2]), types.ModuleType)
    ]
    assert hidden == []


MODULES = [m.name for m in pkgutil.walk_packages(abcdp.__path__, "abcdp.") if "_kernels" not in m.name]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


if __name__ == "__main__":  # python tests/test_public_names.py: write down the interface as it is
    INTERFACE.write_text(json.dumps(interface(), indent=1) + "\n")
