"""The desk and its worker: who may do what, what each sees, and that nothing is charged, lost or drawn twice."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import abcdp
from abcdp.errors import AbcdpError, DataError, MechanismError
from abcdp.ledger import LedgerError, reserving
from abcdp.ledger import chain as ledger_chain
from abcdp.owner import requests as owner_requests
from abcdp.service import desk as desk_module
from abcdp.service import isolation, slots, worker
from abcdp.service.database import DocumentsError
from abcdp.service.desk import Registration
from abcdp.service.errors import Conflict, NotFound
from abcdp.service.worker import Worker
from desks import ADA, ADMIN, AUDITOR, BOB, BOTH, CYD, EVE, STRANGER, asked, make_bank, make_desk
from postgres import postgres  # noqa: F401


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_bank(tmp_path_factory.mktemp("desk"))


@pytest.fixture
def make(folder, tmp_path):
    def made(where=None, **options):
        return make_desk(folder, where or str(tmp_path / "own.db"), str(tmp_path / "service.db"), **options)

    return made


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is told otherwise."""

    class Clock(datetime):
        here = datetime(2030, 1, 1, tzinfo=UTC)

        @classmethod
        def now(cls, tz=None):
            return cls.here

    for module in (desk_module, reserving, ledger_chain):
        monkeypatch.setattr(module, "datetime", Clock)
    return Clock


def compute(desk):
    told = []
    Worker(desk, tell=told.append).run_due(isolated=False)
    return told


def left(desk):
    return desk.ledger.dataset("d").left_epsilon


def kinds(desk):
    return [entry.kind for entry in desk.ledger.history("d")]


class Crash(BaseException):
    """The power goes."""


@pytest.fixture
def crashing(monkeypatch):
    """Let whatever is done inside stop at a step."""

    @contextmanager
    def crash(module, step):
        def reached(there):
            if there == step:
                raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(module, "_reached", reached)
            with pytest.raises(Crash):
                yield

    return crash


# The life of a request


def test_a_request_from_a_draft_to_its_bytes(make, clock):
    desk = make(approvers=2, work={"slot_seconds": 60.0})
    draft = desk.ask(ADA, asked(desk, "one", purpose="to know"), "k1", submit=False)
    assert (draft.state, draft.price["epsilon"], left(desk)) == ("draft", "1/10", 1)
    assert draft.leaves
    with pytest.raises(NotFound):
        desk.request(BOB, draft.id)  # a draft is its modeler's
    view = desk.submit(ADA, draft.id)
    assert (view.state, left(desk)) == ("submitted", Fraction(9, 10))
    assert desk.due() == []
    assert desk.question(BOB, view.id, "why?").texts[0]["text"] == "why?"
    assert [one["kind"] for one in desk.answer(ADA, view.id, "because").texts] == ["question", "answer"]
    desk.vote(BOB, view.id, True)
    view = desk.vote(CYD, view.id, True, "fine")
    assert (view.state, desk.due()) == ("approved", [view.id])
    assert compute(desk) == []
    # what runs, and for how long, nobody sees before the slot
    for who, state in ((ADA, "approved"), (BOB, "stored")):
        seen = desk.request(who, view.id)
        assert (seen.state, seen.visible_at) == (state, "2030-01-01T00:01:00+00:00")
        with pytest.raises(NotFound, match="no result that can be seen"):
            desk.result(who, view.id)
    assert set(desk.request(ADA, view.id).times) == {"made", "submitted", "approved"}
    clock.here += timedelta(seconds=60)
    seen = desk.request(ADA, view.id)
    assert (seen.state, set(seen.times)) == ("visible", {"made", "submitted", "approved", "visible"})
    content = desk.result(ADA, view.id)
    assert content == desk.result(ADA, view.id) == desk.result(BOB, view.id) == desk.result(AUDITOR, view.id)
    release = json.loads(content)
    assert release["request"] == "one"
    assert abcdp.Release.from_bytes(content).guarantee.epsilon == 0.1
    assert kinds(desk)[1:] == ["rules", "reserved", "voted", "voted", "approved", "charged", "stored"]
    assert left(desk) == Fraction(9, 10)
    desk.ledger.verify()


def test_public_fields_are_those_of_a_release_in_the_library(make, folder, monkeypatch):
    from abcdp.sampling.seeded import SeededNoise

    desk = make(approvers=0)
    monkeypatch.setitem(owner_requests._SOURCES, "fast", lambda: SeededNoise(7))
    view = desk.ask(ADA, asked(desk, "same"), "k")
    compute(desk)
    mechanism = abcdp.PrivateSummary(epsilon=0.1)
    data, ledger = folder / "records.npy", desk.ledger
    made = owner_requests.release(
        folder / "bank", data, mechanism, ledger=ledger, dataset="d", request="same", noise="fast"
    )
    assert desk.ledger.result(desk.documents.find(view.id).key) == made.to_bytes()
    assert left(desk) == Fraction(8, 10)  # of another asker, hence two charges


def test_what_cannot_be_paid_for_stays_a_draft_and_says_why(make):
    desk = make(epsilon="0.15", approvers=0)
    desk.ask(ADA, asked(desk, "a"), "a")
    view = desk.ask(ADA, asked(desk, "b"), "b")
    assert view.state == "draft"
    assert "only 0.05 is left" in view.reason
    assert desk.ask(ADA, asked(desk, "b"), "b") == view
    assert desk.due() == [desk.requests(ADA)[1].id]


def test_small_ones_approve_themselves_for_a_week_and_caps_hold(make, clock):
    desk = make(automatic="0.1", weekly="0.2", cap="0.3")
    assert [desk.ask(ADA, asked(desk, name), name).state for name in "abc"] == ["approved", "approved", "submitted"]
    assert "allow one modeler epsilon=0.3" in desk.ask(ADA, asked(desk, "d"), "d").reason
    assert desk.ask(EVE, asked(desk, "d"), "d").state == "submitted"
    clock.here += timedelta(days=7)
    assert desk.ask(EVE, asked(desk, "e"), "e").state == "approved"
    desk.ledger.verify()


def test_rules_name_mechanisms_and_distances(make):
    desk = make(mechanisms=["nearest"], distances=["mean_summary"])
    with pytest.raises(MechanismError, match="do not allow the mechanism 'private-summary'; they allow nearest"):
        desk.ask(ADA, asked(desk), "a")
    kind = abcdp.Bank(desk.banks.folder("ada", asked(desk).bank)).distance.kind
    for allowed, ok in ((kind, True), ("other", False)):
        rules = reserving.DatasetRules(distances=(allowed,))
        desk.ledger.set_rules("d", rules, actor="root")
        if ok:
            desk.ask(ADA, asked(desk), "a")
        else:
            with pytest.raises(MechanismError, match="do not allow the distance"):
                desk.ask(ADA, asked(desk, "b"), "b")


def test_it_is_withdrawn_refused_or_expires_and_needs_a_new_name_then(make, clock):
    desk = make(days=3)
    views = [desk.ask(ADA, asked(desk, name), name) for name in "abc"]
    assert desk.withdraw(ADA, views[0].id).state == "withdrawn"
    with pytest.raises(DataError, match="say why"):
        desk.vote(BOB, views[1].id, False)
    refused = desk.vote(BOB, views[1].id, False, "too vague")
    assert (refused.state, desk.request(ADA, views[1].id).reason) == ("refused", "too vague")
    assert desk.expire_due() == []
    clock.here += timedelta(days=3)
    assert desk.expire_due() == [views[2].id]
    assert left(desk) == 1
    with pytest.raises(Conflict, match="this request was refused; give it another name"):
        desk.ask(ADA, asked(desk, "b"), "new key")
    with pytest.raises(Conflict, match="awaits approval"):
        desk.withdraw(ADA, views[1].id)
    assert desk.ask(ADA, asked(desk, "b2"), "new key").state == "submitted"


def test_drafts_of_others_hide_nothing_and_have_an_end(make, monkeypatch):
    desk = make()
    monkeypatch.setattr(desk_module, "_MOST", 2)
    monkeypatch.setattr(desk_module, "_MOST_A_DAY", 3)
    waits = desk.ask(EVE, asked(desk, "a"), "a").id
    for name in "bcd":
        desk.ask(ADA, asked(desk, name), name, submit=False)
    assert [view.id for view in desk.requests(BOB)] == [waits]
    assert len(desk.requests(ADA)) == 2
    with pytest.raises(Conflict, match="made 3 requests within a day"):
        desk.ask(ADA, asked(desk, "e"), "e", submit=False)
    assert desk.ask(ADA, asked(desk, "d"), "d").state == "submitted"  # it is known already
    assert desk.ask(EVE, asked(desk, "e"), "e").state == "submitted"


def test_a_ledger_that_cannot_be_used_is_not_a_modelers_to_hear_of(make, monkeypatch):
    desk = make()

    def full(*_, **__):
        raise LedgerError(f"the ledger {desk.ledger.name} cannot be used: disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(desk.ledger, "reserve", full)
        with pytest.raises(LedgerError):  # which the server answers in words of its own
            desk.ask(ADA, asked(desk, "a"), "k")
    assert [(view.state, view.reason) for view in desk.requests(ADA)] == [("draft", "")]
    assert desk.ask(ADA, asked(desk, "a"), "k").state == "submitted"


def test_an_idempotency_key_stands_for_one_request(make):
    desk = make()
    first = desk.ask(ADA, asked(desk, "a"), "k")
    assert desk.ask(ADA, asked(desk, "a"), "k") == first
    with pytest.raises(Conflict, match="stands for another request"):
        desk.ask(ADA, asked(desk, "b"), "k")
    assert desk.ask(ADA, asked(desk, "a", purpose="other words"), "l").id == first.id
    assert desk.ask(ADA, asked(desk, "a", purpose="other words"), "l").id == first.id
    other = desk.ask(EVE, asked(desk, "a"), "k")  # the same words of somebody else
    assert other.id != first.id
    assert left(desk) == Fraction(8, 10)
    with pytest.raises(DataError, match="idempotency key"):
        desk.ask(ADA, asked(desk), "")


def test_the_same_at_once_is_one_request(make):
    desk = make()
    with ThreadPoolExecutor(8) as pool:
        views = list(pool.map(lambda k: desk.ask(ADA, asked(desk, "a"), f"k{k % 2}"), range(8)))
    assert len({view.id for view in views}) == 1
    assert kinds(desk).count("reserved") == 1


def test_a_top_up_is_of_ones_own_release(make, clock):
    desk = make(approvers=0)
    l1 = {"type": "private-summary", "epsilon": 0.1, "norm": "l1"}
    first = desk.ask(ADA, asked(desk, "a", mechanism=l1), "a")
    compute(desk)
    (key,) = [one.key for one in desk.ledger.requests()]
    digest = hashlib.sha256(desk.ledger.result(key)).hexdigest()
    more = {"mechanism": l1 | {"epsilon": 0.3}, "tops_up": digest}
    with pytest.raises(MechanismError, match="no release of yours"):
        desk.ask(ADA, asked(desk, "b", **more), "b")  # not visible yet
    clock.here += timedelta(seconds=10)
    assert digest == hashlib.sha256(desk.result(ADA, first.id)).hexdigest()
    with pytest.raises(MechanismError, match="no release of yours"):
        desk.ask(EVE, asked(desk, "b", **more), "b")
    view = desk.ask(ADA, asked(desk, "b", **more), "b")
    price = Fraction(view.price["epsilon"])
    assert Fraction(19, 100) < price <= Fraction(2, 10)
    again = desk.ask(ADA, asked(desk, "c", **more), "c")
    assert (again.state, "topped up twice" in again.reason) == ("draft", True)
    desk.ledger.lower("d", "0.3", reason="no more than the whole chain costs")
    assert compute(desk) == []
    clock.here += timedelta(seconds=10)
    assert abcdp.Release.from_bytes(desk.result(ADA, view.id)).tops_up == digest
    assert left(desk) == Fraction(2, 10) - price
    desk.ledger.verify()


# Who may do what


def test_nobody_learns_of_what_is_not_theirs(make):
    desk = make()
    view = desk.ask(ADA, asked(desk, "a"), "k")
    calls = {
        "request": lambda who, id: desk.request(who, id),
        "result": lambda who, id: desk.result(who, id),
        "withdraw": lambda who, id: desk.withdraw(who, id),
        "submit": lambda who, id: desk.submit(who, id),
        "vote": lambda who, id: desk.vote(who, id, True),
        "question": lambda who, id: desk.question(who, id, "?"),
        "answer": lambda who, id: desk.answer(who, id, "!"),
        "rehearse": lambda who, id: desk.rehearse(who, id),
        "rehearsal": lambda who, id: desk.rehearsal(who, id),
    }
    for call in calls.values():
        for who in (EVE, STRANGER):
            said = set()
            for id in (view.id, "0" * 32):
                with pytest.raises(NotFound) as refused:
                    call(who, id)
                said.add((type(refused.value), str(refused.value)))
            assert len(said) == 1
    assert desk.requests(EVE) == desk.requests(STRANGER) == []
    # roles that see it may not do everything
    for who, names in (
        (AUDITOR, ("vote", "question", "answer", "withdraw", "submit", "rehearse")),
        (ADMIN, ("vote", "answer", "withdraw", "submit")),
        (BOB, ("answer", "withdraw", "submit")),
        (ADA, ("vote", "question")),
    ):
        assert desk.request(who, view.id).id == view.id
        for name in names:
            with pytest.raises(NotFound):
                calls[name](who, view.id)
    gone = replace(ADA, roles=())
    with pytest.raises(NotFound):
        desk.request(gone, view.id)


def test_datasets_and_banks_that_are_not_theirs_are_not_there(make):
    desk = make()
    said = set()
    for who, dataset in ((STRANGER, "d"), (STRANGER, "none"), (replace(ADA, datasets=("none",)), "none")):
        with pytest.raises(NotFound) as refused:
            desk.ask(who, asked(desk, dataset=dataset), "k")
        said.add(str(refused.value))
    assert len(said) == 1
    assert "'d'" not in said.pop()
    with pytest.raises(NotFound, match="no such bank"):
        desk.ask(replace(ADA, id="fay"), asked(desk), "k")


def test_votes_are_blind_until_it_is_decided(make):
    desk = make(approvers=2)
    view = desk.ask(ADA, asked(desk, "a"), "k")
    assert [one["actor"] for one in desk.vote(BOB, view.id, True, "yes").votes] == ["bob"]
    for who in (CYD, AUDITOR, ADMIN, ADA):
        seen = desk.request(who, view.id)
        assert (seen.votes, seen.state) == ((), "submitted")
    assert desk.request(CYD, view.id).approvals_needed == 2
    decided = desk.vote(CYD, view.id, True)
    assert [one["actor"] for one in decided.votes] == ["bob", "cyd"]
    assert desk.request(ADA, view.id).votes == ()  # who approves is the owner's business
    with pytest.raises(Conflict, match="already"):
        desk.vote(BOB, view.id, True)


def test_nobody_decides_on_their_own(make):
    desk = make()
    view = desk.ask(BOTH, asked(desk, "a"), "k")
    with pytest.raises(Conflict, match="own request"):
        desk.vote(BOTH, view.id, True)
    with pytest.raises(LedgerError, match="voted by who asked"):
        desk.ledger.vote(desk.documents.find(view.id).key, actor="both", approve=True)


def test_a_modeler_sees_no_account_and_no_sums(make):
    desk = make()
    view = desk.ask(ADA, asked(desk, "a"), "k").to_json()
    assert view["account"] is view["left_after"] is view["left_before"] is view["overran"] is None
    seen = desk.request(AUDITOR, view["id"]).to_json()
    assert (seen["account"], seen["left_before"]["epsilon"], seen["left_after"]["epsilon"]) == ("ada", "1", "9/10")
    json.dumps(seen)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mechanism": {"type": "magic"}}, "a mechanism is an object"),
        ({"mechanism": {"type": "private-summary", "epsilon": -1}}, "epsilon"),
        ({"request": "x" * 201}, "request: give a text"),
        ({"purpose": 5}, "purpose: give a text"),
        ({"plan": {"x": "y" * (1 << 20)}}, "shorter plan"),
        ({"plan": {"x": float("nan")}}, "JSON values"),
        ({"tops_up": "0" * 64}, "no release of yours"),
        ({"tops_up": 3}, "tops_up: give a digest"),
    ],
)
def test_what_cannot_be_asked_is_refused_and_leaves_nothing(make, change, words):
    desk = make()
    with pytest.raises(AbcdpError, match=words):
        desk.ask(ADA, replace(asked(desk), **change), "k")
    assert desk.requests(ADA) == []
    assert kinds(desk) == ["registered"]


# Crashes


@pytest.mark.parametrize("step", ["before writing", "before reserving", "after reserving"])
def test_a_crash_while_asking_loses_and_doubles_nothing(make, crashing, step):
    desk = make(approvers=0)
    with crashing(desk_module, step):
        desk.ask(ADA, asked(desk, "a"), "k")
    view = desk.ask(ADA, asked(desk, "a"), "k")
    assert view.state == "approved"
    assert (left(desk), len(desk.requests(ADA))) == (Fraction(9, 10), 1)
    assert desk.requests(ADA) == [view]


@pytest.mark.parametrize("step", ["with the lock", "before the charge", "after storing", "after the vote"])
def test_a_crash_before_the_charge_or_after_the_result_goes_on(make, crashing, step):
    desk = make()
    view = desk.ask(ADA, asked(desk, "a"), "k")
    modules = {"with the lock": worker, "after the vote": desk_module}
    with crashing(modules.get(step, owner_requests), step):
        desk.vote(BOB, view.id, True)
        compute(desk)
    stored = desk.ledger.result(desk.documents.find(view.id).key)
    assert (stored is not None) == (step == "after storing")
    compute(desk)
    found = desk.ledger.result(desk.documents.find(view.id).key)
    assert found is not None
    assert stored in (None, found)
    assert kinds(desk).count("charged") == kinds(desk).count("stored") == 1


@pytest.mark.parametrize("step", ["after the charge", "after the noise", "before storing"])
def test_what_is_charged_and_has_no_result_is_burnt_visible_and_never_computed_again(
    make, crashing, monkeypatch, clock, step
):
    desk = make(approvers=0, work={"slot_seconds": 60.0})
    view = desk.ask(ADA, asked(desk, "a"), "k")
    with crashing(owner_requests, step):
        compute(desk)
    assert kinds(desk)[-1] == "charged"
    drawn = []
    monkeypatch.setitem(owner_requests._SOURCES, "fast", lambda: drawn.append(1))
    assert compute(desk) == ["burnt"]
    assert compute(desk) == drawn == []
    seen = desk.request(ADA, view.id)
    assert (seen.state, seen.reason) == ("approved", "")
    clock.here += timedelta(seconds=60)
    seen = desk.request(ADA, view.id)
    assert (seen.state, "never computed again" in seen.reason) == ("burnt", True)
    assert "died" in desk.request(AUDITOR, view.id).reason
    with pytest.raises(NotFound):
        desk.result(ADA, view.id)
    assert left(desk) == Fraction(9, 10)
    desk.ledger.verify()


def test_a_failure_on_the_records_is_burnt_in_words_that_do_not_tell(make, monkeypatch, clock):
    desk = make(approvers=0)
    view = desk.ask(ADA, asked(desk, "a"), "k")

    class Broken(owner_requests.FastNoise):
        def laplace(self, *_):
            raise ValueError("record 17 is 31337.25")

        discrete_gaussian = rounded_gaussian = box = geometric = laplace

    monkeypatch.setitem(owner_requests._SOURCES, "fast", Broken)
    told = compute(desk)
    clock.here += timedelta(seconds=60)
    shown = str(desk.request(ADA, view.id)) + str(desk.request(ADMIN, view.id)) + str(told)
    assert desk.request(ADA, view.id).state == "burnt"
    assert "31337" not in shown
    assert "DataError" not in desk.request(ADA, view.id).reason


@pytest.mark.parametrize("how", ["other records", "closed", "lowered", "no bank", "no file"])
def test_what_cannot_be_answered_is_refused_before_the_charge_in_the_same_words(make, tmp_path, clock, how):
    desk = make(approvers=0, work={"slot_seconds": 60.0})
    view = desk.ask(ADA, asked(desk, "a"), "k")
    if how == "other records":
        np.save(tmp_path / "other.npy", np.zeros(50))
        desk.records.path = tmp_path / "other.npy"
    elif how == "closed":
        desk.ledger.close("d", reason="over")
    elif how == "lowered":
        desk.ledger.lower("d", "0.05", reason="less")
    elif how == "no bank":
        desk.banks.folder_of.clear()
    else:
        desk.records.path = tmp_path / "none.npy"
    (told,) = compute(desk)
    assert told.startswith("refused: ")
    assert desk.request(ADA, view.id).state == "approved"  # until its slot
    if how == "other records":  # who asks again learns no more
        assert desk.ask(ADA, asked(desk, "a"), "another").state == "approved"
    clock.here += timedelta(seconds=60)
    seen = desk.request(ADA, view.id)
    assert (seen.state, seen.reason) == ("refused", worker.REFUSED)
    assert "charged" not in kinds(desk)
    desk.ledger.verify()


@pytest.mark.parametrize("part", ["folder", "file"])
def test_a_database_that_is_away_for_a_while_refuses_nothing(make, monkeypatch, part):
    desk = make(approvers=0)
    desk.ask(ADA, asked(desk, "a"), "k")

    def away(*_):
        raise DocumentsError("the service's database cannot be used (OperationalError)")

    stops = iter([False, True])
    with monkeypatch.context() as broken:
        broken.setattr(desk.banks if part == "folder" else desk.records, part, away)
        told: list[str] = []
        Worker(desk, tell=told.append).run(lambda: next(stops), pause=0)
    assert (told, kinds(desk)[-1]) == (["waits: DocumentsError"], "approved")
    assert compute(desk) == []
    assert kinds(desk)[-1] == "stored"


def test_documents_that_cannot_be_read_are_said_to_be_away(make, tmp_path):
    desk = make()
    (tmp_path / "service.db").write_bytes(b"no database" * 500)
    with pytest.raises(DocumentsError, match="cannot be used"):
        desk.requests(ADA)


def test_a_changed_bank_is_not_charged_instead(make, folder, tmp_path):
    desk = make(approvers=0)
    view = desk.ask(ADA, asked(desk, "a"), "k")
    other = make_bank_of(tmp_path / "x", seed=2)
    for key in desk.banks.folder_of:
        desk.banks.folder_of[key] = other
    assert compute(desk) == ["refused: LedgerError"]
    assert "charged" not in kinds(desk)
    assert desk.documents.find(view.id) is not None


def make_bank_of(folder, seed):
    from scipy import stats

    from desks import simulate

    folder.mkdir()
    model = abcdp.Model(prior={"mu": stats.norm(0, 1)}, simulator=simulate)
    distance = abcdp.MeanSummary([0, abcdp.Moment(0, 2)], domain=(-5, 5))
    abcdp.simulate(model, distance, draws=64, records=50, seed=seed, to=folder / "bank", progress=False)
    return folder / "bank"


def test_one_process_at_a_time_computes_on_a_dataset(make):
    desk = make(approvers=0)
    desk.ask(ADA, asked(desk, "a"), "k")
    with desk.ledger.alone("d") as alone:
        assert alone
        compute(desk)
        assert kinds(desk)[-1] == "approved"
        with desk.ledger.alone("other") as other:
            assert other
    compute(desk)
    assert kinds(desk)[-1] == "stored"


def test_desk_and_lock_in_postgresql(folder, postgres):  # noqa: F811
    where = postgres()
    desk = make_desk(folder, where, where, approvers=0)
    view = desk.ask(ADA, asked(desk, "a"), "k")
    assert desk.ask(ADA, asked(desk, "a", purpose="again"), "l").id == view.id
    desk.question(BOB, view.id, "why?")
    desk.answer(ADA, view.id, "because")
    with desk.ledger.alone("d") as alone, desk.ledger.alone("d") as second, desk.ledger.alone("e") as other:
        assert (alone, second, other) == (True, False, True)
        compute(desk)
        assert kinds(desk)[-1] == "approved"
    compute(desk)
    assert kinds(desk)[-1] == "stored"
    (seen,) = desk.requests(AUDITOR)
    assert [text["text"] for text in seen.texts] == ["why?", "because"]


WORK = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from abcdp.service.worker import Worker
from desks import open_desk
desk = open_desk(Path({folder!r}), {where!r}, {documents!r}, ("ada",), **{work!r})
worker = Worker(desk, tell=lambda word: print(word, flush=True))
for _ in range(3):
    worker.run_due()
"""


def work_apart(desk, folder, tmp_path, **work):
    """Compute what is due by a worker in a process of its own, which forks."""
    tests = str(Path(__file__).parent)
    code = WORK.format(
        tests=tests, folder=str(folder), where=desk.ledger.where, documents=str(tmp_path / "service.db"), work=work
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


def test_a_worker_computes_in_processes_with_limits(make, folder, tmp_path):
    desk = make(approvers=0)
    for name in "ab":
        desk.ask(ADA, asked(desk, name), name)
    assert work_apart(desk, folder, tmp_path) == []
    assert kinds(desk)[-4:] == ["charged", "stored"] * 2
    desk.ask(ADA, asked(desk, "c"), "c")
    told = work_apart(desk, folder, tmp_path, seconds=0.01)  # three processes die, before or after the charge
    assert (kinds(desk)[-1], told[-1]) in {("refused", "refused: ProgramError"), ("burnt", "burnt")}
    assert desk.due() == []
    desk.ledger.verify()


LIMITED = """
import resource, signal, sys
from abcdp.service import isolation
isolation.set_limits(1 << 27, 20, 1 << 20)
assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
for attempt in (lambda: bytearray(1 << 28), lambda: open(sys.argv[1], "wb").write(bytes(1 << 21)),
                lambda: [open("/dev/null") for _ in range(300)]):
    try:
        attempt()
    except (MemoryError, OSError) as error:
        print(type(error).__name__)
signal.setitimer(signal.ITIMER_REAL, 0.01)
while True:
    pass
"""


def test_limits_hold(tmp_path):
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "file")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.returncode) == (["MemoryError", "OSError", "OSError"], -signal.SIGALRM)


# Slots


def test_a_slot_depends_on_public_sizes_alone():
    start = datetime(2030, 1, 1, 0, 0, 30, tzinfo=UTC)
    assert slots.next_slot(start, 60) == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    assert slots.next_slot(start, 30) == start
    assert slots.visible_at(start, 25, 60, None) == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    assert slots.visible_at(start, 31, 60, None) == datetime(2030, 1, 1, 0, 2, tzinfo=UTC)
    for seconds in (0, 5, 30):  # however long it took
        ended = start + timedelta(seconds=seconds)
        assert slots.visible_at(start, 25, 60, ended) == datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    late = slots.visible_at(start, 25, 60, start + timedelta(seconds=31))
    assert late == datetime(2030, 1, 1, 0, 2, tzinfo=UTC)
    assert slots.work_seconds("nearest", 10**6, 10) > slots.work_seconds("private-summary", 10**6, 10) > 1


def test_an_overrun_moves_to_the_next_slot_and_is_told_to_the_owner(make, clock):
    desk = make(approvers=0, work={"slot_seconds": 60.0})
    view = desk.ask(ADA, asked(desk, "a"), "k")
    clock.here += timedelta(seconds=61)
    assert desk.request(ADA, view.id).visible_at == "2030-01-01T00:02:00+00:00"
    compute(desk)
    assert desk.request(ADA, view.id).state == "approved"
    assert desk.request(ADA, view.id).overran is None
    clock.here += timedelta(seconds=59)
    assert desk.request(ADA, view.id).state == "visible"
    assert desk.request(AUDITOR, view.id).overran is True


# Rehearsal and registration


def test_a_rehearsal_is_seeded_says_so_and_costs_nothing(make):
    desk = make()
    view = desk.ask(ADA, asked(desk, "a"), "k", submit=False)
    found = desk.rehearse(ADA, view.id)
    release = abcdp.Release.from_bytes(json.dumps(found.release).encode())
    assert release.seeded
    assert found.of.startswith("draw ")
    assert "protects nobody" in found.note
    assert desk.rehearsal(ADA, view.id) == found
    assert desk.request(ADA, view.id).rehearsed
    assert kinds(desk) == ["registered"]


def test_a_rehearsal_of_a_specimen_is_a_public_release(make, folder):
    desk = make()
    nearest = {"type": "nearest", "epsilon": 0.5, "accept": 3}
    view = desk.ask(ADA, asked(desk, "a", mechanism=nearest), "k")
    specimen = np.linspace(-1, 1, 50)[:, None]
    found = desk.rehearse(BOB, view.id, specimen.tolist())
    mechanism, seed = abcdp.Nearest(epsilon=0.5, accept=3), int(view.id[:8], 16)
    same = abcdp.public_release(folder / "bank", specimen, mechanism, unit=abcdp.Unit(), seed=seed)
    assert found.release == json.loads(same.to_bytes())
    with pytest.raises(isolation.ProgramError, match="column"):
        desk.rehearse(BOB, view.id, [[1.0, 2.0]])
    with pytest.raises(DataError, match="at most"):
        desk.rehearse(BOB, view.id, [[1.0] * 200_000])


def test_a_draw_that_plays_the_data_does_not_meet_itself(folder):
    from abcdp.planning.rehearsed import release_of_draw

    bank = abcdp.Bank(folder / "bank")
    made, row = release_of_draw(bank, abcdp.Nearest(epsilon=20_000.0, accept=5), unit=abcdp.Unit(), records=50, seed=3)
    assert made.seeded
    assert row not in made.accepted
    close = np.argsort(np.linalg.norm(bank.rows - bank.rows[row], axis=1), kind="stable")[1:6]
    assert set(made.accepted) == set(close.tolist())


def test_a_registration_reads_the_records_in_a_process_of_its_own(make, folder, tmp_path):
    desk = make()
    np.save(tmp_path / "more.npy", np.random.default_rng(5).normal(size=40))
    said = Registration(name="e", file=str(tmp_path / "more.npy"), unit="record", epsilon="2", missing="none")
    with pytest.raises(NotFound):
        desk.register(ADMIN, said)  # of the dataset d alone
    root = replace(ADMIN, datasets=("d", "e", "f"))
    assert desk.register(root, said) == []
    assert desk.ledger.dataset("e").epsilon == 2
    assert desk.ledger.history("e")[0].actor == "root"
    with pytest.raises(isolation.ProgramError, match="already registered"):
        desk.register(root, said)
    rows = np.random.default_rng(5).normal(size=40)
    rows[0] += 1
    np.save(tmp_path / "more.npy", rows)
    (note,) = desk.register(root, replace(said, name="f"))
    assert "people who are in both have two budgets" in note


def test_notes_are_of_ones_own_request():
    def elsewhere():
        warnings.warn("somebody else's bank", UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as others, desk_module._heard() as notes, ThreadPoolExecutor(1) as other:
        warnings.warn("one's own", UserWarning, stacklevel=1)
        other.submit(elsewhere).result()
    assert notes == ["one's own"]
    assert [str(one.message) for one in others] == ["somebody else's bank"]


def test_who_reads_a_strangers_bank_has_no_password(make, monkeypatch):
    desk, seen = make(), []
    view = desk.ask(ADA, asked(desk, "a"), "k")
    run = subprocess.run

    def watched(*given, env=None, **more):
        seen.append(env)
        return run(*given, env=env, **more)

    monkeypatch.setattr(isolation.subprocess, "run", watched)
    for name in ("ABCDP_LEDGER_PASSWORD", "PGPASSWORD", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "secret")
    desk.rehearse(ADA, view.id)
    (env,) = seen
    assert env is not None
    assert "secret" not in env.values()
    assert "ABCDP_KEYS" not in env


def test_a_bank_that_was_damaged_after_its_upload_costs_nothing(make, tmp_path):
    desk = make(approvers=0)
    bank = make_bank_of(tmp_path / "x", seed=1)
    for key in desk.banks.folder_of:
        desk.banks.folder_of[key] = bank
    view = desk.ask(ADA, asked(desk, "a"), "k")
    (shard,) = (bank / "shards").iterdir()
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    assert compute(desk) == ["refused: BankError"]
    assert "charged" not in kinds(desk)
    assert left(desk) == 1
    assert desk.ledger.progress(desk.documents.find(view.id).key).reason == worker.REFUSED
