"""A small owner's side for tests of the desk: a bank, records, accounts, and a desk on any ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from scipy import stats

import abcdp
from abcdp.ledger import DatasetRules, Ledger
from abcdp.owner import register
from abcdp.service.desk import Asked, Desk
from abcdp.service.documents import METADATA, Documents
from abcdp.service.errors import NotFound

MECHANISM = {"type": "private-summary", "epsilon": 0.1}


@dataclass(frozen=True)
class Person:
    """An account with roles for the dataset d."""

    id: str
    roles: tuple[str, ...] = ("modeler",)
    datasets: tuple[str, ...] = ("d",)

    @property
    def name(self) -> str:
        return self.id.title()

    def may(self, role: str, dataset: str) -> bool:
        return role in self.roles and dataset in self.datasets


ADA, EVE = Person("ada"), Person("eve")
BOB, CYD = Person("bob", ("approver",)), Person("cyd", ("approver",))
AUDITOR, ADMIN = Person("aud", ("auditor",)), Person("root", ("administrator",))
BOTH = Person("both", ("modeler", "approver"))
STRANGER = Person("stranger", ("modeler", "approver", "auditor", "administrator"), ("other",))


@dataclass(frozen=True)
class Work:
    slot_seconds: float = 1.0
    memory: int = 1 << 31
    seconds: float = 60.0
    noise: Any = "fast"


@dataclass
class Banks:
    folder_of: dict[tuple[str, str], Path] = field(default_factory=dict)

    def folder(self, account: str, digest: str) -> Path:
        if (account, digest) not in self.folder_of:
            raise NotFound("there is no such bank here, or it is not yours.")
        return self.folder_of[account, digest]


@dataclass
class Records:
    path: Path

    def file(self, dataset: str) -> Path:
        return self.path


def simulate(theta, records, rng):
    return rng.normal(theta[:, :1], 1.0, (len(theta), records))


def make_bank(folder: Path) -> Path:
    """A bank of 64 draws, and records of 50 people beside it."""
    model = abcdp.Model(prior={"mu": stats.norm(0, 1)}, simulator=simulate)
    distance = abcdp.MeanSummary([0, abcdp.Moment(0, 2)], domain=(-5, 5))
    abcdp.simulate(model, distance, draws=64, records=50, seed=1, to=folder / "bank", progress=False)
    np.save(folder / "records.npy", np.random.default_rng(1).normal(size=50))
    return folder


def open_desk(folder: Path, where: str, documents: str, who: tuple[str, ...], **work: Any) -> Desk:
    """A desk on a ledger that is there; these accounts have uploaded the bank."""
    if "://" in documents:
        engine = sa.create_engine(documents, poolclass=sa.NullPool)
    else:
        engine = sa.create_engine(f"sqlite:///{documents}", poolclass=sa.NullPool, connect_args={"timeout": 60})
    METADATA.create_all(engine)
    digest = abcdp.Bank(folder / "bank").digest
    banks = Banks({(one, digest): folder / "bank" for one in who})
    return Desk(Ledger(where, timeout=60), Documents(engine), banks, Records(folder / "records.npy"), Work(**work))


def make_desk(folder: Path, where: str, documents: str, *, epsilon: Any = 1, work: Any = None, **rules: Any) -> Desk:
    """A desk on a new ledger with the dataset d."""
    ledger = Ledger.create(where)
    register(where, "d", folder / "records.npy", unit=abcdp.Unit(), epsilon=epsilon, missing="none")
    if rules:
        ledger.set_rules("d", DatasetRules.from_json(rules), actor="root")
    return open_desk(folder, where, documents, ("ada", "eve", "both"), **(work or {}))


def asked(desk: Desk, request: str = "", epsilon: float = 0.1, **more: Any) -> Asked:
    """A request for a private summary."""
    (digest,) = {digest for _, digest in desk.banks.folder_of}
    mechanism = more.pop("mechanism", MECHANISM | {"epsilon": epsilon})
    return Asked(dataset=more.pop("dataset", "d"), bank=digest, mechanism=mechanism, request=request, **more)
