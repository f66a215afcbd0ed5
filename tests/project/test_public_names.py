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

DOCUMENTED = {
    "Audit",
    "AuditRecordCheck",
    "BackOff",
    "Capture",
    "CaptureReport",
    "CaptureStatus",
    "CheckReport",
    "Checkpoint",
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
    "Promotion",
    "Proposal",
    "ProposedMapping",
    "RecordedFrame",
    "Recorder",
    "Replay",
    "RescaleAdvice",
    "RescaleReport",
    "Result",
    "RetentionReport",
    "Running",
    "SharedVariable",
    "Snapshot",
    "StateTable",
    "StepReport",
    "Store",
    "StreamStateError",
    "Supervised",
    "WrittenCheckpoint",
    "audit",
    "bootstrap",
    "capture",
    "check",
    "check_audit_record",
    "checkpoints",
    "compact",
    "cut",
    "debug",
    "describe",
    "drill",
    "export",
    "follow",
    "fork",
    "initial_state",
    "keep",
    "migrate",
    "open_store",
    "promote",
    "propose_mapping",
    "record",
    "recorded",
    "replay",
    "rescale",
    "rescale_advice",
    "restore",
    "session",
    "shared",
    "shared_column",
    "start",
    "start_offsets",
    "step",
    "supervise",
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


def test_type_checkers_see_every_public_name() -> None:
    """Names that are loaded on demand are also imported statically, for type checkers and editors."""
    tree = ast.parse(Path(streamstate.__file__).read_text(encoding="utf-8"))
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {alias.asname or alias.name for statement in statements for alias in statement.names}
    assert names >= DOCUMENTED


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
def test_sub_packages_do_not_import_higher_ones(folder: str, barred: set[str]) -> None:
    """Magics and widgets import state_inspect, which imports snapshots. The core does not depend on notebooks."""
    found = {
        f"{source.name} imports {module}"
        for source in (ROOT / folder).rglob("*.py")
        for module in imports(source)
        if any(f"{module}.".startswith(f"{bar}.") for bar in barred)
    }
    assert found == set()


def test_replay_is_a_function_after_importing_the_sub_package() -> None:
    """The import system binds a sub-package to its parent, under the same name."""
    code = "import streamstate as ss; ss.fork; import streamstate.replay.replay; assert callable(ss.replay)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_functions_that_use_the_package_can_be_pickled() -> None:
    """The package is pickled by name, like other modules."""
    pickled: bytes = cloudpickle.dumps(lambda: streamstate)  # type: ignore[no-untyped-call]
    assert pickle.loads(pickled)() is streamstate
