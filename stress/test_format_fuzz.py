"""Files of every format, damaged at random: each is refused by an error of this library, or read; never anything else.

A warmed-up process forks a child for each stretch of cases. In the child a case may take `PATIENCE` seconds and `ROOM`
bytes. What it raises has to be an :class:`AbcdpError`; a signal, another error or a case that lasts is a finding, and a
finding names its file, seed and case, by which it can be made again: ``python stress/test_format_fuzz.py FORMAT CASE``.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import traceback
import warnings
from pathlib import Path

import pytest

import abcdp
from abcdp._common.files import read_json
from abcdp.errors import AbcdpError
from abcdp.ledger import Anchor, Ledger
from abcdp.ledger.upgrade import upgrade
from abcdp.planning.plan import Plan, planned_mechanism
from abcdp.reporting.report import in_words

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
BANKS = [GOLDEN / "banks" / name for name in EXPECTED["banks"] if name != "custom"]
BANKS.append(GOLDEN.parent / "golden_narrowed" / "bank")
PATIENCE = 10  # seconds of a core for a case
WAIT = 120  # seconds after which it hangs, however busy the machine is
ROOM = 4 << 30  # bytes of address space above those of the parent; a gibibyte is what the limits allow
MEMORY = 1 << 30
CASES = int(os.environ.get("ABCDP_FUZZ_CASES", "200"))  # of each format: those that pass anywhere pass everywhere
STRETCH = 40
MOST_VALUES = 20_000  # that are changed further: large files are other tests' matter
UNIT = abcdp.Unit()

EXTREMES = [
    0, -1, 1, 2, 1 << 31, (1 << 31) - 1, 1 << 32, 1 << 53, 1 << 63, -(1 << 63), 10**30, -(10**12), 10**400, 1e308,
    -1e308, 5e-324, 1e-300, 0.5, -0.0, float("nan"), float("inf"), float("-inf"), True, False, None, "", "x", "\ud800",
    "\0", "-1", [], {}, [[]], {"type": "mmd"}, [1e308] * 3, "a" * 10_000,
]  # fmt: skip


# -- damage -----------------------------------------------------------------------------------------------------------


def flipped(content, rng):
    out = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8, 64])):
        out[rng.randrange(len(out))] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
    return bytes(out)


def cut(content, rng):
    start, stop = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return rng.choice([content[:start], content[start:], content[:start] + content[stop:]])


def doubled(content, rng):
    start, stop = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    return content[:stop] + content[start:stop] * rng.choice([1, 2, 50]) + content[stop:]


def places(values, path=()):
    """Yield the path of every value inside values."""
    yield path
    inner = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in inner:
        yield from places(value, (*path, key))


def at(values, path):
    for key in path:
        values = values[key]
    return values


def deep(rng):
    depth = rng.choice([20, 60, 500, 900, 5000])
    return rng.choice(["[" * depth + "1" + "]" * depth, '{"a":' * depth + "1" + "}" * depth])


def rewritten(content, rng):
    """JSON with other values, or without some of them, or with some twice."""
    values = json.loads(content)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        every = list(places(values))
        path = rng.choice(every[1:] or [()])
        if not path or len(every) > MOST_VALUES:
            break
        holder, key = at(values, path[:-1]), path[-1]
        kind = rng.randrange(8)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder *= rng.choice([2, 3, 200])
        elif kind == 2:
            holder[key] = at(values, rng.choice(every))
            with contextlib.suppress(ValueError, RecursionError):
                json.dumps(values)  # a value may now hold itself
                continue
            return content
        elif kind == 3 and isinstance(holder[key], int | float):
            holder[key] = holder[key] * rng.choice([-1, 0.5, 2, 1e3, 1e300]) if abs(holder[key]) < 1e300 else -1
        elif kind == 4:
            holder[key] = "DEEP"
        else:
            holder[key] = rng.choice(EXTREMES)
    text = json.dumps(values)
    if rng.random() < 0.05:
        text = text.replace("{", '{"format": 1, "format": 2, ', 1)
    return text.replace('"DEEP"', deep(rng)).encode(errors="surrogatepass")


def damaged(content, rng, text):
    ways = [flipped, cut, doubled] + ([rewritten] * 7 if text else [flipped] * 3)
    return rng.choice(ways)(content, rng)


# -- what is done with a file of each format ---------------------------------------------------------------------------


def whole_manifest(folder, rng, damage):
    path = folder / "manifest.json"
    content = damage(path.read_bytes(), rng, text=True)
    if rng.random() < 0.8:
        content = consistent(content)
    path.write_bytes(content)


def consistent(content):
    """A manifest whose digest fits what it says, as a stranger who knows the format writes it."""
    from abcdp._common.storage import open_folder
    from abcdp.bank import Shard, bank_digest, header_from_json

    try:
        values = json.loads(content)
        header = header_from_json(values, open_folder("."), None)
        values["digest"] = bank_digest(header, [Shard(*entry) for entry in values["shards"]])
        return json.dumps(values).encode()
    except Exception:  # what cannot be read has no digest
        return content


def use_bank(folder):
    bank = abcdp.Bank(folder, memory=MEMORY)
    bank.verify()
    distance = bank.distance
    distance.largest(bank.records)
    distance.sensitivity(bank.records, UNIT)
    distance.numerical_error(bank.records)
    repr(bank), bank.failures, bank.theta, bank.rows, bank.near
    if bank.earlier is not None:
        bank.earlier.verify()


def manifest(rng, folder, damage):
    bank = shutil.copytree(rng.choice(BANKS), folder / "bank")
    whole_manifest(Path(bank), rng, damage)
    return lambda: use_bank(bank)


def shard(rng, folder, damage):
    bank = Path(shutil.copytree(rng.choice(BANKS), folder / "bank"))
    path = rng.choice(sorted((bank / "shards").iterdir()))
    content = path.read_bytes()
    if rng.random() < 0.5:  # the footer and the headers of pages are a small part of a file
        tail = len(content) - rng.choice([0, 8, 100, 1600])
        content = content[:tail] + damage(content[tail:] or b"\0", rng, text=False)
    else:
        content = damage(content, rng, text=False)
    path.write_bytes(content)
    return lambda: use_bank(bank)


def plan(rng, folder, damage):
    name = rng.choice(sorted(EXPECTED["plans"]))
    path = folder / "plan.json"
    path.write_bytes(damage((GOLDEN / "plans" / f"{name}.json").read_bytes(), rng, text=True))
    bank = abcdp.Bank(GOLDEN / "banks" / EXPECTED["plans"][name]["bank"])

    def use():
        with contextlib.suppress(AbcdpError):
            planned_mechanism(path).calibrate(bank.distance, records=30, simulated=30, unit=UNIT)
        with contextlib.suppress(AbcdpError):
            planned_mechanism(path, bank)
        made = Plan.load(path)
        json.dumps(made.to_json())
        made.bank_from(bank)

    return use


def release(rng, folder, damage):
    name = rng.choice(sorted(EXPECTED["releases"]))
    path = folder / "release.json"
    path.write_bytes(damage((GOLDEN / "releases" / f"{name}.json").read_bytes(), rng, text=True))
    bank = GOLDEN / "banks" / EXPECTED["releases"][name]["bank"]

    def use():
        found = abcdp.Release.load(path)
        found.to_bytes(), in_words(found), found.guarantee.describe()
        for method in ("auto", "nearest", "weights", "regression"):
            with contextlib.suppress(AbcdpError):
                abcdp.posterior(found, bank, draws=20, method=method)

    return use


def upgraded(folder, name):
    """A ledger of the golden files, brought to the present format, with its keys and its anchor."""
    shutil.copytree(GOLDEN / "state", folder / "state")
    os.environ["ABCDP_STATE"], os.environ["ABCDP_KEYS"] = str(folder / "state"), str(folder / "keys.json")
    book = Path(shutil.copy(GOLDEN / name, folder / "ledger.db"))
    return book, upgrade(book)


def anchor(rng, folder, damage):
    book, made = upgraded(folder, "backup.db")
    path = folder / "anchor.json"
    path.write_bytes(damage(json.dumps(made.head().to_json()).encode(), rng, text=True))

    def use():
        try:
            values = read_json(path)
        except ValueError:
            return
        Ledger(book).reconcile(Anchor.from_json(values))

    return use


def journal(rng, folder, damage):
    book, made = upgraded(folder, "ledger.db")
    path = folder / "state" / f"{made.id}.anchor"
    path.write_bytes(damage(path.read_bytes(), rng, text=True))
    return lambda: (Ledger(book).verify(), Ledger(book).reconcile())


def keys(rng, folder, damage):
    book, _ = upgraded(folder, "ledger.db")
    path = folder / "keys.json"
    path.write_bytes(damage(path.read_bytes(), rng, text=True))
    return lambda: Ledger(book).verify()


def ledger(rng, folder, damage):
    book, _ = upgraded(folder, "ledger.db")
    book.write_bytes(damage(book.read_bytes(), rng, text=False))
    return lambda: Ledger(book).verify()


def old_ledger(rng, folder, damage):
    shutil.copytree(GOLDEN / "state", folder / "state")
    os.environ["ABCDP_STATE"], os.environ["ABCDP_KEYS"] = str(folder / "state"), str(folder / "keys.json")
    book = folder / "ledger.db"
    book.write_bytes(damage((GOLDEN / "ledger.db").read_bytes(), rng, text=False))
    return lambda: upgrade(book).verify()


FORMATS = {use.__name__: use for use in (manifest, shard, plan, release, anchor, journal, keys, ledger, old_ledger)}


# -- running ----------------------------------------------------------------------------------------------------------


def case(name, number, folder):
    """Make and use one damaged file; return what went wrong, None where nothing did."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rng = random.Random(f"{name} {number}")
    use = FORMATS[name](rng, folder, damaged)
    try:
        use()
    except AbcdpError:
        return None
    except BaseException:
        return traceback.format_exc(limit=-6)
    return None


def stretch(name, numbers, folder, said):
    """Run cases in a child: each tells its number before it starts, and what went wrong after."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + ROOM,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    for number in numbers:
        said.write(json.dumps([number, None]) + "\n")
        said.flush()
        signal.setitimer(signal.ITIMER_PROF, PATIENCE)  # kills: nothing can hold it up
        signal.alarm(WAIT)
        wrong = case(name, number, folder)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        if wrong is not None:
            said.write(json.dumps([number, wrong]) + "\n")
            said.flush()


def forked(name, numbers, folder):
    """Return the cases that were run and what went wrong; a child that dies takes no other case with it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        sys.stderr = io.StringIO()
        with contextlib.suppress(BaseException), os.fdopen(writing, "w") as said:
            stretch(name, numbers, folder, said)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        lines = [json.loads(line) for line in said]
    _, status = os.waitpid(child, 0)
    wrong = [(number, text) for number, text in lines if text is not None]
    started = [number for number, text in lines if text is None]
    if status != 0:
        late = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
        how = "lasted" if late else f"died ({status})"
        wrong.append((started[-1], how))
    return started, wrong


@pytest.fixture(scope="module", autouse=True)
def warm(tmp_path_factory):
    """Compile and import everything once, so that no child has to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in FORMATS:
            FORMATS[name](random.Random(0), tmp_path_factory.mktemp(name), lambda content, rng, text: content)()
        for name, values in EXPECTED["releases"].items():
            bank = GOLDEN / "banks" / values["bank"]
            for method in ("auto", "weights"):
                with contextlib.suppress(AbcdpError):
                    abcdp.posterior(GOLDEN / "releases" / f"{name}.json", bank, draws=5, method=method)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_refused_by_name_or_read(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ABCDP_STATE", str(tmp_path / "state"))
    first, findings = 0, []
    while first < CASES and len(findings) < 20:
        started, wrong = forked(name, range(first, min(first + STRETCH, CASES)), tmp_path / "case")
        first = started[-1] + 1
        findings += wrong
    kinds = {text[-300:]: f"{name} {number}: {text}" for number, text in reversed(findings)}
    assert not findings, "\n".join(kinds.values())


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(case(sys.argv[1], int(sys.argv[2]), Path("/tmp") / f"abcdp-fuzz-{os.getpid()}"))
