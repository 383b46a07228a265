"""Wrong command lines, hundreds of them: none ends in a traceback, charges a ledger or leaves half a file.

One process is warmed up by the commands as they should be, and forks for each case: that takes a tenth of a second
where an interpreter of its own would take two.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pytest

CASES = 420
SEED = 7
MUTANTS = 40
MUTATED = ("R", "P", "A")  # files of which there are mutants: a release, a plan, an anchor
_SECONDS = 10.0
_MEMORY = 8 << 30  # of addresses, not of memory: libraries reserve a lot
_FILE = 256 << 20
_AT_ONCE = 2

# every command as it should be; B, R, P, Y.npy, L and A are a bank, a release, a plan, records, a ledger and its anchor
COMMANDS = [
    "simulate mixture --to out --draws 20 --records 5 --seed 1 --workers 1 --shard-draws 10 --json",
    "simulate mixture --to out2 --draws 20 --records 5 --seed 1 --bandwidth 1 --domain 0:9 --shard 1/2 --workers 1",
    "simulate sample_models:batched --to out3 --draws 20 --records 5 --seed 1 --distance fuzz_models:mean --workers 1",
    "simulate sample_models:batched --to B2 --more 10 --workers 1",
    "learn B --to out4 --dims 1",
    "plan B --epsilon 1 --unit record --delta 0 --mechanism sparse-vector --accept 3 --threshold 1 --records 40 "
    "--goal 0.5 --region mu=-1:1 --truths 3 --seed 0 --no-learn --out p.json --plot p.png",
    "plan B --epsilon 1 --truths 3 --learned-to out5 --json",
    "calibrate B --mechanism nearest --accept 3 --epsilon 1 --unit record --datasets 10 --seed 1 --plot c.png "
    "--netcdf c.nc --json",
    "calibrate B --epsilon 1 --datasets 10 --draws 9 --method nearest --records 40 --model sample_models:batched "
    "--simulations 0 --region mu=-1:1",
    "bank show B --verify --json",
    "bank merge B B2 --to out6",
    "release B Y.npy --ledger L --dataset d --out r.json --epsilon 1 --accept 3 --threshold 1 --noise fast --request q "
    "--memory 100 --at-most 1",
    "release B Y.npy --ledger L --dataset d --out r2.json --mechanism private-summary --epsilon 1 --norm l1 "
    "--delta 0.01",
    "release B Y.npy --ledger L --dataset d --out r.json --plan P --at-most 2 --noise fast",
    "release B Y.npy --ledger L --dataset d --out r.json --plan P --dry-run --json",
    "report R --bank B --out r.html --netcdf r.nc --model sample_models:batched",
    "synthesize R sample_models:batched --records 5 --out s.npy --sets 2 --seed 3 --bank B --memory 100",
    "ledger create new.db --dataset d --data C.csv --unit record --epsilon 1 --delta 0 --columns a,b --missing none",
    "ledger show L --json",
    "ledger verify L",
    "ledger anchor L --reconcile A",
    "audit sparse-vector --epsilon 1 --accept 1 --runs 50 --seconds 0.5 --bank B --unit record --plot a.png",
    "paper --json",
]  # fmt: skip
# not as they should be in themselves: as they should be they would take minutes
HOPELESS = [
    "paper fig99",
    "paper all --to text",
    "paper fig2 --to empty/x",
    "paper fig5 --delta 1",
    "demo --to text",
    "x",
]

WORDS = [
    "", " ", "x", "-1", "0", "1e30", "nan", "inf", "-inf", "1e-320", "1e308", "9" * 30, "0x10", "1/0", "½", "a" * 5000,
    "\x1b]0;owned\x07", "\udcff\udc80", "\u202eevil", "${HOME}", "-", "--", "--json", "{}", "null", "a:b", "a:b:c", ":",
    "json:loads", "os:no.such", "sample_models:not_a_model", "sample_models:failing", "nosuch:thing", "a=1,b=2",
    "records=18,change=1", "add-remove,at_least=100", "records=99999", "change=nan", "mu=1:0", "no=0:1", "3/2", "0/0",
    '{"type": "paired", "clip": -1}', '{"type": "mmd"}', "median",
]  # fmt: skip
PLACES = [
    "missing", "folder", "empty", "garbage", "text", "list", "null", "deep", "number", "lonely", "nothing", "long",
    "locked",
    "nowhere/x", "text/x", ".", "/dev/null", "/dev/stdout", "B", "B2", "R", "P", "Y.npy", "C.csv", "L", "A",
    "cells.csv", "wide.csv",
    "half-bank", "old-release", "nosuch://u:hunter2@h/x?token=hunter2", "file:///nowhere", "file://text", "sqlite://",
    "postgresql://u:hunter2@127.0.0.1:1/d", "mysql://u:hunter2@h/d", "sqlite:///garbage",
]  # fmt: skip
OUTPUTS = ["plain", "plain", "plain", "closed", "full", "pipe", "ascii"]


@dataclass(frozen=True)
class Case:
    arguments: list[str]
    output: str


@dataclass(frozen=True)
class Ended:
    code: int
    seconds: float
    said: str
    shown: str


def make_cases(rng: np.random.Generator) -> list[Case]:
    """Spoil commands: a value replaced, two exchanged, one left out, one too many."""
    cases = [Case(one.split(), "plain") for one in HOPELESS]
    cases += [Case(one.split(), output) for one in COMMANDS if "release" not in one for output in ("closed", "ascii")]
    while len(cases) < CASES:
        words = COMMANDS[rng.integers(len(COMMANDS))].split()
        first = 1 + (words[0] in ("bank", "ledger"))
        values = [i for i in range(first, len(words)) if not words[i].startswith("--")] or [0]
        kind = rng.choice(["replaced", "exchanged", "left out", "one more"], p=[0.8, 0.08, 0.06, 0.06])
        i, j = rng.choice(values, 2)
        bad = str(rng.choice(PLACES if rng.random() < 0.5 else WORDS))
        if words[i] in MUTATED and rng.random() < 0.6:
            bad = f"{words[i]}-{rng.integers(MUTANTS)}"
        if kind == "replaced":
            words[i] = bad
        elif kind == "exchanged":
            words[i], words[j] = words[j], words[i]
        elif kind == "left out":
            del words[i]
        else:
            words.append(bad)
        cases.append(Case(words, str(rng.choice(OUTPUTS))))
    return cases


# the process that forks


def serve(folder: Path) -> None:
    """Warm up, then run the cases given on standard input, a line each, and print how each ended."""
    from abcdp.cli import main

    os.chdir(fresh_copy(folder / "things", folder / "warm"))
    for line in COMMANDS:
        print(json.dumps({"command": line, "code": run_main(main, line.split())}), flush=True)
    running: dict[int, tuple[int, float]] = {}
    lines = list(enumerate(json.loads(line) for line in sys.stdin))
    while lines or running:
        while lines and len(running) < _AT_ONCE:
            number, case = lines.pop(0)
            place = fresh_copy(folder / "things", folder / f"case-{number}")
            pid = os.fork()
            if pid == 0:
                child(main, place, case)
            running[pid] = number, time.monotonic()
        pid, status = os.waitpid(-1, os.WNOHANG)
        for late, (_, began) in running.items():
            if late != pid and time.monotonic() - began > _SECONDS:  # that one has ended by itself
                os.kill(late, signal.SIGKILL)
        if pid:
            number, began = running.pop(pid)
            ended = {"number": number, "code": os.waitstatus_to_exitcode(status), "seconds": time.monotonic() - began}
            print(json.dumps(ended), flush=True)
        else:
            time.sleep(0.005)


_replace = os.replace


def guarded(source: str, target: str) -> None:
    """Replace a file, and never a device: a version at fault must fail, not harm whoever runs this as root."""
    assert not os.path.realpath(target).startswith(("/dev/", "/proc/")), "a device would have been replaced"
    _replace(source, target)


def child(main: object, place: Path, case: dict[str, object]) -> None:
    os.chdir(place)
    os.replace = guarded  # type: ignore[assignment]
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE, _FILE))
    os.environ["ABCDP_STATE"] = str(place / "state")
    said = os.open(place / "said", os.O_CREAT | os.O_WRONLY)
    shown = os.open(place / "shown", os.O_CREAT | os.O_WRONLY)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(said, 2)
    if case["output"] == "full":
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    elif case["output"] == "pipe":
        nobody, end = os.pipe()
        os.dup2(end, 1)
        os.close(nobody)
        os.close(end)
    else:
        os.dup2(shown, 1)
    encoding = "ascii" if case["output"] == "ascii" else "utf-8"
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    if case["output"] == "closed":
        os.close(1)
        sys.stdout = None
    arguments = case["arguments"]
    assert isinstance(arguments, list)
    code = run_main(main, arguments)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.flush()
    os._exit(code)


def run_main(main: object, arguments: list[str]) -> int:
    sys.argv = ["abcdp", *arguments]
    try:
        main()  # type: ignore[operator]
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 99
    return 98


# the things that commands are given


def make_things(folder: Path, state: Path) -> None:
    """Make what commands need, and much that they do not."""
    import abcdp
    from sample_models import batched

    mean = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5))])
    made = [
        abcdp.simulate(batched, mean, draws=60, records=40, seed=s, to=folder / n) for s, n in ((1, "B"), (2, "B2"))
    ]
    records = np.random.default_rng(0).normal(1.0, 1.0, 40)
    np.save(folder / "Y.npy", records)
    abcdp.register(folder / "L", "d", records, unit=abcdp.Unit(), epsilon=4, delta=0.1, create=True, missing="none")
    sparse = abcdp.SparseVector(epsilon=1.0, accept=3, threshold=3.0)
    release = abcdp.release(made[0], records, sparse, ledger=folder / "L", dataset="d", noise="fast")
    release.save(folder / "R")
    plan = {"format": 2, "bank": made[0].digest, "mechanism": abcdp.PrivateSummary(epsilon=0.5).to_json()}
    (folder / "P").write_text(json.dumps(plan))
    from abcdp.owner import open_ledger

    (folder / "A").write_text(json.dumps(open_ledger(folder / "L").head().to_json()))
    (folder / "old-release").write_text(json.dumps(release.to_json() | {"format": 99, "theta": [["x"]]}))
    shutil.copytree(folder / "B", folder / "half-bank")
    next((folder / "half-bank").rglob("*.parquet")).write_bytes(b"PAR1")
    rng = np.random.default_rng(1)
    texts = {
        "C.csv": "a,b,c\n1,2,x\n3,4,y\n", "cells.csv": "a,b\n1\n2,3,4\n", "wide.csv": ",".join("a" * 3000) + "\n",
        "text": "hello\n",
        "empty": "", "list": "[]", "null": "null", "deep": "[" * 100_000, "number": "1" * 6000, "lonely": '"\\ud800"',
        "nothing": "{}", "long": '{"format": 1e999, "mechanism": {"type": [1]}, "bank": {}}',
    }  # fmt: skip
    for name, text in texts.items():
        (folder / name).write_text(text)
    for name in MUTATED:
        for number in range(MUTANTS):
            (folder / f"{name}-{number}").write_text(json.dumps(mutated(json.loads((folder / name).read_text()), rng)))
    (folder / "garbage").write_bytes(rng.bytes(4096))
    (folder / "locked").write_text("{}")
    (folder / "locked").chmod(0)
    (folder / "folder").mkdir()
    (folder / "fuzz_models.py").write_text(
        "import abcdp\nmean = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5))])\n"
    )
    shutil.copytree(state, folder / "state")


HOSTILE = [
    None,
    True,
    -1,
    0,
    10**400,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\ud800\x1b[2J",
    [],
    {},
    [[1]],
    {"a": 1},
]


def mutated(values: object, rng: np.random.Generator) -> object:
    """Replace one value, somewhere in a tree of them, or take it away."""
    if isinstance(values, dict | list) and values and rng.random() < 0.9:
        key = rng.choice(list(values)) if isinstance(values, dict) else int(rng.integers(len(values)))
        if rng.random() < 0.15:
            del values[key]
        else:
            values[key] = mutated(values[key], rng)
        return values
    return HOSTILE[rng.integers(len(HOSTILE))]


def fresh_copy(things: Path, place: Path) -> Path:
    shutil.copytree(things, place, symlinks=True)
    return place


def content(folder: Path) -> dict[str, bytes | None]:
    """Return what lies in a folder, by path."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if path.relative_to(folder).parts[0] not in ("said", "shown", "state")
    }


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """All cases, and how each ended; folders of cases stay for a look at what they left."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "things").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ABCDP_STATE", str(folder / "state"))
        make_things(folder / "things", folder / "state")
    cases = make_cases(np.random.default_rng(SEED))
    path = os.pathsep.join([str(Path(__file__).parent.parent / "tests"), *sys.path])
    run = subprocess.run(
        [sys.executable, "-P", __file__, folder],
        input="".join(json.dumps(asdict(case)) + "\n" for case in cases),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "ABCDP_STATE": str(folder / "warm" / "state"), "OMP_NUM_THREADS": "1"},
    )
    warm = [json.loads(line) for line in run.stdout.splitlines() if line.startswith('{"command"')]
    assert all(one["code"] == 0 for one in warm), (warm, run.stderr)
    results = {}
    for line in run.stdout.splitlines():
        if line.startswith('{"number"'):
            one = json.loads(line)
            place = folder / f"case-{one['number']}"
            said, shown = ((place / name).read_text("utf-8", "backslashreplace") for name in ("said", "shown"))
            results[one["number"]] = Ended(one["code"], one["seconds"], said, shown)
    assert len(results) == len(cases), run.stderr[-3000:]
    return folder, cases, results


def told(cases, results, numbers):
    return "\n".join(
        f"{n}: {cases[n].output} {' '.join(cases[n].arguments)[:300]!r} -> {results[n].code} "
        f"({results[n].seconds:.1f} s) {results[n].said[-600:]}"
        for n in numbers
    )


def test_no_wrong_command_ends_in_a_traceback(ended):
    _, cases, results = ended
    bad = [n for n, one in results.items() if one.code not in (0, 1, 2) or "Traceback" in one.said + one.shown]
    assert not bad, f"{len(bad)} of {len(cases)}:\n{told(cases, results, bad)}"


def test_most_cases_are_wrong_and_say_why(ended):
    _, cases, results = ended
    wrong = [n for n, one in results.items() if one.code == 2]
    assert len(wrong) > 0.6 * len(cases)
    silent = [n for n in wrong if not results[n].said.strip()]
    assert not silent, told(cases, results, silent)


def test_no_message_acts_on_a_terminal_or_repeats_a_secret(ended):
    _, cases, results = ended
    bad = [
        n
        for n, one in results.items()
        if "hunter2" in one.said + one.shown or any(not (c.isprintable() or c == "\n") for c in one.said + one.shown)
    ]
    assert not bad, told(cases, results, bad)


def test_what_failed_was_not_charged_and_left_nothing_behind(ended):
    """A bank that is half made is there to be resumed; whatever else a command that failed had begun is gone."""
    folder, cases, results = ended
    before = content(folder / "things")
    bad = []
    for n, one in results.items():
        after = content(folder / f"case-{n}")
        new = [name for name in after if name not in before]
        changed = [name for name in before if before[name] != after.get(name)]
        stray = [name for name in after if name.endswith(".tmp")]
        if cases[n].arguments[:2] == ["ledger", "create"]:  # a ledger without datasets is a whole one
            new = []
        done = one.code in (0, 1) or cases[n].output in ("full", "pipe")  # what was asked for is there, nobody listens
        if stray or (not done and (changed or [name for name in new if not name.startswith("out")])):
            bad.append((n, changed, new, stray))
    assert not bad, "\n".join(f"{told(cases, results, [n])} {rest}" for n, *rest in bad)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
