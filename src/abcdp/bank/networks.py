"""Networks that were trained on a bank, in a file beside its shards: numbers alone, with a digest of their own.

They are no part of the bank: its digest does not know them, and a bank without them is whole. A network belongs to the
law of the draws, which the header says, not to these draws: it serves any bank with the same header.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from abcdp._common.arrays import FloatArray
from abcdp._common.files import load_json
from abcdp._common.storage import Folder
from abcdp.bank.manifest import Header
from abcdp.errors import BankError, StorageError

FORMAT = 1
_KINDS = {"<f4": 4, "<f8": 8}
_MOST_BYTES, _MOST_WORDS, _MOST_ARRAYS = 256 << 20, 1 << 20, 100
_TRAIN = "train again (abcdp.train, abcdp train)"


@dataclass(frozen=True, eq=False)
class Network:
    """Numbers by name, and what they mean."""

    about: Mapping[str, Any]
    arrays: Mapping[str, FloatArray]

    def to_bytes(self, law: str) -> bytes:
        """Return a file: a line of JSON, and the numbers in the order in which it names them."""
        arrays = {name: np.ascontiguousarray(a) for name, a in self.arrays.items()}
        kinds = {name: "<f4" if a.dtype == np.float32 else "<f8" for name, a in arrays.items()}
        content = b"".join(a.astype(kinds[name]).tobytes() for name, a in arrays.items())
        about = {
            "format": FORMAT,
            "law": law,
            "about": dict(self.about),
            "arrays": [[name, kinds[name], list(a.shape)] for name, a in arrays.items()],
        }
        line = {**about, "sha256": _digest(about, content)}
        return json.dumps(line, sort_keys=True, separators=(",", ":")).encode() + b"\n" + content


class Beside:
    """What lies beside a bank that was trained on its draws: in its folder, or in memory.

    Networks are named by the law of the draws that they were trained on: those of this bank, or of several that hold
    the same simulated datasets, of which this is the first. What is not there is not looked for twice.
    """

    def __init__(self, folder: Folder | None = None) -> None:
        self._folder = folder
        self._held: dict[str, Network | None] = {}

    def network(self, header: Header) -> Network | None:
        """Return the network for draws with this header, None where none was trained; a damaged one is refused."""
        law = law_of(header)
        if law not in self._held:
            folder = self._folder
            there = folder is not None and folder.size(_file(law)) is not None
            self._held[law] = _read(folder, law) if folder is not None and there else None
        return self._held[law]

    def keep(self, header: Header, network: Network) -> None:
        """Keep a network in place of the one that was there, in one step."""
        law = law_of(header)
        if self._folder is not None:
            self._folder.write(_file(law), network.to_bytes(law))
        self._held[law] = network


def _file(law: str) -> str:
    """Return where the network for draws of a law lies in the folder of a bank."""
    return f"neural/{law[:32]}"


def law_of(header: Header) -> str:
    """Return a digest of all that the law of the draws follows from."""
    return hashlib.sha256(json.dumps(header.to_json(), sort_keys=True).encode()).hexdigest()


def _digest(about: Mapping[str, Any], content: bytes) -> str:
    found = hashlib.sha256(json.dumps(about, sort_keys=True, separators=(",", ":")).encode())
    found.update(content)
    return found.hexdigest()


def _read(folder: Folder, law: str) -> Network:
    def refuse(what: str) -> BankError:
        return BankError(f"{folder.named(_file(law))}: {what}; {_TRAIN}, or remove the file.")

    try:
        content = folder.read(_file(law), _MOST_BYTES)
        line, found, rest = content.partition(b"\n")
        if not found or len(line) > _MOST_WORDS:
            raise refuse("no network of this library")
        said = load_json(line)
    except StorageError:
        raise
    except ValueError as error:
        raise refuse(f"it was cut or edited ({error})") from None
    if not isinstance(said, dict) or said.get("format") != FORMAT or not isinstance(said.get("about"), dict):
        raise refuse("no network that this version reads")
    if said.pop("sha256", None) != _digest(said, rest):
        raise refuse("its digest does not fit its content, so it was cut or edited")
    if said.get("law") != law:
        raise refuse("it was trained on another bank")
    arrays: dict[str, FloatArray] = {}
    place = 0
    entries = said.get("arrays")
    if not isinstance(entries, list) or len(entries) > _MOST_ARRAYS:
        raise refuse("it does not list its numbers")
    for entry in entries:
        if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str) and entry[1] in _KINDS):
            raise refuse("it does not list its numbers")
        name, kind, shape = entry
        sizes = isinstance(shape, list) and len(shape) <= 4 and all(type(n) is int and 0 <= n < 1 << 30 for n in shape)
        if not sizes or place + math.prod(shape) * _KINDS[kind] > len(rest):
            raise refuse("it is shorter than it says")
        count = math.prod(shape)
        values = np.frombuffer(rest, kind, count, place).reshape(shape)
        if not np.isfinite(values).all():
            raise refuse("it holds NaN or infinite numbers")
        arrays[name] = values.astype(np.float64)
        place += count * _KINDS[kind]
    if place != len(rest):
        raise refuse("it is longer than it says")
    return Network(said["about"], arrays)
