"""The steps of the proofs hold for all numbers, z3 says; with a fault they do not, and the numbers break mechanisms."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import z3

import broken_mechanisms as broken
import coq
import steps
from abcdp.audit import Pattern
from abcdp.audit.exact import loss_of
from abcdp.mechanisms import Grid, Nearest
from abcdp.mechanisms.nearest import NearestCalibration

FAULTS = [(step.theorem, name, fault) for step in steps.STEPS for name, fault in step.faults.items()]
STEPS, FEW = broken.STEPS, broken.FEW
FAR = 40 * STEPS


@pytest.mark.parametrize("step", steps.STEPS, ids=[f"{i}-{step.theorem}" for i, step in enumerate(steps.STEPS)])
def test_a_step_holds_for_all_numbers(step: steps.Step) -> None:
    assert steps.refuted(step.holds) is None
    assert step.theorem in {one.name for one in coq.statements(("Theorem",))}


@pytest.mark.parametrize(("theorem", "name", "fault"), FAULTS, ids=[f"{t}: {n}" for t, n, _ in FAULTS])
def test_a_step_with_a_fault_is_refuted(theorem: str, name: str, fault: z3.BoolRef) -> None:
    """The numbers that z3 gives make the formula false when they are put in."""
    model = steps.refuted(fault)
    assert model is not None
    assert z3.is_false(model.eval(fault, model_completion=True))


def lost(mechanism: object, pattern: Pattern) -> float:
    return loss_of(mechanism, pattern)[0]


RUNS = {
    # each rejected draw needs the shift of a threshold that has no noise to shift
    "no threshold noise": (broken.no_threshold_noise(1), broken.paper(1), 6, 0, False, 1.5),
    # the noise of accepted draws pays for 2 D at the price of D
    "equal scales": (broken.equal_scales(1), broken.paper(1), 6, 1, False, 1.5),
    "half of the threshold noise": (broken.half_threshold_noise(1), broken.paper(1), 9, 1, False, 1.5),
    "not scaled with c": (broken.unscaled(2), broken.paper(2), 6, 2, False, 1.5),
    "one accept too many": (broken.one_accept_too_many(1), broken.paper(1), 6, 2, False, 1.5),
    # the threshold goes up, and each rejected draw would have to be shifted
    "both signs flipped": (broken.one_sided_both_up(1), broken.one_sided(1), 9, 0, True, 2.25),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_that_z3_finds_break_the_mechanism(name: str) -> None:
    """The loss at the neighbours and the output of the counterexample is above the claim; the sound one's is not."""
    faulty, sound, rejects, accepts, upwards, loss = RUNS[name]
    pattern = steps.rows_that_need_it(STEPS, rejects, accepts, far=FAR, upwards=upwards)
    assert lost(faulty, pattern) == pytest.approx(loss, abs=0.01)
    assert faulty.claimed == sound.claimed == 1.0
    if accepts <= sound.accept:
        assert lost(sound, pattern) <= 1.0 + 1e-6


@pytest.mark.parametrize(
    ("faulty", "signs", "mark"),
    [
        (broken.one_sided_threshold_up(1), (1, -1), 0),
        (broken.one_sided_distance_up(1), (-1, 1), 1),
    ],
    ids=["threshold", "distance"],
)
def test_what_is_impossible_for_one_neighbour_breaks_one_sided_noise(
    faulty: object, signs: tuple[int, int], mark: int
) -> None:
    here, there = steps.possible_once(*signs, STEPS, mark)
    assert lost(faulty, Pattern((here,), (there,), (mark,))) == math.inf
    assert lost(broken.one_sided(1), Pattern((here,), (there,), (mark,))) <= 1.0 + 1e-6


def test_gaps_to_the_public_threshold_break_the_mechanism() -> None:
    """Rejected draws move as they do at most, and the accepted one shows a gap that tells how low the threshold was."""
    (fault,) = (fault for _, name, fault in FAULTS if name == "the public threshold")
    model = steps.refuted(fault, steps.D == FEW, steps.rho2 == steps.rho)
    assert model is not None
    gap = -4 * 12 * FEW  # the noisy distance is above the public threshold: the noisy one must be higher still
    rejects = 16
    moved = steps.rows_that_need_it(FEW, rejects, 0, far=0)
    accepted = steps.number(model, steps.level) - steps.number(model, steps.rho)
    pattern = Pattern(
        (*(level - gap for level in moved.before), accepted),
        (*(level - gap for level in moved.after), accepted),
        (0,) * rejects + (1 + gap,),
    )
    assert lost(broken.gap_to_the_public_threshold(1), pattern) > 1.5
    free = Pattern(pattern.before, pattern.after, (0,) * rejects + (1,))
    assert lost(broken.gap_of_the_decision(1), free) <= 1.0 + 1e-6


def test_noise_that_is_added_breaks_the_nearest_draws() -> None:
    """The winner's noise cannot be taken away, so the noise of all others has to be raised: 2 D / s for each."""
    pattern = steps.losers_that_need_it(FEW, 15, far=40 * FEW)
    assert lost(broken.nearest_plus(1), pattern) == pytest.approx(15.0, abs=0.01)
    assert lost(broken.nearest(1), pattern) <= 1.0 + 1e-6


def test_laplace_noise_for_the_largest_entry_breaks_a_summary() -> None:
    (fault,) = (fault for _, name, fault in FAULTS if name == "the largest entry")
    model = steps.refuted(fault, steps.first == FEW, steps.second == FEW)
    assert model is not None
    move = np.array([[float(steps.number(model, one)) for one in (steps.first, steps.second)]])
    law = broken.noisy_summary("laplace", 2, 2 * FEW, FEW).law
    loss = float(law.log_density(0.0 * move)[0] - law.log_density(move)[0])
    assert loss == 2.0


def test_grids_that_z3_refutes_break_their_rule() -> None:
    """Numbers for which the scalar rule is wrong for two entries; and half to even for one, by hand."""
    (fault,) = (fault for _, name, fault in FAULTS if name == "the scalar rule")
    model = steps.refuted(fault)
    assert model is not None
    values = [model.eval(one, model_completion=True) for one in (steps.x, steps.y, steps.x2, steps.y2)]
    x, y, x2, y2 = (Fraction(one.numerator_as_long(), one.denominator_as_long()) for one in values)
    rule = broken.SCALAR_FOR_VECTORS
    moved = abs(rule.quantise(x) - rule.quantise(y)) + abs(rule.quantise(x2) - rule.quantise(y2))
    assert moved > rule.claimed(abs(x - y) + abs(x2 - y2), 2)
    assert moved <= broken.FLOOR.claimed(abs(x - y) + abs(x2 - y2), 2)
    even = broken.TO_EVEN
    assert abs(even.quantise(Fraction(3, 2)) - even.quantise(Fraction(1, 2))) > even.claimed(Fraction(1), 1)


def test_a_scale_that_is_rounded_down_costs_more_than_the_budget() -> None:
    (fault,) = (fault for theorem, name, fault in FAULTS if (theorem, name) == ("vector_within_budget", "rounded down"))
    move = 2 * STEPS  # of one winner, in steps
    tenth = z3.Q(7, 10)
    model = steps.refuted(fault, steps.asked == move, steps.budget == tenth)
    assert model is not None
    grid, small = Grid(1.0, STEPS, 1 << 52), steps.number(model, steps.scale)
    assert NearestCalibration(grid, small, 1).epsilon > Fraction(7, 10)
    assert Nearest(0.7, 1).calibrate_on(grid).scale == small + 1


def test_a_vector_that_is_rounded_up_leaves_its_ball() -> None:
    (fault,) = (fault for theorem, name, fault in FAULTS if (theorem, name) == ("l1_ball", "rounded up"))
    model = steps.refuted(fault)
    assert model is not None
    radius, a, b = (steps.number(model, one) for one in (steps.radius, steps.a, steps.b))
    long = max(a + b, radius)
    assert a * radius // long + b * radius // long <= radius < a * radius // long + b * radius // long + 2
