"""The logic of the benchmarks: what counts as worse, what is kept, what readers see. Nothing is timed here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import __main__ as command
from bench import compare, page, scale
from bench.measure import Table, cells, interleaved
from bench.peers import environments


def result(*rows, **settings):
    return {"title": "t: x", "machine": "m", "versions": {"numpy": "2"}, "rows": list(rows), **settings}


def row(what, ratio, at_most=False, **settings):
    return {"what": what, "ours": 1e-6, "alternative": 1e-6 * ratio, "ratio": ratio, "at_most": at_most, **settings}


@pytest.mark.parametrize(
    ("old", "new", "at_most", "worse"),
    [
        (100.0, 100.0, False, False),
        (100.0, 70.0, False, False),
        (100.0, 69.9, False, True),
        (100.0, 500.0, False, False),
        (4.0, 4.0 / 0.7, True, False),
        (4.0, 5.8, True, True),
        (4.0, 1.0, True, False),
        (100.0, float("nan"), False, True),
    ],
)
def test_a_ratio_may_fall_to_seven_tenths(old, new, at_most, worse):
    found = compare.regressions({"b": result(row("x", old, at_most))}, {"b": result(row("x", new, at_most))})
    assert bool(found) == worse
    if worse:
        assert found[0].startswith("b: 'x' is ")


def test_what_vanished_is_named_and_what_is_new_or_not_run_is_not():
    committed = {"b": result(row("x", 3.0), {"what": "a note"}), "skipped": result(row("y", 3.0))}
    fresh = {"b": result(row("z", 1.0), {"what": "memory", "ours": 5.0, "limit": 1.0}), "new": result(row("w", 1.0))}
    assert compare.regressions(committed, fresh) == ["b: 'x' is no longer measured; it was 3x."]
    assert compare.regressions(committed, {}) == []


def test_the_tolerance_can_be_chosen():
    old, new = {"b": result(row("x", 100.0))}, {"b": result(row("x", 80.0))}
    assert not compare.regressions(old, new)
    assert compare.regressions(old, new, tolerance=0.9)


class TestCommand:
    """`python -m bench --compare` with a benchmark that measures nothing."""

    @pytest.fixture
    def kept(self, tmp_path, monkeypatch):
        (tmp_path / "results").mkdir()
        (tmp_path / "results" / "planner.json").write_text(json.dumps(result(row("x", 100.0))))
        monkeypatch.setattr(command, "RESULTS", tmp_path / "results")
        return tmp_path / "results"

    def call(self, monkeypatch, ratio, *arguments):
        def run(names, folder, quick=False, full=False, only=()):
            for name in names:
                (folder / f"{name}.json").write_text(json.dumps(result(row("x", ratio))))

        monkeypatch.setattr(command, "run", run)
        monkeypatch.setattr("sys.argv", ["bench", *arguments])
        return command.main()

    def test_worse_fails_and_is_named_and_nothing_is_kept(self, kept, monkeypatch, capsys):
        before = (kept / "planner.json").read_bytes()
        assert self.call(monkeypatch, 50.0, "--compare", "planner") == 1
        assert "planner: 'x' is 50x where 100x is committed." in capsys.readouterr().out
        assert (kept / "planner.json").read_bytes() == before
        assert [path.name for path in kept.iterdir()] == ["planner.json"]

    def test_as_good_passes(self, kept, monkeypatch, capsys):
        assert self.call(monkeypatch, 90.0, "--compare", "planner") == 0
        assert "no ratio is below 0.7" in capsys.readouterr().out

    def test_without_it_results_are_kept(self, kept, monkeypatch):
        assert self.call(monkeypatch, 50.0, "planner") == 0
        assert compare.read(kept)["planner"]["rows"][0]["ratio"] == 50.0

    def test_a_benchmark_that_does_not_exist_is_named(self, kept, monkeypatch, capsys):
        with pytest.raises(SystemExit):
            self.call(monkeypatch, 1.0, "nonsense")
        assert "no benchmark nonsense" in capsys.readouterr().err


def test_a_table_states_its_ratios_and_whether_targets_are_reached(tmp_path, capsys):
    table = Table("some name: of a table")
    table.row("faster", 2e-6, 1e-3, 400)
    table.row("not enough", 2e-6, 1e-3, 600)
    table.row("cheap", 3.0, 2.0, 2, "s", at_most=True)
    table.row("alone", 1.0, unit="s")
    with pytest.raises(ValueError, match="two rows 'alone'"):
        table.row("alone", 2.0)
    table.limit("memory", 2000.0, 1024.0, "MiB")
    table.note("a note")
    table.save(tmp_path)
    rows = {r["what"]: r for r in compare.read(tmp_path)["some_name"]["rows"]}
    assert rows["faster"]["ratio"] == pytest.approx(500)
    assert [rows[w].get("reached") for w in rows] == [True, False, True, None, False, None]
    assert cells(rows["faster"]) == ("2 us", "1000 us", "500x", "400x reached")
    assert cells({"what": "", "ours": 2e-6, "alternative": 0.0158, "ratio": 7900.0})[1] == "15.8 ms"
    assert cells(rows["not enough"])[3] == "600x MISSED"
    assert cells(rows["cheap"]) == ("3 s", "2 s", "1.5x", "at most 2x reached")
    assert cells(rows["alone"]) == ("1 s", "", "", "")
    assert cells(rows["memory"])[3] == "at most 1024 MiB MISSED"
    assert "some name" in capsys.readouterr().out


def test_interleaved_takes_turns_and_believes_those_that_time_themselves():
    order, times = [], iter([3.0, 1.0, 2.0])

    def first():
        order.append("a")

    def second():
        order.append("b")
        return next(times)

    found = interleaved({"a": first, "b": second}, 3)
    assert order == ["a", "b"] * 3
    assert found["b"] == 1.0
    assert 0 <= found["a"] < 1


def test_the_page_shows_machine_versions_and_every_row(tmp_path, monkeypatch, capsys):
    content = result(row("  a | b", 12.5, target=20, reached=False), {"what": "a note"})
    (tmp_path / "planner.json").write_text(json.dumps(content))
    (tmp_path / "study.json").write_text(json.dumps({"rows": [{"epsilon": 1}]}))  # no table of speed
    monkeypatch.setattr(page, "PAGE", tmp_path / "page.md")
    page.main(tmp_path)
    text = (tmp_path / "page.md").read_text()
    assert "m; numpy 2." in text
    assert "| · a \\| b | 1 us | 12.5 us | 12.5x | 20x MISSED |" in text
    assert "| a note |  |  |  |  |" in text
    assert "targets missed: a | b" in capsys.readouterr().out


def test_every_benchmark_exists():
    folder = Path(command.__file__).parent
    for name in command.ALL:
        assert (folder / f"{name}.py").is_file() or (folder / name / "__init__.py").is_file()


def test_an_environment_that_cannot_be_made_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    monkeypatch.setattr(environments.venv, "create", lambda *a, **k: None)

    class Failed:
        returncode, stderr = 1, "WARNING: slow\nERROR: No matching distribution found for elfi==0.8.8\n"

    monkeypatch.setattr(environments.subprocess, "run", lambda *a, **k: Failed)
    with pytest.raises(environments.UnavailableError, match=r"elfi: ERROR: No matching distribution"):
        environments.python_of("elfi", ["elfi==0.8.8"])


class TestScale:
    def test_amounts_read_well(self):
        spans = [scale.span(s) for s in (3.86e-5, 0.0057, 1.6, 60.0, 3 * 3600, 3e5, 1.9e9)]
        assert spans == ["39 us", "5.7 ms", "1.6 s", "60 s", "3 h", "3.5 days", "60 years"]
        assert [scale.dollars(sum_) for sum_ in (0.4291, 7.0, 18026, 666667)] == ["0.43", "7", "18,000", "670,000"]
        assert [scale.amount(size) for size in (5, 4.2e5, 4e11)] == ["5 B", "420 kB", "400 GB"]

    def test_tables_stand_between_their_marks_and_are_replaced(self):
        page = "a\n<!-- x: written by bench/scale.py -->\nold\n<!-- end of x -->\nb\n"
        once = scale.filled(page, {"x": "| new \\1 |"})
        assert "old" not in once
        assert once.startswith("a\n<!-- x")
        assert once.endswith("<!-- end of x -->\nb\n")
        assert "| new \\1 |" in once
        assert scale.filled(once, {"x": "| new \\1 |"}) == once
        with pytest.raises(ValueError, match="marks of x"):
            scale.filled("nothing", {"x": "t"})

    def test_a_figure_that_is_absent_names_the_benchmark_to_run(self, tmp_path):
        (tmp_path / "scaling.json").write_text(json.dumps(result(row("  toy: 49 numbers", 1.0))))
        assert scale.Results(tmp_path).ours("scaling", "toy: 49") == 1e-6
        with pytest.raises(KeyError, match="python -m bench scaling"):
            scale.Results(tmp_path).row("scaling", "other")
