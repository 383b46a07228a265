"""Simulators in JAX: tests/jax_cases.py, in processes of their own, since one that has loaded JAX is not forked."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import abcdp

CASES = Path(__file__).with_name("jax_cases.py")
needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed: pip install 'abcdp[jax]'"
)


def run(cases: str, **environment: str) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"{CASES}::{cases}"]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert found.returncode == 0, found.stdout[-4000:]


@needs_jax
@pytest.mark.statistical(alpha=1e-6)
def test_draws_have_keys_of_their_own():
    run("TestDraws")


@needs_jax
def test_several_devices():
    run("TestSeveral", XLA_FLAGS="--xla_force_host_platform_device_count=4")


def test_models_in_jax_load_nothing_before_they_are_used():
    code = """
import sys, pickle, abcdp
model = abcdp.Model({"a": None} and abcdp.models.mixture_jax.prior, len, parameters=["a"], backend="jax")
pickle.dumps(abcdp.models.epidemic_jax)
print("jax" in sys.modules)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False"]


def test_without_jax_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(abcdp.errors.ModelError, match=r"needs JAX: pip install 'abcdp\[jax\]'"):
        abcdp.simulate(abcdp.models.mixture_jax, draws=10, records=10, seed=1, progress=False)
