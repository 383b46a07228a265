"""What the desk refuses, by name. Words depend on public facts, and on what whoever asks may know."""

from __future__ import annotations

from abcdp.errors import AbcdpError


class NotFound(AbcdpError):  # noqa: N818 - the name says it
    """There is no such thing, as far as whoever asks may know."""

    def __init__(self, what: str = "there is no such request here, or it is not open to you.") -> None:
        super().__init__(what)


class Forbidden(NotFound):
    """It is there, and not theirs: said in the same words as that it is not there."""


class Conflict(AbcdpError):  # noqa: N818
    """What is asked does not go with what was asked before, or with where the request stands."""
