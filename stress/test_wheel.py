"""The wheel in an empty environment: what works without extras, and what says which extra it lacks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BANK = "import abcdp\nbank = abcdp.simulate(abcdp.models.epidemic, draws=500, records=50, seed=1)\n"
RELEASE = BANK + (
    "import numpy as np\ndata = np.linspace(0, 90, 50)\n"
    "release = abcdp.public_release(bank, data, abcdp.PrivateSummary(1.0), unit=abcdp.Unit(), seed=1)\n"
    "tree = abcdp.posterior(release, bank)\n"
)
OWNER = (
    BANK
    + "import numpy as np\ndata = np.linspace(0, 90, 50)\n"
    + "abcdp.register('own.db', 'd', data, unit=abcdp.Unit(), epsilon=1, missing='none', create=True)\n"
    + "print(abcdp.release(bank, data, abcdp.PrivateSummary(1.0), ledger='own.db', dataset='d'))\n"
)
# what is done without any extra, and what is said then
LACKS = {
    "a ledger": ("import abcdp\nabcdp.Ledger", 'pip install "abcdp[owner]"'),
    "a release": (OWNER, 'pip install "abcdp[owner]"'),
    "pictures": (RELEASE + "abcdp.plots.marginals(tree)", "pip install 'abcdp[plots]'"),
    "JAX": (
        "import abcdp\nabcdp.simulate(abcdp.models.epidemic_jax, draws=9, records=50, seed=1)",
        "pip install 'abcdp[jax]'",
    ),
    "training": (BANK + "abcdp.train(bank)", "pip install 'abcdp[neural]'"),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def empty(wheel, tmp_path_factory):
    """An environment with the wheel and what it needs, from the registries that pip knows."""
    place = tmp_path_factory.mktemp("empty")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    add(place, str(wheel))
    return place


def add(place, what):
    done = subprocess.run([place / "bin/pip", "install", "-q", what], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip cannot install here: {done.stderr[-300:]}")


def run(place, code, folder):
    environment = {"ABCDP_STATE": str(folder), "ABCDP_KEYS": str(folder / "keys.json"), "HOME": str(folder)}
    command = [str(place / "bin/python"), "-W", "ignore", "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_without_extras_a_posterior_is_made_and_every_lack_is_named(empty, tmp_path):
    done = run(empty, RELEASE + "print(tree.attrs['rung'])", tmp_path)
    assert done.returncode == 0, done.stderr
    for what, (code, words) in LACKS.items():
        done = run(empty, code, tmp_path)
        assert done.returncode == 1, what
        assert words in done.stderr.splitlines()[-1], (what, done.stderr[-500:])
    command = subprocess.run([empty / "bin/abcdp", "--help"], capture_output=True, text=True)
    assert "pip install 'abcdp[cli]'" in command.stderr
    assert (empty / f"lib/python3.{sys.version_info.minor}/site-packages/abcdp/py.typed").exists()


def test_each_extra_brings_what_it_says(wheel, empty, tmp_path):
    """After the one above: each adds to the same environment."""
    add(empty, f"{wheel}[owner]")
    done = run(empty, OWNER, tmp_path)
    assert done.returncode == 0, done.stderr
    add(empty, f"{wheel}[plots]")
    done = run(empty, RELEASE + "print(len(abcdp.plots.marginals(tree)._repr_png_()))", tmp_path)
    assert done.returncode == 0, done.stderr
    add(empty, f"{wheel}[cli]")
    assert subprocess.run([empty / "bin/abcdp", "--help"], capture_output=True).returncode == 0
