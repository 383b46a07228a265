"""All figures on one page that stands alone: pictures, paragraphs, claims with their evidence, deviations."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from abcdp._common.files import write_atomically
from abcdp._common.version import __version__
from abcdp.paper.common import Made


def write_page(made: Sequence[Made], path: Path) -> Path:
    """Write the page of these experiments, and return its path."""
    from jinja2 import Environment, PackageLoader, select_autoescape

    environment = Environment(
        loader=PackageLoader("abcdp.reporting", "templates"), autoescape=select_autoescape(["html"])
    )
    environment.filters["embedded"] = _data_url
    claims = [claim for one in made for claim in one.claims]
    page = environment.get_template("paper.html").render(
        made=made,
        version=__version__,
        claims=len(claims),
        holding=sum(claim.holds for claim in claims),
        failing=[(one, claim) for one in made for claim in one.claims if not claim.holds],
        surprises=sum(claim.surprising for claim in claims),
        full=all(one.full for one in made),
    )
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    return path


def _data_url(png: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(png.read_bytes()).decode()
