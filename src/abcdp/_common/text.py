"""Text of strangers, shown so that it cannot act: on a terminal, in a message, on a page."""

from __future__ import annotations


def harmless(text: str) -> str:
    r"""Return a text with every character that is not printable written out.

    Escape sequences move a terminal's cursor, controls of direction reorder a line, a line break forges a line, and
    half a surrogate pair cannot be encoded at all.

    Examples
    --------
    >>> print(harmless("clinic\x1b[2J"))
    clinic\x1b[2J
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless_lines(text: str) -> str:
    """Return a text of several lines, each harmless; those after the first are indented, so that none is forged."""
    return "\n    ".join(map(harmless, text.splitlines()))
