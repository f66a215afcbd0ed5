"""The public names of ``import streamstate``, the modules that it loads, and the imports between sub-packages."""

from __future__ import annotations

import ast
import inspect
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

import streamstate
from streamstate import reports

DOCUMENTED = {
    "BackOff",
    "Checkpoint",
    "Edit",
    "Policy",
    "StreamStateError",
    "bootstrap",
    "checkpoints",
    "cut",
    "open_share",
    "open_store",
    "pipeline_flow",
    "record",
    "recorded",
    "session",
    "shared",
    "shared_column",
    "shared_frame",
    "shed",
    "sql",
    "start",
}

ENGINES = {"pyspark", "panel", "duckdb", "deltalake", "pyarrow", "pandas", "IPython", "ipywidgets"}
NOTEBOOK = {"IPython", "ipywidgets", "ipykernel", "panel", "bokeh"}
ROOT = Path(__file__).parents[2]


def loaded_by(code: str, folder: Path) -> set[str]:
    """The top-level modules that a new Python has loaded after running ``code``."""
    code += "\nimport json, sys\nprint(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    process = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return set(json.loads(process.stdout.splitlines()[-1]))


def imports(source: Path) -> set[str]:
    """The full names of the modules that a source file imports, at any place."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_all_has_the_documented_names() -> None:
    """``__all__`` is sorted and has exactly the documented names."""
    assert set(streamstate.__all__) == DOCUMENTED
    assert streamstate.__all__ == sorted(streamstate.__all__)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_a_public_name_has_a_docstring(name: str) -> None:
    """It can be imported, and is in ``dir()``."""
    assert inspect.getdoc(getattr(streamstate, name))
    assert name in dir(streamstate)


@pytest.mark.parametrize("name", reports.__all__)
def test_a_report_has_a_docstring(name: str) -> None:
    """It can be imported for annotations, under the name that its class has."""
    report = getattr(reports, name)
    assert inspect.isclass(report)
    assert report.__name__ == name
    assert inspect.getdoc(report)


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Loading names on demand does not change this."""
    with pytest.raises(AttributeError, match="'streamstate' has no attribute 'sesion'"):
        _ = streamstate.sesion
    assert not hasattr(streamstate, "sesion")


def test_importing_loads_no_engine(tmp_path: Path) -> None:
    """``import streamstate`` loads neither Spark nor Panel, nor other packages that are slow to load."""
    assert loaded_by("import streamstate", tmp_path) & ENGINES == set()


def test_reading_needs_no_spark(tmp_path: Path) -> None:
    """Importing ``open_store`` loads neither Spark nor IPython."""
    loaded = loaded_by(
        "from streamstate import Checkpoint, open_store; from streamstate.reports import Snapshot", tmp_path
    )
    assert loaded & {"pyspark", "py4j", *NOTEBOOK} == set()


@pytest.mark.parametrize(
    ("folder", "barred"),
    [
        ("snapshots", {"streamstate.state_inspect", "streamstate.widgets", "streamstate.magics", *NOTEBOOK}),
        ("state_inspect", {"streamstate.widgets", "streamstate.magics", *NOTEBOOK}),
        ("widgets", {"streamstate.magics"}),
    ],
)
def test_sub_packages_do_not_import_higher_ones(folder: str, barred: set[str]) -> None:
    """Magics and widgets import state_inspect, which imports snapshots. The core does not depend on notebooks."""
    found = {
        f"{source.name} imports {module}"
        for source in (ROOT / folder).rglob("*.py")
        for module in imports(source)
        if any(f"{module}.".startswith(f"{bar}.") for bar in barred)
    }
    assert found == set()


def test_functions_that_use_the_package_can_be_pickled() -> None:
    """The package is pickled by name, like other modules."""
    pickled: bytes = cloudpickle.dumps(lambda: streamstate)  # type: ignore[no-untyped-call]
    assert pickle.loads(pickled)() is streamstate
