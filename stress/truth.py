"""Summaries and distances in exact arithmetic, by their definitions: what the shipped code is within its error of.

Features of moments and bins are fractions; trigonometry and kernels have a thousand bits and are then fractions too.
"""

from __future__ import annotations

import bisect
import math
import sys
from collections import Counter
from datetime import datetime, timedelta
from fractions import Fraction

import mpmath
import numpy as np
import numpy.typing as npt

from abcdp.distance import (
    MMD,
    Clipped,
    ClusterSummary,
    Distance,
    LearnedSummary,
    MeanSummary,
    Moment,
    NetworkSummary,
    PairedClipped,
    RecordFeatures,
    SummaryDistance,
    Table,
)
from abcdp.distance.regime import LARGEST
from abcdp.privacy.unit import Unit

FloatArray = npt.NDArray[np.float64]
Vector = list[Fraction]

BITS = 1000
_FARTHEST = LARGEST


def as_fraction(value: mpmath.mpf) -> Fraction:
    sign, mantissa, exponent, _ = value._mpf_
    return Fraction(-int(mantissa) if sign else int(mantissa)) * Fraction(2) ** exponent


def as_mpf(value: Fraction) -> mpmath.mpf:
    return mpmath.mpf(value.numerator) / value.denominator


def root(value: Fraction) -> Fraction:
    with mpmath.workprec(BITS):
        return as_fraction(mpmath.sqrt(as_mpf(value)))


def clipped(value: float, low: float, high: float, missing: float) -> Fraction:
    return Fraction(missing if math.isnan(value) else min(max(value, low), high))


def within(one: FloatArray, two: FloatArray, unit: Unit) -> bool:
    """Whether a record may become another, in exact arithmetic."""
    bounds = unit.change if isinstance(unit.change, tuple) else None
    if bounds is None and unit.change == math.inf:
        return True
    squares = Fraction(0)
    for i, (a, b) in enumerate(zip(one.tolist(), two.tolist(), strict=True)):
        if bounds is not None and math.isinf(bounds[i]):
            continue
        if not (math.isfinite(a) and math.isfinite(b)):
            if not (a == b or (math.isnan(a) and math.isnan(b))):
                return False
            continue
        gap = abs(Fraction(a) - Fraction(b))
        if bounds is not None and gap > Fraction(bounds[i]):
            return False
        squares += gap**2
    return bounds is not None or squares <= Fraction(unit.change) ** 2  # type: ignore[arg-type]


# -- features of one record --------------------------------------------------------------------------------------------


def wave_frequencies(base: MMD) -> FloatArray:
    """Return the frequencies of Sobol or random waves, a row each, by their definition."""
    from scipy import special
    from scipy.stats import qmc

    from abcdp._kernels import plain

    scales = np.array(scales_of(base))
    freedom = {"gaussian": 0, "laplace": 1, "matern32": 3}[base.kernel]
    dimensions = len(scales) + (freedom > 0)
    if base.features == "sobol":
        exponent = max(0, (base.frequencies - 1).bit_length())
        points = qmc.Sobol(dimensions, scramble=False).random_base2(exponent)[: base.frequencies] + 0.5 / 2**exponent
    else:
        points = np.maximum(plain.philox_uniforms(base.seed, base.frequencies, dimensions), 2.0**-54)
    table = special.ndtri(points[:, : len(scales)])
    if freedom:
        spread = special.gammaincinv(freedom / 2.0, points[:, len(scales)]) * 2.0 / freedom
        table = table / np.sqrt(np.maximum(spread, 1e-12))[:, None]
    return np.asarray(table / scales)


def quadrature_steps(base: MMD) -> list[tuple[float, int]]:
    """Return the step and the number of frequencies of each column of a quadrature, by their definition."""
    assert base.tolerance is not None
    s = math.sqrt(2.0 * math.log(1.0 / base.tolerance))
    return [
        (2.0 * math.pi / (high - low + scale * s), math.ceil(s * ((high - low) / scale + s) / (2.0 * math.pi)))
        for scale, (low, high) in zip(scales_of(base), domain_of(base), strict=True)
    ]


def scales_of(base: MMD) -> tuple[float, ...]:
    assert not isinstance(base.bandwidth, str)
    return base.bandwidth if isinstance(base.bandwidth, tuple) else (base.bandwidth,) * (base.columns or 1)


def domain_of(base: MMD) -> tuple[tuple[float, float], ...]:
    if base.domain is not None:
        return tuple(base.domain)
    if base.features == "exact":
        return ((-_FARTHEST, _FARTHEST),) * len(scales_of(base))
    return tuple((-1e5 * scale, 1e5 * scale) for scale in scales_of(base))


def embedded(base: MMD, record: FloatArray) -> Vector:
    """Return the features of a record: waves about the middle of the domain, or a quadrature's."""
    pairs = domain_of(base)
    parts = [
        clipped(float(x), low, high, low) - Fraction(0.5 * (low + high))
        for x, (low, high) in zip(record, pairs, strict=True)
    ]
    sizes = [Fraction(float(b)) for b in base.bounds(1)[1]]
    with mpmath.workprec(BITS):
        if base.features == "fourier":
            values = [mpmath.mpf(1)]
            for part, (step, top) in zip(parts, quadrature_steps(base), strict=True):
                angles = [as_mpf(part * Fraction(step) * j) for j in range(1, top + 1)]
                own = [mpmath.mpf(1), *(f(angle) for angle in angles for f in (mpmath.cos, mpmath.sin))]
                values = [a * b for a in values for b in own]
        else:
            phases = [
                as_mpf(sum((Fraction(float(w)) * x for w, x in zip(row, parts, strict=True)), Fraction(0)))
                for row in wave_frequencies(base)
            ]
            values = [f(phase) for phase in phases for f in (mpmath.cos, mpmath.sin)]
        return [size * as_fraction(value) for size, value in zip(sizes, values, strict=True)]


def declared(distance: MeanSummary, record: FloatArray) -> Vector:
    """Return the weighted moments and bins of a record."""
    # a number beyond all bounds stands for infinity, where there is no domain
    pairs = distance.domain or ((-sys.float_info.max, sys.float_info.max),) * len(record)
    missing = [0.0] * len(record) if distance.domain is None else [low for low, _ in pairs]
    clean = [clipped(float(x), *pair, gap) for x, pair, gap in zip(record, pairs, missing, strict=True)]
    out: Vector = []
    assert distance.weights is not None
    for feature, weight in zip(distance.features, distance.weights, strict=True):
        if isinstance(feature, Moment):
            value = math.prod((clean[column] ** power for column, power in feature.powers), start=Fraction(1))
            if feature.bounds is not None:
                value = min(max(value, Fraction(feature.bounds[0])), Fraction(feature.bounds[1]))
            out.append(Fraction(weight) * value)
        else:
            place = bisect.bisect_right([Fraction(e) for e in feature.edges[1:-1]], clean[feature.column])
            out += [Fraction(weight) if place == i else Fraction(0) for i in range(feature.bins)]
    return out


def outputs(distance: NetworkSummary, record: FloatArray) -> Vector:
    """Return what a network makes of a record, by its definition: floats in a fixed order, then whole numbers."""
    values = distance.base.record_features(distance.base.clean(record[None]))[0].tolist()
    for number, (weights, biases) in enumerate(distance.layers, start=1):
        sums = list(biases)
        for value, row in zip(values, weights, strict=True):
            sums = [total + value * weight for total, weight in zip(sums, row, strict=True)]
        hidden = number < len(distance.layers)
        values = [x / math.sqrt(1.0 + x * x) for x in sums] if hidden else sums
    return in_ball(values, distance.ball)


def in_ball(values: list[float], shape: str, radius: float = 1.0) -> Vector:
    """Return numbers clipped to a ball, in units that leave the sum of their squares within 62 bits; NaN is 0."""
    unit = Fraction(2) ** (math.frexp(radius)[1] - (62 - (len(values) - 1).bit_length()) // 2)
    one = math.floor(Fraction(radius) / unit)
    held = [0.0 if math.isnan(x) else min(max(x, -radius), radius) for x in values]
    whole = [min(max(math.floor(Fraction(x) / unit + Fraction(1, 2)), -one), one) for x in held]
    if shape != "box":
        length = sum(map(abs, whole))
        if shape == "l2":
            squares = sum(x * x for x in whole)
            length = math.isqrt(squares) + (math.isqrt(squares) ** 2 < squares)
        if length > one:
            whole = [(abs(x) * one // length) * (1 if x > 0 else -1) for x in whole]
    return [x * unit for x in whole]


def own(distance: RecordFeatures, record: FloatArray) -> Vector:
    """Return what a function of one's own makes of a record, clipped; what it cannot say is NaN."""
    values = [clipped(float(x), -_FARTHEST, _FARTHEST, 0.0) for x in record]
    try:
        said = [float(x) for x in distance.function(np.array(values, dtype=np.float64))]
    except ArithmeticError:
        said = [math.nan] * len(distance.limits)
    if distance.ball != "box":
        return in_ball(said, distance.ball, distance.limits[0][1])
    return [clipped(x, low, high, low) for x, (low, high) in zip(said, distance.limits, strict=True)]


def counted(table: Table, record: FloatArray) -> Vector:
    """Return what a table counts of a record, by the words of each feature; names without signs are presumed."""
    z: dict[str, Fraction] = {}
    cell: dict[str, str] = {}
    for (name, what), x in zip(table.columns, record.tolist(), strict=True):
        gap = math.isnan(x)
        if what[0] in ("levels", "yes/no"):
            levels = what[1:] or ("no", "yes")
            place = clipped(x, 0.0, len(levels) - 1.0, 0.0)
            cell[name] = "missing" if gap and name in table.missing else levels[math.floor(place + Fraction(1, 2))]
            continue
        first = datetime.fromisoformat(what[1]) if what[0] == "dates" else None
        low, high = (0.0, (datetime.fromisoformat(what[2]) - first) / timedelta(1)) if first else what[1:]
        place = clipped(x, low, high, low)
        empty = gap and name in table.missing
        z[name] = Fraction(0) if empty else 2 * (place - Fraction(low)) / (Fraction(high) - Fraction(low)) - 1
        edges = dict(table.bins).get(name, (low, high))
        inside = bisect.bisect_right([Fraction(edge) for edge in edges[1:-1]], place)
        cell[name] = "missing" if empty else f"bin {inside + 1}" if name in dict(table.bins) else "present"
    return [_feature(label, z, cell) for label in table.labels]


def _feature(label: str, z: dict[str, Fraction], cell: dict[str, str]) -> Fraction:
    number, within, where = label.partition(" within ")
    if within:
        name, _, level = where.partition("=")
        return z[number] / 2 if cell[name] == level else Fraction(0)
    if "=" in label:
        words = [word.partition("=") for word in label.split(" & ")]
        return Fraction(all(cell[name] == level for name, _, level in words))
    if " * " in label:
        return math.prod((z[name] for name in label.split(" * ")), start=Fraction(1, 2))
    name, _, power = label.partition("^")
    return z[name] ** int(power or 1) / (2 if int(power or 1) % 2 else 1)


def features(distance: Distance, record: FloatArray) -> Vector:
    if isinstance(distance, NetworkSummary):
        return outputs(distance, record)
    if isinstance(distance, RecordFeatures):
        return own(distance, record)
    if isinstance(distance, LearnedSummary):
        base = features(distance.base, record)
        sums = [
            sum((Fraction(w) * x for w, x in zip(c, base, strict=True)), Fraction(0))
            for c in zip(*distance.weights, strict=True)
        ]
        return [min(max(v, Fraction(a)), Fraction(b)) for v, (a, b) in zip(sums, distance.limits, strict=True)]
    if isinstance(distance, Table):
        return counted(distance, record)
    return declared(distance, record) if isinstance(distance, MeanSummary) else embedded(distance, record)  # type: ignore[arg-type]


# -- summaries and distances -------------------------------------------------------------------------------------------


def partition(distance: ClusterSummary, data: FloatArray) -> Vector:
    """Return combinations of the counts of a partition, counted one by one."""
    labels = [float(x) for x in data[:, 0] if x >= 0]
    sizes = sorted(Counter(labels).values(), reverse=True)
    four = [*sizes, 0, 0, 0, 0]
    counts = [len(labels), len(sizes), four[0], four[0] - four[3], sizes.count(1), sizes.count(2)]
    return [
        sum((Fraction(float(w)) * n for w, n in zip(column, counts, strict=True)), Fraction(0))
        for column in distance.matrix.T
    ]


def summary(distance: SummaryDistance, data: FloatArray) -> Vector:
    """Return the mean of the features, or what is counted."""
    if isinstance(distance, ClusterSummary):
        return partition(distance, data)
    rows, counts = np.unique(data, axis=0, return_counts=True, equal_nan=False)
    known: dict[bytes, Vector] = {row.tobytes(): features(distance, row) for row in rows}
    total = [Fraction(0)] * len(next(iter(known.values())))
    for row, count in zip(rows, counts.tolist(), strict=True):
        total = [a + count * b for a, b in zip(total, known[row.tobytes()], strict=True)]
    return [value / len(data) for value in total]


def kernel(base: MMD, one: Vector, two: Vector) -> mpmath.mpf:
    scaled = [(a - b) / Fraction(s) for a, b, s in zip(one, two, scales_of(base), strict=True)]
    far = mpmath.sqrt(as_mpf(sum((x * x for x in scaled), Fraction(0))))
    if base.kernel == "gaussian":
        return mpmath.exp(-far * far / 2) if far < 1e6 else mpmath.mpf(0)
    if far > 1e6:
        return mpmath.mpf(0)
    return (
        mpmath.exp(-far) if base.kernel == "laplace" else (1 + mpmath.sqrt(3) * far) * mpmath.exp(-mpmath.sqrt(3) * far)
    )


def all_pairs(base: MMD, row: FloatArray, data: FloatArray) -> Fraction:
    """Return the MMD of two datasets, but no less than the least distance that is told apart."""
    pairs = domain_of(base)

    def clean(records: FloatArray) -> list[Vector]:
        return [[clipped(float(x), a, b, a) for x, (a, b) in zip(r, pairs, strict=True)] for r in records]

    first, second = clean(row.reshape(-1, len(pairs))), clean(data)
    with mpmath.workprec(BITS):

        def mean(one: list[Vector], two: list[Vector]) -> mpmath.mpf:
            return mpmath.fsum(kernel(base, a, b) for a in one for b in two) / (len(one) * len(two))

        squared = mean(first, first) + mean(second, second) - 2 * mean(first, second)
        return as_fraction(mpmath.sqrt(max(squared, mpmath.mpf(10) ** -12)))


def by_position(distance: PairedClipped, row: FloatArray, data: FloatArray) -> Fraction:
    weights = [Fraction(w) for w in distance.weights or (1.0,) * data.shape[1]]
    total = Fraction(0)
    for one, two in zip(row.reshape(data.shape), data, strict=True):
        gaps = [
            w * (Fraction(float(a)) - clipped(float(b), -_FARTHEST, _FARTHEST, 0.0))
            for w, a, b in zip(weights, one, two, strict=True)
        ]
        total += min(root(sum((g * g for g in gaps), Fraction(0))), Fraction(distance.clip))
    return total / len(data)


def to(distance: Distance, row: FloatArray, data: FloatArray) -> Fraction:
    """Return the distance of a bank's row to a dataset."""
    if isinstance(distance, Clipped):
        return min(to(distance.distance, row, data), Fraction(distance.clip))
    if isinstance(distance, PairedClipped):
        return by_position(distance, row, data)
    if isinstance(distance, MMD) and distance.features == "exact":
        return all_pairs(distance, row, data)
    assert isinstance(distance, SummaryDistance)
    gaps = [Fraction(float(a)) - b for a, b in zip(row, summary(distance, data), strict=True)]
    return root(sum((g * g for g in gaps), Fraction(0)))
