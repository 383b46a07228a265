from __future__ import annotations

import doctest
import importlib
import pkgutil
import subprocess
import sys
import types

import pytest

import abcdp


def test_all_lists_what_is_exported():
    public = {
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


MODULES = [m.name for m in pkgutil.walk_packages(abcdp.__path__, "abcdp.") if "_kernels" not in m.name]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
