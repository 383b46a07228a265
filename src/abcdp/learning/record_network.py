"""Learning a network of each record: which few numbers of records with many columns are worth their noise.

Datasets are simulated, or taken from a bank that keeps their records. A network makes a few numbers of each record, in
a ball whose diameter bounds what one record can do; their mean, with the noise that a release of it would carry at this
budget, is to tell as much as possible about the parameters. What comes of it is a distance like any other, whose
numbers stand in the bank; the owner computes with them and clips what they make of a record in integers.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from abcdp._common.arrays import BoolArray, FloatArray
from abcdp._common.checks import is_whole
from abcdp._common.progress import progress as progress_bar
from abcdp.bank import Bank, Place
from abcdp.distance import MMD, Distance, LearnedSummary, MeanDistance, MeanSummary, Moment, NetworkSummary
from abcdp.distance.ball import Shape as Ball
from abcdp.errors import BankError, DistanceError
from abcdp.inference.coordinates import Coordinates
from abcdp.inference.flow import Flow, Shape
from abcdp.inference.neural import LIKE, unseen
from abcdp.inference.regression import UNKNOWN_SUPPORT
from abcdp.learning.learned import Learned, bank_of, free_folder
from abcdp.learning.programs import check_installed, run_program
from abcdp.mechanisms import PrivateSummary, SummaryCalibration
from abcdp.privacy.noise_law import Law
from abcdp.privacy.unit import Unit
from abcdp.simulation.datasets import Datasets
from abcdp.simulation.executors import Crew
from abcdp.simulation.model import Model
from abcdp.simulation.run import simulate

_MOST_DATASETS, _FEWEST = 20_000, 500  # that are trained on
_VALUES = 1 << 28  # of all their records, four bytes each
_ENOUGH = 4000  # datasets: rather fewer records of each than fewer of them
_CHUNK = 512  # datasets that are simulated before they are written
_PILOT = 64  # datasets that tell the ranges and spreads of inputs
_HIDDEN = (32, 32)
_HEAD = {"hidden": 128, "layers": 2, "group": 32, "components": 4}
_PURE: tuple[tuple[Ball, int], ...] = (("l1", 8), ("l1", 16), ("box", 8))  # balls and numbers of outputs to try
_UNDER_DELTA: tuple[tuple[Ball, int], ...] = (("l2", 8), ("l2", 16), ("l1", 8))
_BATCH = 32
_VISITS, _STEPS = 400_000_000, (1000, 8000)  # of records in a training, and the ends of the steps that they make
_TRIAL = 10  # times shorter is that of each candidate
_LOOKS, _TRIAL_LOOKS = 20, 3  # at the held-out datasets
_JUDGED, _DRAWS = 400, 200  # held-out datasets that tell what is explained, and draws of each posterior
_MARGIN = 1e-3  # of the range of simulated records, where nothing else says their domain


def learned_network(
    bank: Bank,
    model: Model | None,
    mechanism: PrivateSummary,
    *,
    unit: Unit | None = None,
    records: int | None = None,
    seed: int = 0,
    to: Place | None = None,
    progress: bool | None = None,
) -> Learned:
    """Train a network of each record for releases at this budget, and return the bank with its summary.

    The model simulates datasets to train on, others than the bank's, and then a bank of as many draws as this one, by
    the same seed. A bank that keeps its records, as those of distances without a summary do, is encoded anew instead,
    and trained on where no model is given: the network has seen its draws then, and tells a little more of them than of
    new data. Inputs are the features of the bank's distance, where these are made of each record by itself, as those of
    :class:`abcdp.MeanSummary`; of an :class:`abcdp.MMD` and otherwise the columns on their public domain.

    Needs JAX (``pip install 'abcdp[neural]'``) and takes some minutes on two cores; a GPU is used where JAX sees one.
    The same seed gives the same network on the same machine.

    Parameters
    ----------
    mechanism, unit
        The release to come, and whom it protects: the noise is part of what is learned.
    records
        The number of records of the private data; the bank's by default.
    to
        The folder of the new bank; without it the bank stays in memory.
    """
    unit = Unit() if unit is None else unit
    if not is_whole(seed, 0, (1 << 32) - 1):
        raise BankError(f"seed={seed!r}: a whole number from 0 to {(1 << 32) - 1}.")
    if records is not None and not is_whole(records, 1):
        raise DistanceError(f"records={records!r}: a whole number of at least 1.")
    if not isinstance(unit, Unit):
        raise DistanceError(f"unit={unit!r}: give whom to protect, such as abcdp.Unit().")
    if to is not None:
        free_folder(to)
    if bank.narrowed:
        raise BankError(
            "the bank is narrowed: its draws are not those of the prior. Learn on the bank that was narrowed."
        )
    if bank.header.support is None:
        raise BankError(f"training: {UNKNOWN_SUPPORT.replace('support=', 'the model a support=', 1)}")
    check_installed()
    source = _source(bank, model)
    kinds = _candidates(source.base, mechanism, unit.public_size(bank.records if records is None else records), unit)
    with tempfile.TemporaryDirectory(prefix="abcdp-learn-") as name:
        place = Path(name)
        theta = source.write(place / "records.npy", seed, progress)
        found = _Training(bank, source, theta, kinds, seed).run(place, progress)
    distance = NetworkSummary(source.base, found.layers, found.kind.ball)
    if source.keeps_records:
        header = bank.header.with_distance(distance)
        made = bank_of(bank, header, lambda rows: distance.encode(_records(bank, rows)), to)
    else:
        made = source.simulated(distance, to, progress)
    return Learned(made, found.explained, mechanism, found.information)


# -- what is trained on ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Inputs:
    """Makes inputs of the network of simulated datasets: features in units of their spread, of some of the records."""

    base: MeanDistance
    middle: FloatArray
    spread: FloatArray
    kept: npt.NDArray[np.intp]

    def __call__(self, sets: FloatArray) -> npt.NDArray[np.float32]:
        chosen = sets[:, self.kept]
        features = self.base.record_features(self.base.clean(chosen.reshape(-1, sets.shape[2])))
        return ((features - self.middle) / self.spread).astype(np.float32).reshape(*chosen.shape[:2], -1)


@dataclass(frozen=True, eq=False)
class _Source:
    """Where datasets to train on come from: a model that simulates them, or a bank that keeps their records."""

    bank: Bank
    model: Model | None
    inputs: _Inputs
    datasets: int  # at most: those that fail are left out

    @property
    def base(self) -> MeanDistance:
        return self.inputs.base

    @property
    def keeps_records(self) -> bool:
        """Whether the bank's rows are the records of its datasets."""
        return not self.bank.distance.has_summary

    @property
    def larger(self) -> float:
        """How much larger noise is beside a mean over some of the records than beside that over all."""
        return math.sqrt(self.bank.records / len(self.inputs.kept))

    def write(self, path: Path, seed: int, show: bool | None) -> FloatArray:
        """Write the inputs of all records to a file, a part at a time, and return the parameters: a row each.

        Where datasets failed, the file has rows beyond these.
        """
        shape = (self.datasets, len(self.inputs.kept), len(self.inputs.middle))
        out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        parts = self._kept() if self.model is None else self._simulated(np.random.default_rng([seed, 2]), show)
        theta, there = [], 0
        for parameters, inputs in parts:
            out[there : there + len(inputs)] = inputs
            theta.append(parameters)
            there += len(inputs)
        out.flush()
        if there < _FEWEST:
            raise BankError(
                f"{there} datasets without a failure are too few to train on: at least {_FEWEST} are needed."
            )
        return np.concatenate(theta)

    def _kept(self) -> Iterator[tuple[FloatArray, npt.NDArray[np.float32]]]:
        left = self.datasets
        for _, data in self.bank.shards():
            fine = np.flatnonzero(data.fine)[:left]
            left -= len(fine)
            for part in np.array_split(fine, max(1, len(fine) // _CHUNK)):
                if len(part):
                    yield data.theta[part], self.inputs(_records(self.bank, data.filled[part]))

    def _simulated(
        self, rng: np.random.Generator, show: bool | None
    ) -> Iterator[tuple[FloatArray, npt.NDArray[np.float32]]]:
        assert self.model is not None  # noqa: S101 - asked before
        with (
            Crew(self.model) as crew,
            progress_bar(f"simulating {self.model.name} to learn from", self.datasets, show) as advance,
        ):
            simulated = Datasets(crew, self.model, self.bank.records, self.bank.columns, self.inputs)
            for start in range(0, self.datasets, _CHUNK):
                theta = self.model.draw(min(_CHUNK, self.datasets - start), rng)
                for batch in simulated(theta, rng, advance):
                    if batch.values is not None:
                        yield theta[batch.rows], batch.values

    def simulated(self, distance: NetworkSummary, to: Place | None, show: bool | None) -> Bank:
        """Return the bank of this summary: of the draws that the bank would have by its seed."""
        assert self.model is not None  # noqa: S101 - asked before
        return simulate(
            self.model,
            distance,
            draws=self.bank.draws,
            records=self.bank.records,
            seed=self.bank.parts[0].seed,
            shard=max(part.rows for part in self.bank.parts),
            to=to,
            progress=show,
        )


def _source(bank: Bank, model: Model | None) -> _Source:
    """Return where datasets come from, and the inputs of which a network can be learned there."""
    if model is not None:
        pilot = _pilot(bank, model)
    elif bank.distance.has_summary:
        raise DistanceError(
            "a network is learned from records, which this bank does not keep: pass the model that simulates them."
        )
    else:
        shards = (data for _, data in bank.shards() if data.fine.any())
        pilot = next((_records(bank, data.filled[np.flatnonzero(data.fine)[:_PILOT]]) for data in shards), None)
    if pilot is None:
        raise BankError("all draws failed: there is nothing to learn from.")
    base = _base(bank.distance, pilot)
    features = base.record_features(base.clean(pilot.reshape(-1, pilot.shape[2])))
    spread = features.std(axis=0)
    width = len(spread)
    most = int(bank.fine.sum()) if model is None else bank.draws
    datasets = min(most, _MOST_DATASETS, max(_ENOUGH, _VALUES // (bank.records * width)))
    each = min(bank.records, max(1, _VALUES // (datasets * width)))
    # the same places in all datasets, whatever the order of records means
    kept = np.sort(np.random.default_rng(0).permutation(bank.records)[:each])
    varies = spread > 1e-9 * np.abs(features).max()
    return _Source(bank, model, _Inputs(base, features.mean(axis=0), np.where(varies, spread, 1.0), kept), datasets)


def _pilot(bank: Bank, model: Model) -> FloatArray | None:
    """Return some datasets of a model, those that are fine."""
    model.check_bank(bank)
    rng = np.random.default_rng(0)
    with Crew(model) as crew:
        made = Datasets(crew, model, bank.records, bank.columns, np.asarray)(model.draw(_PILOT, rng), rng)
    found = [batch.values for batch in made if batch.values is not None]
    if found and found[0].shape[2] != bank.columns:
        raise BankError(f"the model's records have {found[0].shape[2]} columns, those of the bank {bank.columns}.")
    return np.concatenate(found) if found else None


def _records(bank: Bank, rows: FloatArray) -> FloatArray:
    return rows.reshape(len(rows), bank.records, bank.columns)


def _base(distance: Distance, pilot: FloatArray) -> MeanDistance:
    """Return the distance whose record features are the inputs: the bank's own, or single columns on their domain.

    A network bends columns itself, by fewer numbers than the waves of a kernel.
    """
    while isinstance(distance, LearnedSummary | NetworkSummary):
        distance = distance.base
    if isinstance(distance, MeanDistance) and distance.rowwise and not isinstance(distance, MMD):
        return distance
    domain = distance.domain if isinstance(distance, MMD) else None
    if domain is None:
        low, high = np.nanmin(pilot, axis=(0, 1)), np.nanmax(pilot, axis=(0, 1))
        wide = np.maximum(_MARGIN * (high - low), np.maximum(np.abs(low), 1.0) * _MARGIN)
        domain = tuple(zip((low - wide).tolist(), (high + wide).tolist(), strict=True))
    return MeanSummary(tuple(map(Moment, range(pilot.shape[2]))), domain=domain)


# -- training ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kind:
    """A kind of network to try: its ball, and the noise on each of its outputs."""

    ball: Ball
    law: Law
    steps: tuple[float, ...]

    @property
    def spreads(self) -> FloatArray:
        return np.asarray(np.sqrt(self.law.variances(len(self.steps), whole=True)) * np.array(self.steps))

    @property
    def noise(self) -> str:
        """The shape of real noise that is as good as this on whole numbers."""
        return LIKE.get(self.law.shape, self.law.shape)


def _candidates(base: MeanDistance, mechanism: PrivateSummary, records: int, unit: Unit) -> list[_Kind]:
    """Return the kinds of networks to try, with the noise that a release would carry: whatever the weights are."""
    found = []
    for ball, outputs in _UNDER_DELTA if mechanism.delta > 0 else _PURE:
        layer = (((0.0,) * outputs,) * base.width(1), (0.0,) * outputs)
        distance = NetworkSummary(base, (layer,), ball)
        one = mechanism.calibrate(distance, records=records, simulated=records, unit=unit)
        assert isinstance(one, SummaryCalibration)  # noqa: S101 - of a private summary
        found.append(_Kind(ball, one.law, one.steps))
    return found


@dataclass(frozen=True, eq=False)
class _Found:
    kind: _Kind
    layers: tuple[Any, ...]
    explained: dict[str, float]
    information: float


@dataclass(frozen=True, eq=False)
class _Training:
    """All that the training program is given, and what is made of its answer."""

    bank: Bank
    source: _Source
    theta: FloatArray
    kinds: list[_Kind]
    seed: int

    def run(self, folder: Path, show: bool | None) -> _Found:
        """Return what the program finds with the records of a folder."""
        assert self.bank.header.support is not None  # noqa: S101 - it was asked for
        coordinates = Coordinates.of(self.theta, self.bank.header.support, self.source.model)
        held = unseen(np.arange(len(self.theta)))
        z = coordinates.forth(self.theta).astype(np.float32)
        np.savez(folder / "data.npz", allow_pickle=False, z=z, held=held)
        (folder / "settings.json").write_text(json.dumps(self._settings()))
        run_program("record_program", folder, _LOOKS + _TRIAL_LOOKS * len(self.kinds), show)
        with np.load(folder / "network.npz", allow_pickle=False) as file:
            found = {name: file[name].astype(np.float64) for name in file.files}
        if not all(np.isfinite(one).all() for one in found.values()):
            raise BankError("training did not converge: the network says NaN. Look for records of wild sizes.")
        kind = self.kinds[int(found["chosen"])]
        prior = 0.5 * coordinates.dimension * math.log(2.0 * math.pi * math.e)
        explained = self._explained(kind, found, coordinates, held)
        return _Found(kind, self._layers(found), explained, prior - float(found["loss"]))

    def _settings(self) -> dict[str, Any]:
        each = len(self.source.inputs.kept)
        steps = int(np.clip(_VISITS // (_BATCH * each), *_STEPS))
        larger = self.source.larger
        kinds = [
            {"ball": kind.ball, "shape": kind.noise, "spreads": (larger * kind.spreads).tolist()} for kind in self.kinds
        ]
        sizes = {"hidden": _HIDDEN, "head": _HEAD, "batch": _BATCH, "steps": steps, "trial_steps": steps // _TRIAL}
        return {"candidates": kinds, "seed": self.seed, "looks": _LOOKS, "trial_looks": _TRIAL_LOOKS} | sizes

    def _layers(self, found: dict[str, FloatArray]) -> tuple[Any, ...]:
        """Return the layers on features as they are: the first one takes in how inputs were standardised."""
        pairs = [(found[f"weights_{number}"], found[f"bias_{number}"]) for number in range(len(_HIDDEN) + 1)]
        first = pairs[0][0] / self.source.inputs.spread[:, None]
        pairs[0] = first, pairs[0][1] - self.source.inputs.middle @ first
        return tuple((weights.tolist(), bias.tolist()) for weights, bias in pairs)

    def _explained(
        self, kind: _Kind, found: dict[str, FloatArray], coordinates: Coordinates, held: BoolArray
    ) -> dict[str, float]:
        """Return the share of each parameter's variance that posterior means explain on held-out datasets."""
        rng = np.random.default_rng([self.seed, 3])
        spreads = self.source.larger * kind.spreads
        shape = Shape(context=len(spreads), coordinates=coordinates.dimension, **_HEAD)
        head = Flow(shape, {name: found[name] for name in shape.arrays()})
        unit = math.sqrt(Law(kind.noise, 1.0).variance(len(spreads)))
        noisy = Law(kind.noise, tuple((spreads / unit).tolist())).noised(found["means"], rng)
        contexts = ((noisy - found["middle"]) / np.sqrt(found["variances"] + spreads**2))[:_JUDGED]
        truth = self.theta[held][:_JUDGED]
        means = [coordinates.back(head.draws(_DRAWS, context, rng)).mean(axis=0) for context in contexts]
        spread = self.theta.var(axis=0)
        left = ((truth - np.array(means)) ** 2).mean(axis=0) / np.where(spread > 0, spread, 1.0)
        return dict(zip(self.bank.parameters, (1.0 - left).tolist(), strict=True))
