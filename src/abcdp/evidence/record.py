"""A record by which anybody makes a posterior, its report and its figures again, and sees whether they agree.

Numbers agree exactly on the same kind of machine with the same versions. Elsewhere sums may be rounded otherwise, and
then a draw may be another one: means and spreads have to agree within their Monte Carlo error. Figures are compared by
the numbers behind them, and pages by their text: pixels depend on fonts.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
import tempfile
import warnings
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_number, is_whole
from abcdp.bank import Bank
from abcdp.errors import EvidenceError
from abcdp.evidence.versions import versions
from abcdp.inference.arviz import save_netcdf
from abcdp.inference.posterior import bank_of, posterior
from abcdp.releases.release import Release

FORMAT = 1
ROUNDING = 1e-9  # of a spread: far more than another order of sums changes (1e-14 was seen between two processes)
MOST_DRAWS = 10**6  # that a stranger's record may ask for
ERRORS = 5.0  # standard errors of the difference of two runs, which two runs exceed once in a million
_PICTURE = re.compile(r'src="data:image/png;base64,([A-Za-z0-9+/=]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a posterior is made: all that it depends on beside the release and the bank."""

    method: str = "auto"
    draws: int = 1000
    seed: int = 0


def read_record(values: Any) -> tuple[Mapping[str, Any], Settings]:
    """Return a record that may be a stranger's, and its settings, or raise where it is none."""
    try:
        settings = Settings(**values["settings"])
        names = [values[name] for name in ("release", "bank")] + list(values["versions"].values())
        sound = values["format"] == FORMAT and all(isinstance(name, str) for name in [*names, settings.method])
        sound = sound and is_whole(settings.draws, 1, MOST_DRAWS) and is_whole(settings.seed, 0)
        sound = sound and (values["results"] is None or _sound(values["results"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        sound = False
    if not sound:
        raise EvidenceError("the record is damaged, or of another version of abcdp; get the folder anew.")
    return values, settings


def _sound(results: Any) -> bool:
    figures, numbers = results["figures"], [results["effective"]]
    for name in ("mean", "sd", "low", "high"):
        numbers += [one[name] for one in results["parameters"].values()]
    for one in figures.values():
        numbers += [number for mean, spread in one["parts"] for number in (mean, spread)]
    texts = [results["method"], results["report"]["sha256"], figures["marginals"]["sha256"]]
    texts += [one["sha256"] for one in figures.values()]
    finite = all(is_number(number) and math.isfinite(number) for number in numbers)
    return finite and bool(results["parameters"]) and all(isinstance(text, str) for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A posterior with its report, in files, and what is written down of them."""

    tree: Any
    posterior: bytes
    report: str
    record: dict[str, Any]


def results_of(release: Release, bank: Bank, settings: Settings) -> Results | None:
    """Make the posterior and the report of a release; None where it accepted no draw, so that there is no posterior."""
    if not release.accepted and release.summary is None:
        return None
    from abcdp.reporting.report import report

    used = bank_of(release, bank)
    with tempfile.TemporaryDirectory(prefix="abcdp-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what speaks against an answer stands in its attributes and on the page
        how = settings
        tree = posterior(release, used, method=how.method, draws=how.draws, seed=how.seed, progress=False)
        save_netcdf(tree, Path(folder) / "posterior.nc")
        page = report(release, used, Path(folder) / "report.html").read_text(encoding="utf-8")
        content = (Path(folder) / "posterior.nc").read_bytes()
    return Results(tree=tree, posterior=content, report=page, record=_written(tree, page))


def record_of(release: Release, settings: Settings, results: Results | None) -> dict[str, Any]:
    """Return what somebody needs to make results again, and what came out."""
    return {
        "format": FORMAT,
        "release": release.digest,
        "bank": release.bank.digest,
        "settings": {"method": settings.method, "draws": settings.draws, "seed": settings.seed},
        "versions": versions(),
        "tolerance": {"rounding": ROUNDING, "standard_errors": ERRORS},
        "results": None if results is None else results.record,
    }


def _written(tree: Any, page: str) -> dict[str, Any]:
    attributes = tree.attrs
    return {
        "method": str(attributes["method"]),
        "trusted": bool(attributes["trusted"]),
        "reasons": str(attributes["reasons"]),
        "draws": int(tree["posterior"].sizes["draw"]),
        "effective": _effective(tree),
        "parameters": {str(name): _moments(values) for name, values in tree["posterior"].data_vars.items()},
        "figures": {
            name: {"sha256": _digest(*parts), "parts": [[float(p.mean()), float(p.std())] for p in parts]}
            for name, parts in _behind(tree).items()
        },
        "report": {"sha256": _text_digest(page), "pictures": _sizes(page)},
    }


def _effective(tree: Any) -> float:
    draws = float(tree["posterior"].sizes["draw"])
    return min(draws, float(tree.attrs.get("effective_sample_size", draws)))


def _moments(values: Any) -> dict[str, float]:
    draws = np.ravel(values)
    low, high = np.quantile(draws, [0.05, 0.95]).tolist()
    spread = float(draws.std(ddof=1)) if len(draws) > 1 else 0.0
    return {"mean": float(draws.mean()), "sd": spread, "low": low, "high": high}


def _behind(tree: Any) -> dict[str, list[FloatArray]]:
    """Return the numbers that each figure of a report shows."""
    names = [str(name) for name in tree["posterior"].data_vars]
    draws = [np.ravel(tree[group][name]) for group in ("posterior", "prior") for name in names]
    found = {"marginals": draws} | ({"pairs": draws} if len(names) > 1 else {})
    if "observed_data" in tree.children:
        again, seen = tree["posterior_predictive"]["summary"].values[0], tree["observed_data"]["summary"].values
        found["check"] = [*again.T, *seen[:, None]]
    return found


def _digest(*parts: FloatArray) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(np.ascontiguousarray(part, dtype="<f8").tobytes())
    return total.hexdigest()


def _text_digest(page: str) -> str:
    return hashlib.sha256(_PICTURE.sub("", page).encode()).hexdigest()


def _sizes(page: str) -> list[list[int]]:
    """Return width and height of each picture of a page."""
    return [list(struct.unpack(">II", b64decode(found[:64])[16:24])) for found in _PICTURE.findall(page)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Whether what was made again is what was recorded: `exact`, to the last digit, or within what is stated."""

    agrees: bool
    exact: bool
    said: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"agrees": self.agrees, "exact": self.exact, "said": list(self.said)}


def compare(record: Mapping[str, Any], made: Results | None) -> Agreement:
    """Return whether results agree with those of a record, and in which words."""
    there, here = record["results"], None if made is None else made.record
    now = versions()
    other = [
        f"{n} {old} there, {now.get(n, 'none')} here" for n, old in record["versions"].items() if now.get(n) != old
    ]
    said = [f"Other versions: {'; '.join(other)}." if other else "The versions are the same."]
    if there is None or here is None:
        same = there is None and here is None
        said.append(
            "No results were recorded, and none can be made: no draw was accepted."
            if same
            else "The record has no results to compare with: it was written without a bank."
        )
        return Agreement(agrees=same, exact=same, said=tuple(said))
    words = [_numbers(there, here), _figures(there, here), _page(there, here, bool(other))]
    said += [text for _, text in words]
    return Agreement(
        agrees=all(grade > 0 for grade, _ in words), exact=all(grade == 2 for grade, _ in words), said=tuple(said)
    )


def _numbers(there: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[int, str]:
    """Return 2 where draws are the same, 1 where moments agree, 0 where they do not; and that in words."""
    if _same_draws(there, here):
        return 2, "The draws of the posterior are the same, to the last digit."
    if (there["method"], set(there["parameters"])) != (here["method"], set(here["parameters"])):
        return 0, f"The posterior was made by {there['method']} there and by {here['method']} here: it does not agree."
    share = math.sqrt(1.0 / max(there["effective"], 1.0) + 1.0 / max(here["effective"], 1.0))
    pairs = {name: (_pair(old), _pair(here["parameters"][name])) for name, old in there["parameters"].items()}
    off = {name: _off(*pair) / (ROUNDING + ERRORS * share) for name, pair in pairs.items()}
    worst = max(off, key=lambda name: off[name])
    if not off[worst] <= 1.0:
        return 0, f"The posterior does not agree: {worst} is {off[worst]:.1f} times as far off as is allowed."
    return 1, (
        f"The posterior agrees within {ERRORS:g} standard errors of two runs (furthest: {worst}, {off[worst]:.2g} of "
        "that)."
    )


def _same_draws(there: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
    return bool(there["figures"]["marginals"]["sha256"] == here["figures"]["marginals"]["sha256"])


def _pair(moments: Mapping[str, float]) -> tuple[float, float]:
    return moments["mean"], moments["sd"]


def _off(old: Sequence[float], new: Sequence[float]) -> float:
    """Return how far two pairs of mean and spread are apart, in spreads."""
    gap, spread = max(abs(old[0] - new[0]), abs(old[1] - new[1])), max(old[1], new[1])
    return gap / spread if spread > 0 else gap / max(abs(old[0]), 1e-300)


def _figures(there: Mapping[str, Any], here: Mapping[str, Any]) -> tuple[int, str]:
    old, new = there["figures"], here["figures"]
    if {name: len(one["parts"]) for name, one in old.items()} != {n: len(one["parts"]) for n, one in new.items()}:
        return 0, "There are other figures than were recorded."
    names = ", ".join(old)
    if all(new[name]["sha256"] == one["sha256"] for name, one in old.items()):
        return 2, f"The figures ({names}) show the same numbers."
    apart = [_off(a, b) for name, one in old.items() for a, b in zip(one["parts"], new[name]["parts"], strict=True)]
    if max(apart) <= ROUNDING:
        return 1, f"The figures ({names}) show the same numbers within {ROUNDING:g} of their spread."
    if _same_draws(there, here):
        return 0, f"The figures ({names}) do not show the same numbers."
    return 1, f"The figures ({names}) show what was made here, of other draws."


def _page(there: Mapping[str, Any], here: Mapping[str, Any], other_versions: bool) -> tuple[int, str]:
    if there["report"]["sha256"] == here["report"]["sha256"]:
        return 2, "The report says the same, word for word."
    if other_versions or there["figures"] != here["figures"]:
        return 1, "The report has other words, as other versions or other digits have."
    return 0, "The report does not say the same."
