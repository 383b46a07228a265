"""How things show themselves in a notebook: small tables of public words, in which no text of a stranger acts."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from abcdp._common.text import harmless


def in_notebook() -> bool:
    """Whether a cell of a notebook runs: its shell is then among the built-ins."""
    shell = getattr(builtins, "get_ipython", None)
    return shell is not None and hasattr(shell(), "kernel")


def safe(value: object) -> str:
    """Return a value as text of a page.

    Examples
    --------
    >>> safe("<b>clinic</b>")
    '&lt;b&gt;clinic&lt;/b&gt;'
    """
    return escape(harmless(str(value)))


def card(title: str, rows: Mapping[str, object], below: Sequence[str] = ()) -> str:
    """Return a title, a table of names and values, and sentences below it, as HTML."""
    cells = "".join(
        f'<tr><th style="text-align: left">{safe(name)}</th><td style="text-align: left">{safe(value)}</td></tr>'
        for name, value in rows.items()
    )
    said = "".join(f"<p>{safe(line)}</p>" for line in below)
    return f"<div><strong>{safe(title)}</strong><table>{cells}</table>{said}</div>"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a title and a table with a head, as HTML."""
    top = "".join(f"<th>{safe(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{safe(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<div><strong>{safe(title)}</strong><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
