"""What the theorems are about is what the library runs: Coq's definitions, evaluated, beside the shipped code.

Thousands of random cases with small numbers, so that ties, stops and failed draws are common. Both kernels and whole
calibrations are run on the noise that Coq is given; a kernel with a fault disagrees.
"""

from __future__ import annotations

import inspect
import itertools
import random
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

import coq
from abcdp import MMD, MeanSummary, Moment, PrivateSummary, Unit
from abcdp._kernels import compiled, plain
from abcdp.distance.ball import Ball, _root_up
from abcdp.mechanisms import Grid, Nearest, SparseVector
from abcdp.mechanisms.nearest import NearestCalibration
from abcdp.mechanisms.private_summary import _ways
from abcdp.mechanisms.sparse_vector import SparseVectorCalibration

RUNS = 2000
CHOICES = 1000


@dataclass(frozen=True)
class Run:
    """A run of sparse vector: thresholds' noise, one or as many as accepts, and the draws with theirs."""

    tau: int
    levels: list[int]
    most: int
    rows: list[tuple[bool, int]]
    noise: list[int]
    resampled: bool

    def term(self) -> str:
        return coq.written((self.resampled, self.tau, self.levels, self.most, self.rows, self.noise))


def random_run(rng: random.Random) -> Run:
    draws, most, resampled = rng.randint(1, 10), rng.randint(1, 4), rng.random() < 0.5
    low, high = (-4, 4) if rng.random() < 0.6 else (-6, 0)  # one-sided noise is never above 0
    levels = [rng.randint(low, high) for _ in range(most if resampled else 1)]
    rows = [(rng.random() < 0.85, rng.randint(0, 5)) for _ in range(draws)]
    return Run(rng.randint(-2, 5), levels, most, rows, [rng.randint(low, high) for _ in rows], resampled)


@pytest.fixture(scope="session")
def runs(built: coq.Coq) -> list[tuple[Run, list[int]]]:
    """Return random runs with what Coq makes of them: of each draw the gap, or -1 where it is not accepted."""
    rng = random.Random(20240611)
    made = [random_run(rng) for _ in range(RUNS)]
    term = (
        "map (fun c : bool * Z * list Z * Z * list (bool * Z) * list Z => "
        "match c with (again, tau, ms, most, rows, noise) => "
        "map (fun mark : option Z => match mark with Some gap => gap | None => -1 end) "
        "(run (if again then resampled tau ms else one_draw tau (hd 0 ms)) (Z.to_nat most) 0 rows noise) end) "
        f"[{'; '.join(one.term() for one in made)}]"
    )
    (marks,) = built.evaluate("Scans", "Lists SparseVector", [term])
    assert isinstance(marks, list)
    return list(zip(made, marks, strict=True))


def scanned(scan: Callable[..., None], one: Run) -> list[int]:
    """Return the marks of a run that a kernel makes."""
    counts, accepted = np.zeros(1, np.int64), np.full((1, one.most), -1, np.int64)
    gaps = np.zeros_like(accepted)
    fine, distances = np.array([row[0] for row in one.rows]), np.array([[row[1] for row in one.rows]])
    levels = one.tau + np.array([one.levels])
    scan(distances, fine, np.array([one.noise]), levels, 0, counts, accepted, gaps)
    marks = [-1] * len(one.rows)
    for row, gap in zip(accepted[0, : counts[0]].tolist(), gaps[0, : counts[0]].tolist(), strict=True):
        marks[row] = gap
    return marks


class Scripted:
    """A source of noise that hands out prepared numbers, in the order in which they are asked for."""

    seeded = False

    def __init__(self, *parts: list[int]) -> None:
        self.parts = list(parts)

    def laplace(self, scale: int, size: int) -> np.ndarray:
        return self.handed(size)

    def exponential(self, scale: int, size: int) -> np.ndarray:
        numbers = -self.handed(size)
        assert (numbers >= 0).all()
        return numbers

    def handed(self, size: int) -> np.ndarray:
        part = self.parts.pop(0)
        assert len(part) == size
        return np.array(part, dtype=np.int64)


@pytest.mark.parametrize("kernel", [compiled, plain], ids=["compiled", "plain"])
def test_both_kernels_make_the_runs_of_the_theorems(runs: list[tuple[Run, list[int]]], kernel: object) -> None:
    for one, marks in runs:
        assert scanned(kernel.scan, one) == marks
    assert sum(any(mark >= 0 for mark in marks) for _, marks in runs) > RUNS // 2


def test_whole_calibrations_make_the_runs_of_the_theorems(runs: list[tuple[Run, list[int]]]) -> None:
    """In two pieces, with the noise that a sampler hands out: rows, gaps and how many were looked at."""
    for one, marks in runs:
        below = max(*one.levels, *one.noise) <= 0
        shape = "exponential" if below else "laplace"
        found = SparseVectorCalibration(Grid(1.0, 1, 1 << 52), one.tau, 3, 5, one.most, one.resampled, shape, gaps=True)
        half = len(one.rows) // 2
        pieces = [one.rows[:half], one.rows[half:]]
        stream = [(np.array([r for _, r in part], np.int64), np.array([f for f, _ in part], bool)) for part in pieces]
        (outcome,) = found.run(stream, Scripted(one.levels, one.noise[:half], one.noise[half:]))
        rows = tuple(row for row, mark in enumerate(marks) if mark >= 0)
        assert outcome.accepted == rows
        assert outcome.gaps == tuple(marks[row] for row in rows)
        assert outcome.examined == (rows[-1] + 1 if len(rows) == one.most else len(marks))


FAULTS = [
    (plain.scan, "values <= own[0]", "values < own[0]"),
    (plain.scan, "values[t] <= own[count]", "values[t] < own[count]"),
    (plain.scan, "own[0] - values[rows]", "values[rows]"),
    (plain.scan, "own[count] - values[t]", "own[0] - values[t]"),
    (plain.scan, "np.flatnonzero(allowed & (values", "np.flatnonzero((values"),
    (plain.scan, "counts[run] += len(rows)", "counts[run] = len(rows) // 2"),
    (compiled.scan.py_func, "own[t] <= level", "own[t] < level"),
    (compiled.scan.py_func, "values[t] + own[t] <= level", "values[t] - own[t] <= level"),
    (compiled.scan.py_func, "min(count, most - 1) if several else 0", "0"),
    (compiled.scan.py_func, "place if several else 0", "0"),
    (compiled.scan.py_func, "hit = allowed[t] &", "hit ="),
]


@pytest.mark.parametrize(("kernel", "old", "new"), FAULTS, ids=[new for _, _, new in FAULTS])
def test_a_kernel_with_a_fault_disagrees(
    runs: list[tuple[Run, list[int]]], kernel: Callable[..., None], old: str, new: str
) -> None:
    text = textwrap.dedent(inspect.getsource(kernel))
    assert text.count(old) == 1
    text = text[text.index("def scan") :]
    known = dict(kernel.__globals__)
    exec(f"from __future__ import annotations\n{text.replace(old, new)}", known)
    assert any(scanned(known["scan"], one) != marks for one, marks in runs)
    exec(f"from __future__ import annotations\n{text}", known)
    assert all(scanned(known["scan"], one) == marks for one, marks in runs[:200])


def test_the_nearest_draws_are_those_of_the_theorems(built: coq.Coq) -> None:
    """One piece or two, whatever the ties; and with noise that is added instead they are others."""
    rng = random.Random(77)
    cases = []
    for _ in range(CHOICES):
        draws = rng.randint(1, 9)
        fine = [rng.random() < 0.85 for _ in range(draws)]
        numbers = [[rng.randint(0, 5) for _ in range(draws)] for _ in range(2)]
        cases.append((rng.randint(1, 4), *numbers, fine))
    given = [(most, rhos, noise, [i for i, one in enumerate(fine) if one]) for most, rhos, noise, fine in cases]
    term = (
        "map (fun c : Z * list Z * list Z * list Z => match c with (most, rhos, noise, rows) => "
        "map Z.of_nat (nearest (Z.to_nat most) (value rhos noise) (map Z.to_nat rows)) end) "
        f"{coq.written(given)}"
    )
    (winners,) = built.evaluate("Choices", "Nearest", [term])
    others = 0
    for (most, rhos, noise, fine), won in zip(cases, winners, strict=True):
        found = NearestCalibration(Grid(1.0, 1, 1 << 52), 5, most)
        half = len(rhos) // 2
        pieces = [slice(half), slice(half, None)]
        stream = [(np.array(rhos[part], np.int64), np.array(fine[part], bool)) for part in pieces]
        lowered = [-number for number in noise]  # handed out with the sign of a draw that lowers
        (outcome,) = found.run(stream, Scripted(lowered[:half], lowered[half:]))
        assert outcome.accepted == tuple(sorted(won))
        added = sorted((rho + e, row) for row, (rho, e, one) in enumerate(zip(rhos, noise, fine, strict=True)) if one)
        others += sorted(row for _, row in added[:most]) != sorted(won)
    assert others > CHOICES // 10


def fraction(number: Fraction) -> str:
    return f"({number.numerator} # {number.denominator})"


def test_scales_and_costs_are_those_of_the_theorems(built: coq.Coq) -> None:
    rng = random.Random(5)
    cases = [
        (Fraction(rng.randint(1, 4000), 1000), rng.randint(1, 200), rng.randint(1, 1 << 17), rng.random() < 0.5)
        for _ in range(300)
    ]
    terms = []
    for budget, accepts, move, again in cases:
        runs, each = (1, budget / accepts) if again else (accepts, budget)
        ratio = fraction(Fraction((2.0 * runs) ** (2.0 / 3.0)))
        both = f"(paper_scales {fraction(each)} {runs} {move}, split_scales {ratio} {fraction(each)} {runs} {move})"
        cost = f"resampled_cost {move} a b {accepts}" if again else f"run_cost {move} a b {accepts}"
        price = f"(fun s : Z * Z => let (a, b) := s in let c := Qred ({cost}) in (a, b, Qnum c, Zpos (Qden c)))"
        one = f"vector_scale {fraction(budget)} (2 * {accepts} * {move})"
        terms.append(f"let (p, q) := {both} in [{price} p; {price} q; ({one}, 0, 0, 0)]")
    found = built.evaluate("Scales", "Costs", [f"[{'; '.join(terms)}]"])[0]
    for (budget, accepts, move, again), (paper, optimal, nearest) in zip(cases, found, strict=True):
        grid = Grid(1.0, move, 1 << 52)
        for split, scales in (("paper", paper), ("optimal", optimal)):
            made = SparseVector(float(budget), accepts, 0.5, again, split=split).calibrate_on(grid)
            cost = made.epsilon
            assert (made.threshold_scale, made.distance_scale, cost.numerator, cost.denominator) == tuple(scales)
        assert Nearest(float(budget), accepts).calibrate_on(grid).scale == nearest[0]


def test_the_grid_is_that_of_the_theorems(built: coq.Coq) -> None:
    rng = random.Random(6)
    grid = replace(Grid.covering(0.01, 1e-12, 2.0), cap=1 << 20)
    numbers = [
        rng.choice([rng.uniform(0.0, 2.0), rng.uniform(0.0, 1e-6), grid.step * rng.randint(0, 1 << 21)])
        for _ in range(400)
    ]
    step = fraction(Fraction(grid.step))
    given = "; ".join(fraction(Fraction(number)) for number in numbers)
    term = f"map (fun x => saturate 0 {grid.cap} (quantise {step} x)) [{given}]"
    (steps,) = built.evaluate("Steps", "Grid", [term])
    assert grid.quantise(np.array(numbers)).tolist() == steps


def test_what_neighbours_are_charged_is_that_of_the_theorems(built: coq.Coq) -> None:
    """Of distances, and of private summaries in L1 and entry by entry, enforced and derived, for several units."""
    cases, terms = [], []
    for distance, unit in itertools.product(
        (MMD(0.6, (0.0, 5.0)), MeanSummary((Moment(0), Moment({0: 2})), ((-1.0, 3.0),))),
        (Unit(), Unit(records=3), Unit(change=0.25), Unit(neighbours="add-remove", at_least=90)),
    ):
        grid = Grid.for_distance(distance, 100, 100, unit)
        step, error = (fraction(Fraction(one)) for one in (grid.step, distance.numerical_error(100)))
        terms.append(f"scalar_charge {fraction(Fraction(grid.real_sensitivity))} {error} {step}")
        cases.append((grid.sensitivity, 1))  # two sums are rounded up before
        for moves in _ways(distance, 100, unit, None):
            error = fraction(moves.error)
            found = PrivateSummary(0.5)._laplace(moves)
            width, step = fraction(Fraction(moves.width)), fraction(Fraction(found.steps[0]))
            terms.append(f"vector_charge {fraction(moves.one)} {error} {step} {width}")
            cases.append((found.charged, 0))
            found = PrivateSummary(0.5)._box(moves)
            each = zip(moves.entries, found.steps, strict=True)
            charges = (f"scalar_charge {fraction(entry)} {error} {fraction(Fraction(step))}" for entry, step in each)
            terms.append(f"fold_right Z.max 0 [{'; '.join(charges)}]")
            cases.append((found.charged, 0))
    for (charged, more), found in zip(cases, built.evaluate("Charges", "Grid", terms), strict=True):
        assert found <= charged <= found + more
    assert len(cases) > 30


@pytest.mark.parametrize("shape", ["l1", "l2"])
def test_clipping_to_a_ball_is_that_of_the_theorems(built: coq.Coq, shape: str) -> None:
    rng = random.Random(9)
    ball = Ball(shape, 1.0, 3)
    whole = [
        [rng.choice([0, rng.randint(-ball.whole, ball.whole), rng.randint(-9, 9)]) for _ in range(3)]
        for _ in range(300)
    ]
    clipped = ball.clip(np.ldexp(np.array(whole, dtype=np.float64), -ball.bits))
    if shape == "l1":
        lengths = [sum(map(abs, row)) for row in whole]
    else:
        lengths = _root_up((np.array(whole) ** 2).sum(axis=1)).tolist()
        assert all(length**2 >= sum(k * k for k in row) for length, row in zip(lengths, whole, strict=True))
    given = coq.written([(length, row) for length, row in zip(lengths, whole, strict=True)])
    term = f"map (fun c : Z * list Z => let (long, row) := c in map (shrink {ball.whole} long) row) {given}"
    (shrunk,) = built.evaluate("Shrunk", "Clip", [term])
    assert clipped.tolist() == shrunk
