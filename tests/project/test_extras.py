"""Reading a store needs no extra. Other calls name their extra if a package is missing."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import synthetic

from streamstate.extras import install_command

SPARK = ("pyspark", "py4j", "psutil")
NO_PANEL = f"Panel is not installed.\nInstall with: {install_command('notebook')}\n"
NOTEBOOK = ("IPython", "ipywidgets", "traitlets", "panel", "bokeh", "tornado", "anywidget", "vl_convert")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small store."""
    folder = tmp_path_factory.mktemp("extras")
    synthetic.write(folder / "store", [{"a": 1}, {"a": 3, "b": 2}])
    return folder


def run_without(packages: tuple[str, ...], program: str, folder: Path) -> str:
    """The output of a program run in a Python in which these packages cannot be imported."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({packages}))\nimport streamstate as ss\n"
    code = hidden + textwrap.dedent(program)
    process = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


def error_without(packages: tuple[str, ...], statement: str, folder: Path) -> str:
    """The message of the MissingDependencyError that a statement raises without these packages."""
    program = f"""
    from streamstate.errors import MissingDependencyError
    try:
        {statement}
    except MissingDependencyError as error:
        print(error)
    """
    return run_without(packages, program, folder)


def test_capture_is_imported_without_any_extra(folder: Path) -> None:
    """Only what cannot be decoded needs Spark."""
    program = """
    from streamstate.reports import Capture
    try:
        ss.Checkpoint("checkpoint").capture("store")
    except ss.errors.NotACheckpointError:
        print("not a checkpoint")
    """
    assert run_without((*SPARK, *NOTEBOOK), program, folder) == "not a checkpoint\n"


def test_a_store_is_read_without_any_extra(folder: Path) -> None:
    """Snapshots, SQL, diffs, epochs and advice work without Spark and notebook packages."""
    program = """
    store = ss.open_store("store")
    history = store["q"]
    print(len(history.live().table().to_pandas()), store.sql("SELECT count(*) AS n FROM q").to_arrow()["n"][0])
    print(history.diff(0, 1).counts["changed"], len(history.epochs()))
    from streamstate.operations.rescaling.advice import rescale_advice
    print(rescale_advice(history, cores=1).suggested)
    """
    assert run_without((*SPARK, *NOTEBOOK), program, folder).split() == ["2", "2", "1", "2", "1"]


SPARK_CALLS = [
    "ss.session()",
    "ss.Checkpoint('checkpoint').fork('fork', at=1)",
    "ss.Checkpoint('fork').step(lambda: None)",
    "ss.Checkpoint('checkpoint').rescale(2)",
    "ss.Checkpoint('checkpoint').check(lambda: None)",
    "from streamstate.operations.supervision.supervise import supervise; supervise(lambda: None)",
    "from streamstate.operations.drill import drill; drill(lambda: None)",
    "ss.open_store('store').sql('SELECT 1', engine='spark')",
]


@pytest.mark.parametrize("statement", SPARK_CALLS)
def test_a_call_that_needs_spark_names_its_extra(folder: Path, statement: str) -> None:
    """The message has the command that installs it."""
    message = f"Spark is not installed.\nInstall with: {install_command('spark')}\n"
    assert error_without(("pyspark", "py4j"), statement, folder) == message


@pytest.mark.parametrize(
    "statement", ["ss.load_ipython_extension(None)", "from streamstate.widgets import StateBrowser"]
)
def test_the_extension_and_the_views_name_their_extra(folder: Path, statement: str) -> None:
    """``%load_ext`` and importing a widget raise the same error."""
    assert error_without(("panel",), statement, folder) == NO_PANEL


def test_the_command_names_its_extra(folder: Path) -> None:
    """``streamstate serve`` prints the message and returns status 1."""
    program = """
    import contextlib
    from streamstate.command_line import main
    with contextlib.redirect_stderr(sys.stdout):
        print(main(["serve", "store"]))
    """
    assert run_without(("panel",), program, folder) == f"streamstate: {NO_PANEL}1\n"


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (None, "pip install 'streamstate[sidecar]'"),
        ('{"url": "file:///a%20b", "dir_info": {"editable": true}}', "pip install --editable '/a b[sidecar]'"),
        ('{"url": "file:///clone", "dir_info": {}}', "pip install '/clone[sidecar]'"),
        (
            '{"url": "https://host/a.git", "vcs_info": {"vcs": "git", "commit_id": "1"}}',
            "pip install 'streamstate[sidecar] @ git+https://host/a.git'",
        ),
        (
            '{"url": "file:///a.whl", "archive_info": {}}',
            "pip install 'streamstate[sidecar] @ file:///a.whl'",
        ),
    ],
    ids=["an index", "an editable clone", "a clone", "git", "a wheel"],
)
def test_the_command_installs_from_where_streamstate_came(tmp_path: Path, source: str | None, command: str) -> None:
    """As pip has recorded it: streamstate need not be on an index."""
    installed = tmp_path / "streamstate-0.1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: streamstate\nVersion: 0.1.0\n")
    (installed / "RECORD").write_text("streamstate/__init__.py,,\n")
    if source is not None:
        (installed / "direct_url.json").write_text(source)
    program = f"""
    sys.path.insert(0, {str(tmp_path)!r})
    from streamstate.extras import install_command
    print(install_command("sidecar"))
    """
    assert run_without((), program, tmp_path) == f"{command}\n"


def test_several_missing_packages_are_named_together(folder: Path) -> None:
    """The first line lists them all."""
    assert error_without(SPARK, "ss.session()", folder).startswith("Spark and psutil are not installed.\n")
