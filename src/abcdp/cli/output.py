"""How commands print: a table for people, one JSON object for machines, one line for what went wrong.

Whatever is printed passes here. Text of strangers is shown harmless, and no secret of a URL on the command line is
repeated, whoever repeats it.
"""

from __future__ import annotations

import io
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from abcdp._common.storage import secrets_in, shown
from abcdp._common.text import harmless, harmless_lines
from abcdp.errors import AbcdpError, StorageError

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]

Memory = Annotated[
    int, typer.Option(min=1, help="MiB that reading the bank may take, whatever it declares; a larger one is refused.")
]
WRONG, BUG, STOPPED = 2, 3, 130
_LONGEST = 400  # letters of a list of numbers that people are shown: the weights of a network fill many pages


class Lines(tuple[str, ...]):
    """A value of several lines."""

    __slots__ = ()


def show(values: Mapping[str, Any], as_json: bool) -> None:
    """Print named values, one a line, or as JSON."""
    if as_json:
        typer.echo(without_secrets(json.dumps(values, indent=1)))
        return
    width = max(len(name) for name in values)
    for name, value in values.items():
        say(f"{harmless(name.replace('_', ' ')):<{width}}  {_text(value)}")


def say(line: str, err: bool = False) -> None:
    """Print text for people, of which each line is harmless already or made so."""
    typer.echo(without_secrets("\n".join(map(harmless, line.split("\n")))), err=err)


def _text(value: Any) -> str:
    if isinstance(value, Lines):
        return "\n    ".join(map(harmless, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{harmless(str(k))}={_text(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list | tuple):
        if value and isinstance(value[0], str):
            return harmless(", ".join(map(_text, value)))
        text = str(value)
        return harmless(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ... (all of it with --json)")
    return harmless(str(value))


def without_secrets(text: str) -> str:
    """Return a text in which no URL of the command line has its secrets."""
    for word in sys.argv[1:]:
        place = re.sub(r"^--?[\w-]+=(?=.*://)", "", word)
        if "://" not in place:
            continue
        for written in (place, repr(place)[1:-1], json.dumps(place)[1:-1]):
            text = text.replace(written, shown(place))
        for secret in sorted(secrets_in(place), key=len, reverse=True):
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", "***", text)
    return text


def show_error(error: BaseException) -> int:
    """Print an error for people, and return the exit code."""
    if hasattr(error, "format_message") and hasattr(error, "show"):  # typer's own: how the command was written
        page = io.StringIO()
        error.show(file=page)
        say(page.getvalue().rstrip("\n"), err=True)
        return WRONG
    text, code = _message_and_code(error)
    notes = [note for one in (error, error.__cause__) for note in getattr(one, "__notes__", ())]
    typer.echo(without_secrets(harmless_lines("\n".join([text, *notes]))), err=True)
    return code


def _message_and_code(error: BaseException) -> tuple[str, int]:
    """Return what to say of an error, and the exit code."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "abcdp: stopped.", STOPPED
    if isinstance(error, AbcdpError):
        return f"abcdp: {error}", WRONG
    if isinstance(error, MemoryError):
        return "abcdp: there is not enough memory for this.", WRONG
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):  # none says what was read
        return "abcdp: a file that was given is not JSON, or not in UTF-8, or nested too deeply.", WRONG
    if isinstance(error, OSError):
        place = f"{error.filename}: " if isinstance(error.filename, str) else ""
        return f"abcdp: {place}{error.strerror or type(error).__name__}.", WRONG
    # only its type and its place: what it says may hold a private value
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" at {Path(frame[0].filename).name}:{frame[0].lineno}" if frame else ""
    return f"abcdp has a bug: {type(error).__name__}{place}; please report it with the command that you gave.", BUG


@contextmanager
def needing(extra: str) -> Iterator[None]:
    """Say which libraries are missing, and how to get them, where an import finds none."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise StorageError(f"this needs {error.name}, which is not installed: pip install 'abcdp[{extra}]'") from None


def warning_printer() -> Callable[..., None]:
    """Return what prints warnings for people, each once, in the place of :func:`warnings.showwarning`."""
    said: set[str] = set()

    def show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in said:
            said.add(str(message))
            typer.echo(without_secrets(harmless_lines(f"warning: {message}")), err=True)

    return show_warning
