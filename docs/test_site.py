"""The site of `make docs` in a real browser: nothing is cut, pictures show, nobody else is asked, the search finds.

``SHOTS=folder`` keeps pictures of all pages, to be looked at.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

SITE = Path(__file__).parent.parent / "site" / "html"
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if path.name not in ("search.html", "genindex.html", "py-modindex.html")
    and not path.relative_to(SITE).as_posix().startswith("_")
)
# what is wider than the window and does not scroll by itself, and pictures that did not load
FAULTS = """() => {
  const wide = document.documentElement.scrollWidth - window.innerWidth;
  const images = [...document.images].filter(i => i.offsetParent && !i.naturalWidth).map(i => i.src);
  const scrolls = e => { for (let p = e; p && p !== document.body; p = p.parentElement)
    if (['auto', 'scroll', 'hidden'].includes(getComputedStyle(p).overflowX)) return true; return false; };
  const cut = [...document.querySelectorAll('article *')].filter(e => {
    const box = e.getBoundingClientRect();
    return box.width > 0 && box.right > window.innerWidth + 1 && !scrolls(e);
  }).map(e => e.tagName + ': ' + e.textContent.slice(0, 60));
  return [...(wide > 0 ? [`the page is ${wide} px too wide`] : []), ...images, ...cut];
}"""


@pytest.fixture(scope="module")
def browser():
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    quiet = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=executable, args=quiet)
        yield opened
        opened.close()


def visit(browser, width):
    """Return a page of this width, what it asked of others, and what it complained about."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: said.append(str(error)))
    return page, asked, said


def test_there_is_a_site():
    assert "index.html" in PAGES
    assert len(PAGES) > 20


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_show_whole(browser, width):
    page, asked, said = visit(browser, width)
    wrong = {}
    for name in PAGES:
        page.goto((SITE / name).as_uri())
        if faults := page.evaluate(FAULTS):
            wrong[name] = faults[:5]
        if shots := os.environ.get("SHOTS"):
            page.screenshot(path=f"{shots}/{width}-{name.replace('/', '-')}.png", full_page=True)
    page.close()
    assert wrong == {}
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []  # it stands alone


@pytest.mark.parametrize("width", [1280, 390])
def test_the_search_finds(browser, width):
    page, asked, _ = visit(browser, width)
    page.goto((SITE / "search.html").as_uri() + "?q=sensitivity")
    page.wait_for_selector("#search-results li a")
    found = page.locator("#search-results li a").all_inner_texts()
    page.goto((SITE / "search.html").as_uri() + "?q=xyzzyplugh")
    page.wait_for_function("document.querySelector('#search-results .search-summary, #search-results p')?.innerText")
    assert page.locator("#search-results li a").count() == 0
    page.close()
    assert len(found) > 3
    assert [url for url in asked if not url.startswith("file:")] == []
