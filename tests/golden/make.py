"""How the files in this folder were made: with abcdp 0.1.0, format 1.

Not to be run again: later versions must open these bytes. Files of a later format get a folder of their own.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from scipy import stats

import abcdp
from abcdp import Moment
from abcdp.experiments import public
from abcdp.ledger import Ledger
from abcdp.models import mixture, regression
from sample_models import PRIOR, batched

HERE = Path(__file__).parent
BANKS, PLANS, RELEASES = HERE / "banks", HERE / "plans", HERE / "releases"
LEDGER, BACKUP, STATE = HERE / "ledger.db", HERE / "backup.db", HERE / "state"
COARSE = abcdp.MMD(0.6, (0.0, 5.0), tolerance=1e-4)
CUSTOM = abcdp.CustomDistance(lambda a, b: abs(a.mean() - b.mean()), 1 / 6, largest=5.0, name="means", columns=1)
# the columns of records.csv that a bank's simulations stand for, where not the first
COLUMNS = {
    "mmd-sobol": ["x", "y", "u", "v"],
    "mean": ["y", "u", "v"],
    "clusters": ["label"],
    "clusters-learned": ["label"],
}


def four(theta, records, rng):
    return rng.normal(theta[:, :1, None], theta[:, 1:, None], (len(theta), records, 4))


def fragile(theta, records, rng):
    if theta[0] > 1.2:
        time.sleep(10.0)
    if theta[0] < -1.5:
        raise ArithmeticError("overflow in the solver")
    return rng.normal(theta[0], theta[1], records) if theta[0] > -1.0 else np.full(records, np.nan)


def chains(theta, records, rng):
    labels = np.floor(rng.random((len(theta), records)) ** (1.0 + theta[:, :1]) * records / 2)
    return np.where(rng.random(labels.shape) < 0.9, labels, -1.0)


FRAGILE = abcdp.Model(PRIOR, fragile, vectorised=False, time_limit=1.0)


def records():
    """Write the records: made-up numbers."""
    rng = np.random.default_rng(20)
    x = mixture.simulator(np.array([[0.25, 0.04, 0.33, 0.04, 0.34]]), 30, rng)[0]
    others = regression.simulator(np.array([[-1.0, 0.5, 0.5]]), 30, rng)[0]
    label = rng.integers(0, 9, 30)
    rows = [
        [*map(repr, np.round([a, *b], 3).tolist()), str(c)] for a, b, c in zip(x.ravel(), others, label, strict=True)
    ]
    (HERE / "records.csv").write_text("x,y,u,v,label\n" + "".join(",".join(row) + "\n" for row in rows))


def banks():
    def made(name, model, distance=None, draws=40, **options):
        return abcdp.simulate(model, distance, draws=draws, records=30, seed=7, to=BANKS / name, **options)

    moments = [Moment(0), Moment(0, 2), Moment({0: 1, 1: 1}), abcdp.Histogram(2, (-1.0, -0.2, 0.0, 1.0))]
    made("mmd-fourier", mixture, draws=20)
    made("mmd-sobol", abcdp.Model(PRIOR, four), abcdp.MMD((0.8, 0.5, 0.5, 0.5), frequencies=8))
    made("mmd-random", batched, abcdp.MMD("median", kernel="matern32", features="random", frequencies=8, seed=3))
    made("mmd-exact", mixture, abcdp.MMD(0.6, features="exact", kernel="laplace"), draws=20)
    made("mean", regression, abcdp.MeanSummary(moments, domain=((-1.0, 1.0),) * 3, weights=(1, 2, 1, 0.5)))
    made("paired", mixture, abcdp.PairedClipped(clip=2.0, weights=(0.5,)), draws=20)
    made("clipped", mixture, abcdp.Clipped(COARSE, 0.4), draws=20)
    made("custom", batched, CUSTOM, draws=20)
    made("clusters", abcdp.Model({"spread": stats.uniform(0, 3)}, chains), abcdp.ClusterSummary())
    abcdp.learn(BANKS / "clusters", to=BANKS / "clusters-learned")
    made("base", mixture, COARSE, draws=64)
    parts = [abcdp.simulate(mixture, COARSE, draws=10, records=30, seed=seed) for seed in (1, 2)]
    abcdp.Bank.merge(parts, BANKS / "merged")
    made("grown", FRAGILE, abcdp.MeanSummary([Moment(0, bounds=(-5, 5))]), draws=20, shard=10)


def plans():
    """Plan; the second plan is for the learned bank that it writes."""
    common = ["--epsilon", "2", "--truths", "4", "--out"]
    sparse = ["--mechanism", "sparse-vector", "--accept", "3", "--threshold", "0.4", "--no-learn"]
    cli("plan", BANKS / "base", *common, PLANS / "sparse-vector.json", *sparse, "--region", "theta_1=0:0.5")
    cli(
        "plan", BANKS / "base", *common, PLANS / "private-summary.json",
        "--mechanism", "private-summary", "--learned-to", BANKS / "learned", "--unit", "add-remove,at_least=20",
    )  # fmt: skip
    if not (BANKS / "learned").exists():
        raise SystemExit("the plan did not choose the learned summary")


def cli(*arguments):
    subprocess.run([sys.executable, "-c", "from abcdp.cli import main; main()", *map(str, arguments)], check=True)


def requests():
    """Return all requests that were made, with the bank, the dataset and the mechanism of each."""
    sparse = abcdp.SparseVector(epsilon=1.0, accept=3, threshold=0.9)
    resampled = abcdp.SparseVector(
        1.0, 5, 0.9, resample=True, delta=1e-5, split="optimal", noise="exponential", gaps=True
    )
    return {
        "sparse-vector": ("mmd-fourier", "clinic", sparse),
        "sparse-vector-gaps": ("base", "clinic", resampled),
        "sparse-vector-grown": ("grown", "clinic", abcdp.SparseVector(epsilon=1.0, accept=3, threshold=3.0)),
        "nearest": ("base", "clinic", abcdp.Nearest(epsilon=0.5, accept=4)),
        "nearest-gumbel": ("base", "clinic", abcdp.Nearest(epsilon=0.5, accept=20, delta=1e-5)),
        "summary-laplace": ("learned", "clinic", abcdp.PrivateSummary(epsilon=0.75, norm="l1")),
        "summary-box": ("learned", "clinic", abcdp.PrivateSummary(epsilon=0.75, norm="box")),
        "summary-gaussian": ("mmd-fourier", "clinic", abcdp.PrivateSummary(epsilon=0.1, delta=1e-6, norm="l2")),
        "summary-add-remove": ("mean", "survey", abcdp.PrivateSummary(epsilon=0.25)),
    }


def ledger():
    """Make the ledger, a backup of it that is older, and the releases; then add draws to a bank with a release."""
    csv = HERE / "records.csv"
    abcdp.register(
        LEDGER, "clinic", csv, unit=abcdp.Unit(), epsilon=8, delta="1e-4", columns=["x"], description="made up",
        create=True,
    )  # fmt: skip
    unit = abcdp.Unit(neighbours="add-remove", at_least=20)
    abcdp.register(LEDGER, "survey", csv, unit=unit, epsilon="1/3", columns=["y", "u", "v"])
    Ledger(LEDGER).begin("clinic", {"burnt": True}, "0.125")  # as a crash leaves it: charged, without a result
    for name, (bank, dataset, mechanism) in requests().items():
        if name == "sparse-vector-gaps":
            shutil.copy(LEDGER, BACKUP)
        columns = ["x"] if dataset == "clinic" else ["y", "u", "v"]
        made = abcdp.release(
            BANKS / bank, csv, mechanism, ledger=LEDGER, dataset=dataset, request=name, columns=columns
        )
        made.save(RELEASES / f"{name}.json")
    x = np.genfromtxt(csv, delimiter=",", skip_header=1)[:, :1]
    seeded = public.public_release(
        abcdp.Bank(BANKS / "base"), x, abcdp.SparseVector(5.0, 3, 0.9), unit=abcdp.Unit(records=2, change=0.5), seed=1
    )
    seeded.save(RELEASES / "seeded.json")
    abcdp.simulate(FRAGILE, more=10, to=BANKS / "grown")


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array.astype("<f8")).data).hexdigest()


def expected():
    """Write down what the files hold."""
    out = {"banks": {}, "releases": {}, "plans": {}, "ledger": {}}
    for folder in sorted(BANKS.iterdir()):
        bank = abcdp.Bank(folder, CUSTOM if folder.name == "custom" else None)
        columns = COLUMNS.get(folder.name, ["x"])
        data = abcdp.owner.records.load_records(HERE / "records.csv", columns).records
        out["banks"][folder.name] = {
            "digest": bank.digest,
            "model": bank.header.model,
            "distance": bank.distance.kind,
            "draws": bank.draws,
            "shards": len(bank.parts),
            "failures": bank.failures,
            "theta": sha256(bank.theta),
            "rows": sha256(bank.rows[bank.status == 0]),
            "columns": columns,
            "distances": [None if d == np.inf else d for d in public.public_distances(bank, data)[:6].tolist()],
        }
    used = {name: (bank, dataset) for name, (bank, dataset, _) in requests().items()} | {"seeded": ("base", None)}
    for name, (bank, dataset) in used.items():
        tree = abcdp.posterior(RELEASES / f"{name}.json", BANKS / bank, draws=5, method="nearest")
        rows = tree["sample_stats"]["bank_row"].values.ravel().tolist()
        out["releases"][name] = {"bank": bank, "dataset": dataset, "nearest": rows}
    for name, bank in (("sparse-vector", "base"), ("private-summary", "learned")):
        values = json.loads((PLANS / f"{name}.json").read_text())
        out["plans"][name] = {key: values[key] for key in ("mechanism", "learned", "reachable")} | {"bank": bank}
    for one in Ledger(LEDGER).datasets():
        left = [str(one.left_epsilon), str(one.left_delta)]
        out["ledger"][one.name] = {"unit": one.unit.to_json(), "records": one.records, "left": left}
    (HERE / "expected.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    os.environ["ABCDP_STATE"] = str(STATE)
    for folder in (BANKS, PLANS, RELEASES):
        folder.mkdir()
    for step in (records, banks, plans, ledger, expected):
        step()
