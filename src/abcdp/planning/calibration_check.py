"""What a check of calibration found: places of true parameters among posterior draws, and what follows from them.

Where posteriors are right, all of these are uniform: the place of a truth among the draws (simulation-based
calibration, Talts et al., arXiv:1804.06788), twice its distance from the middle (central intervals of every level), and
the place of its distance to a random point among the distances of the draws (TARP, Lemos et al., arXiv:2302.03026),
which sees all parameters together. The points lie near the middle of a posterior, so that this is also how often the
region around it holds the truth.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from abcdp._common.arrays import BoolArray, FloatArray, IntArray
from abcdp._common.text import harmless
from abcdp._common.version import __version__
from abcdp.mechanisms import Mechanism
from abcdp.planning.uniformity import GRID, SEEN, Uniformity, from_middle, shares_below
from abcdp.privacy.unit import Unit

if TYPE_CHECKING:
    import xarray

LEVELS = (0.5, 0.8, 0.9, 0.95)
ALPHA = 0.01  # how often posteriors that are right are called wrong, all curves together
FEWEST = 10  # answers below which nothing can be said
TOGETHER = "all together (TARP)"
SEEDED = (
    "Truths are public and the noise is seeded, through the code of a release: nothing here is private, nothing is "
    "charged, and no ledger takes it."
)

_SURE = 0.95  # of an interval around a share


class Share(NamedTuple):
    """A share of answers, between an exact binomial 95 % interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, eq=False, kw_only=True)
class CalibrationCheck:
    """Whether posteriors of a mechanism and a bank hold the truths of simulated datasets as often as they say.

    A row stands for a dataset that was answered. `ranks` are how many of its `draws` are below the true parameter, with
    ties broken at random; `places` the same as numbers between 0 and 1, which are uniform where posteriors are right;
    `tarp` the places of all parameters together. `failed` counts the datasets that got no answer, by the reason. With a
    `region`, truths are those of the prior there, and so are the draws that they are compared with.
    """

    parameters: tuple[str, ...]
    mechanism: Mechanism
    unit: Unit
    records: int
    bank: str
    method: str
    anew: bool
    region: Mapping[str, tuple[float, float]]
    seed: int
    datasets: int
    truths: FloatArray
    ranks: IntArray
    draws: IntArray
    places: FloatArray
    tarp: FloatArray
    means: FloatArray
    deviations: FloatArray
    trusted: BoolArray
    methods: tuple[str, ...]
    rows: IntArray
    spread: FloatArray
    failed: Mapping[str, int]

    @property
    def answers(self) -> int:
        """How many datasets got an answer."""
        return len(self.truths)

    @cached_property
    def trusted_alone(self) -> CalibrationCheck:
        """The same of the answers alone that were trusted."""
        kept = np.flatnonzero(self.trusted)
        names = ("truths", "ranks", "draws", "places", "tarp", "means", "deviations", "trusted", "rows")
        part = {name: getattr(self, name)[kept] for name in names}
        return replace(self, methods=tuple(self.methods[k] for k in kept), **part)

    @property
    def together(self) -> str:
        """The name of what TARP says of all parameters, which no parameter has."""
        return TOGETHER if TOGETHER not in self.parameters else f"{TOGETHER}, of {len(self.parameters)}"

    @property
    def curves(self) -> dict[str, FloatArray]:
        """What has to be uniform: the places of each parameter, and of all together."""
        return {**dict(zip(self.parameters, self.places.T, strict=True)), self.together: self.tarp}

    @property
    def levels(self) -> dict[str, FloatArray]:
        """The least level at which central intervals hold each truth, and TARP's regions all of them: uniform too."""
        return {**dict(zip(self.parameters, from_middle(self.places).T, strict=True)), self.together: self.tarp}

    @cached_property
    def coverage(self) -> dict[float, dict[str, Share]]:
        """By level, how often central intervals hold each true parameter, and TARP's regions all of them."""
        return {level: {name: _share(held <= level) for name, held in self.levels.items()} for level in LEVELS}

    @property
    def error(self) -> dict[str, float]:
        """The root mean squared error of the posterior mean of each parameter, in units of the prior's spread."""
        return self._rms((self.means - self.truths) / self.spread)

    @property
    def width(self) -> dict[str, float]:
        """The root mean square of the posterior's own spread: as large as the error, where posteriors are right."""
        return self._rms(self.deviations / self.spread)

    def _rms(self, values: FloatArray) -> dict[str, float]:
        found = np.sqrt(np.mean(values**2, axis=0)) if self.answers else np.full(len(self.parameters), np.nan)
        return dict(zip(self.parameters, found.tolist(), strict=True))

    @cached_property
    def uniformity(self) -> Uniformity:
        """What the curves are compared with."""
        return Uniformity(self.answers, self.alpha / 2.0)

    @property
    def alpha(self) -> float:
        """The level at which a parameter, or all together, are called wrong."""
        return ALPHA / (len(self.parameters) + 1)

    @property
    def band(self) -> tuple[FloatArray, FloatArray]:
        """Between which shares the curves of posteriors that are right lie, all of them and everywhere together."""
        return self.uniformity.band(self.alpha / 2.0)

    @cached_property
    def p_values(self) -> dict[str, float]:
        """How often posteriors that are right depart as far from the diagonal; NaN without answers.

        Of a parameter, by its places or its central intervals, whichever depart further; the number is for both.
        """
        if not self.answers:
            return dict.fromkeys(self.curves, float("nan"))
        tests = ([self.uniformity.p_value(each[name]) for each in (self.curves, self.levels)] for name in self.curves)
        return {name: min(1.0, 2.0 * min(found)) for name, found in zip(self.curves, tests, strict=True)}

    @property
    def calibrated(self) -> bool | None:
        """Whether no fault is seen; None where too few answers came to say anything."""
        if self.answers < FEWEST:
            return None
        return all(p > self.alpha for p in self.p_values.values())

    @cached_property
    def noticed(self) -> dict[str, float]:
        """What would have been noticed 8 times in 10, in one parameter: how much too narrow, too wide, or shifted."""
        if self.answers < FEWEST:
            return dict.fromkeys(("narrow", "wide", "shift"), float("inf"))
        return self.uniformity.noticed(self.alpha, self.draws)

    @property
    def verdict(self) -> str:
        """The answer in a sentence or two."""
        if self.calibrated is None:
            return f"Nothing can be said: {self.answers} answers are too few, at least {FEWEST} are needed."
        least = min(self.p_values.values())
        if self.calibrated:
            return f"No fault is seen: truths lie among the draws as they should (least p-value {least:.2g})."
        wrong = [
            f"{harmless(name)}: {_fault(self.curves[name], name == self.together)} (p-value {p:.1g})"
            for name, p in self.p_values.items()
            if p <= self.alpha
        ]
        return f"Not calibrated. {'; '.join(wrong)}."

    def __str__(self) -> str:
        lines = [self.verdict, self._power, "", self._how, self._who, *self._why_none, "", *self._table]
        alone = self.trusted_alone
        if alone.answers < self.answers:
            lines += ["", f"The {alone.answers} trusted answers alone. {alone.verdict}", *alone._table]
        return "\n".join(line.rstrip() for line in lines)

    @property
    def _power(self) -> str:
        seen = self.noticed
        faults = [f"{seen[name]:.0%} too {name}" for name in ("narrow", "wide") if np.isfinite(seen[name])]
        faults += [f"off by {seen['shift']:.2f} of the posterior's spread"] if np.isfinite(seen["shift"]) else []
        if not faults:
            return "So few answers show no fault of one parameter, however large: ask for more datasets."
        return (
            f"With {self.answers} answers a fault of one parameter is seen in {SEEN:.0%} of such checks where its "
            f"intervals are {' or '.join(faults)}; smaller ones may be there. Posteriors that are right are called "
            f"wrong in {ALPHA:.0%}."
        )

    @property
    def _how(self) -> str:
        source = "simulated anew" if self.anew else "held-out draws of the bank"
        limits = ", ".join(f"{low:g} <= {harmless(name)} <= {high:g}" for name, (low, high) in self.region.items())
        where = f" with {limits}, where posteriors are looked at too" if limits else ""
        return (
            f"{self.datasets} datasets of {self.records} records, {source}{where}; {self.mechanism}, protecting "
            f"{self.unit.describe()}. {SEEDED}"
        )

    @property
    def _who(self) -> str:
        used = ", ".join(f"{count} by {harmless(name)}" for name, count in Counter(self.methods).most_common())
        return (
            f"{self.answers} answers{f' ({used})' if used else ''}, {int(self.trusted.sum())} of them trusted; "
            f"{sum(self.failed.values())} datasets got none."
        )

    @property
    def _why_none(self) -> list[str]:
        return [f"  {count} times: {harmless(why)}" for why, count in self.failed.items()]

    @property
    def _table(self) -> list[str]:
        """Coverage of central intervals with binomial intervals, error and width, a line for each curve."""
        if not self.answers:
            return []
        names = {name: harmless(name) for name in self.curves}
        wide = max(map(len, names.values()))
        head = "".join(f"{f'{level:.0%} holds':>17}" for level in LEVELS)
        lines = [f"{'':<{wide}}{head}   error   width  p-value"]
        for name, shown in names.items():
            held = (self.coverage[level][name] for level in LEVELS)
            cells = "".join(f"{f'{one.share:.0%} ({one.low:.0%}-{one.high:.0%})':>17}" for one in held)
            sizes = f"{self.error[name]:>8.3f}{self.width[name]:>8.3f}" if name in self.error else " " * 16
            lines.append(f"{shown:<{wide}}{cells}{sizes}{self.p_values[name]:>9.2g}")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return what was found as plain values, without the single datasets."""
        return {
            "verdict": self.verdict,
            "calibrated": self.calibrated,
            "datasets": self.datasets,
            "answers": self.answers,
            "trusted": int(self.trusted.sum()),
            "failed": dict(self.failed),
            "methods": dict(Counter(self.methods)),
            "p_values": _plain(self.p_values),
            "alpha": ALPHA,
            "noticed": _plain(self.noticed),
            "coverage": _levels(self),
            "trusted_coverage": _levels(self.trusted_alone),
            "error": _plain(self.error),
            "width": _plain(self.width),
            "mechanism": self.mechanism.to_json(),
            "unit": self.unit.to_json(),
            "records": self.records,
            "simulated_anew": self.anew,
            "region": {name: list(bounds) for name, bounds in self.region.items()},
            "method": self.method,
            "seed": self.seed,
            "noise": "seeded",
            "bank": self.bank,
            "software": f"abcdp {__version__}",
        }

    def tree(self) -> xarray.DataTree:
        """Return everything as an :class:`xarray.DataTree`.

        Its groups are ``calibration`` (each dataset's truth, rank, place and answer), ``coverage`` (of central
        intervals, of all answers and of those that were trusted) and ``curves`` (shares of places below each point,
        and of truths that intervals of each level hold, with the simultaneous band of both).
        """
        import xarray

        both, one = ("dataset", "parameter"), ("dataset",)
        names, alone = list(self.parameters), self.trusted_alone
        coverage: dict[str, Any] = {}
        for prefix, check in (("", self), ("trusted_", alone)):
            for word in Share._fields:
                values = [[getattr(held, word) for held in check.coverage[level].values()] for level in LEVELS]
                coverage[prefix + word] = (("level", "curve"), np.array(values))
        low, high = self.band
        curves = {
            "below": (("curve", "at"), np.array([shares_below(each) for each in self.curves.values()])),
            "held": (("curve", "at"), np.array([shares_below(each) for each in self.levels.values()])),
            "low": (("at",), low),
            "high": (("at",), high),
            "p_value": (("curve",), np.array(list(self.p_values.values()))),
        }
        found = {
            "calibration": xarray.Dataset(
                {
                    **{word: (both, getattr(self, word + "s")) for word in ("truth", "rank", "place", "mean")},
                    "deviation": (both, self.deviations),
                    "tarp": (one, self.tarp),
                    "draws": (one, self.draws),
                    "trusted": (one, self.trusted.astype(np.int8)),
                    "method": (one, np.array(self.methods, dtype=str)),
                    "bank_row": (one, self.rows),
                },
                coords={"parameter": names},
            ),
            "coverage": xarray.Dataset(coverage, coords={"level": list(LEVELS), "curve": list(self.curves)}),
            "curves": xarray.Dataset(curves, coords={"at": GRID, "curve": list(self.curves)}),
        }
        tree = xarray.DataTree.from_dict(found)
        told = self.to_json()
        plain = {name: value for name, value in told.items() if isinstance(value, str | int | float)}
        lists = {
            f"{name}_json": json.dumps(told[name]) for name in ("mechanism", "unit", "region", "failed", "noticed")
        }
        tree.attrs.update(plain | lists | {"guarantee": f"None. {SEEDED}"})
        return tree


def _share(held: BoolArray) -> Share:
    """Return the share of what is true, with its exact binomial interval (Clopper and Pearson)."""
    from scipy.stats import beta

    count, hits = len(held), int(held.sum())
    if not count:
        return Share(float("nan"), 0.0, 1.0)
    tail = (1.0 - _SURE) / 2.0
    low = float(beta.ppf(tail, hits, count - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1.0 - tail, hits + 1, count - hits)) if hits < count else 1.0
    return Share(hits / count, low, high)


def _fault(places: FloatArray, together: bool) -> str:
    """Return in words how places depart from uniform ones, by the larger of two departures: at the ends, to a side."""
    ends, side = float(from_middle(places).mean()) - 0.5, float(places.mean()) - 0.5
    if together:
        if abs(ends) > abs(side):
            return "posteriors have another shape"
        return "posteriors are too narrow, or off" if side > 0 else "posteriors are too wide"
    if abs(ends) >= abs(side):
        return f"intervals are too {'narrow' if ends > 0 else 'wide'}"
    return f"draws are too {'low' if side > 0 else 'high'}"


def _levels(check: CalibrationCheck) -> dict[str, Any]:
    """Return coverage as plain values: none where there are no answers."""
    if not check.answers:
        return {}
    return {f"{level:g}": {name: list(held) for name, held in each.items()} for level, each in check.coverage.items()}


def _plain(values: Mapping[str, float]) -> dict[str, float | None]:
    """Return numbers as JSON has them: what is not finite is none."""
    return {name: value if np.isfinite(value) else None for name, value in values.items()}
