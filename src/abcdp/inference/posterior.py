"""From a release to a posterior in ArviZ's form, by post-processing: nothing here costs privacy."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp._common.checks import is_whole
from abcdp._common.support import Support, as_support
from abcdp._common.threads import one_blas_thread
from abcdp.bank import Bank
from abcdp.bank.failures import drawn_where_draws_fail, failures_and_where
from abcdp.distance import LearnedSummary
from abcdp.errors import BankError, PosteriorWarning, ReleaseError, SimulationWarning
from abcdp.inference.arviz import as_tree
from abcdp.inference.base import Answer
from abcdp.inference.diagnostics import reasons_against
from abcdp.inference.evidence import BankDraws, Evidence, Noisy, check_summary, log_likelihoods
from abcdp.inference.explained import weakness
from abcdp.inference.methods import answered, check_name
from abcdp.inference.sizes import sizes_of
from abcdp.releases.noisy import NoisySummary
from abcdp.releases.release import Release
from abcdp.releases.several import Sources
from abcdp.simulation.model import Model

if TYPE_CHECKING:
    import xarray

Given = Release | NoisySummary | str | os.PathLike[str]
Doubt = tuple[type[Warning], str]

_LEARNED = (
    "If the release is of a summary learned on this bank, take the bank that was learned: it lies where abcdp learn "
    "--to or abcdp plan --learned-to wrote it (in Python, Learned.bank or Plan.bank_from)."
)


def posterior(
    release: Given | Sequence[Given],
    bank: Bank | str | os.PathLike[str] | Sequence[Bank | str | os.PathLike[str]],
    *,
    shared: Sequence[str] = (),
    own: Sequence[str] = (),
    datasets: Sequence[str] | None = None,
    model: Model | None = None,
    method: str = "auto",
    draws: int = 1000,
    simulations: int = 4000,
    support: Any = None,
    records: int | Sequence[int | None] | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> xarray.DataTree:
    """Return the posterior that a release gives, or that somebody else's noisy statistics give; or several of them.

    Of sparse vector and of the nearest draws the accepted draws are the posterior (chosen in proportion to their gaps,
    where those were released and the method is not ``"nearest"``). From a private summary any number of `draws` is
    made, on one of these rungs:

    - ``"weights"``: draws of the bank by the probability of the noise that leads to the release. Exact, and possible
      where enough draws carry it: where the noise is wider than the sampling error.
    - ``"local"``: a normal law of the summary, fitted to simulations where the answer lies, with the noise convolved.
      From the bank alone where it is dense enough; with a `model` from new simulations there.
    - ``"regression"``: the nearest draws of the bank with noise added to their summaries, adjusted along a local linear
      fit: an approximation whose spread includes the noise.
    - ``"nearest"``: the nearest draws as they are, which is too wide.

    ``"auto"`` takes the weights unless fewer than 50 effective draws carry them; then a local fit, unless a regression
    does better on held-out draws of the bank near the answer; and the nearest where the support of the prior is not
    known. A method that is asked for by name is used. What speaks against an answer stands in its attributes, with
    ``trusted`` = False, and is warned of. A parameter that the summaries of the bank tell next to nothing about, noise
    or not, is named in a warning too.

    Of a list of releases there is one posterior. Those of one dataset share the sampling error of its records: each
    simulated dataset is compared with all of them at once, on any rung. Those of different datasets are independent
    given the parameters, and their likelihoods are multiplied, on the rung ``"local"``: weights and regressions have
    none that could be. Of a chain of releases, each of which tops up the one before, the last is used: it holds all
    that the others say.

    Parameters
    ----------
    release, bank
        A release and its bank; or a :class:`abcdp.NoisySummary` and a bank whose summaries are the same statistics.
        Or a list of these, and one bank for all of them or a list with one for each. One bank serves datasets of all
        sizes where records are independent given the parameters; else there is a bank for each size. Releases of one
        dataset with different distances need banks of the same simulated datasets: of the same seed, or learned.
    shared, own
        With several datasets: the names of the parameters that all of them have in common, and of those that each has
        for itself, which become ``name[dataset]`` in the answer. Where one is given, the other is the rest; by default
        all are shared.
    datasets
        With a list of releases, which of them are of the same records: a name for each, the same for those. By default
        the name of the dataset that each release states; statistics of somebody else are each of another dataset.
    model, simulations
        The simulator, and how many new datasets may be simulated with it around the answer: public, hence free.
    draws, method, seed
        How many draws of the posterior are made, how (also by a method of your own, see
        :func:`abcdp.inference.methods.register_posterior_method`), and with which public randomness.
    support
        Where the prior allows the parameters, if the bank does not say: ``"simplex"``, or a pair (low, high) for each
        of them, None where it has no end.
    records
        How many records the data have. A release tells it where it is public, by the size of its noise; of somebody
        else's statistics it is thought to be the bank's number. A local fit is made for it where records are
        independent; of a private number, for all above its public bound. Of a list, one for all or one for each.
    progress
        Whether to show a bar while simulating; by default on a terminal.

    Returns
    -------
    An :class:`xarray.DataTree` with the groups ``posterior`` (one variable per parameter), ``prior`` (draws of the
    bank), ``sample_stats`` (the bank's row of each draw), and in its attributes the guarantee, ``method``, ``rung``,
    ``trusted`` and ``reasons`` (what speaks against it, empty where nothing does), ``release_digest`` and
    ``bank_digest`` (what it was made of), ``effective_sample_size`` (how many
    independent draws of what the method aims at these are worth) and what else the method knows of itself. The
    draws are independent: use ``arviz.summary(kind="stats")``.

    Beside them stand ``posterior_predictive``, summaries of other datasets at the draws (at most 1000 of them), and,
    where a noisy summary was released, ``observed_data``, which is that summary and nothing else about the records. The
    former have fresh noise of the released law then. They are those of the law that a local fit found, or else those of
    simulations of the bank near each draw, moved to it along a curve, never of the draw's own simulation; nothing is
    simulated for them, and both are approximations. ``predictive_p_value`` in the attributes is how often one of them
    lies as far from what is expected at its draw as the released one: if the model is right, and the answer too, it is
    below any a in at most 2 a of cases, and about a of them where numbers are many more than parameters. Of accepted
    draws no summary was released, so there is nothing to compare and no p-value; of distances without a summary there
    is no prediction.
    """
    for name, value, least in (("draws", draws, 1), ("simulations", simulations, 0)):
        if not is_whole(value, least):
            raise ReleaseError(f"{name}={value!r}: a whole number of at least {least}.")
    check_name(method)
    if model is not None and not isinstance(model, Model):
        raise ReleaseError(f"model={model!r}: give an abcdp.Model, or leave it out.")
    rng = np.random.default_rng(seed)
    given: dict[str, Any] = {"model": model, "method": method, "draws": draws, "rng": rng}
    if isinstance(release, list | tuple) and len(release) != 1:
        from abcdp.inference.several import posterior_of_several  # which looks into releases and banks as this does

        grouping: dict[str, Any] = {
            "shared": shared,
            "own": own,
            "datasets": datasets,
            "support": support,
            "records": records,
        }
        found = posterior_of_several(release, bank, **grouping, **given, simulations=simulations, progress=progress)
    else:
        if shared or own:
            raise ReleaseError("shared= and own= are for releases of several datasets; here is one.")
        one, its_bank, size = (the_only(value) for value in (release, bank, records))
        one = loaded(one)
        used = bank_of(one, its_bank)
        if model is not None:
            model.check_bank(used)
        if size is not None and not is_whole(size, 1):
            raise ReleaseError(f"records={size!r}: a whole number of at least 1.")
        sizes = sizes_of(one, used) if size is None else (size,)
        evidence = replace(evidence_of(one, used, support), simulations=simulations, show=progress, sizes=sizes)
        found = tree_and_doubts(one, evidence, used, **given)
    tree, doubts = found
    for kind, said in doubts:
        warnings.warn(said, kind, stacklevel=2)
    return tree


def the_only(value: Any) -> Any:
    """Return what stands alone in a list, or what is none."""
    if not isinstance(value, list | tuple):
        return value
    if len(value) != 1:
        raise ReleaseError(f"one release has one bank and one number of records; here is a list of {len(value)}.")
    return value[0]


def loaded(release: Given) -> Release | NoisySummary:
    """Return a release, read from its file where it is given as one."""
    return release if isinstance(release, Release | NoisySummary) else Release.load(release)


def tree_and_doubts(
    release: Release | NoisySummary | Sources,
    evidence: Evidence,
    used: Bank,
    *,
    model: Model | None,
    method: str,
    draws: int,
    rng: np.random.Generator,
    known_doubts: tuple[str, ...] = (),
) -> tuple[xarray.DataTree, list[Doubt]]:
    """Return the posterior that one dataset gives, and what has to be warned of."""
    name, answer = inferred(evidence, used, model, method, draws, rng)
    answer = answer.doubted(*known_doubts)
    outside = drawn_where_draws_fail(used, answer.theta, answer.rows)
    doubts = [*failures_in_words(used), *as_doubts(in_words(answer.reasons, name, model), weakness(used), outside)]
    stats = {} if answer.rows is None else {"bank_row": answer.rows}
    notes = {
        "method": name,
        **answer.diagnostics,
        "rung": "exact" if name == "weights" else name,
        "trusted": not answer.reasons,
        "reasons": "; ".join(answer.reasons),
    }
    if used.header.proposal is not None:
        notes["narrowed"] = used.header.proposal.describe()
    released = None if evidence.summary is None else evidence.summary.centre
    return as_tree(release, used, answer.theta, stats, notes, answer.predicted, released), doubts


def failures_in_words(bank: Bank) -> list[Doubt]:
    """Return that draws of a bank failed, where these are many, as a warning."""
    failed = failures_and_where(bank)
    return [] if failed is None else [(SimulationWarning, f"{failed} The posterior knows nothing of where they fail.")]


def as_doubts(*said: str | None) -> list[Doubt]:
    """Return what speaks against an answer as warnings."""
    return [(PosteriorWarning, one) for one in said if one is not None]


def inferred(
    evidence: Evidence, bank: Bank, model: Model | None, method: str, draws: int, rng: np.random.Generator
) -> tuple[str, Answer]:
    """Return which method answered, and its answer, with all that speaks against it: of a release or of a rehearsal."""
    with one_blas_thread():
        name, answer = answered(method, evidence, bank, model, draws, rng)
        return name, answer.doubted(*reasons_against(evidence, bank, answer, rng))


def in_words(reasons: tuple[str, ...], name: str, model: Model | None) -> str | None:
    """Return as a warning what speaks against an answer, and the way out; None where nothing does."""
    if not reasons:
        return None
    said = "; ".join(reason.removesuffix(".") for reason in reasons)
    if name != "local":
        return f"{said}."
    way = "Allow more simulations=..., or look at method='regression'" if model else "Give the simulator, model=..."
    return f"the answer is not to be trusted as it stands: {said}. {way}."


def evidence_of(release: Release | NoisySummary, bank: Bank, support: Any = None) -> Evidence:
    """Return what posterior methods see of a release and the bank that it used."""
    known, draws = support_of(bank, support), BankDraws(bank)
    summary = summary_of(release)
    if summary is not None:
        likelihoods = partial(log_likelihoods, summary, bank)
        return Evidence(draws=draws, support=known, summary=summary, likelihoods=likelihoods)
    assert isinstance(release, Release)  # noqa: S101 - anything else has a summary
    if not np.array_equal(bank.take(release.accepted), np.array(release.theta).reshape(-1, len(bank.parameters))):
        raise ReleaseError("the release's parameters are not those of the bank's rows; one of them was edited.")
    accepted = np.array(release.accepted, dtype=np.int64)
    return Evidence(draws=draws, support=known, accepted=accepted, gaps=release.gaps)


def summary_of(release: Release | NoisySummary) -> Noisy | None:
    """Return the noisy summary that a posterior starts from, None where a release has accepted draws instead."""
    return release if isinstance(release, NoisySummary) else release.summary


def support_of(bank: Bank, given: Any = None) -> Support | None:
    """Return where the prior allows the parameters, as given or as the bank says, None where nobody does."""
    return bank.header.support if given is None else as_support(given, len(bank.parameters))


def bank_of(release: Release | NoisySummary, bank: Bank | str | os.PathLike[str]) -> Bank:
    """Return the part of a bank that a release used; of somebody else's statistics, all of it."""
    bank = bank if isinstance(bank, Bank) else Bank(bank)
    if isinstance(release, NoisySummary):
        earlier = earlier_bank(release, bank)
        bank = bank if earlier is None else earlier
        check_summary(release, bank)
        release.check_records(bank.records)
        return bank
    try:
        used = bank.containing(release.bank.digest, release.bank.shards)
    except BankError as error:
        earlier = earlier_bank(release, bank)
        if earlier is not None:
            return earlier
        raise ReleaseError(f"the release was made with another bank: {error} {_what_differs(release, bank)}") from None
    if used.parameters != release.parameters or used.draws != release.bank.draws:
        raise ReleaseError("the release names other parameters or another number of draws than its bank has.")
    return used


def earlier_bank(release: Release | NoisySummary, bank: Bank) -> Bank | None:
    """Return what a narrowed bank holds of the summary that it was narrowed with, for releases of that; None else."""
    proposal, earlier = bank.header.proposal, bank.earlier
    if proposal is None or earlier is None:
        return None
    if isinstance(release, NoisySummary):
        return earlier if summary_digest(release) == proposal.summary else None
    named = release.bank.digest, release.bank.draws, release.parameters
    return earlier if named == (proposal.bank, proposal.draws, bank.parameters) else None


def summary_digest(summary: Noisy) -> str:
    """Return a digest of released numbers and of how much noise they carry."""
    said = json.dumps([summary.centre.tolist(), np.asarray(summary.variances, dtype=np.float64).tolist()])
    return hashlib.sha256(said.encode()).hexdigest()


def _what_differs(release: Release, bank: Bank) -> str:
    """Return in words what a release and a bank that is not its own say differently, and where its own may lie."""
    if (release.model, release.parameters) != (bank.header.model, bank.parameters):
        return (
            f"Its model is {bank.header.model!r} ({', '.join(bank.parameters)}), the release's {release.model!r} "
            f"({', '.join(release.parameters)})."
        )
    numbers = bank.header.width if release.summary is None else len(release.summary.values)
    if numbers != bank.header.width:
        differs = f"Its summaries have {bank.header.width} numbers, the release's {numbers}: another distance."
        if isinstance(bank.distance, LearnedSummary):
            return f"{differs} This one was learned: take the bank as it was before that."
        return f"{differs} {_LEARNED}"
    if bank.draws < release.bank.draws:
        return f"It has {bank.draws} draws, the release's {release.bank.draws}: take the whole bank."
    return f"Its seed, its records, its prior or its distance is another one. {_LEARNED}"
