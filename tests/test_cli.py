from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def abcdp(*arguments, cwd=HERE, fails=False):
    command = [sys.executable, "-c", "from abcdp.cli import main; main()", *map(str, arguments)]
    run = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert (run.returncode != 0) == fails, run.stderr
    assert "Traceback" not in run.stderr
    return run.stderr if fails else run.stdout


def test_help_lists_the_commands():
    text = abcdp("--help")
    assert "simulate" in text
    assert "bank" in text
    assert abcdp("--version").startswith("abcdp 0.")


def test_simulate_and_show(tmp_path):
    made = json.loads(
        abcdp("simulate", "mixture", "--draws", 200, "--records", 50, "--seed", 3, "--to", tmp_path / "bank", "--json")
    )
    shown = json.loads(abcdp("bank", "show", tmp_path / "bank", "--verify", "--json"))
    assert shown == made | {"verified": True}
    assert shown["draws"] == 200
    assert shown["distance"]["bandwidth"] == 0.6
    assert "theta_1, theta_2" in abcdp("bank", "show", tmp_path / "bank")


def test_a_model_of_the_working_folder_with_a_distance_by_options(tmp_path):
    common = ["--draws", 60, "--records", 50, "--seed", 3, "--json"]
    text = abcdp(
        "simulate",
        "sample_models:batched",
        *common,
        "--to",
        tmp_path / "a",
        "--bandwidth",
        "median",
        "--domain",
        "-5:5",
    )
    assert json.loads(text)["distance"]["bandwidth"] > 0
    declared = '{"type": "paired", "clip": 2.0}'
    text = abcdp("simulate", "sample_models:per_draw", *common, "--to", tmp_path / "b", "--distance", declared)
    assert json.loads(text)["numbers_per_draw"] == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "nothing"], "no model 'nothing'"),
        (["simulate", "sample_models:batched"], "no distance of its own"),
        (["simulate", "sample_models:batched", "--bandwidth", "-1", "--domain", "0:1"], "bandwidth=-1.0"),
        (["simulate", "sample_models:batched", "--bandwidth", "x"], "takes a number"),
        (["simulate", "sample_models:batched", "--distance", "{"], "not valid JSON"),
        (["simulate", "sample_models:batched", "--distance", "sample_models:batched"], "not a distance"),
        (["simulate", "mixture", "--domain", "0:1"], "goes with --bandwidth"),
    ],
)
def test_errors_name_the_thing_without_a_traceback(arguments, message, tmp_path):
    error = abcdp(*arguments, "--draws", 10, "--records", 5, "--seed", 1, "--to", tmp_path / "bank", fails=True)
    assert message in error
    assert not (tmp_path / "bank").exists()


def test_showing_what_is_not_a_bank(tmp_path):
    assert "does not exist" in abcdp("bank", "show", tmp_path / "nothing", fails=True)
