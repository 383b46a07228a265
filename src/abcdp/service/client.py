"""The modeler's side of an owner's server: send a bank, ask, wait, and have a release. Nothing here is private."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from abcdp._common.progress import progress as progress_bar
from abcdp.bank import Bank
from abcdp.errors import MechanismError, ReleaseError, ServerError
from abcdp.mechanisms import Mechanism
from abcdp.planning.plan import Plan
from abcdp.releases.release import Release
from abcdp.service.connection import Connection, found_key
from abcdp.service.sending import send

if TYPE_CHECKING:
    from abcdp.service.many import Many

_STEPS = ("draft", "submitted", "approved", "visible")
ENDS = ("visible", "burnt", "refused", "withdrawn", "expired")
_LOOKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # seconds between looks at a request, the last for ever
_SAID = {
    "draft": "is a draft: submit it",
    "submitted": "waits for the owner's approval",
    "approved": "is approved and being computed",
    "burnt": "was charged, but its computation failed: it has no result. Fresh noise needs a request of another name",
}


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it stood when the server was asked: `values` is all that the server said of it.

    What came of it, once it is visible, is `release`.
    """

    client: Client
    values: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Its name on the server, which nobody can guess."""
        return str(self.values["id"])

    @property
    def state(self) -> str:
        """Where it stands: draft, submitted, approved, visible; or refused, withdrawn, expired, burnt."""
        return str(self.values["state"])

    @property
    def ended(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.state in ENDS

    @property
    def release(self) -> Release:
        """The release that answers it, fetched from the server."""
        return self.client.result(self)

    def describe(self) -> str:
        """Return where it stands, in words."""
        reason = self.values.get("reason")
        said = _SAID.get(self.state, f"is {self.state}")
        said = "stays a draft" if reason and self.state == "draft" else said
        return f"request {self.id} of dataset {self.values.get('dataset')!r} {said}{f': {reason}' if reason else '.'}"

    def __repr__(self) -> str:
        return f"Request({self.id!r}, {self.state!r})"


class Client:
    """An owner's server, as a modeler reaches it.

    Parameters
    ----------
    url
        Where it is, such as ``https://data.example.org``. Without TLS a key is sent to this machine alone.
    key, key_file
        The key that the owner made for you, or a file with it that nobody else may read (mode 0600). By default the
        environment variable ``ABCDP_KEY``. It is never shown.
    verify
        The file of certificates that the server's is checked against, where an authority of your own signed it.

    Whatever is lost on the way is sent again: a bank goes on where it stopped, and the same request is never asked
    twice, since its content names it. What the server refuses is a :class:`abcdp.errors.ServerError` in its words.

    Needs httpx: ``pip install 'abcdp[client]'``.
    """

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        key_file: str | os.PathLike[str] | None = None,
        verify: bool | str | os.PathLike[str] = True,
    ) -> None:
        self._server = Connection(url, found_key(key, key_file), verify)
        self.url = self._server.url

    def __repr__(self) -> str:
        return f"Client({self._server.name!r})"

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the server; nothing that was asked stops."""
        self._server.close()

    @staticmethod
    def many(places: Sequence[tuple[Client, str]]) -> Many:
        """Return several datasets of several owners, to be asked the same and to be pooled: (client, dataset) each."""
        from abcdp.service.many import Many

        return Many(places)

    def me(self) -> dict[str, Any]:
        """Return whose key this is, and what it may do."""
        return dict(self._server.get("me"))

    def datasets(self) -> list[dict[str, Any]]:
        """Return the public descriptions of the datasets that are open to you."""
        return list(_listed(self._server.get("datasets"), "datasets"))

    def dataset(self, name: str) -> dict[str, Any]:
        """Return the public description of a dataset: its columns, unit, rules and what is left of its budget."""
        return dict(self._server.get("datasets", name))

    def upload(self, bank: Bank | str | os.PathLike[str], *, progress: bool | None = None) -> str:
        """Send a bank, or what the server does not have of it, and return its digest once the server has checked it."""
        return send(self._server, bank if isinstance(bank, Bank) else Bank(bank), progress)

    def ask(
        self,
        dataset: str,
        bank: Bank | str | os.PathLike[str],
        mechanism: Mechanism | Plan,
        *,
        request: str = "",
        purpose: str,
        tops_up: Release | str | None = None,
        draft: bool = False,
        wait: bool = True,
        progress: bool | None = None,
    ) -> Request:
        """Ask for a release, and return the request as it stands: at its end, if `wait`.

        Parameters
        ----------
        dataset, bank, mechanism
            What to answer, with which bank (which is sent, if the server does not have it) and how. Of a plan, the
            mechanism that it chose, with the bank that it is for.
        request
            Names the request. The same one again is the same request, which returns the same bytes and costs nothing;
            fresh noise needs a new name and is a new charge.
        purpose
            Why; whoever approves it reads this.
        tops_up
            An earlier release of that server, or its digest, that this one replaces with less noise.
        draft
            Whether to leave it with the server without asking for approval, to be rehearsed; :meth:`submit` does.
        """
        plan = mechanism if isinstance(mechanism, Plan) else None
        bank = bank if isinstance(bank, Bank) else Bank(bank)
        if plan is not None:
            bank, mechanism = plan.bank_from(bank), plan.mechanism
        if not isinstance(mechanism, Mechanism):
            raise MechanismError(f"mechanism={mechanism!r}: give a mechanism of abcdp, or a plan.")
        body: dict[str, Any] = {
            "dataset": dataset,
            "bank": self.upload(bank, progress=progress),
            "mechanism": mechanism.to_json(),
            "request": request,
            "purpose": purpose,
            "draft": draft,
        }
        if plan is not None:
            body["plan"] = plan.to_json()
        if tops_up is not None:
            body["tops_up"] = tops_up.digest if isinstance(tops_up, Release) else tops_up
        asked = Request(self, self._server.post("requests", body=body, key=_named(body)))
        return self.wait(asked, progress=progress) if wait else asked

    def requests(self) -> list[Request]:
        """Return your requests as they stand."""
        return [Request(self, values) for values in _listed(self._server.get("requests"), "requests")]

    def request(self, request: Request | str) -> Request:
        """Return a request as it stands."""
        return Request(self, self._server.get("requests", _id(request)))

    def submit(self, request: Request | str) -> Request:
        """Ask for the approval of a draft: its price is held from then on."""
        return self._moved(request, "submit", ("submitted", "approved", "visible"))

    def withdraw(self, request: Request | str) -> Request:
        """Take a request back that has not been charged: what was held for it is free again."""
        return self._moved(request, "withdraw", ("withdrawn",))

    def answer(self, request: Request | str, text: str) -> Request:
        """Answer what an approver asked back."""
        return Request(self, self._server.post("requests", _id(request), "answer", body={"text": text}))

    def rehearse(self, request: Request | str, specimen: Sequence[Any] | None = None) -> dict[str, Any]:
        """Return a specimen of what would leave, made by the server from public data with seeded noise, at no cost.

        By default a simulation of the bank plays the observed data; `specimen` is a made-up table instead.
        """
        body = {} if specimen is None else {"specimen": [list(row) for row in specimen]}
        return dict(self._server.post("requests", _id(request), "rehearsal", body=body))

    def wait(self, request: Request | str, *, timeout: float | None = None, progress: bool | None = None) -> Request:
        """Return a request at its end, or as it stands after so many seconds; a draft, which waits for you, at once."""
        end = None if timeout is None else time.monotonic() + timeout
        looks, reached = iter(_LOOKS), 0
        with progress_bar(f"request {_id(request)[:8]}", len(_STEPS) - 1, progress) as advance:
            while True:
                found = self.request(request)
                step = len(_STEPS) - 1 if found.ended else _STEPS.index(found.state) if found.state in _STEPS else 2
                advance(step - reached, f"request {found.id[:8]}: {found.state}")
                reached = step
                if found.ended or found.state == "draft":
                    return found
                pause = next(looks, _LOOKS[-1])
                if end is not None and time.monotonic() + pause > end:
                    return found
                time.sleep(pause)

    def result(self, request: Request | str) -> Release:
        """Return the release that answers a request; what is saved of it has the bytes that the server stored."""
        asked = self.request(request)
        if asked.state != "visible":
            raise ServerError(f"{asked.describe()} There is no release.", code=asked.state)
        content = self._server.content("requests", asked.id, "result")
        release = Release.from_bytes(content)
        if release.to_bytes() != content:
            raise ReleaseError("the release is written in a way that this version does not write; update abcdp.")
        said = (release.dataset, release.bank.digest, release.mechanism.to_json(), release.request, release.tops_up)
        wanted = tuple(asked.values.get(name) for name in ("dataset", "bank", "mechanism", "request", "tops_up"))
        if json.dumps(said, sort_keys=True) != json.dumps(wanted, sort_keys=True):
            raise ReleaseError(f"the server's release does not answer request {asked.id}: tell the owner.")
        return release

    def _moved(self, request: Request | str, verb: str, reached: Sequence[str]) -> Request:
        """Move a request on; that a lost answer had moved it already is no fault."""
        try:
            return Request(self, self._server.post("requests", _id(request), verb))
        except ServerError as error:
            if error.status == 409 and (found := self.request(request)).state in reached:
                return found
            raise


def _named(body: Mapping[str, Any]) -> str:
    """Return the key of a request, made of its content: the same content again is the same request."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _id(request: Request | str) -> str:
    return request.id if isinstance(request, Request) else request


def _listed(values: Any, name: str) -> Any:
    """Return a list that stands alone or under its name."""
    return values[name] if isinstance(values, Mapping) else values
