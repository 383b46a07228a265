"""Commands of the modeler: everything before a private record is touched."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from abcdp._common.files import load_json
from abcdp._common.storage import shown as without_secrets
from abcdp.cli.decision import Audit, Html, account_for, decision_of_plan
from abcdp.cli.mechanism import Whom
from abcdp.cli.models import find_model, find_object
from abcdp.cli.output import Json, Memory, say, show
from abcdp.cli.results import PAGE_SIZE, PICTURE_SIZE, check_results
from abcdp.errors import DistanceError, ModelError, PlanError, PosteriorWarning, WorkerError

_CONNECT = 15  # seconds to wait for a scheduler
_PLAN_SIZE = 4 << 20

bank_app = typer.Typer(help="Look at banks of simulations and merge them.", no_args_is_help=True, rich_markup_mode=None)


def join(app: typer.Typer) -> None:
    """Add these commands to the application."""
    app.command("simulate")(simulate)
    app.command("learn")(learn)
    app.command("train")(train)
    app.command("narrow")(narrow)
    app.command("plan")(plan)
    app.add_typer(bank_app, name="bank")


def simulate(
    model: Annotated[
        str,
        typer.Argument(
            help="A built-in model (mixture, covid, tuberculosis, outbreak, ...), or package.module:object."
        ),
    ],
    to: Annotated[
        str,
        typer.Option(help="Folder of the bank, or its URL (s3://...); an unfinished run of these settings is resumed."),
    ],
    draws: Annotated[int | None, typer.Option(help="How many parameters to draw from the prior.")] = None,
    records: Annotated[int | None, typer.Option(help="How many records each simulated dataset has.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Names the random streams: the same seed gives the same bank.")
    ] = None,
    more: Annotated[
        int | None,
        typer.Option(help="Instead of --draws: add so many draws to the finished bank; its releases stay valid."),
    ] = None,
    distance: Annotated[
        str | None, typer.Option(help="package.module:object, or a distance as JSON; the model's own by default.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(help="Use MMD with this bandwidth: a number, numbers a:b by column, or median.")
    ] = None,
    domain: Annotated[
        list[str] | None, typer.Option(help="With --bandwidth: public bounds LOW:HIGH of a column; repeat per column.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="How many work at once; one per core by default.")] = None,
    dask: Annotated[
        str | None,
        typer.Option(help="Let the workers of a Dask cluster simulate: its scheduler, tcp://host:port."),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Make only part i/n of the shards, for a batch system that runs n jobs with 1/n to n/n and the same "
            "options, on a folder or URL that all reach. The job that finds all shards there closes the bank; if none "
            "does, the same command without --shard does. A killed job is run again."
        ),
    ] = None,
    shard_draws: Annotated[int | None, typer.Option(help="Draws per shard: what a crash can lose.")] = None,
    precision: Annotated[
        str,
        typer.Option(
            help="double, or single: summaries with 32 bits, in half of the room, where rounding does not show."
        ),
    ] = "double",
    as_json: Json = False,
) -> None:
    """Draw from the prior, simulate, and keep the result as a bank that can be shared.

    The bank is the same whoever makes it: threads, a Dask cluster or the jobs of a batch system. Where more than a
    fifth of the draws fail it is made all the same, and the exit code is 1; of parts, that of the job that closes it.
    """
    from abcdp.bank import Bank
    from abcdp.simulation.run import simulate as make_bank
    from abcdp.simulation.run import simulate_part

    settings: dict[str, Any] = {
        "draws": draws,
        "records": records,
        "seed": seed,
        "to": to,
        "workers": workers,
        "shard": shard_draws,
        "precision": precision,
        "progress": False if as_json else None,
    }
    found, by = find_model(model), _distance(distance, bandwidth, domain)
    part = _part(shard, more)
    check_results({}, folder=to)
    with _cluster(dask) as executor:
        if part is None:
            bank = make_bank(found, by, more=more, executor=executor, **settings)
            show(describe(bank), as_json)
            _end(bank)
            return
        there, total = simulate_part(found, by, part=part, executor=executor, **settings)
    show({"path": without_secrets(to), "shards_there": there, "shards": total, "complete": there == total}, as_json)
    if there == total:
        _end(Bank(to, by if by is not None else found.distance, memory=None))


def _end(bank: Any) -> None:
    """End with 1 where so many draws of a new bank failed that what is made of it is doubtful."""
    from abcdp.bank.failures import too_many_failed

    if too_many_failed(bank):
        raise typer.Exit(1)


def _part(text: str | None, more: int | None) -> tuple[int, int] | None:
    """Return the part of the shards written as i/n."""
    if text is None:
        return None
    if more is not None:
        raise ModelError(
            "--more goes without --shard: a job that is run twice would add twice. Simulate a bank of another seed in "
            "parts and merge the two with abcdp bank merge."
        )
    first, _, second = text.partition("/")
    if not (first.isdigit() and second.isdigit()):
        raise ModelError(f"--shard {text!r}: write i/n, such as 3/10. Draws per shard are --shard-draws.")
    return int(first), int(second)


@contextlib.contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Yield a client of a Dask cluster, or None."""
    if address is None:
        yield None
        return
    try:
        from distributed import Client
    except ImportError:
        raise ModelError("--dask needs the library distributed: pip install 'abcdp[dask]'.") from None
    try:
        client = Client(address, timeout=_CONNECT)
    except (OSError, ValueError) as error:
        raise WorkerError(f"--dask {without_secrets(address)}: no scheduler answers there ({error}).") from None
    with client:
        yield client


def learn(
    bank: Annotated[str, typer.Argument(help="The folder or URL of a bank whose distance has a summary.")],
    to: Annotated[str, typer.Option(help="The folder or URL of the new bank.")],
    epsilon: Annotated[float, typer.Option(help="The budget of the release to come: the summary is best at it.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Its delta; Gaussian noise competes where there is one.")] = 0.0,
    unit: Whom = "record",
    records: Annotated[int | None, typer.Option(help="Public number of records; the bank's by default.")] = None,
    dims: Annotated[
        int | None, typer.Option(help="How many numbers to release; by default what is best of a few choices.")
    ] = None,
    network: Annotated[
        bool,
        typer.Option(
            "--network", help="Learn a network of each record instead: for records of several columns. Needs JAX."
        ),
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="With --network: the model of the bank, which simulates records to learn from.")
    ] = None,
    seed: Annotated[int, typer.Option(help="For a repeatable result, on the same machine.")] = 0,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Learn on the public bank which few numbers are worth their noise, and write the bank encoded by them."""
    from abcdp.bank import Bank
    from abcdp.learning.learn import learn as fit
    from abcdp.privacy.unit import Unit

    check_results({}, folder=to)
    learned = fit(
        Bank(bank, memory=memory << 20),
        epsilon=epsilon,
        delta=delta,
        unit=Unit.parse(unit),
        records=records,
        dims=dims,
        network=network,
        model=None if model is None else find_model(model),
        to=to,
        seed=seed,
    )
    explained = learned.explained if as_json else {k: f"{v:.1%}" for k, v in learned.explained.items()}
    show(
        {
            "bank": without_secrets(to),
            "explained": explained,
            "information": learned.information if as_json else f"{learned.information:.2f} nats",
            "information_before": learned.before if as_json or learned.before is None else f"{learned.before:.2f} nats",
            "numbers_per_draw": learned.bank.header.width,
            "mechanism": learned.mechanism.to_json() if as_json else str(learned.mechanism),
            "digest": learned.bank.digest,
        },
        as_json,
    )


def train(
    bank: Annotated[
        list[str],
        typer.Argument(
            help="The folder or URL of a bank whose distance has a summary. Several, with the same simulated datasets "
            "(or the same bank twice), for as many releases of one dataset."
        ),
    ],
    noise: Annotated[
        list[str] | None,
        typer.Option(help="Train for noise like that of this release (JSON file); repeat for several. Default: all."),
    ] = None,
    least_records: Annotated[
        int | None,
        typer.Option(help="Train for data of so many records up to the bank's number; records must be independent."),
    ] = None,
    members: Annotated[int, typer.Option(help="How many networks to train; where they disagree, it is said.")] = 4,
    seed: Annotated[int, typer.Option(help="Names the random numbers: the same networks on the same machine.")] = 0,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Train networks on the public bank that answer all its private summaries in milliseconds; kept beside it.

    Needs JAX: pip install 'abcdp[neural]'. A minute or two on two cores; a GPU is used where there is one.
    """
    from abcdp.bank import Bank
    from abcdp.learning.training import train as fit
    from abcdp.releases.release import Release

    made = fit(
        [Bank(one, memory=memory << 20) for one in bank],
        noise=None if not noise else [Release.load(path) for path in noise],
        least_records=least_records,
        members=members,
        seed=seed,
        progress=False if as_json else None,
    )
    shares = made.coverage if as_json else {k: f"{v:.0%}" for k, v in made.coverage.items()}
    show(
        {
            "bank": ", ".join(map(without_secrets, bank)),
            "draws": made.draws,
            "noise": list(made.noise),
            "coverage_of_90_%_intervals": shares,
            "information": made.information if as_json else f"{made.information:.2f} nats",
            "seconds": round(made.seconds, 1),
        },
        as_json,
    )


def narrow(
    release: Annotated[Path, typer.Argument(help="The file of the first release, of a private summary.")],
    bank: Annotated[str, typer.Option(help="The folder or URL of the bank that it was made with.")],
    model: Annotated[str, typer.Option(help="The model of that bank, by its name or as package.module:object.")],
    to: Annotated[
        str, typer.Option(help="The folder or URL of the new bank; an unfinished run of these settings is resumed.")
    ],
    draws: Annotated[int, typer.Option(help="How many parameters to draw around the first answer.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Names the random streams: banks of several seeds can be merged.")] = 0,
    distance: Annotated[
        str | None,
        typer.Option(help="package.module:object, or JSON, for the second release; the first one narrowed by default."),
    ] = None,
    wide: Annotated[float, typer.Option(help="How wide to draw around the first answer, by Silverman's rule.")] = 2.0,
    simulations: Annotated[int, typer.Option(help="New datasets that the first answer may take.")] = 4000,
    workers: Annotated[int | None, typer.Option(help="How many work at once; one per core by default.")] = None,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Simulate a bank around the answer to a first release, for a second one with the rest of the budget.

    For priors many times as wide as what data tell. Answers are for the prior as it was written down. abcdp plan
    --stages says what share of a budget the first release should have.
    """
    from abcdp.bank import Bank
    from abcdp.inference.narrow import narrow as make

    check_results({}, folder=to)
    made = make(
        release,
        find_model(model),
        Bank(bank, memory=memory << 20),
        distance=_distance(distance, None, None),
        draws=draws,
        to=to,
        seed=seed,
        wide=wide,
        simulations=simulations,
        workers=workers,
        progress=False if as_json else None,
    )
    show(describe(made), as_json)
    _end(made)


def plan(
    bank: Annotated[str, typer.Argument(help="The folder or URL of the bank.")],
    epsilon: Annotated[float, typer.Option(help="The privacy budget of the release to plan.")],
    unit: Whom = "record",
    delta: Annotated[
        float, typer.Option(help="The delta of P(A) <= exp(epsilon) P'(A) + delta, for every outcome A.")
    ] = 0.0,
    mechanism: Annotated[
        list[str] | None,
        typer.Option(help="Try only this: sparse-vector, nearest or private-summary; repeat for several."),
    ] = None,
    accept: Annotated[
        list[int] | None, typer.Option(help="Numbers of posterior draws to release; repeat for several.")
    ] = None,
    threshold: Annotated[
        list[float] | None, typer.Option(help="Thresholds of sparse vector to try; from the bank by default.")
    ] = None,
    learn: Annotated[bool, typer.Option("--learn/--no-learn", help="Try the summary learned on the bank.")] = True,
    learned_to: Annotated[
        str | None, typer.Option(help="Folder for the bank with the learned summary, written if that is chosen.")
    ] = None,
    records: Annotated[int | None, typer.Option(help="Records of the data; the bank's number by default.")] = None,
    model: Annotated[str | None, typer.Option(help="The model, needed where --records differs from the bank.")] = None,
    resample: Annotated[
        bool | None,
        typer.Option("--resample/--no-resample", help="Of sparse vector try this option only; both by default."),
    ] = None,
    goal: Annotated[float | None, typer.Option(help="An error to reach (about 1 is the prior).")] = None,
    region: Annotated[
        list[str] | None, typer.Option(help="Pretend observations from here: PARAMETER=LOW:HIGH; repeat for several.")
    ] = None,
    truths: Annotated[
        int, typer.Option(help="Pretended observations to choose by; as many others measure the choice.")
    ] = 100,
    stages: Annotated[
        bool,
        typer.Option(
            "--stages",
            help="Instead of a mechanism: whether two releases, the second with a bank narrowed by the first, do "
            "better than one with the same budget, and how to share it; needs --model.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="For a repeatable plan; nothing private depends on it.")] = 0,
    top_up: Annotated[
        Path | None,
        typer.Option(help="A release to be topped up to this epsilon: what the difference would gain."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the plan, for abcdp release --plan.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the candidates and the curve over epsilon.")] = None,
    html: Html = None,
    ledger: Annotated[
        str | None, typer.Option(help="With --html: the ledger of the dataset, to show its budget and what was given.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="With --html: which dataset is asked about.")] = None,
    actor: Annotated[str | None, typer.Option(help="With --html: who asks.")] = None,
    purpose: Annotated[str, typer.Option(help="With --html: why this is asked.")] = "",
    request: Annotated[str, typer.Option(help="With --html: the name of the request.")] = "",
    audit: Audit = None,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Choose the mechanism and its settings on simulated truths; no private data are read."""
    from abcdp.bank import Bank

    if stages:
        _plan_stages(Bank(bank, memory=memory << 20), model, epsilon, unit, seed, as_json)
        return
    from abcdp.planning.plan import check_learned_to
    from abcdp.planning.plan import plan as make_plan
    from abcdp.privacy.unit import Unit

    check_learned_to(learned_to)
    check_results({out: _PLAN_SIZE, plot: PICTURE_SIZE, html: PAGE_SIZE}, pictures=[plot], folder=learned_to)
    opened, whom = Bank(bank, memory=memory << 20), Unit.parse(unit)
    account = account_for(ledger, dataset, whom) if html else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # the advice says it
        made = make_plan(
            opened,
            epsilon=epsilon,
            unit=whom,
            delta=delta,
            mechanisms=mechanism or None,
            accept=accept or None,
            threshold=threshold or None,
            learn=learn,
            learned_to=learned_to,
            records=records,
            model=find_model(model) if model else None,
            resample=resample,
            goal=goal,
            region=region_of(region or []),
            truths=truths,
            seed=seed,
            progress=False if as_json else None,
            tops_up=top_up,
        )
    if out:
        made.save(out)
    if plot:
        from abcdp.reporting.plots import plan_curves, save_figure

        save_figure(plan_curves(made), plot)
    if html:
        from abcdp.reporting.page import write_text

        words = {"who": actor or "", "purpose": purpose, "request": request}
        write_text(decision_of_plan(made, opened, account, dataset=dataset, audit=audit, **words), html)
    if as_json:
        show(made.to_json(), True)
        return
    _plan_table(made)


def _plan_stages(bank: Any, model: str | None, epsilon: float, unit: str, seed: int, as_json: bool) -> None:
    """Say whether two releases do better than one, and how they share the budget."""
    from abcdp.planning.stages import plan_stages
    from abcdp.privacy.unit import Unit

    if model is None:
        raise PlanError("--stages simulates datasets that play the data: name the model, --model.")
    progress = False if as_json else None
    found = plan_stages(bank, find_model(model), epsilon=epsilon, unit=Unit.parse(unit), seed=seed, progress=progress)
    if as_json:
        errors = {f"{share:g}": [error.mean, error.error] for share, error in found.two}
        one = [found.one.mean, found.one.error]
        show({"epsilon": epsilon, "one": one, "two": errors, "share": found.share, "advice": found.advice}, True)
        return
    say(f"errors at epsilon = {epsilon:g} on {found.datasets} simulated datasets, in units of the prior's spread")
    say(f"{'one release':<37}{found.one.mean:.4f}±{found.one.error:.4f}")
    for share, error in found.two:
        say(f"two, the first with {share:>4.0%} of epsilon  {error.mean:.4f}±{error.error:.4f}")
    say(found.advice)


def region_of(texts: list[str]) -> dict[str, tuple[float, float]]:
    """Return bounds of parameters written as PARAMETER=LOW:HIGH."""
    found = {}
    for text in texts:
        name, _, bounds = text.partition("=")
        try:
            low, high = map(float, bounds.split(":"))
        except ValueError:
            raise PlanError(f"--region {text!r}: write PARAMETER=LOW:HIGH.") from None
        found[name] = (low, high)
    return found


def _plan_table(made: Any) -> None:
    """Print the best candidates, the curve and the advice."""
    say(
        f"the best candidates at epsilon = {made.mechanism.epsilon:g} on {made.truths} pretended observations "
        f"(error of the prior: {made.prior.mean:.3f})"
    )
    say(f"{'draws':>7} {'error':>13} {'coverage':>9} {'short':>6}  mechanism")
    best = sorted(made.candidates, key=lambda c: c.error.mean)
    kinds = {c.family for c in best}
    first = {kind: next(c for c in best if c.family == kind) for kind in kinds}
    for c in [c for c in best if c in best[:8] or c == first[c.family]]:
        say(
            f"{c.draws:>7} {c.error.mean:>7.3f}±{c.error.error:.3f} {c.coverage.mean:>9.0%} {c.short.mean:>6.0%}  "
            f"{_settings_of(c)}"
        )
    say(
        "short: how often the bank is too small, so that fewer draws are accepted, or carry the weights, than asked for"
    )
    say(f"\nwhat to expect, on {made.truths} others")
    for c in made.curve:
        mark = "   <- chosen" if c == made.chosen else ""
        say(f"epsilon {c.mechanism.epsilon:>8.4g}   error {c.error.mean:.3f}±{c.error.error:.3f}   {c.family}{mark}")
    if made.without_privacy is not None:
        limit = made.without_privacy
        say(f"without privacy    error {limit.mean:.3f}±{limit.error:.3f}   the same bank without noise")
    _parameters_table(made)
    say("")
    for line in made.advice:
        say(line)
    say(f"chosen: {made.mechanism}")


def _parameters_table(made: Any) -> None:
    """Print what to expect of each parameter, beside what the same bank gives without noise."""
    say("\nerror of each parameter, in units of its spread in the prior")
    without = dict(made.errors_without_privacy)
    width = max(len(name) for name, _ in made.chosen.errors)
    for name, error in made.chosen.errors:
        limit = f"   without privacy {without[name].mean:.3f}±{without[name].error:.3f}" if name in without else ""
        say(f"{name:<{width}}   {error.mean:.3f}±{error.error:.3f}{limit}")


def _settings_of(candidate: Any) -> str:
    """Return a mechanism in short: its kind, and what was set."""
    from dataclasses import MISSING, fields

    said = [candidate.family]
    for one in fields(candidate.mechanism):
        value = getattr(candidate.mechanism, one.name)
        if one.name not in ("epsilon", "accept") and (one.default is MISSING or value != one.default):
            said.append(f"{one.name}={value:.4g}" if isinstance(value, float) else f"{one.name}={value}")
    return " ".join(said)


@bank_app.command("show")
def bank_show(
    path: Annotated[str, typer.Argument(help="The folder or URL of the bank.")],
    verify: Annotated[bool, typer.Option("--verify", help="Read every shard and check it.")] = False,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Show what a bank holds."""
    from abcdp.bank import Bank
    from abcdp.bank.failures import DOUBTFUL, failed_share, where_draws_fail

    bank = Bank(path, memory=memory << 20)
    shown = describe(bank)
    if failed_share(bank) > DOUBTFUL:
        where = where_draws_fail(bank)
        shown["where_they_fail"] = f"{where.words}. {where.way_out}"
    if verify:
        bank.verify()
        shown["verified"] = True
    show(shown, as_json)


@bank_app.command("merge")
def bank_merge(
    paths: Annotated[
        list[str], typer.Argument(help="The folders or URLs of the banks; releases of the first stay valid.")
    ],
    to: Annotated[str, typer.Option(help="The folder or URL of the new bank.")],
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Merge banks of the same model, records and distance into one, each draw once."""
    from abcdp.bank import Bank

    check_results({}, folder=to)
    bank = Bank.merge(paths, to, memory=memory << 20)
    show(describe(bank), as_json)
    _end(bank)


def describe(bank: Any) -> dict[str, Any]:
    """Return what a bank holds, as plain values."""
    return {
        "model": bank.header.model,
        "parameters": list(bank.parameters),
        "prior": bank.header.prior,
        "distance": bank.distance.to_json(),
        "draws": bank.draws,
        "failed_draws": bank.failed,
        "failures": bank.failures,
        "records_per_draw": bank.records,
        "columns": list(bank.header.column_names) or bank.columns,
        **({"missing": list(bank.missing)} if bank.header.missing else {}),
        "numbers_per_draw": bank.header.width,
        **({"narrowed": _narrowing(bank)} if bank.narrowed else {}),
        "shards": len(bank.parts),
        **({"networks": bank.network().about["members"]} if bank.network() is not None else {}),
        "digest": bank.digest,
        "path": str(bank.path),
    }


def _narrowing(bank: Any) -> dict[str, Any]:
    """Return around what a bank was narrowed, as plain values."""
    import numpy as np

    proposal, weights = bank.header.proposal, np.exp(bank.log_weight)
    earlier = bank.earlier
    return {
        "in_words": proposal.describe(),
        "answer_to_a_release_of_bank": proposal.bank,
        "draws_of_the_prior_it_is_worth": float(weights.sum() ** 2 / (weights**2).sum()),
        "earlier_numbers_per_draw": 0 if earlier is None else earlier.header.width,
    }


def _distance(named: str | None, bandwidth: str | None, domain: list[str] | None) -> Any:
    """Return the distance that the options ask for, or None for the model's own."""
    from abcdp.distance import MMD, Distance, distance_from_json

    if named and (bandwidth or domain):
        raise DistanceError("--distance names a whole distance: leave --bandwidth and --domain out.")
    if named and named.lstrip().startswith("{"):
        try:
            return distance_from_json(load_json(named.encode()))
        except DistanceError:
            raise
        except ValueError as error:
            raise DistanceError(f"--distance is not valid JSON: {error}.") from None
    if named:
        found = find_object(named)
        if not isinstance(found, Distance):
            raise DistanceError(f"{named!r} is a {type(found).__name__}, not a distance.")
        return found
    if bandwidth is None:
        if domain:
            raise DistanceError("--domain goes with --bandwidth.")
        return None
    try:
        pairs = [tuple(map(float, pair.split(":"))) for pair in domain or []]
        numbers: Any = bandwidth if bandwidth == "median" else [float(b) for b in bandwidth.split(":")]
    except ValueError:
        raise DistanceError(
            "--bandwidth takes a number, a:b:c by column, or median; --domain takes LOW:HIGH."
        ) from None
    if isinstance(numbers, list) and len(numbers) == 1:
        numbers = numbers[0]
    return MMD(numbers, pairs or None)
