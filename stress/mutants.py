"""Mutants of the code that privacy rests on: one fault each, which some test must notice.

`python stress/mutants.py` runs all of stress/mutants.txt and prints the verdicts, `--write` also puts them into
docs/audit.md, and words select mutants by name or file: `python stress/mutants.py scan digits.py`. Faults that were not
selected keep the verdict of their last time on the page; those no longer in the list leave it.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "audit.md"
# That a test fails is all that is asked; making the example small would take most of the time.
NO_SHRINKING = """
from hypothesis import Phase, settings
settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate], database=None)
settings.load_profile("mutants")
"""
WORKERS = 2

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
    "hostile": ("hostile_settings", ""),
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
    """What became of a mutant (or of the package without one, where `mutant` is None)."""

    mutant: Mutant | None
    caught_by: str
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


@contextmanager
def copies(count: int) -> Iterator[queue.Queue[Path]]:
    """Yield that many copies of the package and its tests, each to be used by one worker at a time."""
    skip = shutil.ignore_patterns("__pycache__", ".hypothesis", "*.nbi", "*.nbc")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        free: queue.Queue[Path] = queue.Queue()
        for number in range(count):
            copy = Path(folder) / str(number)
            for part in ("src", "tests", "stress"):  # some tests use the search over settings
                shutil.copytree(ROOT / part, copy / part, ignore=skip)
            shutil.copy2(ROOT / "pyproject.toml", copy / "pyproject.toml")
            (copy / "conftest.py").write_text((ROOT / "conftest.py").read_text() + NO_SHRINKING)
            free.put(copy)
        yield free


def run_tests(copy: Path, areas: Sequence[str], *, fresh_kernels: bool) -> tuple[str, str]:
    """Run the tests of each area until one fails; return the test that failed, or nothing, and what was printed.

    Compiled kernels are cached beside the copy, apart for a mutant of them: numba does not see that a function which is
    called from another file has changed.
    """
    with tempfile.TemporaryDirectory(prefix="kernels-") as own:
        environment = os.environ | {
            "PYTHONPATH": str(copy / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",  # a file changed within a second may look like its old bytecode
            "NUMBA_CACHE_DIR": own if fresh_kernels else str(copy / "kernels"),
            "ABCDP_STATE": str(copy / "state"),
            "ABCDP_KEYS": str(copy / "keys.json"),
            "MPLBACKEND": "Agg",
        }
        shown = ""
        for area in areas:
            file, words = AREAS[area]
            command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", "--tb=line"]
            command += [f"tests/test_{file}.py", "-k", words]
            done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
            shown += done.stdout[-3000:] + done.stderr[-1000:]
            if done.returncode < 0:  # a fault in a kernel may write where it must not, and that is noticed too
                return f"test_{file}.py, which signal {-done.returncode} ends", shown
            if done.returncode not in (0, 1):  # nothing was tested
                raise AssertionError(f"pytest ended with {done.returncode}:\n{shown}")
            if done.returncode == 1:
                found = re.search(r"^(?:FAILED|ERROR) tests/(\S+\.py)::(\w+(?:::\w+)?)", done.stdout, re.MULTILINE)
                assert found is not None, shown
                return f"{found[1]}::{found[2]}", shown
    return "", shown


def judge(mutant: Mutant, free: queue.Queue[Path]) -> Verdict:
    """Put the fault into a copy, run the tests, and take it out again."""
    start = time.monotonic()
    copy = free.get()
    path = copy / "src" / "abcdp" / mutant.file
    whole = path.read_text()
    try:
        path.write_text(mutated(whole, mutant))
        caught, shown = run_tests(copy, mutant.areas, fresh_kernels=mutant.file.startswith("_kernels"))
    finally:
        path.write_text(whole)
        free.put(copy)
    return Verdict(mutant, caught, time.monotonic() - start, shown)


def control(free: queue.Queue[Path]) -> list[Verdict]:
    """Run every area on the package without a fault, and make sure that it is the copy which is tested."""
    copy = free.get()
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}
    code = "import abcdp; print(abcdp.__file__)"
    used = subprocess.run([sys.executable, "-c", code], cwd=copy, env=environment, capture_output=True, text=True)
    free.put(copy)
    assert used.stdout.strip() == str(copy / "src" / "abcdp" / "__init__.py"), used.stdout + used.stderr

    def one(area: str) -> Verdict:
        start = time.monotonic()
        copy = free.get()
        try:
            caught, shown = run_tests(copy, [area], fresh_kernels=False)
        finally:
            free.put(copy)
        return Verdict(None, caught, time.monotonic() - start, f"{area}: {shown}")

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(one, AREAS))


def judge_all(mutants: Sequence[Mutant], free: queue.Queue[Path], tell: Callable[[Verdict], None]) -> list[Verdict]:
    """Judge mutants, two at a time."""

    def one(mutant: Mutant) -> Verdict:
        verdict = judge(mutant, free)
        tell(verdict)
        return verdict

    with ThreadPoolExecutor(WORKERS) as pool:
        return list(pool.map(one, mutants))


def tell(verdict: Verdict) -> None:
    """Print one verdict."""
    name = verdict.mutant.name if verdict.mutant else "(no fault)"
    print(f"{verdict.seconds:6.1f} s  {name:45} {verdict.caught_by or 'SURVIVED'}", flush=True)


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
    noticed |= {v.mutant.name: v.caught_by or "**nothing**" for v in verdicts if v.mutant}
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
    survivors = [v.mutant.name for v in verdicts if v.mutant and not v.caught_by]
    print(f"{len(verdicts)} mutants, {len(survivors)} survived: {', '.join(survivors)}")
    if "--write" in sys.argv:
        write(verdicts)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main([word for word in sys.argv[1:] if not word.startswith("--")]))
