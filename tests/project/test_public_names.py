"""What ``import streamstate`` gives, what it costs, and which part may import which."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import streamstate

DOCUMENTED = {
    "Audit",
    "BackOff",
    "Capture",
    "CaptureReport",
    "CaptureStatus",
    "CertificateCheck",
    "Comparison",
    "Cut",
    "DebugSession",
    "Diff",
    "DrillReport",
    "Edit",
    "EpochRun",
    "ExportReport",
    "Fork",
    "History",
    "Replay",
    "RescaleAdvice",
    "RescaleReport",
    "Result",
    "RetentionReport",
    "Snapshot",
    "StateTable",
    "StepReport",
    "Store",
    "StreamStateError",
    "Supervised",
    "audit",
    "capture",
    "check_certificate",
    "cut",
    "debug",
    "drill",
    "export",
    "follow",
    "fork",
    "initial_state",
    "keep",
    "open_store",
    "replay",
    "rescale",
    "rescale_advice",
    "session",
    "start_offsets",
    "step",
    "supervise",
}

ENGINES = {"pyspark", "panel", "duckdb", "deltalake", "pyarrow", "pandas", "IPython", "ipywidgets"}
NOTEBOOK = {"IPython", "ipywidgets", "ipykernel", "panel", "bokeh"}
ROOT = Path(__file__).parents[2]


def loaded_by(code: str, folder: Path) -> set[str]:
    """The top-level modules that a fresh Python has loaded after running ``code``."""
    code += "\nimport json, sys\nprint(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def imports(source: Path) -> set[str]:
    """The full names of the modules that a source file imports anywhere."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return names | {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}


def test_the_public_names_are_the_documented_ones() -> None:
    """A name is public because it is in ``__all__`` and written down, never by accident."""
    assert set(streamstate.__all__) == DOCUMENTED
    assert streamstate.__all__ == sorted(streamstate.__all__)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_a_public_name_can_be_imported_and_read_about(name: str) -> None:
    """Each is there, says what it does, and shows up in ``dir()`` before it is loaded."""
    assert inspect.getdoc(getattr(streamstate, name))
    assert name in dir(streamstate)


def test_type_checkers_see_every_public_name() -> None:
    """Names that load late are imported for type checkers, so that editors know them."""
    tree = ast.parse(Path(streamstate.__file__).read_text(encoding="utf-8"))
    lines = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname or alias.name for line in lines for alias in line.names}
    assert seen >= DOCUMENTED


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Loading late does not turn a misspelling into something else."""
    with pytest.raises(AttributeError, match="'streamstate' has no attribute 'sesion'"):
        _ = streamstate.sesion
    assert not hasattr(streamstate, "sesion")


def test_importing_starts_no_engine(tmp_path: Path) -> None:
    """``import streamstate`` loads neither Spark nor Panel, nor anything else that takes its time."""
    assert loaded_by("import streamstate", tmp_path) & ENGINES == set()


def test_reading_needs_no_spark(tmp_path: Path) -> None:
    """Opening a store loads neither Spark nor anything of a notebook."""
    loaded = loaded_by("from streamstate import Snapshot, open_store", tmp_path)
    assert loaded & {"pyspark", "py4j", *NOTEBOOK} == set()


@pytest.mark.parametrize(
    ("folder", "barred"),
    [
        ("snapshots", {"streamstate.state_inspect", "streamstate.widgets", "streamstate.magics", *NOTEBOOK}),
        ("state_inspect", {"streamstate.widgets", "streamstate.magics", *NOTEBOOK}),
        ("widgets", {"streamstate.magics"}),
    ],
)
def test_imports_point_one_way(folder: str, barred: set[str]) -> None:
    """Magics and widgets import state_inspect, which imports snapshots; the core knows nothing of notebooks."""
    found = {
        f"{source.name} imports {module}"
        for source in (ROOT / folder).rglob("*.py")
        for module in imports(source)
        if any(f"{module}.".startswith(f"{bar}.") for bar in barred)
    }
    assert found == set()
