"""How numbers that somebody published follow from a summary: noise that is added, rounding, subsampling, or your own.

The likelihood of a law is exact for summaries that datasets can have, and goes smoothly between those where they are
whole numbers: a local fit moves through all real ones.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_number, is_whole
from abcdp.errors import LawError, ReleaseError
from abcdp.privacy.noise_law import Law

_WHOLE = 1e-6  # how near to a whole number of steps or records a published number is one
_LAST_DIGITS = 1e-9  # of a summary, in steps or shares: what floating point may add to a whole number
_LARGEST = 10**9  # records: beyond it numpy draws no hypergeometric numbers
_TRIED = 4096  # draws that tell the variances of somebody's own law

OwnDensity = Callable[[FloatArray, FloatArray], Any]
OwnDraw = Callable[[FloatArray, np.random.Generator], Any]


class PublishedLaw(ABC):
    """The law of published numbers given a summary, a row of a bank."""

    @property
    def no_draws(self) -> str | None:
        """Why fresh numbers cannot be drawn, None where they can."""
        return None

    @abstractmethod
    def log_density(self, values: FloatArray, rows: FloatArray) -> FloatArray:
        """Return for each row the log probability of these values, up to a constant; minus infinity for none."""

    @abstractmethod
    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return what would be published of each row."""

    @abstractmethod
    def variances(self, values: FloatArray) -> FloatArray:
        """Return about how much each number varies around its summary, where these values were published."""

    @abstractmethod
    def describe(self, count: int) -> str:
        """Return in words how so many numbers came about."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the law as plain values."""

    def check(self, values: FloatArray) -> None:
        """Raise where these values cannot have been published by this law."""
        return

    def check_records(self, records: int) -> None:
        """Raise where datasets of so many records are not what was published from."""
        return


@dataclass(frozen=True)
class Additive(PublishedLaw):
    """Noise that is added to each number."""

    law: Law

    def log_density(self, values: FloatArray, rows: FloatArray) -> FloatArray:
        return self.law.log_density(values - rows)

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        return self.law.noised(rows, rng)

    def variances(self, values: FloatArray) -> FloatArray:
        return self.law.variances(len(values))

    def check(self, values: FloatArray) -> None:
        if isinstance(self.law.scale, tuple):
            _check_length(self.law.scale, values, "scales of noise")

    def describe(self, count: int) -> str:
        return f"{count} numbers with {self.law.name} noise of scale {_range(self.law.scale)}"

    def to_json(self) -> dict[str, Any]:
        return self.law.to_json()


@dataclass(frozen=True)
class Rounding(PublishedLaw):
    """Numbers rounded to multiples of a public base: to the nearest, half a step up, or by lot.

    Parameters
    ----------
    base
        The step, one for all numbers or one each.
    random
        Whether a number goes up or down by lot, with the chance that keeps its mean: two times in three to the nearer
        of two multiples of 3.

    Examples
    --------
    >>> law = Rounding(5)
    >>> law.log_density(np.array([10.0]), np.array([[7.5], [12.4], [12.5]])).tolist()
    [0.0, 0.0, -inf]
    """

    base: float | tuple[float, ...]
    random: bool = False

    def __post_init__(self) -> None:
        given: Any = self.base
        bases = tuple(given) if isinstance(given, tuple | list) else (given,)
        if not bases or not all(_positive(b) for b in bases):
            raise LawError(
                f"base={given!r}: numbers are rounded to multiples of a finite number above 0, or of one each."
            )
        if isinstance(given, list):
            object.__setattr__(self, "base", bases)
        if not isinstance(self.random, bool):
            raise LawError(f"random={self.random!r}: True where numbers go up or down by lot, or False.")

    def check(self, values: FloatArray) -> None:
        if isinstance(self.base, tuple):
            _check_length(self.base, values, "bases")
        steps = values / self.base
        if not (np.abs(steps - np.rint(steps)) <= _WHOLE * np.maximum(1.0, np.abs(steps))).all():
            raise LawError(f"not all values are multiples of base={self.base!r}, to which they are said to be rounded.")

    def log_density(self, values: FloatArray, rows: FloatArray) -> FloatArray:
        apart = self._steps(rows) - np.rint(values / self.base)
        with np.errstate(divide="ignore"):
            each = (
                np.log(np.maximum(1.0 - np.abs(apart), 0.0)) if self.random else _log((apart >= -0.5) & (apart < 0.5))
            )
        return np.asarray(each.sum(axis=-1))

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        lots = rng.random(rows.shape) if self.random else 0.5
        return np.asarray(np.floor(self._steps(rows) + lots) * self.base)

    def variances(self, values: FloatArray) -> FloatArray:
        return np.broadcast_to(np.square(self.base) / (6.0 if self.random else 12.0), values.shape).copy()

    def describe(self, count: int) -> str:
        return f"{count} numbers rounded {'by lot ' if self.random else ''}to multiples of {_range(self.base)}"

    def to_json(self) -> dict[str, Any]:
        return {"shape": "random-rounding" if self.random else "rounding", "base": _plain(self.base)}

    def _steps(self, rows: FloatArray) -> FloatArray:
        """Return rows in steps; what floating point moved away from a half or a whole step is put back."""
        steps = rows / np.asarray(self.base, dtype=np.float64)
        halves = np.rint(2.0 * steps) / 2.0
        return np.where(np.abs(steps - halves) <= _LAST_DIGITS * np.maximum(1.0, np.abs(steps)), halves, steps)


@dataclass(frozen=True)
class Subsample(PublishedLaw):
    """Shares or counts among some records, drawn by lot from all of those that a summary is of.

    Published numbers are in the units of the bank's summaries: a share of 62 among 200 sampled records is 0.31, and
    with `total` = 5000 the same is 1550, as for a bank of counts among 5000 records.

    Parameters
    ----------
    size
        How many records were sampled, one number for all entries or one each.
    of
        From how many, each at most once: counts are hypergeometric. None where the same record may come again, or from
        so many that it does not matter: they are binomial.
    cells
        Whether the numbers are cells of one histogram of one sample, which share its records (multinomial), and not
        shares of samples of their own. Cells that are not published count as one more.
    total
        What a summary's entry is if every record counts: 1 for shares, the number of records for counts.

    Examples
    --------
    >>> np.exp(Subsample(2, of=4).log_density(np.array([1.0]), np.array([[0.5], [0.75]]))).round(9).tolist()  # 1 : 3
    [1.0, 3.0]
    """

    size: int | tuple[int, ...]
    of: int | None = None
    cells: bool = False
    total: float = 1.0

    def __post_init__(self) -> None:
        given: Any = self.size
        sizes = tuple(given) if isinstance(given, tuple | list) else (given,)
        if not sizes or not all(is_whole(n, 1) and n <= _LARGEST for n in sizes):
            raise LawError(
                f"size={given!r}: a sample has a whole number of records, 1 to {_LARGEST}, or one for each entry."
            )
        if isinstance(given, list):
            object.__setattr__(self, "size", sizes)
        if self.of is not None and (not is_whole(self.of, 2) or self.of > _LARGEST or max(sizes) >= self.of):
            raise LawError(f"of={self.of!r}: a whole number of records, more than are sampled, at most {_LARGEST}.")
        if not isinstance(self.cells, bool):
            raise LawError(f"cells={self.cells!r}: True where the numbers are cells of one histogram, or False.")
        if self.cells and len(sizes) > 1:
            raise LawError("cells of one histogram come from one sample: give one size.")
        if not _positive(self.total):
            raise LawError(f"total={self.total!r}: a finite number above 0, what an entry is if every record counts.")

    def check(self, values: FloatArray) -> None:
        if isinstance(self.size, tuple):
            _check_length(self.size, values, "sizes of samples")
        counts = values / self.total * self.size
        whole = np.rint(counts)
        if (np.abs(counts - whole) > _WHOLE * np.maximum(1.0, whole)).any():
            raise LawError(
                f"not all values are shares of size={self.size!r} records (times total={self.total:g}): give counts "
                "over the size of the sample, not rounded."
            )
        if (whole < 0).any() or (whole > self.size).any() or (self.cells and whole.sum() > np.max(self.size)):
            raise LawError(f"the values count less than none, or more than all, of size={self.size!r} records.")

    def check_records(self, records: int) -> None:
        if self.of is not None and self.of != records:
            raise LawError(
                f"of={self.of}: the datasets of the bank have {records} records; they are what is sampled from."
            )

    def log_density(self, values: FloatArray, rows: FloatArray) -> FloatArray:
        from scipy.special import gammaln, xlogy

        counts = self._counts(values)
        shares, counts = self._parts(rows / self.total), self._with_rest(counts)
        if self.of is None:
            inside = (shares * np.max(self.size) > -0.5).all(axis=-1)  # a normal law does not stop at 0, as datasets do
            each = xlogy(counts, np.clip(shares, 0.0, 1.0)) - gammaln(counts + 1.0)
        else:
            left = shares * self.of - counts  # records that were not sampled, of each kind
            inside = (left > -0.5).all(axis=-1)
            left = np.maximum(left, -0.5)
            each = gammaln(left + counts + 1.0) - gammaln(left + 1.0) - gammaln(counts + 1.0)
        return np.where(inside, each.sum(axis=-1), -np.inf)

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        shares = np.clip(rows / self.total, 0.0, 1.0)
        if self.cells:
            shares = shares / np.maximum(shares.sum(axis=-1, keepdims=True), 1.0)
        taken = np.zeros(rows.shape)
        left = np.broadcast_to(np.asarray(self.size), rows.shape).copy()  # of the sample, and of what it is drawn from
        if self.of is None:
            rest = np.ones(rows.shape[:-1])
            for k in range(rows.shape[1]):
                chance = np.minimum(shares[:, k] / np.maximum(rest, 1e-300), 1.0)
                taken[:, k] = rng.binomial(left[:, k], chance)
                if self.cells:
                    rest = np.maximum(rest - shares[:, k], 0.0)
                    left -= taken[:, k, None].astype(left.dtype)
        else:
            pool = np.full(len(rows), self.of)
            for k in range(rows.shape[1]):
                good = np.minimum(np.rint(shares[:, k] * self.of).astype(np.int64), pool)
                taken[:, k] = rng.hypergeometric(good, pool - good, left[:, k])
                if self.cells:
                    pool = pool - good
                    left -= taken[:, k, None].astype(left.dtype)
        return np.asarray(taken / self.size * self.total)

    def variances(self, values: FloatArray) -> FloatArray:
        size = np.asarray(self.size, dtype=np.float64)
        share = (values / self.total * size + 1.0) / (size + 2.0)  # one more of each kind: none seen is not none there
        finite = 1.0 if self.of is None else (self.of - size) / (self.of - 1.0)
        return np.asarray(self.total**2 * share * (1.0 - share) / size * finite)

    def describe(self, count: int) -> str:
        what = "cells of a histogram" if self.cells else "shares"
        whole = "" if self.of is None else f" of {self.of}"
        return f"{count} {what} among {_range(self.size)}{whole} records drawn by lot"

    def to_json(self) -> dict[str, Any]:
        without, within = (
            ("multinomial", "multivariate-hypergeometric") if self.cells else ("binomial", "hypergeometric")
        )
        shape = without if self.of is None else within
        found = {"shape": shape, "size": _plain(self.size), "total": self.total}
        return found if self.of is None else found | {"of": self.of}

    def _counts(self, values: FloatArray) -> FloatArray:
        return np.asarray(np.rint(values / self.total * self.size))

    def _parts(self, shares: FloatArray) -> FloatArray:
        """Return shares with what is left beside them: of each, or of all cells together."""
        rest = 1.0 - (shares.sum(axis=-1, keepdims=True) if self.cells else shares)
        return np.concatenate([shares, np.where(np.abs(rest) <= _LAST_DIGITS, 0.0, rest)], axis=-1)

    def _with_rest(self, counts: FloatArray) -> FloatArray:
        rest = self.size - (counts.sum(keepdims=True) if self.cells else counts)
        return np.concatenate([counts, np.broadcast_to(rest, (1,) if self.cells else counts.shape)])


@dataclass(frozen=True)
class OwnLaw(PublishedLaw):
    """Somebody's own functions: the log density of what was published, and perhaps draws."""

    density: OwnDensity
    draw: OwnDraw | None = None

    def __post_init__(self) -> None:
        for name, function in (("log_density", self.density), ("draw", self.draw)):
            if function is not None and not callable(function):
                raise LawError(f"{name}={function!r}: give a function.")

    @property
    def no_draws(self) -> str | None:
        """That only a density was given."""
        if self.draw is not None:
            return None
        return (
            "this method adds fresh noise to simulations, and the noisy summary has a log_density alone: give "
            "NoisySummary(..., draw=function) too, or choose method='weights' or 'nearest'."
        )

    def check(self, values: FloatArray) -> None:
        """Try the functions on the published numbers themselves, twice."""
        rows = np.stack([values, values])
        self.log_density(values, rows)
        if self.draw is not None:
            self.noised(rows, np.random.default_rng(0))

    def log_density(self, values: FloatArray, rows: FloatArray) -> FloatArray:
        fine = np.isfinite(rows).all(axis=-1)  # a local fit may look far away from everything
        out = np.full(len(rows), -np.inf)
        if fine.any():
            out[fine] = self._called("log_density", self.density, values.copy(), rows[fine])
        return out

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        if self.draw is None:
            raise ReleaseError(str(self.no_draws))
        return self._called("draw", self.draw, rows.copy(), rng)

    def variances(self, values: FloatArray) -> FloatArray:
        drawn = self.noised(np.tile(values, (_TRIED, 1)), np.random.default_rng(0))
        if not np.ptp(drawn, axis=0).all():
            raise ReleaseError(
                "at the published numbers `draw` gives one of them without noise, so that no local fit knows how wide "
                "it is: choose method='weights' or 'regression'."
            )
        return np.asarray(drawn.var(axis=0))

    def describe(self, count: int) -> str:
        return f"{count} numbers with a law of your own, {_name(self.density)}"

    def to_json(self) -> dict[str, Any]:
        draw = {} if self.draw is None else {"draw": _name(self.draw)}
        return {"shape": "own", "log_density": _name(self.density), **draw}

    def _called(self, name: str, function: Callable[..., Any], *given: Any) -> FloatArray:
        """Return what a function of somebody else's returns, as it must be."""
        density = name == "log_density"
        rows = given[1] if density else given[0]
        shape = (len(rows),) if density else rows.shape
        try:
            found = np.asarray(function(*given), dtype=np.float64)
        except Exception as error:
            raise LawError(f"{name} of a noisy summary failed: {type(error).__name__}: {error}.") from error
        if found.shape != shape:
            says = "(published, rows) -> a number for each row" if density else "(rows, rng) -> noisy rows"
            raise LawError(f"{name} returned the shape {found.shape} for {len(rows)} rows; it must be {shape}: {says}.")
        wrong = np.isnan(found) | (found == np.inf) if density else ~np.isfinite(found)
        if wrong.any():
            rule = "a number, or minus infinity where the values are impossible" if density else "finite numbers"
            raise LawError(
                f"{name} returned NaN or infinity for {int(wrong.sum())} of {wrong.size}: it must be {rule}."
            )
        return found


_NAMED: Mapping[str, Callable[..., PublishedLaw]] = {
    "rounding": Rounding,
    "random-rounding": partial(Rounding, random=True),
    "binomial": Subsample,
    "multinomial": partial(Subsample, cells=True),
    "hypergeometric": Subsample,
    "multivariate-hypergeometric": partial(Subsample, cells=True),
}
_NUMBERS = {"hypergeometric": 2, "multivariate-hypergeometric": 2}  # behind the name: a size and a number of records


def as_law(noise: Any) -> Law | PublishedLaw:
    """Return a law that was given as itself, or as a name with its numbers."""
    if isinstance(noise, Law | PublishedLaw):
        return noise
    if not isinstance(noise, tuple | list) or len(noise) < 2:
        raise LawError(
            f"noise={noise!r}: give abcdp.Law(shape, scale), or a name and its scale, such as ('laplace', 1.3), "
            "('rounding', 5) or ('binomial', 200)."
        )
    name, *numbers = noise
    if not isinstance(name, str) or name not in _NAMED:
        if len(numbers) > 1:
            raise LawError(f"noise={noise!r}: a shape of noise has one scale, or a tuple with one for each number.")
        return Law(name, *numbers)
    if len(numbers) != _NUMBERS.get(name, 1):
        words = (
            "the size of the sample and of what it is from" if name in _NUMBERS else "one number, or a tuple of them"
        )
        raise LawError(f"noise={noise!r}: behind {name!r} stands {words}.")
    return _NAMED[name](*numbers)


def _check_length(given: tuple[Any, ...], values: FloatArray, what: str) -> None:
    if len(given) != len(values):
        raise LawError(f"{len(given)} {what} for {len(values)} numbers: give one, or one for each.")


def _positive(value: Any) -> bool:
    return is_number(value) and 0 < value <= sys.float_info.max


def _log(true: Any) -> FloatArray:
    """Return 0 where something holds, minus infinity elsewhere."""
    return np.where(true, 0.0, -np.inf)


def _range(numbers: Any) -> str:
    """Return a number, or the least and the greatest of several, in words."""
    scales = np.atleast_1d(np.asarray(numbers, dtype=np.float64))
    low, high = (f"{x:.10g}" if x == np.rint(x) else f"{x:.4g}" for x in (scales.min(), scales.max()))
    return low if low == high else f"{low} to {high}"


def _plain(numbers: Any) -> Any:
    return list(numbers) if isinstance(numbers, tuple) else numbers


def _name(function: Any) -> str:
    """Return the name of a function, where it has one."""
    return str(getattr(function, "__qualname__", type(function).__name__))
