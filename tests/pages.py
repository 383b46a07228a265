"""Pages in a real browser: whether they fit their window, ask for nothing outside, and can be read by everybody."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

WINDOWS = [(1280, 900), (390, 844)]
SCHEMES = ["light", "dark"]
_QUIET = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@contextmanager
def a_browser() -> Iterator[Any]:
    """Yield a real browser."""
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=_QUIET)
        yield browser
        browser.close()


def serious_faults(page: Any) -> list[str]:
    """Return what axe calls serious or worse."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found if one["impact"] in ("serious", "critical")]


def width_of(page: Any) -> int:
    """Return how wide a page is."""
    return int(page.evaluate("document.documentElement.scrollWidth"))


def keep_picture(page: Any, folder: Path, name: str) -> None:
    """Keep a picture of a page: in the folder of the test, or where ABCDP_ARTIFACTS says."""
    place = Path(os.environ.get("ABCDP_ARTIFACTS") or folder)
    place.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=place / f"{name}.png", full_page=True)


def look_at(browser: Any, address: str, folder: Path, name: str) -> None:
    """See a page in every window and scheme: it fits, asks for nothing outside, and has no serious fault."""
    for width, height in WINDOWS:
        for scheme in SCHEMES:
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            asked: list[str] = []
            page.on("request", lambda request, asked=asked: asked.append(request.url))
            page.goto(address)
            assert width_of(page) <= width
            assert serious_faults(page) == []
            assert [url for url in asked if not url.startswith(("file:", "data:"))] == []  # it stands alone
            keep_picture(page, folder, f"{name}-{width}-{scheme}")
            page.close()
