"""What distances make of records in JAX, and the laws of the models in it: tests/jax_cases.py, in other processes."""

from __future__ import annotations

import pytest

from test_jax import needs_jax, run


@needs_jax
def test_summaries_are_made_on_a_device():
    run("TestSummaries")


@needs_jax
@pytest.mark.statistical(alpha=3e-6)
def test_the_laws_of_the_twins(alpha):
    run("TestLaws")
