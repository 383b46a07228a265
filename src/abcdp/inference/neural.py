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
_LIKE = {"geometric": "laplace"}  # on whole numbers, the same but for their steps

UNTRAINED = "no network has been trained on this bank: call abcdp.train(bank), or abcdp train, once."


def unseen(numbers: Any) -> Any:
    """Return which draws of a bank no network is trained on, by their numbers."""
    return numbers % HELD_OUT == HELD_OUT - 1


@dataclass(frozen=True)
class Noise:
    """Noise as networks see it: its kind by number, and its size over that of the summaries, as a logarithm."""

    kind: int
    scale: float


@dataclass(frozen=True, eq=False)
class Amortised:
    """Trained networks: the coordinates of the parameters, what goes in, and how it is scaled.

    Noise on an entry has the standard deviation of its scale times its entry of the kind's pattern.
    """

    coordinates: Coordinates
    flows: tuple[Flow, ...]
    shapes: tuple[str, ...]
    patterns: FloatArray
    ends: tuple[float, float]  # of log scales
    middle: FloatArray
    units: FloatArray
    variances: FloatArray
    inputs: tuple[tuple[float, float], ...]
    records: int
    least: float | None  # log of the smallest number of records over the bank's, if they were trained for several
    parameters: int

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
            found = cls(
                Coordinates.from_arrays(arrays, bank.header.support, len(bank.parameters)),
                flows,
                tuple(map(str, about["shapes"])),
                arrays["patterns"],
                (float(about["range"][0]), float(about["range"][1])),
                arrays["middle"],
                arrays["units"],
                arrays["variances"],
                tuple((float(a), float(b)) for a, b in about["inputs"]),
                int(about["records"]),
                None if about["least"] is None else float(about["least"]),
                len(bank.parameters),
            )
            found._check(shape, bank.header.width)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            why = str(error) if isinstance(error, AbcdpError) else "its numbers do not fit each other"
            raise BankError(f"the network beside the bank cannot be used, {why}: train again.") from None
        return found

    def _check(self, shape: Shape, width: int) -> None:
        sizes = {len(self.middle), len(self.units), len(self.variances), self.patterns.shape[1]}
        entries = width + len(self.shapes) + len(self.inputs)
        fits = sizes == {width} and len(self.patterns) == len(self.shapes) > 0 and len(self.flows) > 0
        fits = fits and shape.context == entries and shape.coordinates == self.coordinates.dimension
        if not fits or len(self.inputs) != 1 + (self.least is not None) or not self.ends[0] < self.ends[1]:
            raise BankError("its numbers do not fit each other")
        positive = ((self.units > 0).all(), (self.patterns > 0).all(), (self.variances >= 0).all())
        if not all(positive) or not all(size > 0 for _, size in self.inputs):
            raise BankError("it holds sizes below 0")

    def noise_of(self, summary: Noisy) -> Noise | None:
        """Return the noise of a summary as networks see it, None where they were trained for none like it."""
        law = getattr(summary, "law", None)  # what several releases have in common has none
        if not isinstance(law, Law):
            return None
        shape = _LIKE.get(law.shape, law.shape)
        for kind, name in enumerate(self.shapes):
            ratios = np.sqrt(summary.variances) / (self.patterns[kind] * self.units)
            scale = float(np.exp(np.log(ratios).mean()))
            if name == shape and float(np.abs(ratios / scale - 1.0).max()) < _ALIKE:
                return Noise(kind, float(np.log(scale)))
        return None

    def serves(self, records: int) -> bool:
        """Whether they were trained for data of so many records."""
        if records == self.records:
            return True
        return self.least is not None and self.least <= np.log(records / self.records) <= 0.0

    def context(self, summary: Noisy, records: int, rng: np.random.Generator) -> FloatArray:
        """Return what goes into the networks.

        What has less noise than any that they were trained with gets more: next to the sampling error that is nothing.
        """
        noise = self.noise_of(summary)
        if noise is None:
            raise ReleaseError("the network was trained for noise of another kind.")
        y, scale = (summary.centre - self.middle) / self.units, noise.scale
        if scale < self.ends[0]:
            more = np.exp(2.0 * self.ends[0]) - np.exp(2.0 * scale)
            y = y + rng.standard_normal(len(y)) * np.sqrt(more) * self.patterns[noise.kind]
            scale = self.ends[0]
        spread = np.exp(scale) * self.patterns[noise.kind]
        kinds = np.zeros(len(self.shapes))
        kinds[noise.kind] = 1.0
        numbers = [scale] if self.least is None else [scale, float(np.log(records / self.records))]
        inputs = [(one - middle) / size for one, (middle, size) in zip(numbers, self.inputs, strict=True)]
        return np.concatenate([inputs, kinds, y / np.sqrt(self.variances + spread**2)])

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


_made: WeakKeyDictionary[Network, Amortised] = WeakKeyDictionary()


def amortised(bank: Bank) -> Amortised | None:
    """Return the networks that were trained on a bank, None where there are none."""
    network = bank.network()
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
            found = amortised(bank)
        except BankError as error:
            return str(error)
        if found is None:
            return UNTRAINED
        noise = found.noise_of(evidence.released)
        if noise is None and getattr(evidence.released, "law", None) is None:
            return (
                "a network answers one release of a dataset, not several at once: take 'weights', 'local' or "
                "'regression', which know both noises."
            )
        if noise is None:
            return (
                "the network beside the bank was trained for noise of another kind than the released: train again "
                "with abcdp.train(bank, noise=[release])."
            )
        if noise.scale > found.ends[1]:
            return "the released summary has more noise than any that the network was trained with."
        return None

    def doubt(self, evidence: Evidence, bank: Bank, model: Model | None) -> str | None:
        """Return that datasets of another size vary otherwise than those that were trained with."""
        found = amortised(bank)
        if found is None or all(found.serves(size) for size in evidence.sizes):
            return None
        return size_matters(evidence.sizes, bank, evidence.released)

    def infer(
        self, evidence: Evidence, bank: Bank, model: Model | None, *, draws: int, rng: np.random.Generator
    ) -> Answer:
        """Return draws of all networks alike."""
        found = amortised(bank)
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
