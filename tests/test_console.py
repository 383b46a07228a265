"""The console in a real browser: who decides, who sees what, and that no form of another site is taken."""

from __future__ import annotations

import json
import re
import time
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import abcdp
from abcdp.planning.specimen import Specimen
from abcdp.service import isolation
from abcdp.service.accounts import ADMINISTRATOR, APPROVER, AUDITOR, MODELER
from abcdp.service.console import previews
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
        patch.setattr(previews, "_call", lambda values, work: json.loads(json.dumps(previews._made(values))))
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
    page.fill("#account", id)
    page.fill("#password", PASSWORD)
    page.locator("button").first.click()
    page.wait_for_url(f"{house.address}/", timeout=5000)
    yield page
    context.close()


@pytest.fixture(scope="module")
def demo(house, bank, browser):
    """The dataset of the demonstration, registered by the administrator with the console's own form."""
    with visiting(browser, house, "olga") as page:
        page.click("text=Register a dataset")
        for name, value in {
            "name": "demo",
            "description": "one winter",
            "unit_name": "one patient",
            "epsilon": "2",
        }.items():
            page.fill(f"#{name}", value)
        page.select_option("#file", "demo.npy")
        page.select_option("#approvers", "2")
        page.locator("form.stacked button").click()
        assert page.inner_text("h1") == "demo"
        assert page.inner_text("#left") == "epsilon 2"
    for id in ("mia", "ben"):
        assert send(house.client(id), bank.digest, Path(bank.path))["state"] == "ready"
    return "demo"


def ask(house, bank, id, name, epsilon=0.5, **more):
    """Ask for a release by the API, as a program does, and return the request's id."""
    body = {
        "dataset": "demo",
        "bank": bank.digest,
        "mechanism": abcdp.PrivateSummary(epsilon).to_json(),
        "request": name,
        "purpose": "to see how long people wait",
    }
    headers = {"Idempotency-Key": f"{id}-{name}-key".replace(" ", "-")}
    answer = house.client(id).post("/api/v1/requests", json=body | more, headers=headers)
    assert answer.status_code == 201, answer.text
    assert answer.json()["state"] == "submitted", answer.text
    return answer.json()["id"]


def left_of(page):
    page.goto("/dataset?name=demo")
    return page.inner_text("#left")


def compute(house):
    """Let a worker compute what is due, and the slot pass from which it can be seen."""
    Worker(house.office.desk, tell=lambda _: None).run_due(isolated=False)


def released(house, bank):
    """Ask for a release, have it approved and computed, and return the id of the request once all can see it."""
    desk, people, id = house.office.desk, house.office.accounts, ask(house, bank, "mia", "released", 0.05)
    for voter in ("anna", "ben"):
        desk.vote(people.find(voter), id, True, "")
    compute(house)
    until = time.monotonic() + 20
    while desk.request(people.find("mia"), id).state != "visible" and time.monotonic() < until:
        time.sleep(0.05)
    return id


def decide(page, id, button, **fields):
    page.goto(f"/requests/{id}")
    for name, value in fields.items():
        page.fill(f"#{name.replace('_', '-')}", value)
    page.get_by_role("button", name=button, exact=True).click()


def wait_for(page, id):
    """Reload the page of a request until what came of it can be seen."""
    for _ in range(200):
        page.goto(f"/requests/{id}")
        if page.locator("#result").count():
            return
        page.wait_for_timeout(50)
    raise AssertionError("nothing to be seen")


@pytest.mark.parametrize("script", [True, False], ids=["with scripts", "without scripts"])
def test_two_approve_the_budget_falls_and_the_posterior_is_seen(house, bank, demo, browser, script):
    """All of it, once in a browser that runs no script; votes are blind, and the second one decides."""
    before = house.office.ledger.dataset("demo").left_epsilon
    id = ask(house, bank, "mia", f"first {script}", 0.3)
    how = {"java_script_enabled": script}
    with visiting(browser, house, "anna", **how) as page:
        assert page.locator("#waiting tbody tr").count() == 1
        page.goto(f"/requests/{id}")
        body = page.inner_text("body")
        assert "one patient" in body
        assert "Mia (mia)" in body
        assert page.locator("#numbers tbody tr").count() == 2  # the specimen
        assert "SPECIMEN" in body.upper()
        decide(page, id, "Approve")
        assert "You have voted" in page.inner_text("#voted")
        assert page.locator("#votes tbody tr").count() == 1
    with visiting(browser, house, "ben", **how) as page:
        page.goto(f"/requests/{id}")
        assert page.locator("#votes").count() == 0  # those of others are not shown
        decide(page, id, "Approve")
        assert page.locator("#votes tbody tr").count() == 2
    compute(house)
    with visiting(browser, house, "mia", **how) as page:
        wait_for(page, id)
        left = house.office.ledger.dataset("demo").left_epsilon
        assert before - left == Fraction(3, 10)
        assert left_of(page) == f"epsilon {float(left):g}"
        page.goto(f"/requests/{id}/report")
        assert page.locator("#summary tbody tr").count() == 2
        assert page.locator("#marginal-1").count() == 1
        assert "charge " not in page.inner_text("#facts")  # what others were given is not a modeler's to know
        page.goto(f"/requests/{id}/public")
        assert "What was published" in page.inner_text("h1")
    with visiting(browser, house, "anna", **how) as page:
        page.goto(f"/requests/{id}/report")
        assert "charge " in page.inner_text("#facts")
        assert "\nmia\n" in page.inner_text("#facts")  # who asked, not the worker


def test_a_refusal_says_why_and_frees_what_was_held(house, bank, demo, browser):
    before = house.office.ledger.dataset("demo").left_epsilon
    id = ask(house, bank, "mia", "refused", 0.2)
    assert house.office.ledger.dataset("demo").left_epsilon == before - Fraction(1, 5)
    with visiting(browser, house, "anna") as page:
        decide(page, id, "Ask back", question_text="Which wards?")
        assert "Which wards?" in page.inner_text("body")
    with visiting(browser, house, "mia") as page:
        page.goto(f"/requests/{id}")
        page.fill("#text", "All of <b>them</b>.")
        page.get_by_role("button", name="Send the answer").click()
        assert "All of <b>them</b>." in page.inner_text("body")
    with visiting(browser, house, "anna") as page:
        decide(page, id, "Refuse", refuse_reason="not this winter")
    with visiting(browser, house, "mia") as page:
        page.goto(f"/requests/{id}")
        assert "not this winter" in page.inner_text("#reason")
        assert page.locator("#result").count() == 0
    assert house.office.ledger.dataset("demo").left_epsilon == before


def test_nobody_approves_their_own_request(house, bank, demo, browser):
    """Neither by the page, which offers no form, nor by a form that is made up, nor by the API."""
    id = ask(house, bank, "ben", "own", 0.1)
    with visiting(browser, house, "ben") as page:
        page.goto(f"/requests/{id}")
        assert page.locator("#own").count() == 1
        assert page.get_by_role("button", name="Approve", exact=True).count() == 0
        token = page.locator("input[name=token]").first.get_attribute("value")
        answer = page.request.post(f"/requests/{id}/approve", form={"token": token})
        assert answer.status == 409
        assert "nobody decides on their own request" in answer.text()
        page.get_by_role("button", name="Withdraw the request").click()
        assert "withdrawn" in page.inner_text(".lead")
    other = ask(house, bank, "ben", "own too", 0.1)
    assert house.client("ben").post(f"/api/v1/requests/{other}/approve", json={}).status_code == 409
    assert house.office.ledger.progress(house.office.desk.documents.find(id).key).votes == ()


def test_what_is_not_theirs_is_not_there(house, bank, demo, browser):
    """By a link, by a guess, by the API: another's request or dataset is answered as nothing is."""
    id = ask(house, bank, "mia", "secret", 0.1)
    account = house.office.accounts.find("moe")
    house.office.sessions.set_password(account, PASSWORD, by=LOCAL.id)
    with visiting(browser, house, "moe") as page:
        assert "demo" not in page.inner_text("body")
        for there, nowhere in (
            (f"/requests/{id}", f"/requests/{'0' * 32}"),
            (f"/requests/{id}/report", f"/requests/{'0' * 32}/report"),
            (f"/requests/{id}/release.json", f"/requests/{'0' * 32}/release.json"),
            ("/dataset?name=demo", "/dataset?name=none"),
        ):
            seen = [page.request.get(place) for place in (there, nowhere)]
            words = [re.search(r'id="refused"[^>]*>([^<]*)<', one.text()).group(1) for one in seen]
            assert [one.status for one in seen] == [404, 404]
            assert words[0] == words[1]
        assert page.goto("/accounts").status == 403
        assert page.goto("/trail").status == 403
        assert page.goto("/datasets/new").status == 403
        token = page.locator("input[name=token]").first.get_attribute("value")
        for step in ("approve", "refuse", "question", "answer", "withdraw"):
            answer = page.request.post(f"/requests/{id}/{step}", form={"token": token, "reason": "x", "text": "x"})
            assert answer.status in (403, 404)
    assert house.client("moe").get(f"/api/v1/requests/{id}").status_code == 404
    with visiting(browser, house, "mia") as page:
        page.goto("/dataset?name=demo")
        assert page.locator("figure svg").count() == 0  # the budget over time tells when others were given something
        assert "ben" not in page.inner_text("main")


def test_an_auditor_sees_all_and_changes_nothing(house, bank, demo, browser):
    id = ask(house, bank, "mia", "audited", 0.05)
    head = house.office.ledger.head()
    with visiting(browser, house, "otto") as page:
        page.goto(f"/requests/{id}")
        assert page.locator("#numbers tbody tr").count() == 2
        assert page.locator("main form").count() == 0
        assert page.goto("/accounts").status == 200
        assert page.locator("main form").count() == 0
        page.goto("/trail")
        assert page.locator("#entries tbody tr").count() > 10
        page.get_by_role("button", name="Verify the whole chain").click()
        assert "intact" in page.inner_text("#verified")
        token = page.locator("input[name=token]").first.get_attribute("value")
        forms = {
            f"/requests/{id}/approve": {},
            f"/requests/{id}/refuse": {"reason": "x"},
            f"/requests/{id}/question": {"text": "x"},
            "/datasets": {"name": "x", "file": "demo.npy", "unit": "record", "epsilon": "1", "missing": "none"},
            "/dataset/rules": {"name": "demo", "approvers": "0"},
            "/dataset/lower": {"name": "demo", "epsilon": "1", "reason": "x"},
            "/dataset/close": {"name": "demo", "reason": "x"},
            "/accounts": {"account": "eve"},
            "/accounts/roles": {"account": "otto", "role": "administrator", "dataset": "*"},
            "/accounts/keys": {"account": "olga", "scope": "full"},
            "/accounts/password": {"account": "olga", "password": PASSWORD},
            "/accounts/disable": {"account": "olga"},
        }
        for place, fields in forms.items():
            assert page.request.post(place, form={"token": token, **fields}).status in (403, 404), place
        exported = json.loads(page.request.get("/trail/export.json").text())
        assert len(exported["entries"]) == head.seq
    assert house.office.ledger.head() == head


def test_a_forged_form_is_refused(house, bank, demo, browser):
    """Without its token, with that of another session, from another site: nothing is done."""
    id = ask(house, bank, "mia", "forged", 0.05)
    with visiting(browser, house, "anna") as page, visiting(browser, house, "ben") as other:
        own, foreign = (one.locator("input[name=token]").first.get_attribute("value") for one in (page, other))
        assert own != foreign
        place = f"/requests/{id}/approve"
        assert page.request.post(place, form={}).status == 403
        assert page.request.post(place, form={"token": foreign}).status == 403
        elsewhere = {"Origin": "https://elsewhere.example"}
        assert page.request.post(place, form={"token": own}, headers=elsewhere).status == 403
        cookie = next(one for one in page.context.cookies() if one["name"] == "abcdp_session")
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert "script-src" not in page.goto("/").headers["content-security-policy"]
        assert "default-src 'none'" in page.goto("/").headers["content-security-policy"]
        page.get_by_role("button", name="sign out").click()
        assert page.request.post(place, form={"token": own}, max_redirects=0).status == 303  # to where one signs in
    assert house.office.ledger.progress(house.office.desk.documents.find(id).key).votes == ()


def test_signing_in_by_a_key_of_full_scope_and_by_no_other(house, demo, browser):
    """A session has all roles of its account: a key that has fewer opens none. Wrong ones are throttled."""
    accounts = house.office.accounts
    few = accounts.make_key(accounts.find("olga"), by=LOCAL.id, scope="read")[1]
    client = house.client()
    assert client.post("/sign-in", data={"key": few}).status_code == 403
    assert client.post("/sign-in", data={"key": house.keys["olga"]}).status_code == 303
    tries = [client.post("/sign-in", data={"account": "nobody", "password": "x"}).status_code for _ in range(7)]
    assert tries == [403] * 5 + [429] * 2


def test_a_page_follows_the_ledger(house, demo, browser):
    """Nothing of an account is kept beside the ledger: what is changed beneath is seen at once."""
    with visiting(browser, house, "anna") as page:
        before = left_of(page)
        entry = house.office.ledger.dataset("demo")
        house.office.ledger.lower("demo", entry.epsilon - Fraction(1, 8), reason="less", actor="olga")
        after = float(entry.left_epsilon - Fraction(1, 8))
        assert left_of(page) == f"epsilon {after:g}" != before
        assert f"{after:g} of epsilon" in page.inner_text("figcaption")


def test_a_specimen_is_made_in_a_process_of_its_own(house, bank):
    """A stranger's bank is read where memory and time are bounded; what comes back is what would be made here."""
    mechanism, unit = abcdp.PrivateSummary(0.5), abcdp.Unit()
    values = {"what": "specimen", "bank": str(bank.path), "mechanism": mechanism.to_json(), "unit": unit.to_json()}
    values |= {"records": 500, "seed": 7}
    limits = {"memory": 2 << 30, "seconds": 60.0, "file_bytes": 1 << 20}
    there = isolation.call("abcdp.service.console.previews", values, **limits)
    here = Specimen.from_json(json.loads(json.dumps(previews._made(values))))
    assert Specimen.from_json(there).release == here.release
    assert here.release.seeded
    with pytest.raises(isolation.ProgramError, match="took more than"):
        isolation.call("abcdp.service.console.previews", values, **limits | {"memory": 1 << 20})


def test_pages_fit_and_can_be_read_by_everybody(house, bank, demo, browser, tmp_path):
    """Every page, in both windows, light and dark: as wide as its window, and no serious fault by axe."""
    id = ask(house, bank, "mia", "looked at", 0.05)
    done = released(house, bank)
    places = {
        "home": "/", "dataset": "/dataset?name=demo", "register": "/datasets/new", "queue": "/requests",
        "decision": f"/requests/{id}", "released": f"/requests/{done}", "report": f"/requests/{done}/report",
        "public": f"/requests/{done}/public", "accounts": "/accounts", "trail": "/trail", "refusal": "/requests/none",
    }  # fmt: skip
    for width, height in WINDOWS:
        for scheme in SCHEMES:
            how = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
            page = browser.new_page(base_url=house.address, **how)
            page.goto("/sign-in")
            assert serious_faults(page) == []
            keep_picture(page, tmp_path, f"console-sign-in-{width}-{scheme}")
            page.close()
            with visiting(browser, house, "anna" if scheme == "dark" else "olga", **how) as page:
                outside = []
                page.on("request", lambda request, seen=outside: seen.append(request.url))
                for name, place in places.items():
                    page.goto(place)
                    assert width_of(page) <= width, name
                    if (width, scheme) in ((1280, "light"), (390, "dark")):
                        assert serious_faults(page) == [], name
                    keep_picture(page, tmp_path, f"console-{name}-{width}-{scheme}")
                assert [url for url in outside if not url.startswith((house.address, "data:"))] == []
