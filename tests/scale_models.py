"""Models for tests of workers, time limits and programs, loaded by name in this and in other processes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import abcdp
from sample_models import PRIOR, normal, one_normal

MEAN = abcdp.MeanSummary([abcdp.Moment(0, bounds=(-5, 5)), abcdp.Moment(0, power=2, bounds=(0, 25))])
SMALL = {"draws": 300, "records": 40, "seed": 7, "shard": 64}
PROGRAM = str(Path(__file__).parent / "simulator_program.py")


def troubled(theta, records, rng):
    """Hang, die, fail or work, as the first parameter says; what works does not depend on what came before."""
    if theta[0] > 1.3:
        time.sleep(600)
    if theta[0] < -1.6:
        os._exit(9)
    if theta[0] < -1.2:
        raise ArithmeticError("overflow in the solver")
    return one_normal(theta, records, rng)


def crashes_its_worker(theta, records, rng):
    """Work in the process that plans, and take down any other."""
    if os.environ.get("ABCDP_TEST_PARENT") != str(os.getpid()):
        os._exit(9)
    return normal(theta, records, rng)


def dies_once(theta, records, rng):
    """Take down the first worker that reaches a draw, then work: the mark is a file."""
    mark = Path(os.environ["ABCDP_TEST_MARK"])
    if os.environ.get("ABCDP_TEST_PARENT") != str(os.getpid()) and not mark.exists():
        mark.touch()
        os._exit(9)
    return one_normal(theta, records, rng)


def marks_and_hangs(theta, records, rng):
    """Tell by a file that the draw has begun, and never end it."""
    Path(os.environ["ABCDP_TEST_MARK"]).write_text(str(os.getpid()))
    time.sleep(600)


def lengthy_normal(theta, records, rng):
    """Take 0.05 s, which pays for a process."""
    time.sleep(0.05)
    return one_normal(theta, records, rng)


lengthy = abcdp.Model(prior=PRIOR, simulator=lengthy_normal, vectorised=False)
hanging = abcdp.Model(prior=PRIOR, simulator=marks_and_hangs, vectorised=False, time_limit=500.0)
limited = abcdp.Model(prior=PRIOR, simulator=troubled, vectorised=False, time_limit=2.0)
deadly = abcdp.Model(prior=PRIOR, simulator=crashes_its_worker)
once_deadly = abcdp.Model(prior=PRIOR, simulator=dies_once, vectorised=False, name="one_normal")
program = abcdp.Model.command(
    [sys.executable, PROGRAM, "{mu}", "--sigma={sigma}", "{records}", "{seed}"], PRIOR, time_limit=20.0
)
