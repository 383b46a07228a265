"""How many records the data have, where that is another number than simulated datasets have.

A mean over N independent records varies as the covariance of one over N. So simulations of one size serve data of
another: their covariance is scaled. Weights of simulated summaries cannot be; where it matters, they say so.
"""

from __future__ import annotations

import math

import numpy as np

from abcdp.bank import Bank
from abcdp.distance import SummaryDistance
from abcdp.errors import AbcdpError
from abcdp.inference.evidence import Noisy
from abcdp.mechanisms.private_summary import PrivateSummary, SummaryCalibration
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.release import Release

_NEAR = 3  # numbers of records around the one that the size of the noise suggests
_PRIVATE = 4  # numbers of records that stand for all above a public bound
_MOST = 2.0  # times the bound, or the bank's own number, that a private number is thought to be at most
_MATTERS = 0.1  # of the noise's variance: what another size adds to it before it is worth a word


def sizes_of(release: Release | NoisySummary, bank: Bank) -> tuple[int, ...]:
    """Return how many records the data may have: one number where it is public, a few that stand for all others.

    The size of the noise tells it: a release is calibrated for it. Nothing where it tells nothing.
    """
    if not isinstance(release, Release) or release.summary is None:
        return ()
    unit, summary, known = release.guarantee.unit, release.summary, bank.records
    if not unit.size_is_public:
        least = int(unit.at_least or 1)
        most = max(least, known, 1) * _MOST
        return tuple(dict.fromkeys(round(x) for x in np.geomspace(least, most, 2 * _PRIVATE + 1)[1::2]))
    try:
        for way, here in enumerate(_calibrated(release, bank, known)):
            guess = _scaled(known, here, release)
            # once more from there: what it costs to cross lines of the grid depends on the number of records too
            guess = _scaled(guess, _calibrated(release, bank, guess)[way], release)
            for records in sorted(range(max(1, guess - _NEAR), guess + _NEAR + 1), key=lambda n: abs(n - guess)):
                found = _calibrated(release, bank, records)[way]
                if (found.steps, found.law) == (summary.steps, summary.law):
                    return (records,)
    except (AbcdpError, ArithmeticError):
        pass
    return ()


def _calibrated(release: Release, bank: Bank, records: int) -> list[SummaryCalibration]:
    """Return the integers of a release; of a top-up, which has those of an earlier one, all that it may have."""
    mechanism, distance, unit = release.mechanism, bank.distance, release.guarantee.unit
    if release.tops_up is not None and isinstance(mechanism, PrivateSummary) and isinstance(distance, SummaryDistance):
        assert release.summary is not None  # noqa: S101 - a private summary has one
        return mechanism.ways_of_top_up(distance, release.summary.steps[0], records=records, unit=unit)
    found = release.mechanism.calibrate(
        bank.distance, records=records, simulated=bank.records, unit=release.guarantee.unit
    )
    assert isinstance(found, SummaryCalibration)  # noqa: S101 - its release has a summary
    return [found]


def _scaled(records: int, noise: SummaryCalibration, release: Release) -> int:
    """Return how many records there are if the size of noise falls with their number, given that of some number."""
    return max(1, round(records * math.sqrt(noise.mean_squared_error / _squared(release))))


def _squared(release: Release) -> float:
    assert release.summary is not None  # noqa: S101 - asked for of these alone
    steps = np.array(release.summary.steps)
    return float(release.summary.law.variance(len(steps), whole=True) * (steps**2).sum())


def size_matters(sizes: tuple[int, ...], bank: Bank, released: Noisy) -> str | None:
    """Return in words that data of another size vary otherwise than the bank's, beside the released noise."""
    if not sizes or sizes == (bank.records,):
        return None
    kept = bank.covariances()
    if kept is None:
        return None
    noise = released.variances
    varies = np.einsum("nii->ni", kept.matrices).mean(axis=0)
    size = min(sizes, key=lambda one: abs(math.log(one / bank.records)))
    worst = max(abs(bank.records / size - 1.0) * float((varies / np.maximum(noise, 1e-300)).max()), 0.0)
    if worst < _MATTERS:
        return None
    how = f"{size}" if len(sizes) == 1 else "a private number of"
    return (
        f"the data have {how} records, simulated datasets {bank.records}, whose summaries vary otherwise: simulate "
        "as many as the data have, or take method='local'"
    )
