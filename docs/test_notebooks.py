"""The tutorials as notebooks: small, valid, and running where somebody opens them."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient
from traitlets.config import Config

import notebooks


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return {one.stem: one for one in notebooks.write(tmp_path_factory.mktemp("notebooks"))}


def test_every_tutorial_is_a_small_notebook(written):
    assert len(written) >= 6
    for path in written.values():
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert path.stat().st_size < 40_000
        assert sum(cell.cell_type == "code" for cell in notebook.cells) >= 4
        assert notebook.cells[0].source.startswith("# ")


def test_one_of_them_runs(written, tmp_path):
    """The site runs the others."""
    notebook = nbformat.read(written["others"], as_version=4)
    files = Config({"KernelManager": {"transport": "ipc", "ip": str(tmp_path / "kernel")}})  # a port might be taken
    NotebookClient(notebook, timeout=120, config=files, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (shown,) = (cell for cell in notebook.cells if "noisy_summary(" in cell.source)
    assert shown.outputs[0].name == "stdout"


def test_a_page_without_code_stays_as_it_is():
    assert notebooks.notebook_of("# Words\n\n```\nmake docs\n```\n").startswith("# Words")
