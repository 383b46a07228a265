"""What a charge costs in a long ledger, beside one in an empty ledger: two entries are looked at in both."""

from __future__ import annotations

import os
import tempfile
import time
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from abcdp.ledger import Charge, Ledger
from abcdp.ledger.amount import Amount
from abcdp.ledger.chain import Entry, canonical, digest_of, entries, heads, sha256
from abcdp.ledger.kinds import Kind
from abcdp.ledger.state import Rules
from abcdp.privacy.unit import Unit
from bench.measure import Table, interleaved

LENGTH = 100_000
CHARGES = 40


def lengthened(ledger: Ledger, length: int) -> None:
    """Append that many charges at once, as that many releases would have left them."""
    rules, rows, cost = Rules(), [], Amount.charge("0.000001", 0)
    with ledger._writing() as chain:
        for entry in chain:
            rules.apply(entry.seq, entry.kind, entry.dataset, entry.key, entry.amount)
            previous = entry
        for number in range(length):
            seq, key = previous.seq + 1, sha256(str(number))
            state = rules.apply(seq, Kind.CHARGED, "clinic", key, cost)
            body = canonical({"request": {"id": number}, "purpose": "", "leaves": "2 numbers"})
            entry = Entry(seq, previous.time, "bench", Kind.CHARGED, "clinic", key, cost.epsilon, cost.delta, body,
                          canonical(state.to_json()), digest_of(rules.heads), previous.hash, "", "")  # fmt: skip
            entry = entry._replace(hash=entry.digest())
            previous = entry._replace(mac=ledger._keys.sign(ledger.id, entry.hash))
            rows.append(previous._asdict())
        chain._connection.execute(entries.insert(), rows)
        chain._connection.execute(heads.update().values(seq=previous.seq))
    ledger.note_head()


def made(folder: Path, name: str, length: int) -> Ledger:
    ledger = Ledger.create(folder / name)
    ledger.register("clinic", np.arange(20.0)[:, None], unit=Unit(), epsilon=1000)
    if length:
        lengthened(ledger, length)
    return ledger


def charge(ledger: Ledger, numbers: count[int]) -> None:
    for _ in range(CHARGES):
        assert isinstance(ledger.begin("clinic", {"new": next(numbers)}, "0.000001"), Charge)


def main(results: Path) -> None:
    """Measure and keep the results."""
    table = Table("ledger")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["ABCDP_STATE"], os.environ["ABCDP_KEYS"] = str(folder / "state"), str(folder / "keys.json")
        short, long = made(folder, "short.db", 0), made(folder, "long.db", LENGTH)
        start = time.perf_counter()
        long.verify()
        print(f"verifying {LENGTH} entries takes {time.perf_counter() - start:.1f} s")
        found = interleaved({"long": partial(charge, long, count()), "short": partial(charge, short, count())})
        table.row(
            f"{CHARGES} charges in a ledger of {LENGTH} entries against an empty one",
            found["long"],
            found["short"],
            unit="s",
            at_most=True,
        )
    table.save(results)
