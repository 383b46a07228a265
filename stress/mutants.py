"""Mutants of the code that privacy rests on: one fault each, which some test must notice.

`python stress/mutants.py` runs all of stress/mutants.txt and prints the verdicts, `--write` also puts them into
docs/audit.md, and words select mutants by name or file: `python stress/mutants.py scan digits.py`. Faults that were not
selected keep the verdict of their last time on the page; those no longer in the list leave it.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from compileall import compile_dir
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

from warm_pytest import OTHER_PACKAGE

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "audit.md"
# That a test fails is all that is asked; making the example small would take most of the time.
NO_SHRINKING = """
from hypothesis import Phase, settings
settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None)
settings.load_profile("mutants")
"""
WORKERS = 2
TEST = re.compile(r"\w+\.py::\w+(?:::\w+)?")
NO_SUCH_TEST = 4  # by which pytest ends

# What to run: files of tests and, where only some of them matter, which.
AREAS = {
    "algorithm": ("sparse_vector", "algorithm_1 or single_runs"),
    "both kernels": ("sparse_vector", "kernels_agree"),
    "costs": ("sparse_vector", "cost or tenth or charges"),
    "grid": ("sparse_vector", "grid or even or placed"),
    "options": ("sparse_vector", "option or optimal_split or one_sided or gaps_are or named"),
    "composition": ("composition", ""),
    "gumbel": ("nearest", "gumbel or delta or decide or keys or ends"),
    "nearest": ("nearest", "contest or cost or probabilities or loss or shard"),
    "summary": ("private_summary", "vector_rule or cross or cost or integers or error_of_every"),
    "summary noise": ("private_summary", "scatter"),
    "together": ("sensitivity", "joint or together or corners or curvature or groups"),
    "lattice": ("lattice", ""),
    "chords": ("chords", ""),
    "rows": ("kernels", "paired or row_distances"),
    "noise": ("noise", ""),
    "smaller noise": ("top_up_noise", ""),
    "top-ups": ("top_up", "not at_once and not commands and not planner and not report and not as_good"),
    "chains": ("top_up_audit", "broken or changed or moved or shipped_code or loses or law"),
    "rounded": ("rounded_gaussian", ""),
    "given old": ("rounded_gaussian", "numbers_of_one_length or as_long or 300_digits or more_noise"),
    "sizes": ("sensitivity", "adding_or_removing or reach"),
    "neighbours": ("sensitivity", "stay_within"),
    "pairs": ("sensitivity", "no_pair"),
    "learning": ("learning", "cases or size or histograms or small"),
    "clusters": ("clusters", "definitions or moves or neighbour or exact"),
    "distances": ("distances", "paired or mmd or stated_error or clipped"),
    "bank": ("bank", "bounds or hostile or reads_back"),
    "pieces": ("pieces", "not_what_they_say or each_of_its_own"),
    "failed": ("owner", "failed_draws"),
    "owner": ("owner", "Refusals or end_to_end or same_bytes or crash or unit or private_size"),
    "guarantee": (
        "guarantee",
        "class or changed or touch or weakest or by_hand or power or attained or other_noise",
    ),
    "size": ("private_size", ""),
    "signatures": ("signatures", "every_number or another_key or without_the_library"),
    "evidence": ("evidence", "private_size or no_secret"),
    "size on pages": ("report", "private_size"),
    "accounts on pages": ("decision", "holds_already"),
    "forms": ("console_forms", "form_without or other_site or another_site or smaller_scope"),
    "pages of modelers": ("console_forms", "nothing_of_others"),
    "totals": ("totals", ""),
    "outsiders": ("outsiders", ""),
    "ledger": ("ledger", "tenth or budget or charge or request or signed or found or anchor or rules"),
    "requests": ("reservations", "signed_anew or week_and_a_size"),
    "reservations": ("reservations", "exactly_so or cap_over"),
    "asked": ("desk", "idempotency_key or not_theirs or blind or ones_own or library"),
    "computed": ("desk", "never_computed or one_process or changed_bank or same_words or to_its_bytes or slot"),
    "rehearsed": ("desk", "meet_itself or limits_hold"),
    "accounts": ("accounts", "key or scope or trail or taken_once or throttled or sessions_end or forms"),
    "uploads": ("uploads", "one_pattern or nobody_learns or sizes or a_share"),
    "inspection": ("uploads", "each_fault or no_secrets"),
    "settings of a server": ("server", "settings_that_cannot or rates_fill or other_libraries"),
    "served": ("server", "only_reads or blind or its_folder or same_words"),
    "accounting": ("accounting", ""),
    "trust": ("ledger_trust", "not postgresql"),
    "losses": ("audit", "shipped_calibration"),
    "runs": ("audit", "gives_events"),
    "moves": ("audit", "shipped_distances or shipped_grid"),
    "entries": ("audit", "every_entry"),
    "digits": ("audit", "near_zero"),
    "whole audit": ("audit", "every_kind_of_mechanism_passes"),
    "followed": ("audit", "shared_between or integers_say or without_noise_are_found"),
    "streams": ("audit", "in_other_ways"),
    "charged": ("audit", "exact_arithmetic or a_bank_are_those or beyond_the_charge or wide_summary"),
    "contributions": ("contributions", ""),
    "what is learned": ("learning", "steers or differences or limited_change"),
    "network": ("network", "not a_bank_a_release"),
    "record features": ("record_features", "not jax"),
    "tables": ("table", "further_apart or limited or stay_within or enforced"),
    "files of tables": ("table", "refused_before or file_counts"),
    "missing": ("missing", "not gaps_no_longer and not integers_move"),
    "kinds": ("kinds_of_noise_and_units", "weighed or goes_where or ledger or audit"),
    "baseline": ("owner", "baseline"),
    "narrowed": ("narrow", "written_down or refuse or edited or content or not_count"),
    "noisy pairs": ("pairs", "other_statistics or left_out"),
    "local": ("local", "left_out_and_counted or held_out_draws or share_a_path"),
    "predictive": ("predictive", "own_simulation or under_a_fitted_law"),
    "one dataset": ("together", "not intervals_hold and not exact_posterior"),
    "pools": ("pool", "disagree or guarantee"),
    "networks": ("neural", "damaged or made_up or noise"),
    "learned networks": ("record_network", "anew or carry or some_are_taken"),
    "calibration check": ("calibration_check", "own_draw or discrete or unlikeliest"),
    "single": ("single", ""),
    "draws in JAX": ("jax", "draws_have"),
    "summaries in JAX": ("jax_summaries", "made_on_a_device"),
    "notebooks": ("notebook", "strangers"),
    "hostile": ("hostile_settings", ""),
    "client": ("client", "read_it or answers_what or file_or or twice or to_another"),
    "notices": ("notices", "private or password"),
    "refusals": ("distances", "refused"),
    "auditor": (
        "audit",
        "laws or jump or add_up or lower_bound or too_far_are_found or each_gap or at_delta or under_a_delta "
        "or gumbel_noise or the_lattice or the_shipped_contest or several_events",
    ),
}


@dataclass(frozen=True)
class Mutant:
    """A fault: text that occurs exactly once in a file of the package, what replaces it, and why it matters."""

    name: str
    file: str
    old: str
    new: str
    why: str
    areas: tuple[str, ...]


def read(text: str) -> list[Mutant]:
    """Return the mutants of a list: a file and its areas, then faults as `name | why`, old text and new text."""
    mutants, file, areas = [], "", ""
    for block in text.strip().split("\n\n"):
        lines = block.split("\n")
        if lines[0].startswith("== "):
            file, areas = lines[0].removeprefix("== ").split(": ")
            continue
        name, why = lines[0].split(" | ")
        old, new = ("\n".join(line[2:] for line in lines[1:] if line[0] == sign) for sign in "-+")
        mutants.append(Mutant(name, file, old, new, why, tuple(areas.split(", "))))
    return mutants


MUTANTS = read((Path(__file__).parent / "mutants.txt").read_text())


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant, and the words by which pytest runs what noticed it."""

    mutant: Mutant
    caught_by: str
    words: Sequence[str]
    seconds: float
    output: str


class StaleError(AssertionError):
    """A mutant whose text is not in the file once: the code has changed, and the list must follow."""


def mutated(text: str, mutant: Mutant) -> str:
    """Return a file's text with the fault in it."""
    if text.count(mutant.old) != 1:
        raise StaleError(
            f"{mutant.name!r}: its text occurs {text.count(mutant.old)} times in {mutant.file}: {mutant.old!r}"
        )
    return text.replace(mutant.old, mutant.new)


class Copy:
    """A copy of the package and its tests, used by one worker at a time, with a process that runs pytest on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        environment = os.environ | {
            "PYTHONPATH": str(folder / "src"),
            "ABCDP_STATE": str(folder / "state"),
            "ABCDP_KEYS": str(folder / "keys.json"),
            "MPLBACKEND": "Agg",
        }
        command = [sys.executable, str(ROOT / "stress" / "warm_pytest.py")]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def pytest(self, words: Sequence[str], *, fresh_kernels: bool = False) -> tuple[int, str]:
        """Return the status of a run and what it printed.

        Compiled kernels are kept in the copy, those of a mutant of them apart: numba does not see that a function which
        is called from another file has changed.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        output = self.folder / "output.txt"
        with tempfile.TemporaryDirectory(prefix="kernels-") as own:
            run = {
                "words": ["-p", "no:cacheprovider", "--tb=line", *words],
                "output": str(output),
                "kernels": own if fresh_kernels else None,
            }
            self.process.stdin.write(json.dumps(run) + "\n")
            self.process.stdin.flush()
            status = int(self.process.stdout.readline())
        assert status != OTHER_PACKAGE, "what was tested is not the copy"
        return status, output.read_text(errors="replace")

    @contextmanager
    def fault(self, mutant: Mutant) -> Iterator[None]:
        """Put a fault into the copy for a time; the file's date is put back too, by which numba knows its kernels."""
        path = self.folder / "src" / "abcdp" / mutant.file
        whole, stat = path.read_text(), path.stat()
        try:
            path.write_text(mutated(whole, mutant))
            yield
        finally:
            path.write_text(whole)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def close(self) -> None:
        self.process.communicate()


@contextmanager
def copies(count: int) -> Iterator[queue.Queue[Copy]]:
    """Yield that many copies."""
    skip = shutil.ignore_patterns("__pycache__", ".hypothesis", "*.nbi", "*.nbc")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ExitStack() as stack:
        free: queue.Queue[Copy] = queue.Queue()
        for number in range(count):
            copy = Path(folder) / str(number)
            for part in ("src", "tests", "stress"):  # some tests use the search over settings
                shutil.copytree(ROOT / part, copy / part, ignore=skip)
            shutil.copy2(ROOT / "pyproject.toml", copy / "pyproject.toml")
            (copy / "conftest.py").write_text((ROOT / "conftest.py").read_text() + NO_SHRINKING)
            # bytecode that goes by content: a file changed within a second may look like an old one by its date
            compile_dir(copy / "src", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
            free.put(made := Copy(copy))
            stack.callback(made.close)
        yield free


def runs_for(mutant: Mutant) -> Iterator[list[str]]:
    """Yield what to run: the test that noticed the fault the last time, then all of its areas."""
    _, _, noticed = rows_of(PAGE.read_text()).get(mutant.name, ("", "", ""))
    if TEST.fullmatch(noticed):
        yield [f"tests/{noticed}"]
    for area in mutant.areas:
        file, words = AREAS[area]
        yield [f"tests/test_{file}.py", "-k", words]


def judge(mutant: Mutant, free: queue.Queue[Copy]) -> Verdict:
    """Put the fault into a copy and run tests until one fails."""
    start = time.monotonic()
    copy, caught, shown, words = free.get(), "", "", []
    try:
        with copy.fault(mutant):
            for words in runs_for(mutant):
                status, output = copy.pytest(["-x", *words], fresh_kernels=mutant.file.startswith("_kernels"))
                shown += output[-4000:]
                if status < 0:  # a fault in a kernel may write where it must not, and that is noticed too
                    caught = f"{Path(words[0]).name}, which signal {-status} ends"
                    break
                if status == 1:
                    found = re.search(rf"^(?:FAILED|ERROR) tests/({TEST.pattern})", output, re.MULTILINE)
                    assert found is not None, shown
                    caught, words = found[1], [f"tests/{found[1]}"]
                    break
                gone = status == NO_SUCH_TEST and "-k" not in words  # it has another name by now
                if status != 0 and not gone:  # nothing was tested
                    raise AssertionError(f"pytest ended with {status}:\n{shown}")
    finally:
        free.put(copy)
    return Verdict(mutant, caught, words, time.monotonic() - start, shown)


def _at_once(task: Callable[[Any], Any], inputs: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(task, inputs))


def judge_all(mutants: Sequence[Mutant], free: queue.Queue[Copy], tell: Callable[[Verdict], None]) -> list[Verdict]:
    """Judge mutants, two at a time."""

    def one(mutant: Mutant) -> Verdict:
        verdict = judge(mutant, free)
        tell(verdict)
        return verdict

    return _at_once(one, mutants)


def control(verdicts: Sequence[Verdict], free: queue.Queue[Copy]) -> list[str]:
    """Run every test that noticed a fault on the package without one; return what was printed where some fail."""
    tests = sorted({tuple(v.words) for v in verdicts if v.caught_by})
    chosen = [words for words in tests if "-k" in words]
    named = sorted(word for words in tests if "-k" not in words for word in words)
    half = len(named) // WORKERS + 1
    chosen += [tuple(named[start : start + half]) for start in range(0, len(named), half)]

    def one(words: Sequence[str]) -> str:
        copy = free.get()
        try:
            status, output = copy.pytest(words)
        finally:
            free.put(copy)
        return "" if status == 0 else output

    return [output for output in _at_once(one, chosen) if output]


def tell(verdict: Verdict) -> None:
    """Print one verdict."""
    print(f"{verdict.seconds:6.1f} s  {verdict.mutant.name:45} {verdict.caught_by or 'SURVIVED'}", flush=True)


def rows_of(text: str) -> dict[str, list[str]]:
    """Return the rows of the page's table of mutants by name: file, why it matters, noticed by."""
    table = text.split(_begin("mutants"))[1].split(_end("mutants"))[0].strip().split("\n")[2:]
    cells = ([cell.strip(" `") for cell in row.strip("|").split(" | ")] for row in table)
    return {name: rest for name, *rest in cells}


def _begin(table: str) -> str:
    return f"<!-- {table}: written by stress/mutants.py -->\n"


def _end(table: str) -> str:
    return f"<!-- end of {table} -->"


def write(verdicts: Sequence[Verdict]) -> None:
    """Put the losses of the audited mechanisms and the verdicts into the page."""
    sys.path[:0] = [str(ROOT / "tests")]
    from abcdp.audit import worst_loss
    from broken_mechanisms import BROKEN, CORRECT, NEARLY

    losses = ["| mechanism | draws | claimed | computed loss |", "|---|---|---|---|"]
    for case in (*CORRECT, *NEARLY, *BROKEN):
        loss = worst_loss(case.mechanism, case.length).loss
        shown = "infinite" if loss == float("inf") else f"{loss:.4f}"
        losses.append(f"| {case.name} | {case.length} | {case.mechanism.claimed:g} | {shown} |")
    text = PAGE.read_text()
    noticed = {name: row[-1] for name, row in rows_of(text).items()}
    noticed |= {v.mutant.name: v.caught_by or "**nothing**" for v in verdicts}
    rows = ["| fault | in | why it matters | noticed by |", "|---|---|---|---|"]
    rows += [f"| {m.name} | `{m.file}` | {m.why} | `{noticed[m.name]}` |" for m in MUTANTS if m.name in noticed]
    for name, lines in (("losses", losses), ("mutants", rows)):
        begin, end = _begin(name), _end(name)
        head, rest = text.split(begin)
        text = head + begin + "\n" + "\n".join(lines) + "\n\n" + end + rest.split(end)[1]
    PAGE.write_text(text)


def main(words: Sequence[str]) -> int:
    """Run mutants from the command line."""
    chosen = [m for m in MUTANTS if not words or any(word in f"{m.file} {m.name}" for word in words)]
    with copies(WORKERS) as free:
        verdicts = judge_all(chosen, free, tell)
        unsound = control(verdicts, free)
    survivors = [v.mutant.name for v in verdicts if not v.caught_by]
    print(f"{len(verdicts)} mutants, {len(survivors)} survived: {', '.join(survivors)}")
    print(*unsound, sep="\n")
    if "--write" in sys.argv:
        write(verdicts)
    return 1 if survivors or unsound else 0


if __name__ == "__main__":
    sys.exit(main([word for word in sys.argv[1:] if not word.startswith("--")]))
