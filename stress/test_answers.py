"""Answers are right where that is known, and say when they are not: a part of the study in bench/answers.py."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))

import abcdp
from bench import answers


@pytest.mark.parametrize("epsilon", [0.5, 50.0])
@pytest.mark.parametrize("count", [2, 5])
def test_coins_against_enumeration(count, epsilon):
    model = answers.coins(count)
    bank = answers.bank_of(model, abcdp.MeanSummary(list(range(count)), domain=[(0, 1)] * count), 1000, draws=10_000)
    mechanism = abcdp.PrivateSummary(epsilon, norm="l1")
    found = answers.study(model, bank, mechanism, 4, simulations=2000, exact=answers.exact_coins, method="local")
    numbers = found.numbers()
    assert numbers["bias"] < 0.12
    assert abs(numbers["spread_ratio"] - 1) < 0.07
    assert numbers["most_simulations"] <= 2000


def test_a_normal_law_by_two_moments():
    bank = answers.bank_of(answers.WIDE, answers.SQUARES, 5000, draws=10_000)
    found = answers.study(
        answers.WIDE, bank, abcdp.PrivateSummary(5.0), 4, simulations=2000, exact=answers.exact_two_moments
    )
    assert found.numbers()["bias"] < 0.15
    assert abs(found.numbers()["spread_ratio"] - 1) < 0.1


@pytest.mark.statistical(alpha=1e-4)
def test_g_and_k_intervals_hold(alpha):
    """False failures: alpha, by a normal approximation over datasets. Power: intervals a third too narrow fail."""
    bank = answers.bank_of(answers.G_AND_K, answers.g_and_k_cells(), 1000)
    found = answers.study(answers.G_AND_K, bank, abcdp.PrivateSummary(1.0), 12, method="local")
    covered = np.array(found.covered, dtype=float).mean(axis=1)
    allowed = (
        stats.norm.isf(alpha / 2) * 0.3 / np.sqrt(2 * len(covered))
    )  # of four parameters two are as if independent
    assert abs(covered.mean() - 0.9) < allowed
    assert found.numbers()["error"] < 0.3


def test_two_stages_halve_the_error_under_a_wide_prior():
    """A tenth of the study, with its seeds, which are fixed; of other seeds about two in a thousand would fail.

    Over 200 datasets the ratio is 0.18, and 91.5 % of intervals hold. With the domain of the first release for the
    second too the ratio would be above 1. More than eight misses of 20 have a probability of 6e-5 at 90 %.
    """
    known = abcdp.Model({"mu": stats.norm(0, 50)}, answers.unit_normal, name="normal of a wide prior")
    found = answers.two_stages(known, abcdp.MeanSummary([0], domain=(-250, 250)), 20)
    assert found.numbers()["error_ratio"] < 0.5
    assert np.sum(~np.array(found.covered)) <= 8


def test_networks_follow_an_epidemic():
    """A fifth of the bank of the study and of its datasets, with fixed seeds: there .341 and 90.8 %.

    More than 24 misses of 120 have a probability of 5e-4 at 90 %, if all were independent; a local fit, which cannot
    follow such answers, has an error of .53.
    """
    model = abcdp.models.epidemic
    bank = answers.bank_of(model, None, 2000, draws=10_000)
    abcdp.train(bank, members=2, progress=False)
    found = answers.study(model, bank, abcdp.PrivateSummary(1.0), 40, method="neural", with_model=False)
    assert found.numbers()["error"] < 0.45
    assert np.sum(~np.array(found.covered)) <= 24


def test_owners_together_know_more_than_any_alone():
    """A part of the study, with its seeds, which are fixed: there 91 % and .83 times the width."""
    (row,) = answers.owner_rows(lambda _: 6)
    numbers = row.found.numbers()
    assert numbers["width_over_the_narrowest_alone"] < 1.0
    assert np.sum(~np.array(row.found.covered)) <= 9  # of 24: a probability of 1e-4 at 90 %


def test_where_it_cannot_work_it_says_so():
    for row in answers.where_it_cannot_work(lambda _: 4):
        if "trusted" in row.must:
            assert row.found.numbers()["trusted"] == 0.0, row.problem
