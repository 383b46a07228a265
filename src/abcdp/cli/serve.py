"""The command that runs an owner's server."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from abcdp.cli.output import needing, say
from abcdp.errors import StorageError


def join(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("serve")(serve)


def serve(
    config: Annotated[
        Path | None, typer.Option(help="The settings, owner.toml; abcdp owner init makes a folder with one.")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve made-up records, with an account of each role, to try things.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option(help="With --demo: a new folder for it; a temporary one by default.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="With --demo: where to listen; 0 for any.")] = 8642,
    worker: Annotated[
        bool, typer.Option("--worker/--no-worker", help="Compute approved requests too, in a process beside it.")
    ] = True,
) -> None:
    """Serve datasets to modelers: banks come in, approved releases go out, and the ledger pays."""
    if demo == (config is not None) or (folder is not None and not demo):
        raise StorageError("say what to serve: --config owner.toml, or --demo [--folder NEW].")
    with needing("server"):
        from abcdp.service.serving import serve as run
        from abcdp.service.settings import load
    if config is not None:
        run(load(config), worker=worker, ready=lambda address: say(f"abcdp serves at {address}", err=True))
    elif folder is not None:
        _demo(folder, port, worker)
    else:
        with tempfile.TemporaryDirectory(prefix="abcdp-serve-") as place:
            _demo(Path(place) / "owner", port, worker)


def _demo(folder: Path, port: int, worker: bool) -> None:
    from abcdp.service.serving import serve as run
    from abcdp.service.setup import make_sample

    say("making a sample server ...", err=True)
    sample = make_sample(folder, port=port)
    run(sample.settings, worker=worker, ready=lambda address: _welcome(sample, address))


def _welcome(sample: Any, address: str) -> None:
    """Print where it is, who there is, and what to try."""
    from abcdp.service.setup import SAMPLE, SAMPLE_EPSILON, SAMPLE_RECORDS

    folder = sample.settings.path.parent
    secrets = folder / "secrets"
    say(
        f"abcdp serves at {address}   (its API: {address}/docs)\n\n"
        f"dataset {SAMPLE!r}: {SAMPLE_RECORDS} made-up people, a budget of epsilon = {SAMPLE_EPSILON}\n"
        "accounts and their keys, for this demonstration alone:"
    )
    roles = {"admin": "administrator", "anna": "approver", "otto": "auditor", "mia": "modeler"}
    for id, key in sample.keys.items():
        say(f"  {roles[id]:<14} {id:<6} {key}")
    say(
        "\nin another terminal, as the modeler:\n"
        f"  abcdp remote login {address} --key-file {secrets / 'mia.key'}\n"
        f"  abcdp simulate epidemic --draws 2000 --records {SAMPLE_RECORDS} --seed 1 --to bank\n"
        f"  abcdp remote ask bank --dataset {SAMPLE} --purpose 'how fast it spread' --mechanism private-summary "
        "--epsilon 1 --no-wait\n"
        "as the approver:\n"
        f"  abcdp owner queue --server {address} --key-file {secrets / 'anna.key'}\n"
        f"  abcdp owner approve REQUEST --server {address} --key-file {secrets / 'anna.key'}\n"
        "as the modeler again:\n"
        "  abcdp remote wait REQUEST --out release.json\n"
        "  abcdp report release.json --bank bank\n\n"
        "stop it with Ctrl-C"
    )
    sys.stdout.flush()
