"""What became of a draw. Anything but OK stays in the bank with its parameters and is never accepted."""

from __future__ import annotations

OK, RAISED, NOT_FINITE, TIMED_OUT, CRASHED, UNREADABLE = range(6)

STATUS_WORDS = {
    OK: "fine",
    RAISED: "simulator raised an error",
    NOT_FINITE: "simulator returned NaN or infinity",
    TIMED_OUT: "simulator exceeded its time limit",
    CRASHED: "simulator's process died or ended with an error code",
    UNREADABLE: "simulator's output was not the records asked for",
}


class DrawFailed(Exception):  # noqa: N818 - a result that travels as an exception, not a fault of the program
    """A draw that could not be simulated, and the status that says how."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(status, why)
        self.status = status
        self.why = why

    def __str__(self) -> str:
        return self.why
