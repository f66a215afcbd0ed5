"""Notebooks are stored as written, without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from notebooks.running import TUTORIALS

NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_stored_without_outputs(path: Path) -> None:
    """Outputs come from running them; a diff of a notebook shows only what its author changed."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in notebook.metadata
