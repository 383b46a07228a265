"""A request that tops up an earlier release: what it replaces, and with which integers, by public facts alone.

A file only names the earlier release, by the digest of its bytes. Its numbers come from the ledger: noise that is drawn
given forged ones would cost up to the sum of both epsilons. So do its grid and its sensitivity, which stay.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from abcdp.bank import Bank
from abcdp.errors import LawError, MechanismError, NoiseError
from abcdp.mechanisms import BySummary, Calibration, Mechanism, PrivateSummary, ReleasedSummary
from abcdp.privacy.noise_law import Sampler
from abcdp.releases.release import Release

if TYPE_CHECKING:
    from abcdp.ledger import Dataset, Earlier, Ledger

_NOTHING = "Nothing was charged."


@dataclass(frozen=True, slots=True, kw_only=True)
class TopUp:
    """A release to be replaced: what the ledger knows of it, its numbers, and the integers of what replaces it."""

    earlier: Earlier
    summary: ReleasedSummary
    calibration: Calibration


def digest_of(tops_up: Any) -> str:
    """Return the digest by which a release, its file or a text names what is to be topped up."""
    if isinstance(tops_up, str) and re.fullmatch("[0-9a-f]{64}", tops_up):
        return tops_up
    if isinstance(tops_up, str | os.PathLike):
        tops_up = Release.load(tops_up)
    if not isinstance(tops_up, Release):
        raise MechanismError(f"tops_up={type(tops_up).__name__}: give a release, its file or the digest of its bytes.")
    return tops_up.digest


def topped_up(
    book: Ledger, asked: Mapping[str, Any], bank: Bank, mechanism: Mechanism, entry: Dataset, fresh: Calibration
) -> TopUp:
    """Return what a request replaces and with which integers, or refuse it; `fresh` are its own."""
    earlier = book.earlier(entry.name, asked["tops_up"], asked)
    last, first = Release.from_bytes(earlier.result), Release.from_bytes(earlier.root_result)
    # a mechanism of somebody else may have integers of its own, for which nobody here could answer
    if last.summary is None or first.summary is None or type(first.mechanism) is not PrivateSummary:
        raise MechanismError(
            f"the release to be topped up is by {last.mechanism.kind}, whose answers are no numbers with noise of "
            f"which less could be drawn later, as far as is known here. {_NOTHING} Only private summaries with "
            "norm='l1' and, once and in an account in rho, norm='l2' can be topped up."
        )
    size = entry.unit.public_size(entry.records)
    before = first.mechanism.calibrate(bank.distance, records=size, simulated=bank.records, unit=entry.unit)
    found = mechanism.topped_up(before, fresh)
    _check_kind(earlier, entry, found)
    if not earlier.kept:
        raise MechanismError(
            f"the release to be topped up was made before abcdp wrote down what a top-up needs. {_NOTHING} Release a "
            "new private summary with norm='l1', which can be topped up."
        )
    if facts(bank, before) != _public(earlier.kept):
        raise MechanismError(
            f"the release to be topped up is of another distance, or its grid or sensitivity is now another one: its "
            f"noise hides other integers. {_NOTHING} Use a bank with the distance of that release and the version of "
            "abcdp that made it."
        )
    if (before.steps, before.law) != (first.summary.steps, first.summary.law) or before.steps != last.summary.steps:
        raise MechanismError(
            f"the release to be topped up has another grid or another scale than its settings give now. {_NOTHING} Use "
            "the version of abcdp that made it."
        )
    found = mechanism.topped_up(replace(before, scale=int(last.summary.law.one_scale)), fresh)
    return TopUp(earlier=earlier, summary=last.summary, calibration=found)


def _check_kind(earlier: Earlier, entry: Dataset, found: Calibration) -> None:
    """Raise where noise of this kind cannot go on: after an earlier top-up, or in an account of another kind."""
    (noise,) = found.noises
    if noise.law.kind.once is not None and earlier.request != earlier.root:
        raise MechanismError(
            f"{noise.law.name} noise is topped up once, and this was already: {noise.law.kind.once}. {_NOTHING} A new "
            "release is charged in full."
        )
    if entry.accounting == "sum" and noise.law.kind.concentrated:
        raise MechanismError(
            f"dataset {entry.name!r} adds up epsilons and deltas, in which less {noise.law.name} noise has no cost of "
            "its own: whoever tops it up or asks for something else, as the first release came out, gets more than its "
            f"delta. {_NOTHING} A new release is charged in full; Laplace ones (norm='l1') can be topped up here, "
            "Gaussian ones where the dataset has accounting='rho'."
        )
    if entry.accounting == "rho" and not noise.law.kind.concentrated:
        raise MechanismError(
            f"dataset {entry.name!r} has its account in rho, and what less {noise.law.name} noise adds to that is not "
            f"known where other releases lie in between. {_NOTHING} A new release is charged in full; Gaussian ones "
            "(norm='l2') can be topped up here."
        )


def can_be_topped_up(entry: Dataset, calibration: Calibration, earlier: Earlier | None) -> bool:
    """Whether a release, of which `earlier` was replaced, can be replaced itself: only then are its integers kept."""
    if not calibration.can_be_topped_up:
        return False
    (noise,) = calibration.noises
    kind = noise.law.kind
    return kind.concentrated == (entry.accounting == "rho") and (kind.once is None or earlier is None)


def check_drawable(sampler: Sampler, top_up: TopUp) -> None:
    """Raise where no sampler could draw the new noise given the old: asked for no entries at all."""
    (noise,) = top_up.calibration.noises
    try:
        noise.law.given(sampler, np.empty((0, noise.width), dtype=np.int64), top_up.summary.law)
    except (LawError, NoiseError) as error:
        raise MechanismError(f"{error} {_NOTHING}") from None


def facts(bank: Bank, calibration: Calibration) -> dict[str, Any]:
    """Return what must stay from a release to its top-up, beside the records and their unit, which a ledger keeps."""
    assert isinstance(calibration, BySummary)  # noqa: S101 - nothing else can be topped up
    said = json.dumps(bank.distance.to_json(), sort_keys=True)
    return {"distance": hashlib.sha256(said.encode()).hexdigest(), "sensitivity": calibration.charged}


def _public(kept: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kept.items() if name != "integers"}
