"""Neural posterior: networks that were trained on a bank once answer every release of it at once.

They say the parameters given a noisy summary and how much noise of which kind it carries, since they were trained with
fresh noise of every size (:mod:`abcdp.learning.training`). Strong where a posterior is wide or curved, where a local
fit cannot follow; where it is narrow, a local fit is the better one. Several networks are trained: where they disagree,
none of them has learned what to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp.bank import Bank
from abcdp.bank.networks import Network
from abcdp.bank.stacked import stacked_header
from abcdp.distance.stacked import StackedSummary
from abcdp.errors import AbcdpError, BankError, ReleaseError
from abcdp.inference.base import Answer, PosteriorMethod
from abcdp.inference.coordinates import Coordinates
from abcdp.inference.evidence import Evidence, Noisy
from abcdp.inference.flow import Flow, Shape
from abcdp.inference.sizes import size_matters
from abcdp.privacy.noise_law import Law
from abcdp.simulation.model import Model

HELD_OUT = 10  # one of so many draws of a bank, by its number, that no network is trained on
_ALIKE = 0.02  # by which the relative sizes of the noise of entries may differ from those that were trained
_APART = 0.5  # spreads of a posterior by which the means of networks may differ
LIKE = {"geometric": "laplace", "rounded-gaussian": "gaussian"}  # on whole numbers, the same but for their steps

UNTRAINED = "no network has been trained on this bank: call abcdp.train(bank), or abcdp train, once."


UNTRAINED_FOR_SEVERAL = (
    "no network has been trained for these releases together: call abcdp.train([bank, bank]), or with their banks, in "
    "the order of the releases; or take 'weights', 'local' or 'regression'."
)


def unseen(numbers: Any) -> Any:
    """Return which draws of a bank no network is trained on, by their numbers."""
    return numbers % HELD_OUT == HELD_OUT - 1


@dataclass(frozen=True)
class Noise:
    """Noise as networks see it: its kind by number, and its size over that of the summaries, as a logarithm."""

    kind: int
    scale: float


@dataclass(frozen=True, eq=False)
class Block:
    """The entries of a summary that one release has, and the noise that networks were trained for on them.

    Noise on an entry has the standard deviation of its scale times its entry of the kind's pattern.
    """

    columns: slice
    shapes: tuple[str, ...]
    patterns: FloatArray
    ends: tuple[float, float]  # of log scales

    def noise_of(self, summary: Noisy, units: FloatArray) -> Noise | None:
        """Return the noise of a summary as networks see it, None where they were trained for none like it."""
        law = getattr(summary, "law", None)
        if not isinstance(law, Law) or len(summary.values) != self.patterns.shape[1]:
            return None
        shape = LIKE.get(law.shape, law.shape)
        for kind, name in enumerate(self.shapes):
            ratios = np.sqrt(summary.variances) / (self.patterns[kind] * units[self.columns])
            scale = float(np.exp(np.log(ratios).mean()))
            if name == shape and float(np.abs(ratios / scale - 1.0).max()) < _ALIKE:
                return Noise(kind, float(np.log(scale)))
        return None

    def check(self, width: int) -> None:
        """Raise where its numbers do not fit each other."""
        count = self.columns.stop - self.columns.start
        inside = 0 <= self.columns.start < self.columns.stop <= width
        if not inside or self.patterns.shape != (len(self.shapes), count) or not self.shapes:
            raise BankError("its numbers do not fit each other")
        if not (self.patterns > 0).all() or not self.ends[0] < self.ends[1]:
            raise BankError("its numbers do not fit each other")


@dataclass(frozen=True, eq=False)
class Amortised:
    """Trained networks: the coordinates of the parameters, what goes in, and how it is scaled.

    What goes in are numbers (of records, where they were trained for several, and the size of each release's noise),
    the kind of each noise, and the released numbers. There is a block for each release.
    """

    coordinates: Coordinates
    flows: tuple[Flow, ...]
    blocks: tuple[Block, ...]
    middle: FloatArray
    units: FloatArray
    variances: FloatArray
    inputs: tuple[tuple[float, float], ...]
    records: int
    least: float | None  # log of the smallest number of records over the bank's, if they were trained for several

    @classmethod
    def of(cls, network: Network, bank: Bank) -> Amortised:
        """Return the networks that numbers are, checked."""
        about, arrays = network.about, network.arrays
        try:
            shape = Shape(**about["shape"])
            members = int(about["members"])
            for name, size in shape.arrays().items():
                if arrays[name].shape != (members, *size):
                    raise BankError(f"its numbers {name!r} have another shape than it says")
            exact = {name: arrays[name].astype(np.float64) for name in shape.arrays()}
            flows = tuple(Flow(shape, {name: one[m] for name, one in exact.items()}) for m in range(members))
            blocks = tuple(
                Block(
                    slice(int(one["columns"][0]), int(one["columns"][1])),
                    tuple(map(str, one["shapes"])),
                    arrays[f"patterns_{number}"],
                    (float(one["range"][0]), float(one["range"][1])),
                )
                for number, one in enumerate(about["blocks"])
            )
            found = cls(
                Coordinates.from_arrays(arrays, bank.header.support, len(bank.parameters)),
                flows,
                blocks,
                arrays["middle"],
                arrays["units"],
                arrays["variances"],
                tuple((float(a), float(b)) for a, b in about["inputs"]),
                int(about["records"]),
                None if about["least"] is None else float(about["least"]),
            )
            found._check(shape)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            why = str(error) if isinstance(error, AbcdpError) else "its numbers do not fit each other"
            raise BankError(f"the network beside the bank cannot be used, {why}: train again.") from None
        return found

    def _check(self, shape: Shape) -> None:
        width = len(self.middle)
        for block in self.blocks:
            block.check(width)
        kinds = sum(len(block.shapes) for block in self.blocks)
        fits = {len(self.units), len(self.variances), sum(block.patterns.shape[1] for block in self.blocks)} == {width}
        fits = fits and len(self.flows) > 0 and shape.coordinates == self.coordinates.dimension
        fits = fits and shape.context == width + kinds + len(self.inputs)
        if not fits or len(self.inputs) != len(self.blocks) + (self.least is not None):
            raise BankError("its numbers do not fit each other")
        positive = ((self.units > 0).all(), (self.variances >= 0).all())
        if not all(positive) or not all(size > 0 for _, size in self.inputs):
            raise BankError("it holds sizes below 0")

    def noise_of(self, summary: Noisy) -> tuple[Noise, ...] | None:
        """Return the noise of each release of a dataset, None where they were trained for none like it."""
        parts = releases_of(summary)
        if len(parts) != len(self.blocks):
            return None
        found = [block.noise_of(part, self.units) for block, part in zip(self.blocks, parts, strict=True)]
        return tuple(one for one in found if one is not None) if None not in found else None

    def too_loud(self, noise: tuple[Noise, ...]) -> bool:
        """Whether there is more noise than any that they were trained with."""
        return any(one.scale > block.ends[1] for one, block in zip(noise, self.blocks, strict=True))

    def serves(self, records: int) -> bool:
        """Whether they were trained for data of so many records."""
        if records == self.records:
            return True
        return self.least is not None and self.least <= np.log(records / self.records) <= 0.0

    def context(self, summary: Noisy, records: int, rng: np.random.Generator) -> FloatArray:
        """Return what goes into the networks.

        What has less noise than any that they were trained with gets more: next to the sampling error that is nothing.
        """
        noises = self.noise_of(summary)
        if noises is None:
            raise ReleaseError("the network was trained for noise of another kind.")
        numbers = [] if self.least is None else [float(np.log(records / self.records))]
        kinds, entries = [], []
        for block, noise, part in zip(self.blocks, noises, releases_of(summary), strict=True):
            own, pattern = block.columns, block.patterns[noise.kind]
            y, scale = (part.centre - self.middle[own]) / self.units[own], noise.scale
            if scale < block.ends[0]:
                more = np.exp(2.0 * block.ends[0]) - np.exp(2.0 * scale)
                y = y + rng.standard_normal(len(y)) * np.sqrt(more) * pattern
                scale = block.ends[0]
            numbers.append(scale)
            kinds.append(np.arange(len(block.shapes)) == noise.kind)
            entries.append(y / np.sqrt(self.variances[own] + (np.exp(scale) * pattern) ** 2))
        inputs = [(one - middle) / size for one, (middle, size) in zip(numbers, self.inputs, strict=True)]
        return np.concatenate([inputs, *kinds, *entries])

    def draws(self, context: FloatArray, count: int, rng: np.random.Generator) -> list[FloatArray]:
        """Return draws of coordinates, of each network about as many."""
        counts = [len(part) for part in np.array_split(np.arange(count), len(self.flows))]
        with np.errstate(all="ignore"):
            found = [flow.draws(n, context, rng) for flow, n in zip(self.flows, counts, strict=True)]
        if not all(np.isfinite(one).all() for one in found):
            raise ReleaseError("the network says NaN of this summary: train again, or choose another method.")
        return found

    def log_ratio(self, theta: FloatArray, context: FloatArray) -> FloatArray:
        """Return the log density of parameters over that of the prior, the mean of the networks: their likelihood."""
        z = self.coordinates.forth(theta)
        logs = np.logaddexp.reduce([flow.log_density(z, context) for flow in self.flows], axis=0)
        prior = -0.5 * (z**2).sum(axis=1) - 0.5 * z.shape[1] * np.log(2.0 * np.pi)
        return np.asarray(logs - np.log(len(self.flows)) - prior)


def releases_of(summary: Noisy) -> tuple[Noisy, ...]:
    """Return the releases of a dataset that a summary is made of: itself, or several."""
    return getattr(summary, "parts", (summary,))


_made: WeakKeyDictionary[Network, Amortised] = WeakKeyDictionary()


def amortised(bank: Bank, summary: Noisy | None = None) -> Amortised | None:
    """Return the networks that were trained for releases of a bank, None where there are none.

    For a summary of several releases of the same numbers, those that were trained on the bank as often.
    """
    count = 1 if summary is None else len(releases_of(summary))
    repeated = count > 1 and not isinstance(bank.distance, StackedSummary)
    network = bank.network(stacked_header([bank.header] * count) if repeated else None)
    if network is None:
        return None
    if network not in _made:
        _made[network] = Amortised.of(network, bank)
    return _made[network]


class NeuralPosterior(PosteriorMethod):
    """Draws of networks that were trained on the bank."""

    name = "neural"
    rests_on_draws = False

    def reason_not(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return that there is no summary, no network, or none for this noise."""
        if evidence.accepted is not None:
            return (
                "a network needs a noisy summary; this release has accepted draws, which are the posterior as they "
                "are: leave the method out."
            )
        try:
            found = amortised(bank, evidence.released)
        except BankError as error:
            return str(error)
        if found is None:
            return UNTRAINED if len(releases_of(evidence.released)) == 1 else UNTRAINED_FOR_SEVERAL
        noise = found.noise_of(evidence.released)
        if noise is None:
            return (
                "the network beside the bank was trained for noise of another kind than the released: train again "
                "with abcdp.train(bank, noise=[release])."
            )
        if found.too_loud(noise):
            return (
                "the released summary has more noise than any that the network was trained with: take 'auto', or "
                "'weights', which are exact there."
            )
        return None

    def doubt(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return that datasets of another size vary otherwise than those that were trained with."""
        found = amortised(bank, evidence.released)
        if found is None or all(found.serves(size) for size in evidence.sizes):
            return None
        return size_matters(evidence.sizes, bank, evidence.released)

    def infer(
        self, evidence: Evidence, bank: Bank, model: Model | None, *, draws: int, rng: np.random.Generator
    ) -> Answer:
        """Return draws of all networks alike."""
        found = amortised(bank, evidence.released)
        if found is None:
            raise ReleaseError(UNTRAINED)
        sizes = [size for size in evidence.sizes if found.serves(size)] or [found.records]
        parts, apart = [], 0.0
        for size, count in zip(sizes, map(len, np.array_split(np.arange(draws), len(sizes))), strict=True):
            made = found.draws(found.context(evidence.released, size, rng), count, rng)
            parts += made
            apart = max(apart, _disagreement(made))
        notes: Mapping[str, Any] = {
            "method": "neural posterior",
            "effective_sample_size": float(draws),
            "networks": len(found.flows),
            "disagreement": apart,
        }
        reasons = []
        if apart > _APART:
            reasons.append(f"the networks disagree: their means lie {apart:.2g} spreads of the posterior apart")
        theta = found.coordinates.back(rng.permutation(np.concatenate(parts)))
        return Answer(theta, None, None, dict(notes), tuple(reasons))

    def instead(self, draws: int) -> str:
        """Return in words what stands in for weights."""
        return "networks that were trained on the bank take their place."


def _disagreement(parts: list[FloatArray]) -> float:
    """Return the spread of the networks' means over that of their draws, of the coordinate where it is largest.

    Means of few draws differ by chance, and that much is left out.
    """
    parts = [part for part in parts if len(part) > 1]
    if len(parts) < 2:
        return 0.0
    within = np.mean([part.var(axis=0, ddof=1) for part in parts], axis=0)
    between = np.var([part.mean(axis=0) for part in parts], axis=0, ddof=1)
    chance = within * np.mean([1.0 / len(part) for part in parts])
    return float(np.sqrt(np.max(np.maximum(between - chance, 0.0) / np.maximum(within, 1e-300))))
