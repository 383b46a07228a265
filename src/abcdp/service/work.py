"""The program that computes approved requests: ``python -m abcdp.service.work --config owner.toml``."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from typing import Any

from abcdp.service.logs import LOG, set_up
from abcdp.service.office import open_office
from abcdp.service.settings import load
from abcdp.service.worker import Worker


def main() -> None:
    """Work until told to stop; a release that has begun is ended first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--parent", type=int, help="end when this process, which started it, has ended")
    given = parser.parse_args()
    settings = load(given.config)
    set_up()
    stop = threading.Event()

    def end(*_: Any) -> None:
        stop.set()

    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, end)
    office = open_office(settings, forks=True)
    LOG.info("worker begins")
    worker = Worker(office.desk, tell=lambda state: LOG.info("worker", extra={"state": state}))
    worker.run(lambda: stop.is_set() or given.parent not in (None, os.getppid()))


if __name__ == "__main__":
    main()
