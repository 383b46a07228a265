"""Who may come into the console, and whose forms it takes: by calls alone, without a browser."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

import abcdp
from abcdp.service.accounts import ADMINISTRATOR, APPROVER, MODELER
from abcdp.service.setup import LOCAL, make_folder
from served import listening

PEOPLE = {"olga": ADMINISTRATOR, "anna": APPROVER, "mia": MODELER}


@pytest.fixture
def house(tmp_path):
    """A server with a dataset from which something was given."""
    settings, _ = make_folder(tmp_path / "house", administrator="root", port=0)
    with listening(settings) as served:
        accounts = served.office.accounts
        for id, role in PEOPLE.items():
            account = accounts.give(accounts.add(id, by=LOCAL.id), role, by=LOCAL.id)
            served.keys[id] = accounts.make_key(account, by=LOCAL.id)[1]
        served.office.ledger.register("demo", np.arange(50.0)[:, None], unit=abcdp.Unit(), epsilon=2, actor="olga")
        served.office.ledger.begin("demo", {"request": "earlier"}, "0.5", actor="somebody")
        yield served


def signed_in(house, id):
    """Return a client in a session, and the token of its forms."""
    client = house.client()
    assert client.post("/sign-in", data={"key": house.keys[id]}).status_code == 303
    return client, re.search(r'name="token" value="([0-9a-f]+)"', client.get("/").text).group(1)


def test_a_form_without_its_token_does_nothing(house):
    (olga, token), (_, other) = signed_in(house, "olga"), signed_in(house, "anna")
    head = house.office.ledger.head()
    for given in ({}, {"token": ""}, {"token": other}, {"token": token[:-1]}):
        refused = olga.post("/accounts", data={"account": "eve", **given})
        assert refused.status_code == 403
        assert "was not made in your session" in refused.text
    assert house.office.ledger.head() == head
    assert olga.post("/accounts", data={"account": "eve", "token": token}).status_code == 303


def test_a_form_of_another_site_does_nothing(house):
    olga, token = signed_in(house, "olga")
    form = {"account": "eve", "token": token}
    assert olga.post("/accounts", data=form, headers={"Origin": "https://elsewhere.example"}).status_code == 403
    assert olga.post("/accounts", data=form, headers={"Origin": "null"}).status_code == 403
    assert olga.post("/accounts", data=form, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    stranger = house.client()
    key = {"key": house.keys["olga"]}
    assert stranger.post("/sign-in", data=key, headers={"Origin": "https://elsewhere.example"}).status_code == 403


def test_a_key_of_a_smaller_scope_opens_no_session(house):
    """A session has all roles of its account."""
    accounts = house.office.accounts
    for scope, status in (("read", 403), ("modeler", 403), ("full", 303)):
        key = accounts.make_key(accounts.find("olga"), by=LOCAL.id, scope=scope)[1]
        client = house.client()
        assert client.post("/sign-in", data={"key": key}).status_code == status
    assert client.get("/").status_code == 200
    accounts.revoke(key.split("_")[1], by=LOCAL.id)
    assert client.get("/").headers["location"] == "/sign-in"  # a session of a key ends with it


def test_a_session_ends(house):
    """By signing out, and by time: then pages lead to where one signs in."""
    olga, token = signed_in(house, "olga")
    assert olga.post("/sign-out", data={"token": token}).headers["location"] == "/sign-in"
    assert olga.get("/").headers["location"] == "/sign-in"
    anna, token = signed_in(house, "anna")
    house.office.sessions._now = lambda: time.time() + 31 * 60
    assert anna.get("/").headers["location"] == "/sign-in"
    assert anna.post("/accounts", data={"token": token}).headers["location"] == "/sign-in"
    assert house.client().get("/trail/export.json").headers["location"] == "/sign-in"


def test_a_modeler_sees_the_description_and_nothing_of_others(house):
    """When others were given something, and how often, is on the page of the owner's side alone."""
    mia, _ = signed_in(house, "mia")
    anna, _ = signed_in(house, "anna")
    own, owner = (client.get("/dataset", params={"name": "demo"}).text for client in (mia, anna))
    assert "epsilon 1.5" in own
    assert "charges so far" in owner
    assert "polyline" in owner
    assert "charges so far" not in own
    assert "polyline" not in own


def test_answers_carry_what_keeps_pages_apart(house):
    olga, _ = signed_in(house, "olga")
    headers = olga.get("/").headers
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'; img-src 'self' data:")
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    set_cookie = house.client().post("/sign-in", data={"key": house.keys["olga"]}).headers["set-cookie"].lower()
    assert "httponly" in set_cookie
    assert "samesite=strict" in set_cookie
    for page in ("/", "/accounts", "/trail", "/datasets/new"):
        text = olga.get(page).text
        assert "<script" not in text
        assert not re.search(r"""\s(on[a-z]+|style)\s*=""", text)
