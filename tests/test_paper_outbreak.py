"""San Francisco with the patient as the unit: the experiment in small, and the functions that it rests on."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest

import abcdp
from abcdp.distance import ClusterSummary
from abcdp.mechanisms import Nearest, PrivateSummary, SparseVector
from abcdp.models import outbreak
from abcdp.models._tuberculosis import PARAMETERS, SAN_FRANCISCO, as_patients
from abcdp.paper.common import make
from abcdp.paper.outbreak import OUTBREAK, Config, apart, density, explained, neighbours, points_of, private

ONES = ClusterSummary(weights=(1,) * 6)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(OUTBREAK, tmp_path_factory.mktemp("paper"), OUTBREAK.quick)


def test_it_writes_picture_numbers_and_paragraph(made):
    assert all(path.stat().st_size > 1000 for path in (made.png, made.svg, made.numbers, made.text))
    assert "protects nobody" in made.paragraph
    numbers = json.loads(made.numbers.read_text())
    assert numbers["statistics"] == [473, 326, 30, 20, 282, 20]
    assert [row["epsilon"] for row in numbers["rows"]] == [0.25, 0.5, 1.0, 2.0, 4.0]
    assert numbers["rows"][numbers["chosen"]]["epsilon"] == 1.0
    assert made.claims[0].holds
    assert numbers["sensitivity"]["counts"] == {"stated": 5.66667, "here": 4.0}
    # 4000 draws already narrow the burden
    assert numbers["plain"]["deviation"][3] < numbers["prior"]["deviation"][3] / 2


def test_every_claim_can_fail(made):
    numbers = json.loads(made.numbers.read_text())
    chosen = numbers["chosen"]

    def without(change) -> list[bool]:
        other = copy.deepcopy(numbers)
        change(other)
        return [claim.holds for claim in OUTBREAK.claims(other)]

    assert not without(lambda n: n["sensitivity"]["learned"].update(stated=0.0))[0]
    assert not without(lambda n: n["rows"][chosen].update(apart=[9.0] * 4))[1]
    assert without(lambda n: n["rows"][chosen].update(apart=[0.0, 9.0, 0.0, 0.0]))[1]  # nothing is said of t1
    assert not without(lambda n: n["rows"][chosen].update(planned_coverage=[0.8, 0.03]))[2]
    assert not without(lambda n: n["rows"][-1].update(apart=[9.0] * 4))[3]
    assert not without(lambda n: n["published"].__setitem__(3, 500.0))[4]
    assert not without(lambda n: n["rows"][chosen].update(covered=[1.0, 0.4, 1.0, 1.0]))[5]


def test_the_neighbours_of_a_dataset_are_all_there():
    """Up to the names of clusters: every way to replace one record of a small dataset gives the same statistics."""
    patients = as_patients([4, 3, 3, 2, 1, 1])
    all_ways = set()
    for place in range(len(patients)):
        for label in (-1.0, *range(7)):
            other = patients.copy()
            other[place] = label
            all_ways.add(tuple(ONES.summary(other)))
    found = neighbours(patients)
    assert all((one != patients).sum() <= 1 for one in found)
    missing = all_ways - {tuple(ONES.summary(one)) for one in found}
    assert not missing
    assert len(neighbours(as_patients(SAN_FRANCISCO))) == 10 * 12


def test_how_far_posteriors_are_apart():
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(5000, 2)) * [1.0, 3.0]
    np.testing.assert_allclose(apart(theta, theta, np.ones(2)), 0.0)
    np.testing.assert_allclose(apart(theta + np.array([0.5, -1.5]), theta, np.array([1.0, 3.0])), 0.5)
    # twice as wide: the mean of |z|, over quantiles
    np.testing.assert_allclose(apart(2.0 * theta, theta, np.array([1.0, 3.0])), np.sqrt(2.0 / np.pi), rtol=0.05)


def test_densities_are_densities():
    prior = np.random.default_rng(2).uniform(0.0, 10.0, 3000)
    points = points_of(prior)
    for values in (prior, prior[:200], np.random.default_rng(3).normal(5.0, 0.5, 400)):
        assert np.trapezoid(density(values, prior), points) == pytest.approx(1.0, abs=0.02)
    # the same draws again are no more draws: no sharper picture
    np.testing.assert_allclose(density(np.tile(prior[:200], 10), prior), density(prior[:200], prior), rtol=1e-9)
    # flat up to the edges, where an ordinary kernel estimate would fall to half
    np.testing.assert_allclose(density(prior, prior)[[0, 60, -1]], 0.1, rtol=0.25)


def test_times_tell_about_t1():
    found = explained(Config(compared=2000))
    t1, burden = PARAMETERS.index("t1"), PARAMETERS.index("burden")
    assert found["with times"][t1] > found["without times"][t1] + 0.1
    assert found["without times"][burden] > 0.6


@pytest.mark.parametrize(
    "mechanism",
    [PrivateSummary(1.0), Nearest(1.0, 7), SparseVector(5.0, 7, 100.0), SparseVector(1e5, 7, -100.0)],
    ids=["summary", "nearest", "sparse vector", "nothing accepted"],
)
def test_any_mechanism_gives_a_posterior(mechanism):
    bank = abcdp.simulate(outbreak, draws=600, records=1024, seed=1)
    theta = private(bank, as_patients(SAN_FRANCISCO), mechanism, abcdp.Unit(), 40, seed=3)
    assert theta.shape[1] == 4
    wanted = {
        "private-summary": range(1, 51),
        "nearest": [7],
        "sparse-vector": [0] if mechanism.epsilon > 5 else range(1, 8),
    }
    assert len(theta) in wanted[mechanism.kind]
    again = private(bank, as_patients(SAN_FRANCISCO), mechanism, abcdp.Unit(), 40, seed=3)
    assert np.array_equal(theta, again)
