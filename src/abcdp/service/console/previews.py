"""What pages take long to make, made once: specimens of requests and posteriors of releases.

Banks are strangers': both are made in a process of its own, with the limits of a release. As a program this makes one.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from abcdp.planning.specimen import Specimen
from abcdp.service import isolation
from abcdp.service.parts import Work

_FILE_BYTES = 1 << 20  # it writes no file
_MOST = 64
_SECONDS = 120.0  # that a page is waited for, at most


class Kept:
    """The last few things that were made, each by its name; what is being made is waited for, not made twice."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._found: OrderedDict[str, Future[Any]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what has a name, made now where it was not; what could not be made is tried again the next time."""
        with self._lock:
            found = self._found.get(name)
            coming = found or Future()
            self._found[name] = coming
            self._found.move_to_end(name)
            if len(self._found) > self._most:
                self._found.popitem(last=False)
        if found is None:
            try:
                coming.set_result(make())
            except BaseException as error:
                coming.set_exception(error)
                with self._lock:
                    self._found.pop(name, None)
        return coming.result()


_SPECIMENS, _ANSWERS = Kept(), Kept()


def specimen_of(bank: Any, mechanism: Any, unit: Any, records: int | None, name: str, work: Work) -> Specimen:
    """Return the specimen of a request, always the same."""
    values = {
        "what": "specimen",
        "bank": str(bank),
        "mechanism": mechanism,
        "unit": unit.to_json(),
        "records": records,
        "seed": int(name[:8], 16),
    }
    made = _SPECIMENS.get(f"{name} {records} {json.dumps(values, sort_keys=True)}", lambda: _call(values, work))
    return Specimen.from_json(made)


def answer_of(bank: Any, release: Any, work: Work) -> dict[str, Any]:
    """Return what is inferred from a release: tables and pictures, as the report shows them."""
    values = {"what": "answer", "bank": str(bank), "release": release.to_json()}
    found: dict[str, Any] = _ANSWERS.get(release.digest, lambda: _call(values, work))
    return found


def _call(values: dict[str, Any], work: Work) -> Any:
    return isolation.call(
        "abcdp.service.console.previews",
        values,
        memory=work.memory,
        seconds=min(work.seconds, _SECONDS),
        file_bytes=_FILE_BYTES,
    )


def _made(values: dict[str, Any]) -> Any:
    """Return what is asked for, in the process that makes it."""
    from abcdp.bank import Bank

    bank = Bank(values["bank"])
    if values["what"] == "answer":
        from abcdp.releases.release import Release
        from abcdp.reporting.report import answer_values

        return answer_values(Release.from_json(values["release"]), bank, None, None)
    from abcdp.mechanisms.registry import mechanism_from_json
    from abcdp.planning.specimen import specimen
    from abcdp.privacy.unit import Unit

    mechanism, unit = mechanism_from_json(values["mechanism"]), Unit.from_json(values["unit"])
    return specimen(bank, mechanism, unit=unit, records=values["records"], seed=values["seed"]).to_json()


if __name__ == "__main__":
    isolation.serve(_made)
