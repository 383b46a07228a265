"""What the desk keeps beside the ledger: the texts of requests, what was asked back, rehearsals. Never a state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from abcdp.service.database import DocumentsError

METADATA = sa.MetaData()


def _text(name: str, **how: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=False, **how)


def _word(name: str, **how: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.String(200), nullable=False, **how)


_requests = sa.Table(
    "service_requests", METADATA,
    _word("id", primary_key=True), _word("account", index=True), _word("dataset", index=True),
    _word("key", unique=True),
    _text("asked"), _text("price"), _text("reason"), _word("made", index=True),
)  # fmt: skip
_idempotency = sa.Table(
    "service_idempotency", METADATA,
    _word("account", primary_key=True), _word("word", primary_key=True), _word("body"), _word("request"),
)  # fmt: skip
_texts = sa.Table(
    "service_texts", METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    _word("request", index=True), _word("kind"), _word("account"), _word("time"), _text("text"),
)  # fmt: skip
_rehearsals = sa.Table("service_rehearsals", METADATA, _word("request", primary_key=True), _text("content"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What was asked, by whom, under which key of the ledger, what it would cost, and why it is still a draft."""

    id: str
    account: str
    dataset: str
    key: str
    asked: Mapping[str, Any]
    price: Mapping[str, Any]
    reason: str
    made: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A question of an approver or the answer to it."""

    kind: str
    account: str
    time: str
    text: str


class Documents:
    """The tables of the desk in the service's database; they are made from `METADATA`."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        self._writer = engine.execution_options(abcdp_writes=True)  # an engine may take a lock at the start for it

    def add(self, document: Document, idempotency: str, body: str) -> bool:
        """Keep a new request under an idempotency key; False, and nothing is kept, where one of its keys is taken."""
        row = {
            "id": document.id, "account": document.account, "dataset": document.dataset, "key": document.key,
            "asked": json.dumps(document.asked), "price": json.dumps(document.price), "reason": document.reason,
            "made": document.made,
        }  # fmt: skip
        word = {"account": document.account, "word": idempotency, "body": body, "request": document.id}
        try:
            with self._writing() as connection:
                connection.execute(_requests.insert().values(row))
                connection.execute(_idempotency.insert().values(word))
        except sa.exc.IntegrityError:
            return False
        return True

    def remember(self, account: str, idempotency: str, body: str, request: str) -> None:
        """Keep that a further idempotency key stands for a request, unless it stands for one already."""
        word = {"account": account, "word": idempotency, "body": body, "request": request}
        try:
            with self._writing() as connection:
                connection.execute(_idempotency.insert().values(word))
        except sa.exc.IntegrityError:
            pass

    def remembered(self, account: str, idempotency: str) -> tuple[str, str] | None:
        """Return the body and the request that an idempotency key stands for."""
        query = sa.select(_idempotency.c.body, _idempotency.c.request).where(
            _idempotency.c.account == account, _idempotency.c.word == idempotency
        )
        with self._reading() as connection:
            row = connection.execute(query).first()
        return None if row is None else (row.body, row.request)

    def give_reason(self, id: str, reason: str) -> None:
        """Keep why a request is still a draft."""
        with self._writing() as connection:
            connection.execute(_requests.update().where(_requests.c.id == id).values(reason=reason))

    def find(self, id: str) -> Document | None:
        """Return a request by its id."""
        return self._one(_requests.c.id == id)

    def by_key(self, key: str) -> Document | None:
        """Return a request by its key in the ledger."""
        return self._one(_requests.c.key == key)

    def newest(self, account: str, keys: Sequence[str], most: int) -> list[Document]:
        """Return the newest requests of an account, or under some keys of the ledger."""
        mine = sa.or_(_requests.c.account == account, _requests.c.key.in_(keys))
        query = _requests.select().where(mine).order_by(_requests.c.made.desc(), _requests.c.id).limit(most)
        with self._reading() as connection:
            return [_document(row) for row in connection.execute(query)]

    def made_since(self, account: str, time: str) -> int:
        """Return how many requests of an account were made since a time, drafts too."""
        query = sa.select(sa.func.count()).where(_requests.c.account == account, _requests.c.made > time)
        with self._reading() as connection:
            return int(connection.execute(query).scalar_one())

    def say(self, request: str, text: Text) -> None:
        """Keep a question or an answer."""
        row = {"request": request, "kind": text.kind, "account": text.account, "time": text.time, "text": text.text}
        with self._writing() as connection:
            connection.execute(_texts.insert().values(row))

    def said(self, request: str) -> list[Text]:
        """Return questions and answers, in their order."""
        query = _texts.select().where(_texts.c.request == request).order_by(_texts.c.number)
        with self._reading() as connection:
            rows = connection.execute(query).all()
        return [Text(kind=row.kind, account=row.account, time=row.time, text=row.text) for row in rows]

    def keep_rehearsal(self, request: str, content: Mapping[str, Any]) -> None:
        """Keep the last rehearsal of a request."""
        with self._writing() as connection:
            connection.execute(_rehearsals.delete().where(_rehearsals.c.request == request))
            connection.execute(_rehearsals.insert().values(request=request, content=json.dumps(content)))

    def rehearsed(self, request: str) -> bool:
        """Return whether a request was ever rehearsed."""
        query = sa.select(_rehearsals.c.request).where(_rehearsals.c.request == request)
        with self._reading() as connection:
            return connection.execute(query).first() is not None

    def rehearsal(self, request: str) -> dict[str, Any] | None:
        """Return the last rehearsal of a request."""
        query = sa.select(_rehearsals.c.content).where(_rehearsals.c.request == request)
        with self._reading() as connection:
            content = connection.execute(query).scalar()
        return None if content is None else dict(json.loads(content))

    def _one(self, condition: sa.ColumnElement[bool]) -> Document | None:
        with self._reading() as connection:
            row = connection.execute(_requests.select().where(condition)).first()
        return None if row is None else _document(row)

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with _own_errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with _own_errors(), self._writer.begin() as connection:
            yield connection


@contextmanager
def _own_errors() -> Iterator[None]:
    try:
        yield
    except sa.exc.IntegrityError:
        raise
    except sa.exc.DBAPIError as error:  # whose words may quote a connection with its password
        raise DocumentsError(
            f"the service's database cannot be used ({type(error.orig).__name__}); see that it runs and has room."
        ) from None


def _document(row: Any) -> Document:
    return Document(
        id=row.id,
        account=row.account,
        dataset=row.dataset,
        key=row.key,
        asked=json.loads(row.asked),
        price=json.loads(row.price),
        reason=row.reason,
        made=row.made,
    )
