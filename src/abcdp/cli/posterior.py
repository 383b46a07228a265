"""The command that makes one posterior of a release, or of several."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from abcdp.cli.models import find_model
from abcdp.cli.output import Json, Memory, say, show
from abcdp.cli.results import PAGE_SIZE, check_results

Banks = Annotated[
    list[str], typer.Option("--bank", help="The folder or URL of the bank: one for all releases, or one for each.")
]
Shared = Annotated[
    str | None, typer.Option(help="With several datasets: parameters that all have in common, with commas; or --own.")
]
Own = Annotated[
    str | None, typer.Option(help="Parameters that each dataset has for itself, with commas; by default none.")
]
Datasets = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        help="Which dataset each release is of, in the order of the releases, the same name for the same records; by "
        "default what each release says.",
    ),
]
Records = Annotated[
    list[int] | None,
    typer.Option(help="How many records the data have, where a release does not tell: once for all, or for each."),
]


def join(app: typer.Typer) -> None:
    """Add this command to the application."""
    app.command("posterior")(posterior)


def posterior(
    releases: Annotated[list[Path], typer.Argument(help="The files of the releases.")],
    bank: Banks,
    shared: Shared = None,
    own: Own = None,
    dataset: Datasets = None,
    records: Records = None,
    model: Annotated[
        str | None, typer.Option(help="The model, as package.module:object, to simulate around the answer.")
    ] = None,
    simulations: Annotated[int, typer.Option(help="With a model: how many simulations may be made.")] = 4000,
    method: Annotated[str, typer.Option(help="How the posterior is made; auto chooses.")] = "auto",
    draws: Annotated[int, typer.Option(help="Draws of the posterior.")] = 1000,
    seed: Annotated[int, typer.Option(help="For a repeatable answer; nothing private depends on it.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the posterior as netCDF.")] = None,
    memory: Memory = 4096,
    as_json: Json = False,
) -> None:
    """Make the posterior of a release; or one of several, of one dataset or of many, at no further cost.

    Releases of one dataset share the sampling error of its records, those of different datasets are independent.
    """
    from abcdp.inference.arviz import save_netcdf
    from abcdp.inference.posterior import posterior as infer

    check_results({out: PAGE_SIZE})
    tree = infer(
        list(releases),
        opened(bank, memory),
        **grouped(shared, own, dataset, records),
        model=find_model(model) if model else None,
        simulations=simulations,
        method=method,
        draws=draws,
        seed=seed,
        progress=False if as_json else None,
    )
    if out:
        save_netcdf(tree, out)
    found = {"parameters": _numbers(tree), **_about(tree), **({"netcdf": str(out)} if out else {})}
    if as_json:
        show(found, True)
        return
    _table(found.pop("parameters"))
    show(found, False)


def grouped(
    shared: str | None, own: str | None, datasets: list[str] | None, records: list[int] | None
) -> dict[str, Any]:
    """Return what is said of several releases, as the options say it."""
    names = {
        word: [name.strip() for name in text.split(",") if name.strip()] if text else []
        for word, text in (("shared", shared), ("own", own))
    }
    sizes = records[0] if records and len(records) == 1 else records or None
    return {**names, "datasets": datasets or None, "records": sizes}


def opened(banks: list[str], memory: int) -> list[Any]:
    """Return banks, each place opened once, so that what they share is read once."""
    from abcdp.bank import Bank

    found = {place: Bank(place, memory=memory << 20) for place in dict.fromkeys(banks)}
    return [found[place] for place in banks]


def _numbers(tree: Any) -> dict[str, dict[str, float]]:
    """Return mean, spread and central 90 % interval of each parameter."""
    import numpy as np

    found = {}
    for name, values in tree["posterior"].data_vars.items():
        draws = np.ravel(values)
        low, high = np.quantile(draws, [0.05, 0.95]).tolist()
        found[str(name)] = {"mean": float(draws.mean()), "sd": float(draws.std()), "low": low, "high": high}
    return found


def _about(tree: Any) -> dict[str, Any]:
    """Return on which rung an answer stands, what speaks against it, and what protects whom."""
    words = ("rung", "trusted", "reasons", "simulations", "grouping", "shared", "own", "guarantee")
    found = {word: tree.attrs[word] for word in words if tree.attrs.get(word) not in (None, "")}
    return found | {"trusted": bool(tree.attrs["trusted"])}


def _table(parameters: dict[str, dict[str, float]]) -> None:
    width = max(len("parameter"), *map(len, parameters))
    say(f"{'parameter':<{width}} {'mean':>11} {'sd':>10} {'5 %':>11} {'95 %':>11}")
    for name, one in parameters.items():
        say(f"{name:<{width}} {one['mean']:>11.4g} {one['sd']:>10.3g} {one['low']:>11.4g} {one['high']:>11.4g}")
    say("")
