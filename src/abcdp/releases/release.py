"""A release: what an owner hands out, safe to publish whole."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.checks import is_number, is_whole
from abcdp._common.display import card
from abcdp._common.files import MEMORY, load_json, read_json, write_atomically
from abcdp._common.version import __version__
from abcdp.errors import AbcdpError, ReleaseError
from abcdp.mechanisms import Mechanism, Outcome, ReleasedSummary, asserted_by, mechanism_from_json
from abcdp.privacy.guarantee import Guarantee
from abcdp.privacy.noise_law import Law

FORMAT = 2  # format 1 had no basis in its guarantee and none of these
_WORDS = ("description", "date", "tops_up", "signature")
_NOISE = ("opendp", "fast", "seeded")  # who drew it
_LARGEST_VALUE = 1 << 1000  # of a summary, in steps: still a floating-point number

_WHOLE = {"type": "integer", "minimum": 0}
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A private release of abcdp",
    "type": "object",
    "additionalProperties": False,
    "required": [
        "format", "software", "dataset", "request", "model", "parameters", "bank", "mechanism", "guarantee", "noise",
        "accepted", "examined", "theta",
    ],
    "properties": {
        "format": {"enum": [1, FORMAT]},
        "software": {"type": "string"},
        "dataset": {"type": "string"},
        "request": {"type": "string"},
        "model": {"type": "string"},
        "parameters": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "bank": {
            "type": "object",
            "additionalProperties": False,
            "required": ["digest", "shards", "draws", "failed"],
            "properties": {"digest": {"type": "string"}, "shards": _WHOLE, "draws": _WHOLE, "failed": _WHOLE},
        },
        "mechanism": {"type": "object", "required": ["type"]},
        "guarantee": {
            "type": "object",
            "additionalProperties": False,
            "required": ["epsilon", "delta", "unit", "sensitivity", "asserted"],
            "properties": {
                "epsilon": {"type": "number", "exclusiveMinimum": 0},
                "delta": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
                "unit": {"type": "object"},
                "sensitivity": {"type": "number", "minimum": 0},
                "basis": {"enum": ["enforced", "derived", "asserted"]},
                "asserted": {"type": "boolean"},
                "asserted_by": {"type": "string"},
                "totals": {"const": True},
            },
        },
        "noise": {"enum": list(_NOISE)},
        "accepted": {"type": "array", "items": _WHOLE},
        "examined": _WHOLE,
        "theta": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        "gaps": {"type": "array", "items": _WHOLE, "minItems": 1},
        "gap_step": {"type": "number", "exclusiveMinimum": 0},
        "summary": {
            "type": "object",
            "additionalProperties": False,
            "required": ["values", "steps", "law"],
            "properties": {
                "values": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                "steps": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}, "minItems": 1},
                "law": {"type": "object", "required": ["shape", "scale"]},
                "over_best_known": {"type": "number", "exclusiveMinimum": 0},
            },
        },
        **{word: {"type": "string"} for word in _WORDS},
    },
    "if": {"properties": {"format": {"const": 1}}},
    "then": {
        "properties": {
            "guarantee": {"properties": {"basis": False, "totals": False}}, **dict.fromkeys(_WORDS, False),
        },
    },
    "else": {"properties": {"guarantee": {"required": ["basis"]}}},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BankPrefix:
    """The part of a bank that a release used: its digest and the number of its shards."""

    digest: str
    shards: int
    draws: int
    failed: int

    def __post_init__(self) -> None:
        counts = (self.shards, self.draws, self.failed)
        if not isinstance(self.digest, str) or not all(type(count) is int and count >= 0 for count in counts):
            raise ReleaseError("a bank is named by its digest and whole numbers of shards, draws and failed draws.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """What a mechanism answered about a public bank, under which guarantee.

    Everything in it is public or paid for: the accepted rows are the mechanism's output, `theta` repeats the bank's
    parameters of those rows, `examined` is where the mechanism stopped; a private summary has `summary` instead, and
    no accepted rows. Where the mechanism releases gaps, `gaps` says for each accepted row how many steps of `gap_step`
    it was below the noisy threshold. It holds no distance and no noise.

    `tops_up` is the :attr:`digest` of an earlier release that this one replaces: the noise of both is that of one
    mechanism, and together they have the guarantee of this one. `description` is what its owner says in public of the
    dataset, `date` the day of the charge, `signature` the owner's (:func:`abcdp.verify` checks it); a file of an
    earlier version may lack them, and they are kept as they stand. `format` is that of the file: a release of format 1
    stays one, byte for byte, unless it has been given what that format cannot say.
    """

    dataset: str
    request: str
    model: str
    parameters: tuple[str, ...]
    bank: BankPrefix
    mechanism: Mechanism
    guarantee: Guarantee
    noise: str
    accepted: tuple[int, ...] = ()
    examined: int = 0
    theta: tuple[tuple[float, ...], ...] = ()
    gaps: tuple[int, ...] = ()
    gap_step: float = 0.0
    summary: ReleasedSummary | None = None
    description: str | None = None
    date: str | None = None
    tops_up: str | None = None
    signature: str | None = None
    software: str = f"abcdp {__version__}"
    format: int = FORMAT

    def __repr__(self) -> str:
        return (
            f"Release({self.dataset!r}, model={self.model!r}, {self.mechanism}, epsilon={self.guarantee.epsilon:g}, "
            f"delta={self.guarantee.delta:g}, {self._what}, noise={self.noise!r})"
        )

    def _repr_html_(self) -> str:
        rows = {"dataset": self.dataset, "model": self.model, "mechanism": self.mechanism, "let out": self._what}
        warned = ["Its noise can be repeated: it protects nobody."] if self.seeded else []
        return card("Release", rows, [*warned, self.guarantee.describe()])

    @property
    def _what(self) -> str:
        if self.summary is not None:
            return f"{len(self.summary.values)} noisy numbers"
        return f"{len(self.accepted)} accepted draws"

    @property
    def seeded(self) -> bool:
        """Whether its noise can be repeated: then it was an experiment on public data and protects nobody."""
        return self.noise == "seeded"

    @property
    def digest(self) -> str:
        """The name of its bytes, by which a later release says that it tops this one up."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def outcome(self) -> Outcome:
        """What the mechanism put out."""
        return Outcome(self.accepted, self.examined, self.gaps, self.gap_step, self.summary)

    def noised(self, rows: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Return public summaries, such as the rows of a bank, with fresh noise like that of this release."""
        if self.summary is None:
            raise ReleaseError("the release has accepted draws and no noisy summary: there is no noise on summaries.")
        return self.summary.noised(rows, rng)

    def to_json(self) -> dict[str, Any]:
        """Return the release as plain values, as :data:`SCHEMA` describes them, or in the format it was read in."""
        guarantee, words = self.guarantee.to_json(), self._words()
        said = guarantee.get("asserted_by") or guarantee.get("totals")
        old = self.format == 1 and not (words or said or guarantee["basis"] == "enforced")
        if old:
            guarantee = {name: value for name, value in guarantee.items() if name not in ("basis", "asserted_by")}
        return (
            {
                "format": 1 if old else FORMAT,
                "software": self.software,
                "dataset": self.dataset,
                "request": self.request,
                "model": self.model,
                "parameters": list(self.parameters),
                "bank": {
                    "digest": self.bank.digest,
                    "shards": self.bank.shards,
                    "draws": self.bank.draws,
                    "failed": self.bank.failed,
                },
                "mechanism": self.mechanism.to_json(),
                "guarantee": guarantee,
                "noise": self.noise,
                "accepted": list(self.accepted),
                "examined": self.examined,
                "theta": [list(row) for row in self.theta],
            }
            | self._optional()
            | words
        )

    def _words(self) -> dict[str, str]:
        return {word: told for word in _WORDS if (told := getattr(self, word)) is not None}

    def _optional(self) -> dict[str, Any]:
        gaps = {"gaps": list(self.gaps), "gap_step": self.gap_step} if self.gaps else {}
        summary = {} if self.summary is None else {"summary": self.summary.to_json()}
        return gaps | summary

    def to_bytes(self) -> bytes:
        """Return the release as the bytes of its file."""
        return (json.dumps(self.to_json(), indent=1) + "\n").encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Release:
        """Return the release that :meth:`to_bytes` wrote."""
        try:
            values = load_json(content)
        except ValueError as error:
            raise ReleaseError(f"not a release: not valid JSON ({error}).") from None
        return cls.from_json(values)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Release:
        """Return the release that :meth:`to_json` wrote, in this format or an earlier one."""
        if not isinstance(values, Mapping) or not isinstance(values.get("format"), int) or values["format"] < 1:
            raise ReleaseError("not a release: it has no format.")
        if values["format"] > FORMAT:
            raise ReleaseError(f"format {values['format']} is newer than this version reads ({FORMAT}); update abcdp.")
        missing = [name for name in SCHEMA["required"] if name not in values]
        known = set(SCHEMA["properties"]) - (set(_WORDS) if values["format"] == 1 else set())
        extra = [name for name in values if name not in known]
        if missing or extra:
            raise ReleaseError(f"not a release: missing {missing}, unknown {extra}.")
        promise = values["guarantee"]
        if isinstance(promise, Mapping) and ("basis" in promise) == (values["format"] == 1):
            raise ReleaseError("not a release: its guarantee states its basis from format 2 on, and not before.")
        try:
            release = cls(
                dataset=_text(values["dataset"], "dataset"),
                request=_text(values["request"], "request"),
                model=_text(values["model"], "model"),
                parameters=tuple(_text(name, "parameter") for name in values["parameters"]),
                bank=BankPrefix(**values["bank"]),
                mechanism=mechanism_from_json(values["mechanism"]),
                guarantee=Guarantee.from_json(values["guarantee"]),
                noise=_noise(values["noise"]),
                accepted=tuple(map(int, values["accepted"])),
                examined=int(values["examined"]),
                theta=tuple(tuple(map(float, row)) for row in values["theta"]),
                gaps=tuple(values.get("gaps", ())),
                gap_step=float(values.get("gap_step", 0.0)),
                summary=_summary_from_json(values.get("summary")),
                **{word: _text(values[word], word) for word in _WORDS if word in values},
                software=_text(values["software"], "software"),
                format=values["format"],
            )
        except (AbcdpError, KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ReleaseError(f"not a release: {error}") from None
        release._check()
        return release

    def _check(self) -> None:
        try:
            self.mechanism.validate(self.outcome, self.bank.draws)
        except Exception as error:  # of a mechanism from outside anything
            raise ReleaseError(str(error)) from None
        if not self.guarantee.asserted and (asserted_by(self.mechanism) or self.guarantee.unit.asserted_by):
            raise ReleaseError("its guarantee is somebody's word and does not say so.")
        if len(self.accepted) != len(self.theta):
            raise ReleaseError("its accepted rows and their parameters are not as many.")
        if any(len(row) != len(self.parameters) for row in self.theta):
            raise ReleaseError("its parameters do not fit their names.")

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, memory: int = MEMORY) -> Release:
        """Return the release in a file, which may be a stranger's and take so many bytes in memory."""
        try:
            return cls.from_json(read_json(path, memory))
        except OSError as error:
            raise ReleaseError(f"{path} cannot be read: {error.strerror}.") from None
        except ReleaseError as error:
            raise ReleaseError(f"{path}: {error}") from None
        except ValueError as error:
            raise ReleaseError(f"{path}: not a release: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the release to a file, in one step."""
        write_atomically(Path(path), lambda temporary: temporary.write_bytes(self.to_bytes()))


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ReleaseError(f"its {name} is not a text.")
    return value


def _noise(value: Any) -> str:
    if value not in _NOISE:
        raise ReleaseError(f"its noise is none of {', '.join(_NOISE)}.")
    return str(value)


def _summary_from_json(values: Any) -> ReleasedSummary | None:
    if values is None:
        return None
    numbers, steps = tuple(values["values"]), tuple(map(float, values["steps"]))
    whole = all(is_whole(v) and abs(v) < _LARGEST_VALUE for v in numbers)
    if not whole or not numbers or len(steps) != len(numbers) or not all(0 < step < math.inf for step in steps):
        raise ReleaseError("its summary is not a list of whole numbers with a step above 0 for each.")
    known = values.get("over_best_known")
    number = is_number(known)
    if known is not None and not (number and 0 < known < math.inf):
        raise ReleaseError("its summary compares its noise with the best known by a number above 0.")
    return ReleasedSummary(values=numbers, steps=steps, law=Law.from_json(values["law"]), over_best_known=known)
