"""Pages as notebooks: `python docs/notebooks.py FOLDER` writes the tutorials as files for Jupyter."""

from __future__ import annotations

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
_BLOCK = re.compile(r"^```python$", re.MULTILINE)


def notebook_of(text: str) -> str:
    """Return a page whose blocks of Python are cells that run; a page without any stays as it is.

    >>> print(notebook_of("Words."))
    Words.
    """
    if not _BLOCK.search(text):
        return text
    head = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n  display_name: Python 3\n---\n"
    return head + _BLOCK.sub("```{code-cell} python", text)


def write(folder: Path) -> list[Path]:
    """Write every tutorial as a notebook without outputs; return the files."""
    import nbformat
    from myst_nb.core.read import read_myst_markdown_notebook

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for page in sorted(HERE.glob("tutorials/*.md")):
        made = folder / f"{page.stem}.ipynb"
        notebook = read_myst_markdown_notebook(notebook_of(page.read_text(encoding="utf-8")), path=page)
        nbformat.write(notebook, made)
        written.append(made)
    return written


if __name__ == "__main__":
    for made in write(Path(sys.argv[1])):
        print(made)
