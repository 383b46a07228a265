from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

import abcdp
from abcdp.experiments.public import public_distances
from abcdp.mechanisms import SparseVector
from abcdp.paper import EXPERIMENTS, convergence, fig1, make
from abcdp.sampling.seeded import SeededNoise

SMALL = convergence.Config(records=(100, 3162, 100_000), budgets=(1.0,), draws=200, runs=200)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fig1")
    made = make(EXPERIMENTS["fig1"], folder)
    return made, json.loads(made.numbers.read_text())


@pytest.fixture(scope="module")
def theorem(tmp_path_factory):
    made = make(EXPERIMENTS["theorem"], tmp_path_factory.mktemp("theorem"), SMALL)
    return made, json.loads(made.numbers.read_text())


# -- figure 1 ---------------------------------------------------------------------------------------------------------


def test_the_claims_of_figure_1_hold_on_its_saved_numbers(first):
    made, numbers = first
    assert made.holds
    assert len(made.claims) == 3
    assert list(made.claims) == fig1.claims(numbers)
    cell = {(c["records"], c["accept"], c["epsilon"]): c for c in numbers["cells"]}
    assert cell[10, 10, 100.0]["q3"] > 0.01
    assert all(cell[10, 1000, e]["med"] > 0.4 for e in numbers["config"]["budgets"])
    rare = {(c["records"], c["accept"]): c["epsilon"] for c in numbers["rare"]}
    for c in (10, 100, 1000):
        assert rare[10, c] > rare[100, c] > rare[1000, c]


def test_figure_1_is_the_papers(first):
    """The settings of the caption, and the Proposition's formula written out, with the scripts' scale."""
    _, numbers = first
    config = numbers["config"]
    assert (config["records"], config["accepts"]) == ([10, 100, 1000], [10, 100, 1000])
    assert config["budgets"] == [0.01, 0.1, 0.5, 1, 5, 10, 50, 100]
    assert (config["threshold"], config["draws"], config["delta"]) == (0.2, 100, 1.0)
    assert len(numbers["cells"]) == 72
    rho = np.array(numbers["distances"])
    assert 0 <= rho.min() < 0.1 < 0.9 < rho.max() <= 1
    for cell in numbers["cells"]:
        b = 2 * cell["accept"] / cell["records"] / cell["epsilon"]
        a = np.abs(rho - 0.2)
        flips = (4 * np.exp(-a / (2 * b)) - np.exp(-a / b)) / 6
        found = [cell[name] for name in ("q1", "med", "q3", "mean")]
        expected = [*np.percentile(flips, [25, 50, 75]), flips.mean()]
        assert found == pytest.approx(expected, rel=2e-3, abs=1e-300)  # distances were saved with six digits
        assert cell["scale"] == pytest.approx(b)


def test_boxes_are_those_of_matplotlib():
    from matplotlib.cbook import boxplot_stats

    values = np.random.default_rng(3).exponential(size=100)
    ours, theirs = fig1.box(values), boxplot_stats(values)[0]
    for name in ("whislo", "q1", "med", "q3", "whishi", "mean"):
        assert ours[name] == pytest.approx(theirs[name], rel=1e-5)
    assert sorted(ours["fliers"]) == pytest.approx(sorted(theirs["fliers"]), rel=1e-5)


def test_twice_the_sensitivity_is_half_of_epsilon():
    """The Lemma's 2/N in place of the scripts' 1/N."""
    one = fig1.compute(fig1.Config(budgets=(0.5, 5.0)))
    two = fig1.compute(fig1.Config(budgets=(1.0, 10.0), delta=2.0))
    for a, b in zip(one["cells"], two["cells"], strict=True):
        assert {k: v for k, v in a.items() if k != "epsilon"} == {k: v for k, v in b.items() if k != "epsilon"}


def test_figure_1s_claims_can_fail(first):
    _, numbers = first

    def verdicts(change):
        doctored = copy.deepcopy(numbers)
        change(doctored)
        return [claim.holds for claim in fig1.claims(doctored)]

    def all_zero(n):
        for cell in n["cells"]:
            cell.update(q3=0.0, med=0.0)

    def no_better_with_records(n):
        for cell in n["rare"]:
            cell["epsilon"] = 1.0

    assert verdicts(lambda n: None) == [True, True, True]
    assert verdicts(all_zero) == [False, False, True]
    assert verdicts(no_better_with_records) == [True, True, False]
    small = fig1.compute(fig1.Config(delta=1e-3))
    weak = fig1.claims({"config": json.loads(json.dumps(vars(fig1.Config(delta=1e-3)))), **small})
    assert [claim.holds for claim in weak][:2] == [False, False]


# -- the theorem ------------------------------------------------------------------------------------------------------


def test_the_theorem_on_its_saved_numbers(theorem):
    made, numbers = theorem
    assert made.holds
    assert list(made.claims) == convergence.claims(numbers)
    errors = [row["error"] for row in numbers["rows"]]
    assert errors[0] > 10 * errors[-1]
    assert all(row["error"] <= row["bound"] for row in numbers["rows"])


def test_the_theorems_claims_can_fail(theorem):
    _, numbers = theorem
    above, flat = copy.deepcopy(numbers), copy.deepcopy(numbers)
    for row in above["rows"]:
        row["bound"] = row["error"] / 10
        row["standard_error"] = row["error"] / 1000
    for row in flat["rows"]:
        row["error"] = 0.01
    assert not convergence.claims(above)[0].holds
    assert not convergence.claims(flat)[1].holds


def test_runs_without_a_stop_against_a_loop():
    bank = abcdp.simulate(abcdp.models.mixture, draws=60, records=200, seed=1)
    data, _, _ = abcdp.models.mixture.run(np.full((1, 5), 0.2), 200, np.random.default_rng(2))
    distances = public_distances(bank, data[0])
    mechanism = SparseVector(1.0, 3, 0.25)
    calibration = mechanism.calibrate(bank.distance, records=200, simulated=200, unit=abcdp.Unit(), sensitivity=0.001)
    found = convergence.errors_without_stop(calibration, distances, bank.theta, 0.25, 50, 9)
    noise = SeededNoise(9)
    levels = calibration.threshold + noise.laplace(calibration.threshold_scale, 50)
    drawn = noise.laplace(calibration.distance_scale, 50 * 60).reshape(50, 60)
    plain = bank.theta[distances <= 0.25].mean(axis=0)
    more = 0
    for run in range(50):
        chosen = calibration.grid.quantise(distances) + drawn[run] <= levels[run]
        mean = bank.theta[chosen].mean(axis=0) if chosen.any() else bank.theta.mean(axis=0)
        assert found[run] == pytest.approx(np.linalg.norm(mean - plain), abs=1e-12)
        assert (found[run] == 0) == np.array_equal(chosen, distances <= 0.25)
        more += chosen.sum() > 3
    assert more > 40  # the run goes on after c accepts


# -- files and the command line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fig1", "theorem"])
def test_each_writes_a_picture_its_numbers_and_a_paragraph(name, first, theorem, tmp_path):
    made, numbers = {"fig1": first, "theorem": theorem}[name]
    assert made.png.read_bytes().startswith(b"\x89PNG")
    width, height = (int.from_bytes(made.png.read_bytes()[at : at + 4], "big") for at in (16, 20))
    assert min(width, height) > 600
    assert ET.fromstring(made.svg.read_text()).tag.endswith("svg")
    text = made.text.read_text()
    assert "Holds:" in text
    assert "DOES NOT HOLD" not in text
    assert f"{numbers['config']['delta']:g}/N" in text  # which sensitivity is named, beside the figure and in it
    assert "Lemma" in text
    # the same numbers draw the same bytes
    config = EXPERIMENTS[name].config if name == "fig1" else SMALL
    again = make(EXPERIMENTS[name], tmp_path, config)
    for one, two in (
        (made.png, again.png),
        (made.svg, again.svg),
        (made.numbers, again.numbers),
        (made.text, again.text),
    ):
        assert one.read_bytes() == two.read_bytes()


def test_the_figure_names_its_sensitivity(first):
    _, numbers = first
    figure = fig1.draw(numbers)
    assert r"\Delta = 1/N" in figure.get_suptitle()
    assert r"b = 2c\Delta/\epsilon" in figure.get_suptitle()
    assert len(figure.axes) == 9


def test_numbers_that_cannot_be_saved_stop_it(tmp_path):
    broken = replace(EXPERIMENTS["fig1"], compute=lambda config: {"value": math.inf})
    with pytest.raises(ValueError, match="JSON"):
        make(broken, tmp_path)
    assert list(tmp_path.iterdir()) == []


def command(*arguments, cwd):
    code = "from abcdp.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "paper", *map(str, arguments)], cwd=cwd, capture_output=True, text=True
    )


def test_the_command(tmp_path):
    run = command("fig1", "--quick", "--to", "out", "--json", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    values = json.loads(run.stdout)
    assert all(claim["holds"] for claim in values["claims"])
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["fig1.json", "fig1.md", "fig1.png", "fig1.svg"]
    # a claim that does not hold is said, and is an exit code
    weak = command("fig1", "--delta", 0.001, "--to", "weak", cwd=tmp_path)
    assert weak.returncode == 1
    assert "DOES NOT HOLD" in weak.stdout
    assert "DOES NOT HOLD" in (tmp_path / "weak" / "fig1.md").read_text()
    assert "0.001/N" in (tmp_path / "weak" / "fig1.md").read_text()
