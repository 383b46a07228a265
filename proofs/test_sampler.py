"""The law of FastNoise: two programs bound how far it is from the discrete Laplace law, for every scale in use."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import mpmath
import pytest

import coq
from abcdp import MMD, Nearest, PrivateSummary, SparseVector, Unit
from abcdp.privacy.noise_law import LARGEST_SCALE, REACH
from abcdp.sampling.digits import _thresholds
from intervals import BITS, exponential, laplace_off

RELEASES = Path(__file__).parents[1] / "tests" / "golden" / "releases"
STATED = Fraction(1, 10**300)


def cuts(scale: int) -> list[int]:
    """Return the shipped chances of a scale, in units of 2**-1024."""
    return [int.from_bytes(row.astype(">u2").tobytes(), "big") for row in _thresholds(scale)]


def scales() -> Iterator[int]:
    """Yield scales of shipped releases and calibrations, those with the most mass beyond, and others of every size."""
    for path in sorted(RELEASES.glob("*.json")):
        summary = json.loads(path.read_text()).get("summary")
        if summary:
            yield from (
                {summary["law"]["scale"]} if isinstance(summary["law"]["scale"], int) else summary["law"]["scale"]
            )
    distance = MMD(0.6, (0.0, 5.0))
    for mechanism in (
        SparseVector(1.0, 10, 0.1),
        SparseVector(0.5, 100, 0.1, resample=True, split="optimal", noise="exponential"),
        Nearest(1.0, 50),
        PrivateSummary(1.0, norm="l1"),
        PrivateSummary(0.1, norm="box"),
    ):
        found = mechanism.calibrate(distance, records=5000, simulated=5000, unit=Unit())
        yield from (noise.law.scale for noise in found.noises)
    yield from (1, 2, 3, 7, 1000, LARGEST_SCALE)
    # where 2^J is REACH times the scale the digits that are left out matter most
    yield from ((1 << digits) // REACH for digits in range(10, 62, 3))
    rng = random.Random(8)
    yield from (rng.randrange(1, 1 << rng.randrange(1, 51)) for _ in range(20))


SCALES = sorted(set(scales()))
FEW = [1, (1 << 34) // REACH, LARGEST_SCALE]  # for the program in Coq, whose numbers are lists of bits


def test_every_scale_in_use_is_within_what_is_stated(tell: Callable[[str], None]) -> None:
    """And the chances cut to 1000 bits instead of 1024 would not be, nor would a digit less."""
    worst = max(laplace_off(scale, cuts(scale)) for scale in SCALES)
    shown = mpmath.nstr(mpmath.mpf(worst.numerator) / worst.denominator, 4)
    tell(f"FastNoise at {len(SCALES)} scales: at most {shown} a Laplace draw in total variation")
    assert worst < STATED
    scale = max(FEW)
    assert laplace_off(scale, cuts(scale)[:-1]) > STATED
    coarse = [cut >> 24 << 24 for cut in cuts(scale)]
    assert laplace_off(scale, coarse) > STATED


def test_the_bound_holds_for_every_scale_that_is_accepted() -> None:
    """At most 61 digits, each off by one unit, and 2 exp(-REACH): whatever the scale."""
    assert (REACH * LARGEST_SCALE - 1).bit_length() <= 61
    tail = Fraction(1 << 1400, exponential(Fraction(REACH)).low)
    assert 2 * (61 * Fraction(1, 1 << BITS) + tail) < STATED


@pytest.mark.parametrize("scale", FEW)
def test_the_program_in_coq_finds_the_same(built: coq.Coq, scale: int) -> None:
    chances = cuts(scale)
    term = f"let (fine, bound) := laplace_off {scale} {coq.written(chances)} in (fine, bound, negligible bound)"
    ((fine, bound, negligible),) = built.evaluate("Law", "Digits", [term])
    assert fine
    assert negligible
    found, ours = Fraction(bound, 1 << 1152), laplace_off(scale, chances)
    # theirs counts a whole unit for each chance, ours what was really cut off
    assert ours <= found <= ours + 2 * len(chances) * Fraction(1, 1 << BITS) + Fraction(1, 1 << 1080)


def test_the_program_in_coq_notices_a_wrong_chance(built: coq.Coq) -> None:
    terms = []
    for place, change in ((0, 1), (3, -1), (9, 2)):
        wrong = cuts(1)
        wrong[place] += change
        terms.append(f"laplace_off 1 {coq.written(wrong)}")
    assert [fine for fine, _ in built.evaluate("Wrong", "Digits", terms)] == [False] * 3


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 7), Fraction(1), Fraction(692), Fraction(1 << 40, 12345678901)])
def test_exponentials_are_enclosed(x: Fraction) -> None:
    found = exponential(x)
    with mpmath.workprec(3000):
        exact = mpmath.exp(mpmath.mpf(x.numerator) / x.denominator) * mpmath.mpf(2) ** 1400
        assert mpmath.mpf(found.low) <= exact <= mpmath.mpf(found.high)
    assert found.high - found.low <= max(found.low >> 1380, 1 << 20)
