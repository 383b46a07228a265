"""The frontier: its small version runs, its numbers are those of the mechanisms, and its claims can fail."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

import abcdp
from abcdp.paper.common import make
from abcdp.paper.frontier import FAMILIES, FRONTIER, Config, Problem, budget_to_target, claims


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    made = make(FRONTIER, tmp_path_factory.mktemp("frontier"), FRONTIER.quick)
    return json.loads(made.numbers.read_text())


def test_every_problem_has_every_mechanism_between_its_two_ends(numbers):
    assert [problem["model"] for problem in numbers["problems"]] == ["mixture", "regression", "epidemic"]
    for problem in numbers["problems"]:
        for part in problem["accepts"]:
            assert set(part["mechanisms"]) == set(FAMILIES)
            for curve in part["mechanisms"].values():
                assert [point["epsilon"] for point in curve] == list(FRONTIER.quick.budgets)
            assert part["non_private"]["error"] < problem["prior"]["error"]
            assert problem["noise_over_best_known"]["learned"] >= 1.0


def test_more_budget_helps_where_noise_is_what_is_in_the_way(numbers):
    toy = numbers["problems"][0]["accepts"][0]["mechanisms"]
    for family in ("paper", "nearest", "learned"):
        first, last = toy[family][0], toy[family][-1]
        assert last["error"] < first["error"]


def test_the_non_private_end_is_rejection_with_as_many_draws(tmp_path):
    """With a huge budget the nearest draws are those of the baseline, so their errors meet its."""
    small = Config(
        problems=(Problem("mixture", (0.25, 0.04, 0.33, 0.04, 0.34), 500, 600, (5,)),),
        budgets=(1e6,),
        thresholds=2,
        datasets=4,
    )
    made = make(FRONTIER, tmp_path, small)
    part = json.loads(made.numbers.read_text())["problems"][0]["accepts"][0]
    assert part["mechanisms"]["nearest"][0]["error"] == pytest.approx(part["non_private"]["error"], rel=1e-5)


def test_claims_are_checked_on_the_numbers(numbers):
    worse = copy.deepcopy(numbers)
    curves = worse["problems"][0]["accepts"][0]["mechanisms"]
    for family in FAMILIES:
        for point in curves[family]:
            point["error"] = 0.5 if family != "paper" else 0.01
    found = claims(worse)
    assert not found[0].holds
    assert "takes 0.1" in found[0].text


def test_the_budget_to_a_target_is_the_one_from_which_on_it_is_kept():
    curve = [{"epsilon": e, "error": x} for e, x in ((0.1, 1.0), (1.0, 3.0), (2.0, 1.4), (5.0, 1.0))]
    assert budget_to_target(curve, 1.0) == 2.0
    assert budget_to_target(curve, 0.1) is None


def test_the_public_models_of_the_frontier_are_built_in():
    for name in ("regression", "epidemic"):
        model = abcdp.models.find(name)
        data, status, _ = model.run(
            model.from_latent(np.zeros((2, model.latent_dimension))), 50, np.random.default_rng(0)
        )
        assert data is not None
        assert (status == 0).all()


def test_an_error_that_rises_with_the_budget_breaks_a_claim(numbers):
    def of_budget(some):
        return [claim for claim in claims(some) if "larger budget" in claim.text]

    flat = copy.deepcopy(numbers)
    curves = flat["problems"][0]["accepts"][0]["mechanisms"]
    for curve in curves.values():
        for point in curve:
            point |= {"error": 0.01, "standard_error": 0.001}
    assert of_budget(flat)[0].holds
    curves["summary"][-1]["error"] = 0.02
    assert not of_budget(flat)[0].holds
    assert "private summary" in of_budget(flat)[0].evidence
