"""The paper's tuberculosis example: a birth-death process of compliant and non-compliant cases.

The process is that of Lintusaari et al. (2019, Wellcome Open Research 4:14). A *record* is one outbreak, seen through
the eight summaries of `COLUMNS`; a dataset is several independent outbreaks of the same parameters.

New clusters appear at the rate `burden`. A compliant case transmits at the rate a2 = R2 d2 and is removed at d2 = 5.95;
a non-compliant one transmits at a1 = t1 + d1 and is removed at d1 = t1 / |R1 - 1|. A new case joins the cluster of
the one it comes from and is compliant with probability 0.95. From an empty start the populations are looked at once a
year, until each of them has been seen at or above its balance mean or 150 years are over; observation begins at twice
that time, but not before 15 years, and lasts 2 years, in which a removed case is observed with probability 0.8.

An outbreak that runs away (beyond 2^20 cases of a kind or 2^22 events, ten times what the prior can ask for), or whose
rates make no sense, gives NaN, and with it the whole draw fails: it stays in the bank and is never accepted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp._kernels import kernels
from abcdp.distance import ClusterSummary, PairedClipped
from abcdp.simulation.model import Model

PARAMETERS = ("R1", "t1", "R2", "burden")
TRUTH = (5.88, 6.74, 0.09, 192.0)  # in that order: the published estimates for San Francisco, the paper's true values
COLUMNS = (
    "observed cases",
    "clusters",
    "size of the largest",
    "mean successive difference of the four largest",
    "clusters of size 1 per case",
    "clusters of size 2 per case",
    "months from first to last case of the largest, both counted",
    "months with a case of the largest",
)

# San Francisco, 1991 and 1992 (Small et al. 1994, New England Journal of Medicine 330:1703): how many clusters there
# were of each size. 473 patients in 326 clusters.
SAN_FRANCISCO = {30: 1, 23: 1, 15: 1, 10: 1, 8: 1, 5: 2, 4: 4, 3: 13, 2: 20, 1: 282}

COMPLIANCE, OBSERVED_SHARE, REMOVAL = 0.95, 0.8, 5.95
_Q = 1.0 - COMPLIANCE

BURDEN_MEAN, BURDEN_SD = 200.0, 30.0
BURDEN_RANGE = (0.0, 400.0)  # 6.7 deviations; below 0 and above 411 no R1, t1 and R2 would be admissible
R1_RANGE, T1_RANGE, SHARE_RANGE = (1.01, 20.0), (0.01, 30.0), (0.01, 1.0)
MOST_OBSERVED = 350.0  # a year
MOST_TRANSMISSION = 40.0  # a1

# The means of the two relative numbers over 10^5 outbreaks simulated at TRUTH (standard errors 2e-4 and 3e-5). The
# published distance divides by the *observed* numbers, which no private distance may.
REFERENCE = (0.5803, 0.0408)
WEIGHTS = (1.0, 1.0, 2.0, 10.0, 100.0 / REFERENCE[0], 100.0 / REFERENCE[1], 10.0, 10.0)


def rates(theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return a2, d2 of compliant cases and a1, d1 of non-compliant ones, for each row of theta."""
    r1, t1, r2, _ = theta.T
    with np.errstate(divide="ignore", invalid="ignore"):
        d1 = t1 / np.abs(r1 - 1.0)
    return r2 * REMOVAL, np.full(len(theta), REMOVAL), t1 + d1, d1


def balance(theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the mean sizes in balance, compliant and non-compliant, and the mean number observed per year."""
    a2, d2, a1, d1 = rates(theta)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        n_n = theta[:, 3] * d2 * _Q / (d2 * d1 - a2 * d1 * COMPLIANCE - a1 * d2 * _Q)
        # new cases are split 95 : 5, so in balance removals are too; this holds for a2 = 0 as well
        n_c = n_n * d1 * COMPLIANCE / (_Q * d2)
        return n_c, n_n, OBSERVED_SHARE * (n_c * d2 + n_n * d1)


def admissible(theta: FloatArray) -> BoolArray:
    """Whether a balance exists with fewer than 350 observed per year, and a1 < 40."""
    observed = balance(theta)[2]
    return (observed > 0.0) & (observed < MOST_OBSERVED) & (rates(theta)[2] < MOST_TRANSMISSION)


def largest_r2(r1: FloatArray) -> FloatArray:
    """Return the bound of R2 below which a balance exists."""
    return np.asarray((1.0 - _Q * r1) / COMPLIANCE)


def joint_prior(size: int, rng: np.random.Generator) -> FloatArray:
    """R1 ~ U(1.01, 20), t1 ~ U(0.01, 30), R2 ~ U(0.01, 1) (1 - 0.05 R1) / 0.95, redrawn unless a1 < 40 and the mean number observed per year is in (0, 350), burden ~ norm(200, 30)"""  # noqa: D400, E501 - the text of the prior in a manifest
    theta = np.empty((size, len(PARAMETERS)))
    theta[:, 3] = BURDEN_MEAN + BURDEN_SD * rng.standard_normal(size)
    while (outside := (theta[:, 3] <= BURDEN_RANGE[0]) | (theta[:, 3] >= BURDEN_RANGE[1])).any():
        theta[outside, 3] = BURDEN_MEAN + BURDEN_SD * rng.standard_normal(int(outside.sum()))
    left = np.arange(size)
    while len(left):
        theta[left, 0] = rng.uniform(*R1_RANGE, len(left))
        theta[left, 1] = rng.uniform(*T1_RANGE, len(left))
        theta[left, 2] = rng.uniform(*SHARE_RANGE, len(left)) * largest_r2(theta[left, 0])
        left = left[~admissible(theta[left])]
    return theta


def log_density(theta: FloatArray) -> FloatArray:
    """Return the log density of the prior.

    The burden keeps its normal distribution (truncated beyond 6.7 standard deviations, which is left out here) and the
    others are redrawn given it, so the share of admissible draws given the burden is part of the density.
    """
    r1, t1, r2, burden = theta.T
    bound = largest_r2(r1)
    inside = (burden > BURDEN_RANGE[0]) & (burden < BURDEN_RANGE[1]) & admissible(theta)
    for value, (low, high) in ((r1, R1_RANGE), (t1, T1_RANGE)):
        inside &= (value >= low) & (value <= high)
    inside &= (r2 >= SHARE_RANGE[0] * bound) & (r2 <= SHARE_RANGE[1] * bound)
    out = np.full(len(theta), -np.inf)
    uniform = (R1_RANGE[1] - R1_RANGE[0]) * (T1_RANGE[1] - T1_RANGE[0]) * (SHARE_RANGE[1] - SHARE_RANGE[0])
    score = (burden[inside] - BURDEN_MEAN) / BURDEN_SD
    out[inside] = -0.5 * score**2 - math.log(BURDEN_SD * math.sqrt(2.0 * math.pi))
    out[inside] -= np.log(uniform * bound[inside]) + np.log([admissible_share(b) for b in burden[inside]])
    return out


def admissible_share(burden: float) -> float:
    r"""Return how often a first draw of R1, t1 and R2 is admissible, given the burden.

    With R2 = u (1 - 0.05 R1) / 0.95 the mean number observed is 0.8 burden / ((1 - 0.05 R1)(1 - u)), so at a given R1
    the conditions are u < 1 - k / (1 - 0.05 R1), k = 0.8 burden / 350, and t1 < 40 (1 - 1 / R1). Their probabilities
    are integrated over R1 in closed form; the second is 1 from R1 = 4 on.
    """
    k = OBSERVED_SHARE * burden / MOST_OBSERVED
    c = 1.0 - SHARE_RANGE[0]

    def flat(r: float) -> float:  # an antiderivative of c - k / (1 - q R1)
        return c * r + k / _Q * math.log(1.0 - _Q * r)

    def over_r(r: float) -> float:  # and of that over R1
        return (c - k) * math.log(r) + k * math.log(1.0 - _Q * r)

    low, top = R1_RANGE[0], (1.0 - k / c) / _Q
    if top <= low:
        return 0.0
    middle = min(top, MOST_TRANSMISSION / (MOST_TRANSMISSION - T1_RANGE[1]))
    width = T1_RANGE[1] - T1_RANGE[0]
    steep = (MOST_TRANSMISSION - T1_RANGE[0]) * (flat(middle) - flat(low))
    steep -= MOST_TRANSMISSION * (over_r(middle) - over_r(low))
    return (steep / width + flat(top) - flat(middle)) / ((R1_RANGE[1] - R1_RANGE[0]) * c)


def simulate(theta: FloatArray, records: int, rng: np.random.Generator) -> FloatArray:
    """Return for each row of theta the summaries of `records` outbreaks (draws x records x 8).

    Each row has a random stream of its own, and each outbreak its part of it: the first outbreaks of a row are the same
    however many follow, and rows are the same one by one or together.
    """
    loops = kernels("tuberculosis", "tuberculosis_plain")
    return loops.outbreaks(*_settings(theta, rng), records)  # type: ignore[no-any-return]


def simulate_patients(theta: FloatArray, records: int, rng: np.random.Generator) -> FloatArray:
    """Return for each row of theta the patients of one outbreak, the number of a cluster each (draws x records).

    These are the patients of the first outbreak that `simulate` would summarise. Rows that no patient fills hold -1;
    an outbreak with more patients than `records` is NaN.
    """
    loops = kernels("tuberculosis", "tuberculosis_plain")
    return loops.patients(*_settings(theta, rng), records)  # type: ignore[no-any-return]


def _settings(theta: FloatArray, rng: np.random.Generator) -> tuple[FloatArray, npt.NDArray[np.uint64]]:
    """Return rates and balance means of each row of theta, and the key of its random stream."""
    n_c, n_n, _ = balance(theta)
    keys = rng.integers(1 << 64, size=len(theta), dtype=np.uint64)
    return np.column_stack([theta[:, 3], *rates(theta), n_c, n_n]), keys


def as_patients(sizes: Mapping[int, int] | Sequence[int]) -> FloatArray:
    """Return patients, as labels 0, 1, 2, ..., from the sizes of clusters: a list, or how many there are of each."""
    each = sizes if isinstance(sizes, Sequence) else [size for size, count in sizes.items() for _ in range(count)]
    return np.repeat(np.arange(len(each), dtype=np.float64), each)


_transmission = functools.partial(Model, joint_prior, parameters=PARAMETERS, log_prior=log_density)

tuberculosis = _transmission(simulate, name="tuberculosis", distance=PairedClipped(clip=200.0, weights=WEIGHTS))

outbreak = _transmission(simulate_patients, name="outbreak", distance=ClusterSummary())
