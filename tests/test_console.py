"""The console in a real browser: who decides, who sees what, and that no form of another site is taken."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.service.accounts import ADMINISTRATOR, APPROVER, AUDITOR, MODELER
from abcdp.service.setup import LOCAL, make_folder
from abcdp.service.worker import Worker
from pages import SCHEMES, WINDOWS, a_browser, keep_picture, serious_faults, width_of
from served import listening, send

PASSWORD = "a long enough password"
PEOPLE = {
    "olga": (ADMINISTRATOR,), "anna": (APPROVER,), "ben": (APPROVER, MODELER), "otto": (AUDITOR,), "mia": (MODELER,),
}  # fmt: skip
REST = """
[work]
slot_seconds = 0.01
noise = "fast"
[limits]
per_minute = 100000
strangers_per_minute = 100000
"""


def simulate(theta, records, rng):
    return rng.normal(theta[:, :1], theta[:, 1:], size=(len(theta), records))


MODEL = abcdp.Model(prior={"mu": stats.norm(0, 1), "sigma": stats.uniform(0.5, 2.5)}, simulator=simulate)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return {"ABCDP_STATE": str(folder / "state"), "ABCDP_KEYS": str(folder / "keys.json")}


@pytest.fixture(autouse=True)
def shared_keys(state, keys, monkeypatch):
    for name, value in keys.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module")
def house(keys, tmp_path_factory):
    """A server with people, passwords and a file of records, and nothing registered."""
    folder = tmp_path_factory.mktemp("house")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in keys.items():
            patch.setenv(name, value)
        settings, _ = make_folder(folder, administrator="root", port=0, rest=REST)
        np.save(settings.records / "demo.npy", np.random.default_rng(0).normal(1.0, 2.0, 500))
        with listening(settings) as served:
            office = served.office
            for id, roles in PEOPLE.items():
                account = office.accounts.add(id, id.capitalize(), by=LOCAL.id)
                for role in roles:
                    account = office.accounts.give(account, role, by=LOCAL.id)
                office.sessions.set_password(account, PASSWORD, by=LOCAL.id)
                served.keys[id] = office.accounts.make_key(account, by=LOCAL.id)[1]
            stranger = office.accounts.give(office.accounts.add("moe", by=LOCAL.id), MODELER, "other", by=LOCAL.id)
            served.keys["moe"] = office.accounts.make_key(stranger, by=LOCAL.id)[1]
            yield served


@pytest.fixture(scope="module")
def bank(tmp_path_factory):
    distance = abcdp.MeanSummary([abcdp.Moment(0), abcdp.Moment(0, power=2)], domain=(-10, 10))
    folder = tmp_path_factory.mktemp("banks") / "bank"
    return abcdp.simulate(MODEL, distance, draws=1_000, records=500, seed=1, to=folder, progress=False)


@pytest.fixture(scope="module")
def browser():
    with a_browser() as found:
        yield found


@contextmanager
def visiting(browser, house, id, **how):
    """A page of somebody who has signed in with a password."""
    context = browser.new_context(base_url=house.address, **how)
    page = context.new_page()
    page.goto("/sign-in")
    if id is not None:
        page.fill("#account", id)
        page.fill("#password", PASSWORD)
        page.click("text=Sign in >> visible=true >> nth=1") if False else page.locator("button").first.click()
        page.wait_for_url(f"{house.address}/")
    yield page
    context.close()


def ask(house, bank, id, name, epsilon=0.5, **more):
    """Ask for a release by the API, as a program does; return the request's id."""
    client = house.client(id)
    if not house.office.uploads_ready(id, bank.digest) if hasattr(house.office, "uploads_ready") else True:
        send(client, bank.digest, bank.path_as_folder) if hasattr(bank, "path_as_folder") else None
    body = {
        "dataset": "demo",
        "bank": bank.digest,
        "mechanism": abcdp.PrivateSummary(epsilon).to_json(),
        "request": name,
        "purpose": "to see how long people wait",
    }
    answer = client.post("/api/v1/requests", json=body | more, headers={"Idempotency-Key": f"{id}-{name}-key"})
    assert answer.status_code == 201, answer.text
    assert answer.json()["state"] == "submitted", answer.text
    return answer.json()["id"]
