"""Commands of a modeler whose data lie behind an owner's server."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from abcdp._common.files import load_json, write_atomically
from abcdp.cli.mechanism import Delta, Gaps, NoiseShape, Norm, Resample, Split, from_options
from abcdp.cli.output import Json, Memory, say, show
from abcdp.cli.results import check_results
from abcdp.errors import MechanismError, ServerError

app = typer.Typer(help="Ask an owner's server: from a key to a release.", no_args_is_help=True, rich_markup_mode=None)
_RELEASE_SIZE = 1 << 20  # bytes; how long it will be is known when it is there

Server = Annotated[
    str | None, typer.Option(help="The address of the server, as https://data.example.org; else that of the login.")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(help="A file with the key, of mode 0600; else that of the login, or the variable ABCDP_KEY."),
]
Verify = Annotated[
    Path | None, typer.Option(help="The certificates of the authority that signed the server's, where it is your own.")
]
Id = Annotated[str, typer.Argument(help="The id of the request.")]
Out = Annotated[Path, typer.Option(help="Where to write the release.")]
MaybeOut = Annotated[Path | None, typer.Option(help="Where to write the release, once it is there.")]


def join(application: typer.Typer) -> None:
    """Add these commands to the application."""
    application.add_typer(app, name="remote")


@app.command("login")
def login(
    server: Annotated[str, typer.Argument(help="The address of the server, as https://data.example.org.")],
    key_file: Annotated[
        Path | None, typer.Option(help="A file with the key, of mode 0600; it is asked for otherwise.")
    ] = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Try a server and its key, and remember both in a file that nobody else may read."""
    from abcdp.service.client import Client
    from abcdp.service.connection import found_key

    typed = typer.prompt("key", hide_input=True, err=True) if key_file is None and sys.stdin.isatty() else None
    key = found_key(typed, key_file)
    certificates = None if verify is None else str(verify.absolute())
    with Client(server, key, verify=certificates or True) as client:
        me = client.me()
    place = _login_file()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    content = json.dumps({"server": server, "key": key, "verify": certificates}, indent=1) + "\n"
    write_atomically(place, lambda temporary: _write_secret(temporary, content))
    show({"server": server, "account": me.get("name", ""), "login": str(place)}, as_json)


@app.command("datasets")
def datasets(
    name: Annotated[str | None, typer.Argument(help="One of them; all that are open to you by default.")] = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Show the public descriptions of the datasets that are open to you."""
    with _client(server, key_file, verify) as client:
        found = client.datasets() if name is None else [client.dataset(name)]
    if as_json:
        show({"datasets": found} if name is None else found[0], as_json)
    elif not found:
        say("no dataset is open to you; ask the owner for one.")
    for one in [] if as_json else found:
        show(one, as_json)


@app.command("upload")
def upload(
    bank: Annotated[str, typer.Argument(help="The folder or URL of the bank.")],
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Send a bank, or what the server does not have of it, and wait until the server has checked it."""
    from abcdp.bank import Bank

    with _client(server, key_file, verify) as client:
        show({"bank": client.upload(Bank(bank, memory=memory << 20)), "state": "ready"}, as_json)


@app.command("ask")
def ask(
    bank: Annotated[str, typer.Argument(help="The folder or URL of the bank; it is sent where it is not there.")],
    dataset: Annotated[str, typer.Option(help="The dataset of the server that is asked about.")],
    purpose: Annotated[str, typer.Option(help="Why this is asked; whoever approves it reads this.")],
    mechanism: Annotated[
        Literal["sparse-vector", "nearest", "private-summary"], typer.Option(help="How to answer; see --plan too.")
    ] = "sparse-vector",
    epsilon: Annotated[float | None, typer.Option(help="The privacy budget of this release.")] = None,
    accept: Annotated[int | None, typer.Option(help="Stop after this many accepted draws.")] = None,
    threshold: Annotated[float | None, typer.Option(help="The tolerance, in the units of the distance.")] = None,
    plan: Annotated[Path | None, typer.Option(help="Take the mechanism from a plan instead.")] = None,
    resample: Resample = False,
    delta: Delta = None,
    split: Split = None,
    noise_shape: NoiseShape = None,
    gaps: Gaps = False,
    norm: Norm = None,
    request: Annotated[str, typer.Option(help="A name for this request; fresh noise needs a new one.")] = "",
    top_up: Annotated[
        str | None,
        typer.Option(help="A release of this server, its file or digest, to replace with less noise."),
    ] = None,
    draft: Annotated[
        bool, typer.Option("--draft", help="Leave it with the server, to be rehearsed and submitted later.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until it is approved and answered.")] = True,
    out: MaybeOut = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Ask for a release: the bank is sent, and the request waits for the owner's approval.

    The same command again asks nothing twice: it says where the request stands, and writes the same bytes.
    """
    from abcdp.bank import Bank
    from abcdp.planning.plan import Plan

    options = {
        "epsilon": epsilon,
        "accept": accept,
        "threshold": threshold,
        "resample": resample,
        "delta": delta,
        "split": split,
        "noise": noise_shape,
        "gaps": gaps,
        "norm": norm,
    }
    if plan is not None and any(value is not None and value is not False for value in options.values()):
        raise MechanismError("--plan brings its own settings: leave --epsilon and all other settings out.")
    chosen: Any = from_options(mechanism, options) if plan is None else Plan.load(plan)
    check_results({out: _RELEASE_SIZE})
    with _client(server, key_file, verify) as client:
        found = client.ask(
            dataset,
            Bank(bank, memory=memory << 20),
            chosen,
            request=request,
            purpose=purpose,
            tops_up=_topped_up(top_up),
            draft=draft,
            wait=wait,
        )
        _show_end(found, out, as_json, waited=wait and not draft)


@app.command("status")
def status(
    request: Annotated[str | None, typer.Argument(help="The id of a request; all of yours by default.")] = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Show where a request stands, or all of yours."""
    with _client(server, key_file, verify) as client:
        found = client.requests() if request is None else [client.request(request)]
    if as_json:
        values = [dict(one.values) for one in found]
        show({"requests": values} if request is None else values[0], as_json)
    for one in [] if as_json else found:
        say(one.describe())


@app.command("wait")
def wait(
    request: Id,
    timeout: Annotated[float | None, typer.Option(help="Seconds to wait at most.")] = None,
    out: MaybeOut = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Wait until a request has come to its end. The exit code is 1 where there is no release."""
    check_results({out: _RELEASE_SIZE})
    with _client(server, key_file, verify) as client:
        _show_end(client.wait(request, timeout=timeout), out, as_json, waited=True)


@app.command("submit")
def submit(
    request: Id, server: Server = None, key_file: KeyFile = None, verify: Verify = None, as_json: Json = False
) -> None:
    """Ask for the approval of a draft: its price is held from then on."""
    with _client(server, key_file, verify) as client:
        _show_end(client.submit(request), None, as_json, waited=False)


@app.command("withdraw")
def withdraw(
    request: Id, server: Server = None, key_file: KeyFile = None, verify: Verify = None, as_json: Json = False
) -> None:
    """Take a request back that has not been charged."""
    with _client(server, key_file, verify) as client:
        _show_end(client.withdraw(request), None, as_json, waited=False)


@app.command("rehearse")
def rehearse(
    request: Id,
    out: Annotated[Path | None, typer.Option(help="Where to write the specimen (JSON).")] = None,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Let the server make a specimen of what would leave, from a simulation of the bank; nothing is charged."""
    check_results({out: _RELEASE_SIZE})
    with _client(server, key_file, verify) as client:
        made = client.rehearse(request)
    if out is not None:
        text = json.dumps(made, indent=1) + "\n"
        write_atomically(out, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    show({"rehearsal": str(out)} if out is not None and not as_json else made, as_json)


@app.command("result")
def result(
    request: Id,
    out: Out,
    server: Server = None,
    key_file: KeyFile = None,
    verify: Verify = None,
    as_json: Json = False,
) -> None:
    """Write the release that answers a request: the same bytes every time."""
    check_results({out: _RELEASE_SIZE})
    with _client(server, key_file, verify) as client:
        release = client.result(request)
    release.save(out)
    show(_values_of(release, out, as_json), as_json)


def _show_end(found: Any, out: Path | None, as_json: bool, *, waited: bool) -> None:
    """Show where a request stands and write its release, if it is there; the exit code is 1 where it was waited for."""
    there = found.state == "visible"
    values: dict[str, Any] = {"id": found.id, "state": found.state}
    values |= {name: told for name in ("price", "leaves", "reason") if (told := found.values.get(name)) is not None}
    if there and out is not None:
        release = found.release
        release.save(out)
        values |= _values_of(release, out, as_json)
    show(values, as_json)
    if waited and not there:
        raise typer.Exit(1)


def _values_of(release: Any, out: Path, as_json: bool) -> dict[str, Any]:
    guarantee = release.guarantee.to_json() if as_json else release.guarantee.describe()
    return {"release": str(out), "mechanism": release.mechanism.kind, "guarantee": guarantee}


def _topped_up(given: str | None) -> Any:
    """Return the release of a file, or a digest as it is."""
    from abcdp.releases.release import Release

    return Release.load(given) if given is not None and Path(given).exists() else given


def _client(server: str | None, key_file: Path | None, verify: Path | None) -> Any:
    """Return the client of the options, and of the login for what they leave out."""
    from abcdp.service.client import Client

    known = _remembered()
    if server is not None and server != known.get("server"):  # a key is for its own server alone
        known = {}
    place = server or known.get("server")
    if not place:
        raise ServerError("no server is named: give --server, or log in once with abcdp remote login.")
    certificates = verify or known.get("verify") or True
    if key_file is not None:
        return Client(place, key_file=key_file, verify=certificates)
    return Client(place, known.get("key"), verify=certificates)


def _login_file() -> Path:
    return Path(os.environ.get("ABCDP_LOGIN") or Path.home() / ".config/abcdp/login.json")


def _remembered() -> dict[str, Any]:
    """Return what the login left, nothing without one."""
    from abcdp.service.connection import read_secret

    place = _login_file()
    if not place.exists():
        return {}
    with contextlib.suppress(ValueError):
        values = load_json(read_secret(place))
        if isinstance(values, dict) and all(isinstance(values.get(name), str) for name in ("server", "key")):
            return values
    raise ServerError(f"{place} is damaged and holds no login; log in again with abcdp remote login.")


def _write_secret(place: Path, content: str) -> None:
    with os.fdopen(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(content)
