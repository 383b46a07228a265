"""Figures 2 to 5, the page of all of them, and a real process that is killed on the way."""

from __future__ import annotations

import copy
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

import abcdp
from abcdp.experiments.public import public_distances
from abcdp.mechanisms import SparseVector
from abcdp.models import _covid, _tuberculosis
from abcdp.models._mixture import TRUTH
from abcdp.paper import EXPERIMENTS, Claim, fig2, fig3, fig4, fig5, make, write_page
from abcdp.paper.work import Work, stream
from abcdp.sampling.seeded import SeededNoise

NAMES = tuple(EXPERIMENTS)
MARK = 123.0
SHORT_TRAININGS = """
from abcdp.cli import main
from abcdp.learning import information
information._STEPS = (400, 400)
main()
"""


def command(*arguments):
    """A process whose trainings are short: what they are worth is not looked at here."""
    return [sys.executable, "-c", SHORT_TRAININGS, "paper", *map(str, arguments)]


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """All quick figures by a process that was killed in the middle of figure 2, and one that went on.

    A finished run of the first is marked in its file, so that it shows in the numbers if, and only if, it is used.
    """
    folder = tmp_path_factory.mktemp("killed")
    environment = os.environ | {"ABCDP_STATE": str(folder / "state"), "MPLBACKEND": "Agg"}
    first = subprocess.Popen(
        command("all", "--quick", "--to", folder), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 300
    while len(parts := sorted(folder.glob(".work/fig2-*/run-*.json"))) < 2:
        assert first.poll() is None, first.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    first.stderr.close()
    there = {"fig2.json": (folder / "fig2.json").exists(), "fig1": (folder / "fig1.json").stat().st_mtime_ns}
    part = json.loads(parts[0].read_text())
    parts[0].write_text(json.dumps(part | {"nearest": MARK}))
    again = subprocess.run(
        command("all", "--quick", "--to", folder, "--json"), env=environment, capture_output=True, text=True
    )
    return folder, there, again


@pytest.fixture(scope="module")
def numbers(killed):
    folder, _, again = killed
    assert again.returncode == 0, again.stderr
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in NAMES}


def verdicts(experiment, saved, change=lambda numbers: None):
    doctored = copy.deepcopy(saved)
    change(doctored)
    return [claim.holds for claim in EXPERIMENTS[experiment].claims(doctored)]


# -- going on where it stopped ----------------------------------------------------------------------------------------


def test_a_killed_run_goes_on_where_it_stopped(killed, numbers, tmp_path):
    folder, there, again = killed
    assert there["fig2.json"] is False
    assert "fig1: already there" in again.stderr
    assert (folder / "fig1.json").stat().st_mtime_ns == there["fig1"]
    # the run that was done before the kill was read; all others are those of a run that nobody killed
    assert numbers["fig2"]["nearest"][0] == MARK
    whole = make(EXPERIMENTS["fig2"], tmp_path, EXPERIMENTS["fig2"].quick)
    expected = json.loads(whole.numbers.read_text())
    expected["nearest"][0] = MARK
    assert numbers["fig2"] | {"software": None} == expected | {"software": None}
    # what single runs left is gone, banks stay
    assert [path.name for path in (folder / ".work").iterdir()] == ["banks"]


def test_all_says_what_holds(killed):
    folder, _, again = killed
    values = json.loads(again.stdout)
    assert values.pop("page") == str(folder / "paper.html")
    assert tuple(values) == NAMES
    for name, one in values.items():
        assert one["claims"], name
        for claim in one["claims"]:
            assert claim["holds"] or claim["reason"], claim


def test_numbers_are_used_again_only_for_the_same_config_and_software(tmp_path, monkeypatch):
    asked = []

    def compute(config):
        asked.append(config)
        return fig3.compute(config)

    experiment = replace(EXPERIMENTS["fig3"], compute=compute)
    small = fig3.Config(records=500)
    assert make(experiment, tmp_path, small).seconds is not None
    assert make(experiment, tmp_path, small).seconds is None
    assert len(asked) == 1
    make(experiment, tmp_path, fig3.Config(records=501))
    assert len(asked) == 2
    make(experiment, tmp_path, fig3.Config(records=501), fresh=True)
    assert len(asked) == 3
    monkeypatch.setattr("abcdp.paper.common.software", lambda: {"abcdp": "another"})
    make(experiment, tmp_path, fig3.Config(records=501))
    assert len(asked) == 4
    (tmp_path / "fig3.json").write_text("{ half")
    make(experiment, tmp_path, fig3.Config(records=501))
    assert len(asked) == 5


def test_finished_runs_are_read_and_those_of_other_settings_are_not(tmp_path):
    def compute(run):
        if run == 2:
            raise KeyboardInterrupt
        return {"run": run}

    def never(run):
        raise AssertionError

    work = Work(tmp_path, "x", fig3.Config())
    with pytest.raises(KeyboardInterrupt):
        work.each("run", range(4), compute)
    assert Work(tmp_path, "x", fig3.Config()).each("run", range(2), never) == [{"run": 0}, {"run": 1}]
    for other in (Work(tmp_path, "x", fig3.Config(seed=2)), Work(tmp_path, "y", fig3.Config())):
        with pytest.raises(AssertionError):
            other.each("run", range(2), never)
    work.forget_parts()
    with pytest.raises(AssertionError):
        work.each("run", range(2), never)


def test_a_bank_of_the_work_folder_that_is_damaged_is_made_again(tmp_path):
    work = Work(tmp_path, "x", fig3.Config())
    settings = {"draws": 40, "records": 10, "seed": 1, "shard": 20}
    before = work.bank(abcdp.models.mixture, **settings)
    theta = before.theta
    (folder,) = (tmp_path / ".work" / "banks").iterdir()
    (folder / "manifest.json").write_text("{}")
    assert np.array_equal(work.bank(abcdp.models.mixture, **settings).theta, theta)


# -- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_stands_alone_and_says_everything(killed, numbers):
    import html
    import re

    text = (killed[0] / "paper.html").read_text()
    sources = re.findall(r'src="([^"]{0,30})', text)
    assert len(sources) == sum(1 + len(EXPERIMENTS[name].also) for name in NAMES)
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)
    assert not re.search(r"<(script|link|iframe)", text)
    plain = html.unescape(text.replace("<b>", "").replace("</b>", ""))
    for name in NAMES:
        experiment = EXPERIMENTS[name]
        assert f'id="{name}"' in text
        claims = experiment.claims(numbers[name])
        for said in (
            experiment.title,
            experiment.describe(numbers[name]),
            *experiment.deviations,
            *(claim.text for claim in claims),
            *(claim.evidence for claim in claims),
            *(claim.reason for claim in claims if claim.reason),
        ):
            assert said in plain
        if experiment.table is not None:
            rows = experiment.table(numbers[name]).rows
            assert all(f"<td>{value}</td>" in plain for row in rows for value in row)
    assert "A quick version" in text
    assert 'class="verdict surprise"' not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fig1", ["1/N", "2/N", "b = 2 c Delta / epsilon"]),
        ("fig2", ["MSE", "absolute", "0.6", "100 random Fourier features", ".01"]),
        ("fig4", ["observed", "2 c Delta / epsilon", "0.05", "20 days", "2/N"]),
        ("fig5", ["observed", "200/n", "variance", "R2"]),
    ],
)
def test_deviations_of_the_authors_are_named(name, words):
    text = " ".join(EXPERIMENTS[name].deviations)
    assert all(word in text for word in words)


def test_a_claim_that_fails_for_no_known_reason_is_shown_as_such(tmp_path):
    experiment = replace(EXPERIMENTS["fig3"], claims=lambda numbers: [Claim("Black is white.", False, "they differ")])
    made = make(experiment, tmp_path, fig3.Config(records=200))
    assert made.surprises
    page = write_page([made], tmp_path / "page.html").read_text()
    assert 'class="verdict surprise"' in page
    known = replace(made, claims=(Claim("Black is white.", False, "they differ", "light"),))
    assert not known.surprises
    assert not known.holds
    page = write_page([known], tmp_path / "page.html").read_text()
    assert 'class="verdict known"' in page
    assert "<b>Why:</b> light" in page
    assert Claim("x", False, "y", "z").in_words() == "DOES NOT HOLD: x (y) Why: z"
    assert Claim("x", True, "y", "z").in_words() == "holds: x (y)"


def test_the_command_refuses_what_it_does_not_know(tmp_path):
    for arguments, words in ((("fig9",), "fig1"), (("fig3", "--delta", "1"), "--delta is for one of fig1")):
        run = subprocess.run(command(*arguments), cwd=tmp_path, capture_output=True, text=True)
        assert run.returncode == 2
        assert words in " ".join(run.stderr.replace("│", " ").split())
    listed = subprocess.run(command(), cwd=tmp_path, capture_output=True, text=True)
    assert listed.returncode == 0
    assert all(one.title in listed.stdout for one in EXPERIMENTS.values())
    assert list(tmp_path.iterdir()) == []


# -- figures 2 and 3 --------------------------------------------------------------------------------------------------


def test_figure_2_has_the_settings_of_the_paper():
    config = EXPERIMENTS["fig2"].config
    assert (config.records, config.draws, config.runs) == (5000, 10_000, 60)
    assert config.accepts == (10, 100, 1000)
    assert config.thresholds == (0.01, 0.05, 0.1, 0.2, 0.5)
    assert config.budgets == (0.5, 1.0, 10.0)
    assert config.delta == 2.0
    assert len(fig2.settings(config)) == 3 * 5 * (1 + 3 * 2)


@pytest.mark.parametrize("delta", [2.0, None])
def test_a_run_of_figure_2_against_a_loop(tmp_path, delta):
    """The paper's algorithm, written out, with the same noise."""
    config = fig2.Config(
        records=150, draws=300, runs=2, accepts=(3, 8), thresholds=(1e-4, 0.25), budgets=(20.0,), delta=delta, seed=4
    )
    found = fig2.compute(config, Work(tmp_path, "fig2", config))
    bank = abcdp.simulate(abcdp.models.mixture, draws=300, records=150, seed=4, shard=500)
    stated = 2.0 / 150 if delta == 2.0 else bank.distance.sensitivity(150, abcdp.Unit())
    assert found["sensitivity"] == pytest.approx(stated, rel=1e-5)
    for run in range(2):
        data, _, _ = abcdp.models.mixture.run(np.array([TRUTH]), 150, np.random.default_rng([4, 1, run]))
        order = np.random.default_rng([4, 3, run]).permutation(300)
        rho, theta = public_distances(bank, data[0])[order], bank.theta[order]
        noise = SeededNoise(stream(4, 2, run))
        for cell in found["cells"]:
            c, tau, epsilon, resample = (cell[k] for k in ("accept", "threshold", "epsilon", "resample"))
            if epsilon is None:
                chosen = [t for t in range(300) if rho[t] <= tau][:c]
            else:
                mechanism = SparseVector(epsilon, c, tau, resample)
                cal = mechanism.calibrate(
                    bank.distance, records=150, simulated=150, unit=abcdp.Unit(), sensitivity=stated
                )
                levels = noise.laplace(cal.threshold_scale, c if resample else 1)
                drawn = noise.laplace(cal.distance_scale, 300)
                chosen = []
                for t, value in enumerate(cal.grid.quantise(rho)):
                    if len(chosen) < c and value + drawn[t] <= cal.threshold + levels[len(chosen) if resample else 0]:
                        chosen.append(t)
            mean = theta[chosen].mean(axis=0) if chosen else np.full(5, 0.2)
            assert cell["accepted"][run] == len(chosen)
            assert cell["squared"][run] == pytest.approx(np.mean((mean - TRUTH) ** 2), rel=1e-5)
            assert cell["absolute"][run] == pytest.approx(np.mean(np.abs(mean - TRUTH)), rel=1e-5)
    counts = [count for cell in found["cells"] for count in cell["accepted"]]
    assert 0 in counts  # a run that accepts nothing, whose estimate is the prior's mean
    assert 8 in counts


def test_figure_2_against_numbers_measured_elsewhere(numbers):
    """Mean squared errors of another program at T = 10^4, in settings where no single draw decides."""
    squared = fig2.table_of(numbers["fig2"], "squared")
    assert numbers["fig2"]["config"]["draws"] == 10_000
    assert squared[1000, 0.05, 10.0, True].mean() == pytest.approx(0.0123, rel=0.3)
    assert squared[1000, 0.05, 10.0, False].mean() == pytest.approx(0.0078, rel=0.3)
    assert squared[1000, 0.05, None, False].mean() == pytest.approx(0.0001, rel=0.5)
    assert numbers["fig2"]["prior"]["squared"] == pytest.approx(0.0180, abs=1e-4)


def test_the_claims_of_figure_2_can_fail(numbers):
    saved = numbers["fig2"]
    assert verdicts("fig2", saved) == [False, True, True, True, True]

    def change(where, factor):
        def doctor(n):
            for cell in n["cells"]:
                if where(cell):
                    cell["squared"] = [factor * value for value in cell["squared"]]

        return doctor

    small = change(lambda c: c["threshold"] == 0.01, 1e-6)
    assert verdicts("fig2", saved, small)[0]
    large = change(lambda c: c["threshold"] == 0.5 and c["epsilon"] is None, 1e-6)
    assert not verdicts("fig2", saved, large)[1]
    redrawn = change(lambda c: c["resample"], 1e-3)
    assert not verdicts("fig2", saved, redrawn)[2]
    noisy = change(lambda c: c["epsilon"] is not None, 2.0)
    assert not verdicts("fig2", saved, noisy)[3]
    exact = change(lambda c: c["epsilon"] == 0.5, 0.1)
    assert not verdicts("fig2", saved, exact)[4]


def test_the_picture_of_figure_2(numbers):
    figure = fig2.draw(numbers["fig2"])
    columns = len(numbers["fig2"]["config"]["accepts"])
    assert len(figure.axes) == 2 * columns
    assert r"\Delta = 2/N" in figure.get_suptitle()
    for axis in figure.axes:
        styles = [line.get_linestyle() for line in axis.get_lines() if line.get_marker() == "o"]
        assert (styles.count("-"), styles.count(":")) == (4, 3)  # non-private and (R); without
    assert [axis.get_ylabel() for axis in figure.axes[::columns]] == ["mean squared error", "mean absolute error"]
    own = copy.deepcopy(numbers["fig2"])
    own["config"]["delta"] = None
    assert r"\sqrt{2}" in fig2.draw(own).get_suptitle()
    assert "sqrt(2)/N that this library derives" in fig2.describe(own)


def test_figure_3(numbers):
    saved = numbers["fig3"]
    first = fig2.observe(5000, 1, 0)
    assert saved["counts"] == np.histogram(first, bins=50, range=(0, 5))[0].tolist()
    assert saved["weights"] == list(TRUTH)
    assert verdicts("fig3", saved) == [True]
    assert verdicts("fig3", saved, lambda n: n.update(shares=n["shares"][::-1])) == [False]
    bars, histogram = fig3.draw(saved).axes
    assert [bar.get_height() for bar in bars.patches] == list(TRUTH)
    assert len(histogram.patches) == 50


# -- figure 4 ---------------------------------------------------------------------------------------------------------


def test_figure_4_has_the_settings_of_the_paper():
    config = EXPERIMENTS["fig4"].config
    assert (config.draws, config.accept, config.threshold, config.delta) == (50_000, 5, 0.1, 2.0)
    assert config.day_budgets == (44.0, 22.0, 13.0)
    assert max(config.person_budgets) <= 1
    assert config.repetitions >= 20


def test_the_bandwidth_of_figure_4_comes_from_simulations_alone(tmp_path, monkeypatch):
    config = fig4.Config(draws=50, repetitions=2, runs=1)
    before = fig4.compute(config, Work(tmp_path / "a", "fig4", config))
    monkeypatch.setattr(fig4, "OBSERVED", tuple(5 * value for value in _covid.OBSERVED))
    after = fig4.compute(config, Work(tmp_path / "b", "fig4", config))
    assert before["bandwidth"] == after["bandwidth"]
    assert before["sensitivity"] == after["sensitivity"]
    assert before["rows"] != after["rows"]
    # one person moves each of the 18 counts by 1
    width = before["bandwidth"]["counts"][0]
    assert before["sensitivity"]["counts"] == pytest.approx(np.sqrt(2 - 2 * np.exp(-1 / (2 * width**2))), rel=1e-3)
    assert before["sensitivity"]["day"] == pytest.approx(2 / 18, rel=1e-5)


def test_figure_4_protects_whom_it_says(tmp_path, monkeypatch):
    asked = set()

    def recording(mechanism, distance, **settings):
        asked.add((distance.columns, mechanism.epsilon, mechanism.resample, settings["unit"], settings["sensitivity"]))
        return shipped(mechanism, distance, **settings)

    shipped = SparseVector.calibrate
    monkeypatch.setattr(SparseVector, "calibrate", recording)
    config = fig4.Config(draws=50, repetitions=2, runs=1)
    fig4.compute(config, Work(tmp_path, "fig4", config))
    person, pair = abcdp.Unit(records=18, change=1.0), abcdp.Unit(records=18, change=(0.0, 1.0))
    assert asked == {(1, e, False, abcdp.Unit(), 2 / 18) for e in (13.0, 22.0, 44.0)} | {
        (columns, e, False, unit, None) for columns, unit in ((1, person), (2, pair)) for e in config.person_budgets
    }


def test_spread_and_error_of_figure_4():
    theta = np.array([[0.1, 1.0, -2.0, 3.0], [0.2, 0.0, 1.0, -1.0], [0.0, 2.0, 0.0, 0.0]])
    y = fig4.curves(theta)
    t = np.arange(18)
    for row, (a0, a1, a2, a3) in zip(y, theta, strict=True):
        assert row == pytest.approx(a3 + a2 * t + a1 * t**2 + a0 * t**3)
    deviations = [np.std([y[i, day] for i in range(3)], ddof=1) for day in range(18)]
    assert fig4.spread_of(y) == pytest.approx(np.sqrt(np.mean(np.square(deviations))))
    mean = [sum(y[i, day] for i in range(3)) / 3 for day in range(18)]
    squares = [(m - o) ** 2 for m, o in zip(mean, _covid.OBSERVED, strict=True)]
    assert fig4.error_of(y) == pytest.approx(np.sqrt(np.mean(squares)))
    assert fig4.spread_of(y[:1]) == 0
    assert fig4.error_of(y[:0]) == pytest.approx(np.sqrt(np.mean(np.square(_covid.OBSERVED))))


def test_the_claims_of_figure_4_can_fail(numbers):
    saved = numbers["fig4"]
    assert verdicts("fig4", saved) == [True] * 5

    def scale(unit, epsilon, name, factor):
        def doctor(n):
            for row in n["rows"]:
                if (row["distance"], row["unit"], row["epsilon"]) == ("counts", unit, epsilon):
                    row[name] = [[factor * value for value in values] for values in row[name]]

        return doctor

    assert not verdicts("fig4", saved, scale("day", 44.0, "error", 10))[0]
    assert not verdicts("fig4", saved, scale("day", 22.0, "spread", 0.1))[1]
    assert not verdicts("fig4", saved, scale("day", 13.0, "spread", 0.1))[2]
    assert not verdicts("fig4", saved, scale("person", 1.0, "spread", 10))[3]
    assert not verdicts("fig4", saved, lambda n: n["backwards"].update(pairs=0.0))[4]


def test_the_pictures_of_figure_4(numbers):
    saved = numbers["fig4"]
    titles = [axis.get_title() for axis in fig4.draw(saved).axes]
    assert "non-private" in titles[0]
    assert [title.split("= ")[1] for title in titles[1:]] == ["44", "22", "13"]
    assert len(fig4.draw_person(saved).axes) == 8
    red = fig4.draw(saved).axes[0].get_lines()[-1]
    assert red.get_ydata().tolist() == list(_covid.OBSERVED)
    labels = [label.get_text() for label in fig4.draw_spread(saved).axes[0].get_yticklabels()]
    assert len(labels) == len(set(labels)) == len(saved["rows"])


# -- figure 5 ---------------------------------------------------------------------------------------------------------


def test_figure_5_has_the_settings_of_the_paper():
    config = EXPERIMENTS["fig5"].config
    assert (config.records, config.draws, config.accept) == ((100, 1000), 1000, 10)
    assert (config.threshold, config.epsilon, config.clip) == (150.0, 1.0, 200.0)
    assert config.repetitions >= 20
    assert fig5.PAPER == {(100, True): 4.71, (100, False): 4.51, (1000, True): 2.20, (1000, False): 2.10}


def test_the_weights_of_figure_5_know_nothing_of_the_truth(monkeypatch):
    weights = fig5.public_weights(200, 1)
    monkeypatch.setattr(fig5, "TRUTH", (1.0, 1.0, 1.0, 1.0))
    monkeypatch.setattr(_tuberculosis, "REFERENCE", (1.0, 1.0))
    assert fig5.public_weights(200, 1) == weights
    assert weights[:4] == (1.0, 1.0, 2.0, 10.0)
    assert weights[6:] == (10.0, 10.0)
    # 100 over the mean relative numbers of clusters of size 1 and 2, in outbreaks of the prior
    rng = np.random.default_rng([1, 5])
    outbreaks = abcdp.models.tuberculosis.run(abcdp.models.tuberculosis.draw(200, rng), 1, rng)[0][:, 0]
    assert weights[4:6] == pytest.approx([100 / outbreaks[:, 4].mean(), 100 / outbreaks[:, 5].mean()], rel=1e-5)
    assert weights[5] != pytest.approx(_tuberculosis.WEIGHTS[5], rel=0.1)


def test_a_repetition_of_figure_5_against_a_loop(tmp_path):
    config = fig5.Config(
        records=(4,), draws=30, accept=3, epsilon=200.0, repetitions=2, orders=2, weight_draws=50, seed=3
    )
    found = fig5.compute(config, Work(tmp_path, "fig5", config))
    weights = np.array(found["weights"])
    (folder,) = (tmp_path / ".work" / "banks").iterdir()
    bank = abcdp.Bank(folder)
    simulated = bank.rows.reshape(30, 4, 8)
    for number in range(2):
        rng = np.random.default_rng([3, 4, number])
        data = abcdp.models.tuberculosis.run(np.array([_tuberculosis.TRUTH]), 4, rng)[0][0]
        rho = [np.mean([min(np.linalg.norm(weights * (s[j] - data[j])), 200.0) for j in range(4)]) for s in simulated]
        orders = [rng.permutation(30) for _ in range(2)]
        plain = fig5.row_of(found, 4, "non-private")
        assert plain["near"][number] == sum(value <= 150 for value in rho)
        for order, error in zip(orders, plain["errors"][number], strict=True):
            assert error == pytest.approx(off(bank.theta, [t for t in order if rho[t] <= 150][:3], found), rel=1e-4)
        noise = SeededNoise(stream(3, 4, number, 1))
        for kind in ("resample", "one draw"):
            row = fig5.row_of(found, 4, kind)
            mechanism = SparseVector(200.0, 3, 150.0, kind == "resample")
            cal = mechanism.calibrate(bank.distance, records=4, simulated=4, unit=abcdp.Unit())
            for order, error, count in zip(
                [range(30), *orders],
                [row["in_the_banks_order"][number], *row["errors"][number]],
                row["accepted"][number],
                strict=True,
            ):
                levels = noise.laplace(cal.threshold_scale, 3 if kind == "resample" else 1)
                drawn = noise.laplace(cal.distance_scale, 30)
                chosen = []
                for t, extra in zip(order, drawn, strict=True):
                    level = levels[len(chosen) % len(levels)]
                    if len(chosen) < 3 and cal.grid.quantise(np.array([rho[t]]))[0] + extra <= cal.threshold + level:
                        chosen.append(t)
                assert count == len(chosen)
                assert error == pytest.approx(off(bank.theta, chosen, found), rel=1e-4)
    assert found["sensitivity"] == {"4": pytest.approx(50.0)}


def test_the_banks_of_figure_5_hold_the_same_draws(tmp_path):
    config = fig5.Config(records=(2, 3), draws=40, repetitions=2, orders=1, weight_draws=20)
    fig5.compute(config, Work(tmp_path, "fig5", config))
    one, two = (abcdp.Bank(folder) for folder in sorted((tmp_path / ".work" / "banks").iterdir()))
    assert (one.records, two.records) == (2, 3)
    assert np.array_equal(one.theta, two.theta)


def off(theta, rows, found):
    mean = theta[rows].mean(axis=0) if len(rows) else np.array(found["prior"]["mean"])
    return np.mean(np.abs(mean - np.array(_tuberculosis.TRUTH)))


def test_where_the_papers_errors_fall():
    errors = np.array([1.0, 2.0, 3.0, 4.0])
    assert fig5.percentile(errors, 2.5) == 50
    assert fig5.percentile(errors, 4.71) == 100
    assert fig5.percentile(errors, None) is None


def test_the_table_of_figure_5(numbers):
    saved = copy.deepcopy(numbers["fig5"])
    small, large = saved["config"]["records"]
    for row in saved["rows"]:
        row["records"] = {small: 100, large: 1000}[row["records"]]
        if row["kind"] != "non-private":
            row["percentile"] = fig5.percentile(np.ravel(row["errors"]), fig5.PAPER[row["records"], row["resample"]])
    rows = fig5.table(saved).rows
    assert [row[5] for row in rows] == ["4.71", "4.51", "", "2.20", "2.10", "", "", ""]
    for row, line in zip(saved["rows"], rows, strict=False):
        assert line[2].startswith(f"{np.mean(row['errors']):.2f}")
        if line[6]:
            below = np.mean([error <= float(line[5]) for errors in row["errors"] for error in errors])
            assert line[6] == f"{100 * below:.0f}"


def test_the_claims_of_figure_5_can_fail(numbers):
    saved = numbers["fig5"]
    small, large = saved["config"]["records"]

    def shift(records, kind, change):
        def doctor(n):
            row = fig5.row_of(n, records, kind)
            row["errors"] = (np.array(row["errors"]) + change).tolist()
            row["mean"] += change

        return doctor

    def fall(repetitions, *changes):
        doctored = copy.deepcopy(saved)
        doctored["config"]["repetitions"] = repetitions
        for kind, change in zip(("resample", "one draw"), changes, strict=True):
            row = fig5.row_of(doctored, small, kind)
            fig5.row_of(doctored, large, kind).update(mean=row["mean"] + change, standard_error=row["standard_error"])
        return fig5.claims(doctored)[0]

    assert fall(60, -9.0, -9.0).holds
    assert fall(60, -9.0, 9.0).surprising
    assert fall(60, -9.0, 0.0).surprising  # no difference at full size is a surprise, in a small run it is not
    assert not fall(8, -9.0, 0.0).holds
    assert not fall(8, -9.0, 0.0).surprising
    assert fall(8, -9.0, 9.0).surprising
    for place, records in ((1, small), (2, large)):
        assert verdicts("fig5", saved, shift(records, "resample", 9.0))[place]
        worse = copy.deepcopy(saved)
        shift(records, "one draw", 9.0)(worse)
        claim = fig5.claims(worse)[place]
        assert not claim.holds
        assert "scale" in claim.reason
    assert not verdicts("fig5", saved, lambda n: n["prior"].update(error=0.0))[3]


def test_the_pictures_of_figure_5(numbers):
    figure = fig5.draw(numbers["fig5"])
    assert len(figure.axes) == 5 * 4
    lines = figure.axes[3].get_lines()
    assert {line.get_color() for line in lines} == {"black", fig5.RED}
    assert next(line for line in lines if line.get_color() == "black").get_xdata()[0] == 192.0
    errors = fig5.draw_errors(numbers["fig5"])
    assert len(errors.axes) == 2
