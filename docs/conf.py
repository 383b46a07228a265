"""How the pages become a site: `make docs`. Every block of Python on a page runs while it is built.

Nothing is fetched from elsewhere, while building or while reading: formulas are MathML, which browsers draw themselves,
and the search is a file beside the pages.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).parent))

import abcdp
from notebooks import notebook_of

project, author, release = "abcdp", "the authors of abcdp", abcdp.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_site"]
root_doc = "index"
language = "en"
smartquotes = False  # options have two hyphens
default_role = "literal"  # docstrings write names in single backticks
highlight_language = "text"  # a block without a language is a command, a file or a formula
numfig = True

html_theme = "furo"
html_title = f"abcdp {release}"
html_static_path = ["_site"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_in_temp = True  # pages write banks and ledgers
nb_execution_show_tb = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_number_source_lines = False

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True


_COMMANDS = "<!-- commands -->"


def _read(app: Sphinx, page: str, source: list[str]) -> None:
    if _COMMANDS in source[0]:
        source[0] = source[0].replace(_COMMANDS, commands())
    source[0] = notebook_of(source[0])


def _end_parameters(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Set a paragraph that follows the parameters of a docstring apart: two empty lines end their section."""
    for number in range(len(lines) - 2, 0, -1):
        before, line, after = lines[number - 1 : number + 2]
        if not before and line[:1].isupper() and len(line) > 40 and not after.startswith((" ", "-")):
            lines.insert(number, "")


def commands() -> str:
    """Return all commands as sections, with their arguments and options, as the program itself knows them."""
    from typer.main import get_command

    from abcdp.cli.app import app

    def section(words: list[str], command: Any) -> str:
        inner = getattr(command, "commands", {})
        parts = [] if len(words) == 1 else [f"## {' '.join(words)}\n\n{command.help or ''}\n"]
        if command.params and not inner:
            rows = [f"| {_option(one)} | {_cell(getattr(one, 'help', '') or '')} |" for one in command.params]
            parts.append("| argument or option | |\n|---|---|\n" + "\n".join(rows) + "\n")
        return "\n".join([*parts, *(section([*words, name], one) for name, one in inner.items())])

    return section(["abcdp"], get_command(app))


def _option(option: Any) -> str:
    names = [f"`{name}`" for name in (*option.opts, *option.secondary_opts)]
    return ", ".join(names) + (" *" if option.required else "")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _formula(self: Any, node: nodes.math | nodes.math_block) -> None:
    text = re.sub(r"\\(tfrac|frac)(\d)(\d)", r"\\\1{\2}{\3}", node.astext()).replace(r"\dots", r"\ldots")
    try:
        self.body.append(latex2mathml.tex2mathml(text, as_block=isinstance(node, nodes.math_block)))
    except MathError as error:
        logging.getLogger(__name__).warning("%s: %s", error, text, location=node)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Let pages run with keys and ledgers of their own, by the commands of this environment."""
    place = tempfile.mkdtemp(prefix="abcdp-docs-")
    os.environ.update(ABCDP_STATE=f"{place}/state", ABCDP_KEYS=f"{place}/keys.json", COLUMNS="100")
    os.environ.pop("MPLBACKEND", None)  # a notebook has its own
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    app.connect("build-finished", lambda app, error: shutil.rmtree(place, ignore_errors=True))
    app.connect("source-read", _read)
    app.connect("autodoc-process-docstring", _end_parameters, priority=400)  # before the parameters are read
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
