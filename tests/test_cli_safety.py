"""The command line among strangers' files: no foreign code, no secrets, no charge that was not agreed to."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import json
import os
import pty
import re
import select
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import abcdp
from abcdp._common import files
from abcdp._common.files import check_folder, check_place, write_atomically
from abcdp._common.storage import secrets_in, shown
from abcdp._common.text import harmless, harmless_lines
from abcdp.cli import output
from abcdp.errors import (
    AbcdpError,
    MechanismError,
    PlanError,
    PosteriorWarning,
    ReleaseError,
    StorageError,
    UnitWarning,
)
from abcdp.owner import open_ledger, preview
from abcdp.planning.plan import planned_mechanism, say_misfit
from sample_models import batched

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5))])
ENTRY = "from abcdp.cli import main; main()"


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    place = tmp_path_factory.mktemp("bank") / "bank"
    abcdp.simulate(batched, MEAN, draws=300, records=40, seed=5, to=place)
    return place


@pytest.fixture
def own(tmp_path, bank):
    """A folder of an owner: records, a ledger with epsilon = 2, and a plan that costs 1.5."""
    folder = tmp_path / "own"
    folder.mkdir()
    records = np.random.default_rng(0).normal(1.0, 1.0, 40)
    np.save(folder / "y.npy", records)
    abcdp.register(folder / "own.db", "d", records, unit=abcdp.Unit(), epsilon=2, create=True, missing="none")
    mechanism = abcdp.PrivateSummary(epsilon=1.5).to_json()
    (folder / "p.json").write_text(json.dumps({"format": 2, "bank": abcdp.Bank(bank).digest, "mechanism": mechanism}))
    return folder


def command(*arguments, cwd, code=0, **more):
    run = subprocess.run(
        [sys.executable, "-P", "-c", ENTRY, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        **more,
    )
    assert run.returncode == code, (run.returncode, run.stdout, run.stderr)
    assert "Traceback" not in run.stderr
    return run.stdout if code == 0 else run.stderr


def asking(bank, *more):
    return ["release", bank, "y.npy", "--ledger", "own.db", "--dataset", "d", "--noise", "fast", *more]


def left(own):
    return open_ledger(own / "own.db").dataset("d").left_epsilon


# code of the working folder


EVIL = """
import os
with open(os.environ["EVIL_MARK"], "a") as file:
    file.write(__name__ + "\\n")
"""
# runs commands one after another, started as the script `abcdp` is: its own folder, not the working one, is on the path
RUNNER = """
import json, sys
from abcdp.cli import main
if __name__ == "__main__":
    for arguments in json.loads(sys.argv[1]):
        sys.argv = ["abcdp", *arguments]
        try:
            main()
        except SystemExit as error:
            print(arguments, error.code, file=sys.stderr)
            if error.code not in (0, None):
                raise
"""
OWN_MODEL = """
import abcdp, numba, yaml, json
from scipy import stats
from helper import noise

def simulate(theta, records, rng):
    return theta[0] + noise(records, rng)

prior = {"mu": stats.norm(0, 1)}
mean = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5))])
model = abcdp.Model(prior=prior, simulator=simulate, vectorised=False, distance=mean)
timed = abcdp.Model(
    prior=prior, simulator=simulate, vectorised=False, distance=mean, time_limit=60.0
)
"""


def is_frozen(name):
    return importlib.machinery.FrozenImporter.find_spec(name) is not None


@pytest.fixture(scope="module")
def trap(tmp_path_factory):
    """A folder that holds a module of every name that Python or an installed library has."""
    folder = tmp_path_factory.mktemp("trap")
    names = set(sys.stdlib_module_names) | set(importlib.metadata.packages_distributions())
    names |= {"typing_extensions", "sitecustomize", "usercustomize", "cloudpickle", "orjson", "ujson", "abcdp"}
    for name in names:
        if not name.isidentifier() or name in sys.builtin_module_names or is_frozen(name):
            continue
        if name in ("numpy", "scipy", "abcdp", "pyarrow", "multiprocessing"):
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(EVIL)
        else:
            (folder / f"{name}.py").write_text(EVIL)
    (folder / "own_model.py").write_text(OWN_MODEL)
    (folder / "helper.py").write_text("def noise(records, rng):\n    return rng.normal(size=records)\n")
    return folder


def in_the_trap(trap, tmp_path, *commands, prefix=()):
    runner = tmp_path / "bin" / "abcdp"
    runner.parent.mkdir(exist_ok=True)
    runner.write_text(RUNNER)
    mark = tmp_path / "mark"
    run = subprocess.run(
        [sys.executable, *prefix, runner, json.dumps([list(map(str, one)) for one in commands])],
        cwd=trap,
        capture_output=True,
        text=True,
        env={**os.environ, "EVIL_MARK": str(mark)},
    )
    assert not mark.exists(), (mark.read_text(), run.stderr[-2000:])
    assert run.returncode == 0, run.stderr[-3000:]


def test_no_command_runs_code_of_the_working_folder(trap, tmp_path, bank):
    to = tmp_path
    np.save(to / "y.npy", np.random.default_rng(0).normal(1.0, 1.0, 40))
    owner = ["--ledger", to / "own.db", "--dataset", "d", "--noise", "fast"]
    mixture = ["simulate", "mixture", "--draws", 200, "--records", 20]
    in_the_trap(
        trap,
        tmp_path,
        ["--version"],
        ["bank", "show", bank, "--verify"],
        [*mixture, "--seed", 1, "--to", to / "a"],
        [*mixture, "--seed", 2, "--to", to / "b", "--json"],
        ["bank", "merge", to / "a", to / "b", "--to", to / "both"],
        ["learn", bank, "--dims", 1, "--to", to / "learned"],
        ["plan", bank, "--epsilon", 1, "--truths", 4, "--no-learn", "--out", to / "p.json", "--plot", to / "p.png"],
        [
            "ledger",
            "create",
            to / "own.db",
            "--dataset",
            "d",
            "--data",
            to / "y.npy",
            "--unit",
            "record",
            "--epsilon",
            9,
            "--missing",
            "none",
        ],
        ["release", bank, to / "y.npy", *owner, "--plan", to / "p.json", "--at-most", 1, "--out", to / "p.r.json"],
        [
            "release",
            bank,
            to / "y.npy",
            *owner,
            "--epsilon",
            3,
            "--accept",
            5,
            "--threshold",
            1,
            "--out",
            to / "r.json",
        ],
        ["report", to / "r.json", "--bank", bank, "--out", to / "r.html", "--netcdf", to / "r.nc"],
        ["ledger", "show", to / "own.db"],
        ["ledger", "verify", to / "own.db"],
        ["ledger", "anchor", to / "own.db"],
        ["audit", "--runs", 200, "--seconds", 1],
        ["paper"],
    )


@pytest.mark.parametrize("model", ["model", "timed"])
def test_a_model_of_the_working_folder_is_found_and_nothing_else_there(model, trap, tmp_path):
    """Workers are interpreters of their own: they too begin with the working folder on their path.

    What a model's folder has and nobody else does can be imported: a model may be made of several modules.
    """
    for path in trap.iterdir():
        if path.stem not in ("own_model", "helper") and importlib.machinery.PathFinder.find_spec(path.stem) is None:
            path.unlink()
    settings = ["--draws", 6, "--records", 5, "--seed", 1, "--workers", 2, "--shard-draws", 3]
    in_the_trap(trap, tmp_path, ["simulate", f"own_model:{model}", "--to", tmp_path / "bank", *settings])


def test_with_the_working_folder_first_on_the_path_what_is_imported_later_is_not_of_it(tmp_path, bank):
    """As with python -c, where what abcdp itself imports at its start cannot be helped."""
    for late in ("numba", "matplotlib", "jinja2", "typer", "rich", "sqlalchemy", "opendp"):
        (tmp_path / f"{late}.py").write_text(EVIL)
    mark = tmp_path / "mark"
    run = subprocess.run(
        [sys.executable, "-c", ENTRY, "plan", bank, "--epsilon", "1", "--truths", "3", "--plot", "p.png"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "EVIL_MARK": str(mark)},
    )
    assert run.returncode == 0, run.stderr
    assert not mark.exists(), mark.read_text()


def test_settings_of_numba_in_the_working_folder_are_not_followed(tmp_path, bank):
    """They may name a folder of compiled code, which numba unpickles."""
    (tmp_path / ".numba_config.yaml").write_text("cache_dir: cache\nno_such: 1\n")
    text = command("plan", bank, "--epsilon", 1, "--truths", 3, "--no-learn", cwd=tmp_path)
    assert "chosen" in text
    assert [path.name for path in tmp_path.iterdir()] == [".numba_config.yaml"]


def test_settings_of_matplotlib_in_the_working_folder_are_not_followed(tmp_path, bank):
    """They may ask for TeX, which runs a program with a text of theirs."""
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nsavefig.dpi: 10\n")
    drawn = ["plan", bank, "--epsilon", 1, "--truths", 3, "--no-learn", "--plot", tmp_path / "p.png"]
    command(*drawn, cwd=tmp_path, env={**os.environ, "PATH": str(tmp_path)})
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")


def test_a_bank_that_names_a_model_of_the_working_folder_does_not_import_it(tmp_path, bank):
    shutil.copytree(bank, tmp_path / "bank")
    manifest = tmp_path / "bank" / "manifest.json"
    named = abcdp.Bank(bank).header.model
    text = manifest.read_text()
    assert json.dumps(named) in text
    manifest.write_text(text.replace(json.dumps(named), json.dumps("evil:model")))
    (tmp_path / "evil.py").write_text(EVIL)
    environment = {**os.environ, "EVIL_MARK": str(tmp_path / "mark")}
    for arguments in (["bank", "show", "bank"], ["plan", "bank", "--epsilon", 1, "--truths", 3, "--no-learn"]):
        line = [sys.executable, "-P", "-c", ENTRY, *map(str, arguments)]
        run = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert "Traceback" not in run.stderr
        assert run.returncode in (0, 2)  # a changed manifest may be refused as such
    assert not (tmp_path / "mark").exists()


def test_every_command_finds_the_model_of_the_working_folder(own, bank):
    (own / "mine.py").write_text(
        f"import sys; sys.path.append({str(Path(__file__).parent)!r})\nfrom sample_models import batched as model\n"
    )
    command(*asking(bank, "--epsilon", 1.9, "--accept", 4, "--threshold", 3, "--out", "r.json"), cwd=own)
    command("report", "r.json", "--bank", bank, "--model", "mine:model", cwd=own)
    command("synthesize", "r.json", "mine:model", "--records", 5, "--out", "s.npy", cwd=own)
    assert np.load(own / "s.npy").shape[:2] == (1, 5)
    (own / "broken.py").write_text("raise KeyError(1)")
    assert "KeyError" in command("synthesize", "r.json", "broken:m", "--records", 5, "--out", "t.npy", cwd=own, code=2)


# secrets


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@h:5432/db",
        "postgresql://u@h/db?password=hunter2",
        "postgresql://h/db?sslpassword=hunter2&passfile=hunter2",
        "postgresql://h/db?passfile=/home/x/hunter2@y",
        "s3://AKIA:hunter2@bucket/x?token=hunter2@x",
        "s3://AKIA:pre?hunter2@bucket/x",
        "s3://AKIA:pre#hunter2@bucket/x",
        "s3://AKIA:a@b?hunter2@bucket",
        "s3://AKIA:x/hunter2@bucket/x",
        "s3://AKIA:hunter2",
        " s3://AKIA:hunter2@bucket/x",
        "https://host/x?sig=hunter2#hunter2",
    ],
)
def test_a_shown_url_has_no_secret(url):
    assert "hunter2" not in shown(url)
    assert url.split("://")[0] in shown(url)


def test_what_is_no_secret_of_a_place_is_shown():
    same = "plain/path", "s3://bucket/a@b", "hdfs://host:9000/a", "s3://[::1]:80/x", "postgresql+psycopg:///db"
    assert [shown(place) for place in same] == list(same)
    assert shown("postgresql://user@host/db?sslmode=require") == "postgresql://host/db"


def test_the_secrets_of_a_url_are_known():
    assert {"a b", "a+b", "a%20b"} >= secrets_in("postgresql://h/db?password=a%20b") == {"a b", "a%20b"}
    assert "p@ss" in secrets_in("postgresql://u:p%40ss@h/db")
    assert secrets_in("postgresql://postgres@h/db?sslmode=require") == set() == secrets_in("a/path")
    assert secrets_in("https://ghp_0123456789abcdef@h/x") == {"ghp_0123456789abcdef"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["ledger", "verify", "postgresql://u:hunter2@127.0.0.1:1/db?connect_timeout=2"],
        ["ledger", "show", "mysql://u:hunter2@h/db?ssl_key=hunter2"],
        ["ledger", "show", "postgresql://127.0.0.1:1/db?password=hunter2&nonsense=hunter2"],
        ["ledger", "show", "postgresql://u:hunter2@h/db", "postgresql://u:hunter2@h/db"],
        ["postgresql://u:hunter2@h/db"],
        ["bank", "show", "s3://AKIA:hunter2@b/x?scheme=hunter2&secret_key=hunter2"],
        ["bank", "show", "/nowhere", "--to=s3://AKIA:hunter2@b/x"],
        ["simulate", "mixture", "--to", "s3://AKIA:hunter2@b/x", "--draws", "s3://AKIA:hunter2@b/x"],
        ["simulate", "mixture", "--to", "b", "--draws", "1", "--records", "1", "--seed", "1", "--dask=tls://u:hunter2@h:x"],
        ["release", "nosuch://u:hunter2@h/x", "d", "--ledger", "l", "--dataset", "d", "--out", "o"],
    ],
)  # fmt: skip
def test_no_message_repeats_a_secret_of_the_command_line(arguments, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert run_here(arguments, monkeypatch) == 2
    assert "hunter2" not in "".join(capfd.readouterr())


def run_here(arguments, monkeypatch):
    """Run a command in this process and return its exit code."""
    from abcdp import cli

    monkeypatch.setattr(sys, "argv", ["abcdp", *map(str, arguments)])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as end:
        cli.main()
    return end.value.code


# what it may cost


def test_a_release_costs_no_more_than_was_allowed(own, bank):
    mechanism = abcdp.PrivateSummary(epsilon=1.5)
    asked = {"ledger": own / "own.db", "dataset": "d", "noise": "fast"}
    with pytest.raises(MechanismError, match=r"epsilon=1\.5, above at_most=1\.4"):
        abcdp.release(bank, own / "y.npy", mechanism, at_most=1.4, **asked)
    for wrong in (0, -1, float("nan"), float("inf"), True, "2"):
        with pytest.raises(MechanismError, match="at_most"):
            abcdp.release(bank, own / "y.npy", mechanism, at_most=wrong, **asked)
    assert left(own) == 2
    abcdp.release(bank, own / "y.npy", mechanism, at_most=1.5, **asked)
    assert left(own) == 0.5


def test_a_plan_is_not_charged_unless_its_price_was_allowed(own, bank):
    planned = asking(bank, "--plan", "p.json", "--out", "r.json")
    assert "--at-most" in command(*planned, cwd=own, code=2, stdin=subprocess.DEVNULL)
    assert "above at_most=1.0" in command(*planned, "--at-most", 1, cwd=own, code=2)
    assert left(own) == 2
    assert not (own / "r.json").exists()
    command(*planned, "--at-most", 1.5, cwd=own)
    assert left(own) == 0.5


def on_a_terminal(arguments, cwd, typed):
    """Run a command on a pseudo-terminal and return its exit code and what it showed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", ENTRY, *map(str, arguments)], cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    seen, answered, until = b"", False, time.monotonic() + 120
    while time.monotonic() < until:
        if not select.select([ours], [], [], 1.0)[0]:
            continue
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        seen += part
        if not part:
            break
        if not answered and b"charge this?" in seen:
            os.write(ours, typed)
            answered = True
    os.close(ours)
    return process.wait(10), seen.decode()


def test_somebody_at_a_terminal_is_asked(own, bank):
    planned = asking(bank, "--plan", "p.json", "--out", "r.json")
    code, text = on_a_terminal(planned, own, b"\n")
    assert (code, left(own)) == (2, 2)
    assert "costs epsilon         1.5" in text
    assert "left epsilon          2" in text
    code, text = on_a_terminal(planned, own, b"y\n")
    assert (code, left(own)) == (0, 0.5)


OTHERWISE = [
    (
        {"unit": abcdp.Unit(change=(1.0,), name="one case").to_json()},
        "the plan was made for another unit, one case (moving",
    ),
    (
        {"unit": abcdp.Unit(change=(1.0,)).to_json()},
        "; that of dataset 'd' is replacing one record by anything. Noise",
    ),
    ({"unit": {"records": 0}}, "the plan was made for a unit that is not known here"),
    ({"records": 60}, "the plan was made for 60 records; dataset 'd' has 40. Noise and error are other ones than it"),
    ({"reachable": False, "goal": None}, "the plan expects a release that says no more than the prior: spend nothing"),
    (
        {"reachable": False, "goal": 10**400},
        "the plan expects a release that says no more than the prior: spend nothing",
    ),
    ({"reachable": False, "goal": 0.25}, "the plan does not reach its goal, an error of 0.25: spend nothing on it."),
]


@pytest.mark.filterwarnings("always")
@pytest.mark.parametrize(("plan", "words"), OTHERWISE, ids=map(str, range(len(OTHERWISE))))
def test_a_plan_for_something_else_or_for_nothing_is_said_before_the_charge(plan, words, own, bank, monkeypatch, capfd):
    (own / "p.json").write_text(json.dumps(json.loads((own / "p.json").read_text()) | plan))
    monkeypatch.chdir(own)
    planned = asking(bank, "--plan", "p.json", "--out", "r.json")
    for more, code in ((["--dry-run"], 0), (["--at-most", 1], 2), (["--at-most", 1.5], 0)):
        assert run_here([*planned, *more], monkeypatch) == code
        said = capfd.readouterr().err
        assert said.startswith("warning: p.json: ")
        assert said.count("warning: ") == 1
        assert words in said
    assert left(own) == 0.5
    with pytest.warns(UnitWarning if "unit" in plan else PosteriorWarning, match=re.escape(words)):
        say_misfit(own / "p.json", "d", abcdp.Unit(), 40)


def test_nothing_is_said_of_a_plan_that_fits(own, bank, monkeypatch):
    fits = {"unit": abcdp.Unit(name="one patient").to_json(), "records": 40, "reachable": True, "goal": None}
    for more in (fits, {"unit": "record", "records": "40", "reachable": 0}):  # of the last nothing is understood
        (own / "p.json").write_text(json.dumps(json.loads((own / "p.json").read_text()) | more))
        monkeypatch.chdir(own)
        assert run_here(asking(bank, "--plan", "p.json", "--out", "r.json", "--dry-run"), monkeypatch) == 0


def test_a_private_size_is_not_compared_with_a_plan(own, bank, monkeypatch):
    """The records of a plan are then a modeler's guess, and theirs is nobody's to know."""
    private = abcdp.Unit(neighbours="add-remove", at_least=30)
    data = np.random.default_rng(1).normal(1.0, 1.0, 40)
    abcdp.register(own / "own.db", "p", data, unit=private, epsilon=2, missing="none")
    more = {"unit": private.to_json(), "records": 60}
    (own / "p.json").write_text(json.dumps(json.loads((own / "p.json").read_text()) | more))
    monkeypatch.chdir(own)
    planned = [*asking(bank, "--plan", "p.json", "--out", "r.json", "--dry-run"), "--dataset", "p"]
    assert run_here(planned, monkeypatch) == 0


def test_what_is_wrong_with_a_plan_stands_above_the_question(own, bank):
    (own / "p.json").write_text(json.dumps(json.loads((own / "p.json").read_text()) | {"reachable": False}))
    code, text = on_a_terminal(asking(bank, "--plan", "p.json", "--out", "r.json"), own, b"\n")
    assert (code, left(own)) == (2, 2)
    assert 0 <= text.index("says no more than the prior: spend nothing on it") < text.index("charge this?")


def test_a_dry_run_tells_all_and_charges_nothing(own, bank):
    (own / "y.npy").unlink()
    before = (own / "own.db").read_bytes()
    planned = asking(bank, "--plan", "p.json", "--out", "r.json", "--dry-run")
    values = json.loads(command(*planned, "--json", cwd=own))
    assert values["costs_epsilon"] == "1.5"
    assert (values["left_epsilon"], values["left_epsilon_after"]) == ("2", "0.5")
    assert values["guarantee"]["basis"] in ("enforced", "derived")
    assert (values["numbers"], values["charged"], values["enough"]) == (1, False, True)
    sparse = ["--epsilon", 1, "--accept", 3, "--threshold", 1, "--gaps", "--out", "r.json", "--dry-run"]
    text = command(*asking(bank, *sparse), cwd=own)
    assert "at most 3 rows of the bank" in text
    assert "how far each was below" in text
    assert "Its sensitivity is" in text
    dear = asking(bank, "--mechanism", "nearest", "--epsilon", 3, "--accept", 2, "--out", "r.json", "--dry-run")
    command(*dear, cwd=own, code=1)
    assert (own / "own.db").read_bytes() == before
    assert not (own / "r.json").exists()


def test_a_preview_is_what_the_release_turns_out_to_be(own, bank):
    mechanism = abcdp.SparseVector(epsilon=1.0, accept=4, threshold=3.0, gaps=True)
    asked = {"ledger": own / "own.db", "dataset": "d", "noise": "fast"}
    seen = preview(bank, mechanism, **asked)
    made = abcdp.release(bank, own / "y.npy", mechanism, **asked)
    assert seen.guarantee == made.guarantee
    assert seen.left_after == (left(own), 0)
    assert seen.numbers == 4 * (1 + len(made.parameters) + 1) + 1
    with pytest.raises(AttributeError):
        seen.numbers = 3
    with pytest.raises(MechanismError, match="above at_most"):
        preview(bank, mechanism, at_most=0.5, **asked)


# where results go


@pytest.fixture
def devices_are_safe(monkeypatch):
    """See to it that a version that would replace a device, as root it could, fails instead."""
    replace = os.replace

    def guarded(source, target):
        assert not os.path.realpath(target).startswith(("/dev/", "/proc/")), "a device would have been replaced"
        replace(source, target)

    monkeypatch.setattr(os, "replace", guarded)


@pytest.mark.usefixtures("devices_are_safe")
def test_what_is_not_a_regular_file_is_neither_replaced_nor_followed(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "null").symlink_to(os.devnull)
    (tmp_path / "folder").mkdir()
    for name in ("fifo", "null", "folder", "/dev/null", "/dev/stdout", "/dev/fd/1", "no/such", "a" * 300, "a\0b"):
        for action in (check_place, lambda path: write_atomically(path, lambda temporary: temporary.write_text("x"))):
            with pytest.raises((StorageError, OSError, ValueError)) as caught:
                action(tmp_path / name)
            assert action is not check_place or isinstance(caught.value, StorageError)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    assert stat.S_ISFIFO(os.stat(tmp_path / "fifo").st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fifo", "folder", "null"]


def test_a_link_to_a_file_stays_a_link(tmp_path):
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    write_atomically(tmp_path / "link", lambda temporary: temporary.write_text("new"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "there").read_text() == "new"


def test_a_failure_leaves_no_temporary_file(tmp_path):
    def write(temporary):
        temporary.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "x", write)
    check_place(tmp_path / ("x" * 250), 1 << 16)
    assert list(tmp_path.iterdir()) == []
    write_atomically(tmp_path / ("x" * 250), lambda temporary: temporary.write_text("x"))


def test_room_and_rights_are_asked_for(tmp_path, monkeypatch):
    with pytest.raises(StorageError, match="cannot be written"):
        check_place(tmp_path / "x", 1 << 60)
    monkeypatch.delattr(os, "posix_fallocate")
    with pytest.raises(StorageError, match="no room"):
        check_place(tmp_path / "x", 1 << 60)
    (tmp_path / "x").write_text("")
    monkeypatch.setattr(files.os, "access", lambda path, mode: False)
    with pytest.raises(StorageError, match="may not be written"):
        check_place(tmp_path / "x")
    with pytest.raises(StorageError, match="is a file"):
        check_folder(tmp_path / "x" / "y")
    check_folder(tmp_path / "new" / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("out", ["/dev/null", "/dev/stdout", "nowhere/r.json", "taken", "fifo", "/proc/r.json"])
@pytest.mark.usefixtures("devices_are_safe")
def test_a_place_for_the_release_is_tried_before_the_charge(out, own, bank, monkeypatch, capfd):
    (own / "taken").mkdir()
    os.mkfifo(own / "fifo")
    monkeypatch.chdir(own)
    assert run_here(asking(bank, "--plan", "p.json", "--at-most", 2, "--out", out), monkeypatch) == 2
    assert capfd.readouterr().err.startswith("abcdp: ")
    assert left(own) == 2
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_an_output_that_is_redirected_to_a_file_is_not_replaced(own, bank):
    (own / "out").symlink_to("/dev/stdout")
    asked = map(str, asking(bank, "--plan", "p.json", "--at-most", "2", "--out", "out"))
    with (own / "log").open("wb") as log:
        line = [sys.executable, "-P", "-c", ENTRY, *asked]
        run = subprocess.run(line, cwd=own, stdout=log, stderr=subprocess.DEVNULL)
    assert (run.returncode, left(own)) == (2, 2)


def test_an_error_after_the_charge_says_so_and_the_bytes_are_not_lost(own, bank, monkeypatch, capfd):
    monkeypatch.chdir(own)

    def fails(self, path):
        raise OSError(28, "No space left on device", str(path))

    planned = asking(bank, "--plan", "p.json", "--at-most", 2, "--request", "june", "--out", "r.json")
    with monkeypatch.context() as broken:
        broken.setattr(abcdp.Release, "save", fails)
        assert run_here(planned, broken) == 2
    said = capfd.readouterr().err
    assert "No space left" in said
    assert "charged" in said
    assert "--request june" in said
    assert left(own) == 0.5
    assert run_here(planned, monkeypatch) == 0
    assert left(own) == 0.5


def test_a_failure_between_charge_and_result_says_that_it_was_charged(own, bank, monkeypatch):
    def stop(step):
        if step == "after the charge":
            raise KeyboardInterrupt

    monkeypatch.setattr("abcdp.owner.requests._reached", stop)
    with pytest.raises(KeyboardInterrupt) as caught:
        abcdp.release(bank, own / "y.npy", abcdp.PrivateSummary(epsilon=1.5), ledger=own / "own.db", dataset="d")
    assert "charged" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "BANK", "--epsilon", 1, "--out", "nowhere/p.json"],
        ["plan", "BANK", "--epsilon", 1, "--plot", "p.nonsense"],
        ["plan", "BANK", "--epsilon", 1, "--learned-to", "file/x"],
        ["audit", "--plot", "p"],
        ["audit", "--plot", "/dev/null"],
        ["paper", "all", "--to", "file"],
        ["demo", "--to", "file"],
        ["simulate", "mixture", "--draws", 10, "--records", 10, "--seed", 1, "--to", "file/bank"],
    ],
)
def test_places_for_results_are_tried_before_the_work(arguments, tmp_path, bank, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    began = time.monotonic()
    assert run_here([bank if one == "BANK" else one for one in arguments], monkeypatch) == 2
    assert capfd.readouterr().err.startswith("abcdp: ")
    assert time.monotonic() - began < 5
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# names of strangers


def test_harmless_text_shows_what_would_act():
    assert harmless("clinic É 統計 ±") == "clinic É 統計 ±"
    assert harmless("a\x1b[2J\r\n\x9b\u202e\udc80\u2028") == r"a\x1b[2J\r\n\x9b\u202e\udc80\u2028"
    assert harmless_lines("one\ntwo\x07") == "one\n    two\\x07"


@pytest.fixture
def strange(own, bank):
    """A release whose words come from somebody with a sense of humour."""
    made = abcdp.release(
        bank,
        own / "y.npy",
        abcdp.SparseVector(epsilon=1, accept=3, threshold=3.0),
        ledger=own / "own.db",
        dataset="d",
        noise="fast",
    )
    values = made.to_json() | {"dataset": "d\x1b]0;owned\x07<script>", "request": "\u202e$\\frac"}
    (own / "r.json").write_text(json.dumps(values))
    return own


def test_names_of_strangers_are_harmless_on_a_page(strange, bank):
    command("report", "r.json", "--bank", bank, cwd=strange)
    page = (strange / "report.html").read_text(encoding="utf-8")
    assert "\x1b" not in page
    assert r"d\x1b]0;owned\x07&lt;script&gt;" in page
    assert "\u202e" not in page


def test_names_of_strangers_are_harmless_on_a_terminal(capfd):
    values = {
        "name\x1b": "a\x1b[2J\nepsilon left  9",
        "list": ["\ud800"],
        "map": {"\x07": "\x9b"},
        "lines": output.Lines(["a", "b\r"]),
    }
    output.show(values, False)
    text = capfd.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in text)
    assert len(text.splitlines()) == 5
    output.show(values, True)
    assert json.loads(capfd.readouterr().out)["list"] == ["\ud800"]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_names_of_files_are_harmless_in_errors(encoding, bank, tmp_path):
    name = os.fsdecode(b"\xff\x1b[2J\xe2\x80\xae.json")
    error = command(
        "report", name, "--bank", bank, cwd=tmp_path, code=2, env={**os.environ, "PYTHONIOENCODING": encoding}
    )
    assert "\x1b" not in error
    assert r"\udcff\x1b[2J" in error


def test_a_parameter_that_is_no_formula_is_drawn_as_it_stands(tmp_path):
    import xarray

    from abcdp.reporting import plots
    from abcdp.reporting.pictures import of_tree, picture

    name = "$\\no_such{\x1b"
    draws = xarray.Dataset({name: (("chain", "draw"), np.zeros((1, 9))), "b": (("chain", "draw"), np.ones((1, 9)))})
    tree = xarray.DataTree.from_dict({"posterior": draws, "prior": draws})
    assert picture(plots.marginals(tree), "").address.startswith("data:")
    assert picture(plots.pairs(tree), "").address.startswith("data:")
    assert [one.address[:5] for one in of_tree(tree)] == ["data:"] * 2


# errors


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("bank", "draws"), {}),
        (("bank", "shards"), True),
        (("bank", "digest"), 3),
        (("examined",), float("inf")),
        (("theta",), [[10**400]]),
        (("accepted",), [float("inf")]),
        (("guarantee", "epsilon"), 10**400),
        (("mechanism", "epsilon"), 10**400),
        (("mechanism", "type"), []),
    ],
    ids=map(str, range(9)),  # a number of 400 digits is no name
)
def test_a_release_or_plan_of_wrong_values_is_refused_as_such(path, value, strange):
    values = json.loads((strange / "r.json").read_text())
    inner = values
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    with pytest.raises(ReleaseError):
        abcdp.Release.from_json(values)
    if path[0] == "mechanism":
        plan = json.loads((strange / "p.json").read_text()) | {"mechanism": values["mechanism"]}
        (strange / "p.json").write_text(json.dumps(plan))
        with pytest.raises(PlanError):
            planned_mechanism(strange / "p.json")


def test_a_bug_is_one_line_without_what_it_says(tmp_path, monkeypatch, capfd):
    def broken(*_, **__):
        raise ValueError("record 17.25")

    monkeypatch.setattr("abcdp.bank.Bank.__init__", broken)
    assert run_here(["bank", "show", tmp_path], monkeypatch) == 3
    said = capfd.readouterr().err
    assert said.startswith("abcdp has a bug: ValueError at ")
    assert "17.25" not in said
    assert said.count("\n") == 1


def test_known_errors_have_their_code_and_their_notes(monkeypatch, capfd):
    for error, code, words in [
        (AbcdpError("no such thing"), 2, "no such thing"),
        (MemoryError(), 2, "not enough memory"),
        (PermissionError(13, "Permission denied", "a\x1b"), 2, r"a\x1b: Permission denied."),
        (KeyboardInterrupt(), 130, "stopped"),
    ]:
        error.add_note("and a note")
        assert output.show_error(error) == code
        said = capfd.readouterr().err
        assert words in said
        assert "and a note" in said


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-", ">/dev/full", "| true", "2>/dev/full"])
def test_a_standard_output_that_takes_nothing_is_no_traceback(closed, tmp_path, bank):
    script = f'"{sys.executable}" -P -c "{ENTRY}" bank show "{bank}" {closed}'
    run = subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert "Traceback" not in run.stderr
    assert "Exception ignored" not in run.stderr
    assert run.returncode in (0, 1, 2)
