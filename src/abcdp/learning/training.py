"""Training networks that answer every release of a bank: once, on the public bank alone.

Pairs of parameters and summaries get fresh noise in every step, of every kind and size that a private summary may have
here, so that one training serves all budgets. Draws that are held out say when to stop, and what the networks are
worth. Training needs JAX and runs in a process of its own; to answer needs neither.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray, IntArray
from abcdp._common.checks import is_whole
from abcdp.bank import Bank
from abcdp.bank.failures import failures_and_where
from abcdp.bank.networks import Network
from abcdp.bank.stacked import stacked
from abcdp.errors import AbcdpError, BankError, LawError, PosteriorWarning, SimulationWarning
from abcdp.inference.coordinates import Coordinates
from abcdp.inference.evidence import BankDraws, Sample
from abcdp.inference.flow import Shape
from abcdp.inference.neural import LIKE, Amortised, Block, amortised, unseen
from abcdp.inference.regression import UNKNOWN_SUPPORT
from abcdp.inference.together import SideBySide
from abcdp.learning.programs import check_installed, run_program
from abcdp.mechanisms import PrivateSummary, ReleasedSummary, SummaryCalibration
from abcdp.mechanisms.private_summary import NoiseNorm
from abcdp.privacy.noise_law import Law
from abcdp.privacy.unit import Unit
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.release import Release

_MOST_VALUES, _MOST_DRAWS = 1 << 26, 1_000_000  # numbers and draws of a bank that are trained on
_FEWEST = 500  # draws below which there is nothing to learn from
_HIDDEN, _LAYERS, _GROUP, _COMPONENTS = 160, 2, 64, 6
_BATCH, _EPOCHS, _STEPS = 256, 200, (2000, 14_000)  # of a training: how often it sees each draw, and the ends of that
_LEAST_NOISE, _MOST_NOISE = 1e-3, 3.0  # over the spread of summaries: below the one nothing changes, above there is
# nothing to know; the latter grows with the root of the entries, which may all move together
_DELTA = 1e-6  # of Gaussian noise whose relative sizes are looked at, which do not depend on it
_FACTORS, _FACTOR_VALUES = 1024, 1 << 24  # covariances of records that are trained with, and their numbers
_LOOKS = 60  # of the program at held-out draws, for each network
_JUDGED, _DRAWS = 400, 200  # held-out draws that tell the coverage, and draws of each answer
_COVERED = 0.86  # of 90 % intervals on held-out draws, below which it is said

Given = Bank | str | os.PathLike[str]
Noises = Sequence[Release | NoisySummary | Law] | Release | NoisySummary | Law


@dataclass(frozen=True)
class Trained:
    """What training came to: on held-out draws, with noise of all sizes that were trained for.

    `coverage` is how often 90 % intervals of each parameter hold the truth; `information` what an answer tells about
    the parameters, on average, in nats.
    """

    draws: int
    noise: tuple[str, ...]
    coverage: dict[str, float]
    information: float
    seconds: float


def train(
    bank: Given | Sequence[Given],
    *,
    noise: Noises | None = None,
    least_records: int | None = None,
    members: int = 4,
    seed: int = 0,
    progress: bool | None = None,
) -> Trained:
    """Train networks on a bank, and keep them beside it: they answer any of its private summaries in milliseconds.

    From then on :func:`abcdp.posterior` and :func:`abcdp.plan` use them where they do better than a local fit and a
    regression on held-out draws near the answer; ``method="neural"`` asks for them. They serve every bank with the same
    model, prior, distance and number of records, so that a bank may grow.

    Needs JAX (``pip install 'abcdp[neural]'``) and takes a minute or two on two cores; a GPU is used where JAX sees
    one. The same seed gives the same networks on the same machine.

    Parameters
    ----------
    bank
        A bank with summaries; one in memory keeps its networks in memory. Or a list of banks that hold the same
        simulated datasets, the same bank perhaps twice: networks for that many releases of one dataset, in this order,
        which are kept beside the first.
    noise
        For which kinds of noise, of a list of banks one for each: releases, :class:`abcdp.NoisySummary` or
        :class:`abcdp.Law` objects, whose sizes do not matter, only their shapes and the relative sizes of their
        entries. By default what :class:`abcdp.PrivateSummary` chooses for this distance, without and with a delta.
    least_records
        Train for data of so many records up to the bank's number too. Only where records are independent given the
        parameters and summaries are means over them: their variance is then known from the covariances kept with the
        bank.
    members
        How many networks are trained: where they disagree, an answer is not trusted.
    """
    given: list[Any] = list(bank) if isinstance(bank, list | tuple) else [bank]
    banks = [one if isinstance(one, Bank) else Bank(one) for one in given]
    if not banks:
        raise BankError("an empty list has nothing to train on: give a bank.")
    bank = banks[0] if len(banks) == 1 else stacked(banks)
    for name, value, least, most in (("members", members, 1, 64), ("seed", seed, 0, (1 << 32) - 1)):
        if not is_whole(value, least, most):
            raise BankError(f"{name}={value!r}: a whole number from {least} to {most}.")
    if not bank.distance.has_summary:
        raise BankError(
            f"the bank's distance ({bank.distance.kind}) has no summary to train on: use a bank with MeanSummary, MMD "
            "features or a learned summary."
        )
    if bank.narrowed:
        raise BankError(
            "the bank is narrowed: its draws are not those of the prior, and hardly any of them counts much. Its "
            "releases are answered by weights and local fits; train on the bank that was narrowed."
        )
    if bank.header.support is None:
        raise BankError(f"training: {UNKNOWN_SUPPORT.replace('support=', 'the model a support=', 1)}")
    check_installed()
    blocks = _blocks(banks, noise)
    most = min(_MOST_DRAWS, max(_FEWEST, _MOST_VALUES // bank.header.width))
    sample = BankDraws(bank).first(most)
    if len(sample.rows) < _FEWEST:
        raise BankError(f"{len(sample.rows)} draws are too few to train on: simulate at least {_FEWEST}.")
    start = time.perf_counter()
    network = _Problem.of(bank, sample, blocks, least_records, members, seed).run(progress)
    bank.keep_network(network)
    networks = amortised(bank)
    assert networks is not None  # noqa: S101 - it was just kept
    coverage = _coverage(networks, sample, bank, seed)
    prior = 0.5 * networks.coordinates.dimension * math.log(2.0 * math.pi * math.e)
    told = prior - float(np.mean(network.about["held_out_loss"]))
    kinds = tuple(dict.fromkeys(shape for block in networks.blocks for shape in block.shapes))
    trained = Trained(len(sample.rows), kinds, coverage, told, time.perf_counter() - start)
    _warn(bank, trained)
    return trained


def _warn(bank: Bank, trained: Trained) -> None:
    failed = failures_and_where(bank)
    if failed is not None:
        warnings.warn(f"{failed} Networks know nothing of where they fail.", SimulationWarning, stacklevel=3)
    narrow = [f"{share:.0%} of {name!r}" for name, share in trained.coverage.items() if share < _COVERED]
    if narrow:
        warnings.warn(
            f"90 % intervals of the networks hold {', '.join(narrow)} on held-out draws: they learned too little from "
            f"{trained.draws} draws. A larger bank would help.",
            PosteriorWarning,
            stacklevel=3,
        )


Patterns = dict[str, list[FloatArray]]


def _blocks(banks: Sequence[Bank], noise: Noises | None) -> list[Patterns]:
    """Return the noise that each of several releases may have."""
    if len(banks) == 1 or noise is None:
        return [_patterns(bank, noise) for bank in banks]
    each = list(noise) if isinstance(noise, list | tuple) else [noise]
    if len(each) != len(banks):
        raise LawError(f"noise: {len(each)} of them for {len(banks)} banks; give one for each, or leave it out.")
    return [_patterns(bank, one) for bank, one in zip(banks, each, strict=True)]


def _patterns(bank: Bank, noise: Noises | None) -> Patterns:
    """Return for each shape of noise the relative standard deviations of the entries that may occur."""
    found: dict[str, list[FloatArray]] = {}

    def add(shape: str, sizes: FloatArray) -> None:
        if len(sizes) != bank.header.width:
            raise LawError(f"noise on {len(sizes)} numbers; the bank's summaries have {bank.header.width}.")
        pattern = sizes / math.exp(float(np.log(sizes).mean()))
        known = found.setdefault(LIKE.get(shape, shape), [])
        if not any(np.allclose(pattern, other, rtol=1e-3) for other in known):
            known.append(pattern)

    if noise is None:
        norms: tuple[tuple[NoiseNorm, float], ...] = (("auto", 0.0), ("l2", _DELTA))
        for norm, delta in norms:
            try:
                mechanism = PrivateSummary(1.0, norm=norm, delta=delta)
                one = mechanism.calibrate(bank.distance, records=bank.records, simulated=bank.records, unit=Unit())
            except AbcdpError:
                continue  # this distance has no such noise
            assert isinstance(one, SummaryCalibration)  # noqa: S101 - of a private summary
            add(one.shape, np.sqrt(one.law.variances(one.width, whole=True)) * np.array(one.steps))
        if not found:
            raise LawError("no private summary can be released of this distance: say noise=....")
        return found
    for law in [noise] if isinstance(noise, Release | NoisySummary | Law) else list(noise):
        summary = law.summary if isinstance(law, Release) else law
        if isinstance(summary, Law):
            add(summary.shape, np.sqrt(summary.variances(bank.header.width)))
        elif isinstance(summary, ReleasedSummary | NoisySummary) and isinstance(summary.law, Law):
            add(summary.law.shape, np.sqrt(summary.variances))
        else:
            raise LawError(f"noise={type(law).__name__}: networks are trained for Laplace, Gaussian and box noise.")
    unknown = set(found) - {"laplace", "gaussian", "box"}
    if unknown or not found:
        said = ", ".join(sorted(unknown)) or "none"
        raise LawError(f"noise: networks are trained for Laplace, Gaussian and box noise, not for {said}.")
    return found


@dataclass(frozen=True, eq=False)
class _Problem:
    """All that the training program is given."""

    arrays: dict[str, Any]  # data of the training
    kept: dict[str, FloatArray]  # numbers that stay with the networks
    settings: dict[str, Any]
    about: dict[str, Any]

    @classmethod
    def of(
        cls,
        bank: Bank,
        sample: Sample,
        noises: Sequence[Patterns],
        least: int | None,
        members: int,
        seed: int,
    ) -> _Problem:
        assert bank.header.support is not None  # noqa: S101 - it was asked for
        coordinates = Coordinates.of(sample.theta, bank.header.support)
        z = coordinates.forth(sample.theta)
        middle, spread = sample.rows.mean(axis=0), sample.rows.std(axis=0)
        size = math.sqrt(float((spread**2).mean()))
        if not size > 0:
            raise BankError("all summaries of the bank are the same: there is nothing to learn from them.")
        units = np.maximum(spread, 1e-6 * size)
        x = (sample.rows - middle) / units
        arrays: dict[str, Any] = {
            "z": z.astype(np.float32),
            "x": x.astype(np.float32),
            "held": unseen(sample.numbers),
            "variances": x.var(axis=0).astype(np.float32),
        }
        kept = {"middle": middle, "units": units, "variances": x.var(axis=0)}
        smallest, start = None, 0
        inputs: list[tuple[float, float]] = []
        blocks: list[dict[str, Any]] = []
        if least is not None:
            smallest = _smallest(bank, least)
            arrays |= _factors(bank, coordinates, z, units)
            inputs.append((0.5 * smallest, max(-smallest / math.sqrt(12.0), 1e-6)))
        for number, patterns in enumerate(noises):
            width = len(next(iter(patterns.values()))[0])
            own = slice(start, start + width)
            # noise of scale 1 is as large as the spread of summaries, over all entries
            spread = math.sqrt(float((sample.rows[:, own].var(axis=0)).mean()))
            sizes = [
                one / math.sqrt(float((one**2).mean())) * max(spread, 1e-6 * size) / units[own]
                for found in patterns.values()
                for one in found
            ]
            ends = math.log(min(_LEAST_NOISE, 0.3 / math.sqrt(bank.records))), math.log(_MOST_NOISE * math.sqrt(width))
            shapes = [shape for shape, found in patterns.items() for _ in found]
            blocks.append({"columns": [own.start, own.stop], "shapes": shapes, "range": ends})
            inputs.append((0.5 * (ends[0] + ends[1]), (ends[1] - ends[0]) / math.sqrt(12.0)))
            kept[f"patterns_{number}"] = np.array(sizes)
            arrays[f"patterns_{number}"] = np.array(sizes, dtype=np.float32)
            start += width
        context = bank.header.width + sum(len(one["shapes"]) for one in blocks) + len(inputs)
        shape = Shape(context, coordinates.dimension, _HIDDEN, _LAYERS, _GROUP, _COMPONENTS)
        steps = int(np.clip(_EPOCHS * len(z) // _BATCH, *_STEPS))
        shared = {"shape": asdict(shape), "blocks": blocks, "inputs": inputs, "least": smallest}
        shared |= {"members": members, "seed": seed}
        about = {**shared, "records": bank.records, "draws": len(z)}
        return cls(arrays, kept | coordinates.to_arrays(), {**shared, "steps": steps}, about)

    def run(self, show: bool | None) -> Network:
        """Return the networks that another process trains."""
        with tempfile.TemporaryDirectory(prefix="abcdp-train-") as name:
            folder = Path(name)
            np.savez(folder / "data.npz", **self.arrays)
            (folder / "settings.json").write_text(json.dumps(self.settings))
            run_program("flow_program", folder, _LOOKS * self.settings["members"], show)
            with np.load(folder / "network.npz", allow_pickle=False) as file:
                found = {name: file[name] for name in file.files}
        losses = found.pop("losses")
        if not np.isfinite(losses).all() or not all(np.isfinite(one).all() for one in found.values()):
            raise BankError("training did not converge: the networks say NaN. Look for summaries of wild sizes.")
        about = {**self.about, "held_out_loss": losses.tolist()}
        return Network(about, {name: one.astype(np.float32) for name, one in found.items()} | self.kept)


def _smallest(bank: Bank, least: int) -> float:
    if not is_whole(least, 1, bank.records):
        raise BankError(f"least_records={least!r}: a whole number from 1 to {bank.records}, the bank's number.")
    if bank.covariances() is None:
        raise BankError(
            "least_records: the bank keeps no covariances of records, so that it is not known how smaller datasets "
            "vary. Simulate a bank of each size instead."
        )
    return math.log(least / bank.records)


def _factors(bank: Bank, coordinates: Coordinates, z: FloatArray, units: FloatArray) -> dict[str, Any]:
    """Return factors of the covariances of some datasets, and for each draw which of them is nearest."""
    from scipy.spatial import KDTree

    kept = bank.covariances()
    assert kept is not None  # noqa: S101 - it was asked for
    most = max(16, min(_FACTORS, _FACTOR_VALUES // bank.header.width**2))
    matrices = kept.matrices[:most] / np.outer(units, units)
    values, vectors = np.linalg.eigh(matrices)
    factors = vectors * np.sqrt(np.maximum(values, 0.0))[:, None]
    places = coordinates.forth(bank.take(kept.rows[:most].tolist()))
    nearest: IntArray = KDTree(places).query(z)[1]
    return {"factors": factors.astype(np.float32), "nearest": nearest.astype(np.int32)}


def _coverage(networks: Amortised, sample: Sample, bank: Bank, seed: int) -> dict[str, float]:
    """Return how often 90 % intervals hold each parameter of held-out draws, with noise of all sizes."""
    rng = np.random.default_rng([seed, 1])
    held = np.flatnonzero(unseen(sample.numbers))
    held = rng.permutation(held)[:_JUDGED]
    covered = []
    for place in held:
        released = SideBySide(tuple(_released(block, networks, sample.rows[place], rng) for block in networks.blocks))
        z = np.concatenate(networks.draws(networks.context(released, bank.records, rng), _DRAWS, rng))
        low, high = np.quantile(networks.coordinates.back(z), [0.05, 0.95], axis=0)
        covered.append((low <= sample.theta[place]) & (sample.theta[place] <= high))
    shares = np.mean(covered, axis=0).tolist()
    return dict(zip(bank.parameters, shares, strict=True))


def _released(block: Block, networks: Amortised, row: FloatArray, rng: np.random.Generator) -> NoisySummary:
    """Return what would be published of a summary's block, with noise of any trained kind and size."""
    kind = int(rng.integers(len(block.shapes)))
    sizes = math.exp(rng.uniform(*block.ends)) * block.patterns[kind] * networks.units[block.columns]
    unit = math.sqrt(Law(block.shapes[kind], 1.0).variance(len(sizes)))
    law = Law(block.shapes[kind], tuple((sizes / unit).tolist()))
    return NoisySummary(law.noised(row[None, block.columns], rng)[0], law)
