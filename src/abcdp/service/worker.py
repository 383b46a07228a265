"""Computes approved requests: one at a time for each dataset, each in a process of its own with limits.

The process that computes holds its dataset's lock until it ends, even if the worker that began it dies. So whoever has
the lock and finds a request that is charged and has no result knows that its process is dead, and burns it: it is never
computed again. As a program this module registers a dataset, the other thing that needs private records.
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abcdp.errors import AbcdpError
from abcdp.ledger import Ledger, LedgerClosed, LedgerLocked, Progress
from abcdp.ledger.kinds import Kind
from abcdp.ledger.progress import WORKER
from abcdp.mechanisms.registry import mechanism_from_json
from abcdp.owner import register, release
from abcdp.privacy.unit import Unit
from abcdp.service import isolation
from abcdp.service.database import DocumentsError
from abcdp.service.desk import Desk
from abcdp.service.parts import Work

# The same words whatever the reason: some reasons depend on the records, and are for the owner alone.
REFUSED = "the owner's machine cannot answer this request; nothing was charged. Ask the owner."
BURNT = "the process that computed it died"
_TRIES = 3  # of a process that dies before it has charged
_LATER = (LedgerLocked, LedgerClosed, DocumentsError)  # what may pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """An approved request, and where its bank and its records lie."""

    progress: Progress
    bank: Path
    records: Path


class Worker:
    """Goes on where it, or another that died, has stopped; any number of them may run.

    `tell` is for the owner alone: it hears of refusals and failures, by the names of errors. A worker forks, so that
    its process must have no other threads.
    """

    def __init__(self, desk: Desk, *, tell: Callable[[str], None] = print) -> None:
        self._desk, self._ledger, self._work, self._tell = desk, desk.ledger, desk.work, tell
        self._tries: Counter[str] = Counter()

    def run(self, stop: Callable[[], bool] = lambda: False, pause: float = 0.5) -> None:
        """Compute what is due and end what has expired, again and again until told to stop."""
        while not stop():
            try:
                idle = not self.run_due()
                self._desk.expire_due()
            except _LATER as error:
                self._tell(f"waits: {type(error).__name__}")
                idle = True
            if idle:
                time.sleep(pause)

    def run_due(self, *, isolated: bool = True) -> int:
        """Compute what is due now, in processes of their own unless a test says otherwise; return how many ended."""
        ended = 0
        for dataset in self._waiting():
            while (job := self._job(dataset)) is not None or self._ledger.unfinished(dataset):
                before = self._ledger.approved(), self._ledger.unfinished(dataset)
                if isolated:
                    self._in_child(dataset, job)
                else:
                    tend(self._ledger, dataset, job, self._work, self._tell)
                if (self._ledger.approved(), self._ledger.unfinished(dataset)) == before:
                    break  # somebody else is at it, or it has to wait
                ended += 1
        return ended

    def _waiting(self) -> list[str]:
        due = [progress.dataset for progress in self._ledger.approved()]
        return list(dict.fromkeys([*due, *(charge.dataset for charge in self._ledger.unfinished())]))

    def _job(self, dataset: str) -> Job | None:
        """Return the request of a dataset that was approved first; what cannot even be found is refused."""
        for progress in self._ledger.approved():
            if progress.dataset != dataset:
                continue
            try:
                bank = self._desk.banks.folder(progress.actor, str(progress.request["bank"]))
                return Job(progress=progress, bank=bank, records=self._desk.records.file(dataset))
            except _LATER:
                raise
            except AbcdpError as error:
                self._refuse(progress, error)
        return None

    def _refuse(self, progress: Progress, error: AbcdpError) -> None:
        refuse(self._ledger, progress, error, self._tell)

    def _in_child(self, dataset: str, job: Job | None) -> None:
        """Tend a dataset in a process of its own; a request whose process died before its charge is tried again."""
        with warnings.catch_warnings():
            # threads of numerical libraries do nothing here, and the process has none of its own
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            code = 1
            try:
                isolation.set_limits(self._work.memory, self._work.seconds, self._ledger.file_bytes)
                tend(self._ledger, dataset, job, self._work, self._tell)
                code = 0
            except BaseException as error:
                self._tell(f"failed: {type(error).__name__}")
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        _reached("after the child")
        if job is None or status == 0:
            return
        progress = self._ledger.progress(job.progress.key)
        if progress is not None and progress.state == Kind.APPROVED:
            self._tries[progress.key] += 1
            if self._tries[progress.key] >= _TRIES:
                self._refuse(progress, isolation.ProgramError(f"its process died {_TRIES} times"))


def tend(ledger: Ledger, dataset: str, job: Job | None, work: Work, tell: Callable[[str], None]) -> None:
    """Burn what has died on a dataset, then compute one request, unless another process is at it."""
    with ledger.alone(dataset) as alone:
        if not alone:
            return
        _reached("with the lock")
        for charge in ledger.unfinished(dataset):
            ledger.burn(charge, reason=BURNT, actor=WORKER)
            tell("burnt")
            _reached("after burning")
        if job is not None:
            _compute(ledger, job, work, tell)


def _compute(ledger: Ledger, job: Job, work: Work, tell: Callable[[str], None]) -> None:
    """Release what was approved; whatever goes wrong is told to the owner by its name alone."""
    progress, asked = job.progress, job.progress.request
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were said when it was asked
            release(
                job.bank,
                job.records,
                mechanism_from_json(asked["mechanism"]),
                ledger=ledger,
                dataset=progress.dataset,
                request=asked["request"],
                noise=work.noise,
                memory=work.memory,
                purpose=progress.purpose,
                actor=WORKER,
                tops_up=asked.get("tops_up"),
                reservation=progress,
            )
    except _LATER as error:
        tell(f"waits: {type(error).__name__}")
    except AbcdpError as error:
        refuse(ledger, progress, error, tell)


def refuse(ledger: Ledger, progress: Progress, error: AbcdpError, tell: Callable[[str], None]) -> None:
    """End a request that cannot be answered, unless it was charged: then it is burnt, and stays so."""
    there = ledger.progress(progress.key)
    if there is not None and there.state == Kind.APPROVED:
        ledger.refuse(progress.key, reason=REFUSED)
    tell(f"refused: {type(error).__name__}")


def _register(values: dict[str, Any]) -> list[str]:
    """Register a dataset, in a process of its own; return what its owner is warned of."""
    said = dict(values)
    unit = said.pop("unit")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        register(
            said.pop("ledger"),
            said.pop("name"),
            said.pop("file"),
            unit=Unit.parse(unit) if isinstance(unit, str) else Unit.from_json(unit),
            **said,
        )
    return [str(one.message) for one in warned if issubclass(one.category, UserWarning | RuntimeWarning)]


def _reached(step: str) -> None:
    """Mark a step that a crash may follow; tests stop here."""


if __name__ == "__main__":
    isolation.serve(_register)
