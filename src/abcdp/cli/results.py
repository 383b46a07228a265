"""Where results go, tried before anything is charged or computed for long."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from abcdp._common.files import check_folder, check_place, write_atomically
from abcdp._common.storage import is_url
from abcdp.errors import StorageError

PICTURE_SIZE = 2 << 20
PAGE_SIZE = 8 << 20


def check_results(
    sizes: Mapping[Path | None, int], *, pictures: Sequence[Path | None] = (), folder: str | None = None
) -> None:
    """Raise unless each file, of about so many bytes, can be put in its place, and files into the folder.

    None is what was not asked for. A store behind a URL is asked when it is opened.
    """
    for path, size in sizes.items():
        if path is not None:
            check_place(path, size)
    for path in pictures:
        if path is not None:
            _check_picture(path)
    if folder is not None and not is_url(folder):
        check_folder(Path(folder))


def _check_picture(path: Path) -> None:
    from abcdp.reporting.plots import picture_formats

    if path.suffix[1:].lower() not in picture_formats():
        raise StorageError(f"{path}: the ending of a picture is its format; use .png, .pdf or .svg.")


def save_by(write: Callable[[Path], object], path: Path) -> None:
    """Let `write`, which goes by the ending of a name, make a file elsewhere, and put it in its place in one step."""
    with tempfile.TemporaryDirectory(prefix="abcdp-") as folder:
        made = Path(folder) / f"made{path.suffix}"
        write(made)
        write_atomically(path, lambda temporary: temporary.write_bytes(made.read_bytes()))
