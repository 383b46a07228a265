"""Two stages for a wide prior: a bank around the answer to a first, cheap release, for a second one.

Records are compared nearer to where they are, which takes most of the noise away; and the draws of the new bank are
where the answer is. They are not draws of the prior, so each has a weight with which it is: answers are for the prior
that was written down. Of each simulated dataset both summaries are kept, so that both releases count.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_number, is_whole
from abcdp._common.storage import open_folder
from abcdp.bank import MANIFEST, Bank, Place, header_from_json, read_manifest
from abcdp.bank.proposal import Mixture, Proposal
from abcdp.distance import Distance, code_behind, distance_from_json
from abcdp.distance.narrowing import clipped_share, narrowed_distance
from abcdp.errors import BankError, DistanceError, ModelError, PosteriorWarning, ReleaseError, SimulationWarning
from abcdp.inference.posterior import bank_of, posterior, summary_digest, summary_of
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.release import Release
from abcdp.simulation.datasets import Datasets
from abcdp.simulation.executors import Crew, Pool
from abcdp.simulation.model import Model
from abcdp.simulation.run import simulate_from

_ANSWER = 1000  # draws of the first answer
_CENTRES = 300  # of them around which the new bank is drawn
_LEAST_WIDE, _MOST_WIDE = 1.0, 100.0
_DATASETS = 1000  # simulated at draws of the answer, whose records say where records are
_RECORDS = 1 << 21  # numbers of these at most
_SEED = 0  # of all but the bank's own streams: banks of one answer and several seeds can be merged


def narrow(
    release: Release | NoisySummary | str | os.PathLike[str],
    model: Model,
    bank: Bank | str | os.PathLike[str],
    *,
    distance: Distance | None = None,
    draws: int = 20_000,
    to: Place | None = None,
    seed: int = 0,
    wide: float = 2.0,
    simulations: int = 4000,
    executor: Any = None,
    workers: int | None = None,
    pool: Pool = "auto",
    progress: bool | None = None,
) -> Bank:
    """Simulate a bank around the answer to a first release, for a second release with the rest of the budget.

    Where a prior is many times as wide as what data tell, most of a budget goes into noise for records that are not
    there. Spend a part of it on a first release with a wide domain; narrow; and let the owner release the rest with the
    bank that this returns; the ledger adds both. ``abcdp.posterior(second, narrowed)`` is the answer for the prior as
    it was written down: draws of the new bank come from around the first answer, with heavy tails, and a tenth of them
    from the prior, and every method uses their weights. To narrow is public and costs no privacy.

    Of every simulated dataset the bank holds the summary of the first distance too (``narrowed.earlier``), so that both
    releases can be used. Sparse vector and the nearest draws refuse such a bank, before anything is charged: they have
    no weights. A plan made with it, and a summary learned on it, are for data like those of the first release.

    Parameters
    ----------
    release, bank
        A release by :class:`abcdp.PrivateSummary` and its bank, or a :class:`abcdp.NoisySummary` and a bank of the same
        statistics.
    model
        The simulator of that bank; its prior has to be independent scipy distributions.
    distance
        What the second release is about. By default the same features with a domain that holds nearly all records
        simulated around the first answer, as many bins there, and a bandwidth from these records; never wider than it
        was. Records beyond are clipped, as always.
    draws, to, seed, executor, workers, pool, progress
        As in :func:`abcdp.simulate`. An interrupted run is resumed by the same call. Banks of one release with several
        seeds can be merged.
    wide
        How wide the laws around draws of the first answer are, in units of Silverman's rule.
    simulations
        How many new datasets the first answer may take, as in :func:`abcdp.posterior`.
    """
    if not isinstance(release, Release | NoisySummary):
        release = Release.load(release)
    summary = summary_of(release)
    if summary is None:
        raise ReleaseError(
            "narrowing needs a release with a summary: make one with abcdp.PrivateSummary. Accepted draws have no "
            "likelihood that a second release could be joined with."
        )
    used = bank_of(release, bank)
    _check(model, used, distance, draws, wide, simulations)
    known = summary_digest(summary)
    begun = _begun(to, distance, used.digest, known)
    if begun is None:
        theta = _answer(release, model, used, simulations, progress)
        records = _records(theta, model, used, workers, pool, executor)
        distance = narrowed_distance(used.distance, records) if distance is None else distance
        distance = distance.fitted(used.columns, records)
        proposal = Proposal(
            mixture=Mixture.around(model.to_latent(_some(theta, _CENTRES)), wide),
            bank=used.digest,
            draws=used.draws,
            summary=known,
            distance=used.distance,
            clipped=clipped_share(distance, records),
            words=_in_words(used.parameters, theta),
        )
    else:
        proposal, distance = begun
    return simulate_from(
        proposal,
        model,
        distance,
        draws=draws,
        records=used.records,
        seed=seed,
        to=to,
        executor=executor,
        workers=workers,
        pool=pool,
        progress=progress,
    )


def _check(model: Model, bank: Bank, distance: Distance | None, draws: int, wide: float, simulations: int) -> None:
    """Raise where a bank cannot be narrowed as asked, before anything is simulated."""
    if not isinstance(model, Model):
        raise ReleaseError(f"model={model!r}: give the abcdp.Model that the bank was simulated with.")
    model.check_bank(bank)
    if model.describe_prior() != bank.header.prior:
        raise ModelError(
            f"the model's prior is {model.describe_prior()!r}, the bank's {bank.header.prior!r}: answers would be for "
            "another prior than the first one's."
        )
    if bank.narrowed:
        raise BankError("the bank is narrowed already: the first release would be lost. Narrow the first bank instead.")
    if code_behind(bank.distance) or not _readable(bank.distance):
        raise DistanceError(
            "the bank's distance is code of your own, which a narrowed bank cannot hold beside another one: narrow a "
            "bank with MeanSummary or MMD."
        )
    if distance is not None and not isinstance(distance, Distance):
        raise DistanceError(f"distance={distance!r}: give a distance, or leave it out.")
    for name, value, least in (("draws", draws, 1), ("simulations", simulations, 0)):
        if not is_whole(value, least):
            raise ReleaseError(f"{name}={value!r}: a whole number of at least {least}.")
    if not is_number(wide) or not _LEAST_WIDE <= wide <= _MOST_WIDE:
        raise ReleaseError(f"wide={wide!r}: a number from {_LEAST_WIDE:g} to {_MOST_WIDE:g}.")
    model.to_latent(bank.take([0]))  # whose error says which priors can be


def _readable(distance: Distance) -> bool:
    try:
        distance_from_json(distance.to_json())
    except DistanceError:
        return False
    return True


def _begun(to: Place | None, distance: Distance | None, bank: str, summary: str) -> tuple[Proposal, Distance] | None:
    """Return what an earlier run found that was interrupted, or finished: the same draws come of it anywhere."""
    folder = None if to is None else open_folder(to)
    if folder is None or folder.state() != "full" or folder.size(MANIFEST) is None:
        return None  # what else is there is refused by who writes
    manifest = read_manifest(folder)
    if "proposal" not in manifest:
        return None
    header = header_from_json(manifest, folder, distance)
    proposal = header.proposal
    assert proposal is not None  # noqa: S101 - it is there
    if (proposal.bank, proposal.summary) != (bank, summary):
        raise BankError(f"{folder} holds a bank that was narrowed around another answer; choose another folder.")
    return proposal, header.distance if distance is None else distance


def _answer(
    release: Release | NoisySummary, model: Model, bank: Bank, simulations: int, progress: bool | None
) -> FloatArray:
    """Return draws of the answer to the first release."""
    with warnings.catch_warnings():
        # what is doubtful about it costs draws and no exactness: weights make up for it
        warnings.simplefilter("ignore", PosteriorWarning)
        warnings.simplefilter("ignore", SimulationWarning)
        tree = posterior(
            release, bank, model=model, draws=_ANSWER, simulations=simulations, seed=_SEED, progress=progress
        )
    theta = np.stack([np.ravel(tree["posterior"][name]) for name in bank.parameters], axis=1)
    if len(theta) <= len(bank.parameters):
        raise ReleaseError(f"the first answer has {len(theta)} draws, too few to draw around: simulate a larger bank.")
    return theta


def _some(theta: FloatArray, most: int) -> FloatArray:
    """Return at most so many rows, evenly chosen."""
    return theta[np.linspace(0, len(theta) - 1, min(most, len(theta))).round().astype(np.int64)]


def _in_words(parameters: tuple[str, ...], theta: FloatArray) -> str:
    parts = zip(parameters, theta.mean(axis=0), theta.std(axis=0), strict=True)
    return ", ".join(f"{name} {mean:.4g} ± {spread:.2g}" for name, mean, spread in parts)


def _records(theta: FloatArray, model: Model, bank: Bank, workers: int | None, pool: Pool, executor: Any) -> FloatArray:
    """Return records of datasets simulated at draws of the first answer."""
    count = max(8, min(_DATASETS, _RECORDS // (bank.records * bank.columns)))
    with Crew(model, workers, pool, executor) as crew:
        simulate = Datasets(crew, model, bank.records, bank.columns, np.asarray)
        made = simulate(_some(theta, count), np.random.default_rng(_SEED))
    sets = [one.values for one in made if one.values is not None]
    if not sets:
        raise ModelError(f"simulator {model.name!r} failed on all of {count} draws of the first answer.")
    return np.concatenate(sets).reshape(-1, bank.columns)
