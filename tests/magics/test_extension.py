from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Source, counts, letters
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from pyspark.sql import SparkSession

from streamstate.extension import MAGICS, load, unload
from streamstate.widgets.tables.summary_table import SummaryTable


def test_loading_starts_no_engine() -> None:
    """%load_ext does not import Spark, Panel or DuckDB."""
    program = (
        "import sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "InteractiveShell.instance().run_line_magic('load_ext', 'streamstate')\n"
        "heavy = ('pyspark', 'panel', 'duckdb', 'sqlglot', 'streamstate.widgets.view')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_loading_twice_changes_nothing(bare_shell: Shell) -> None:
    """The notebook context and its %config are registered once."""
    notebook = bare_shell.notebook
    load(bare_shell.ipython)
    assert bare_shell.notebook is notebook
    assert (
        len(
            [
                configurable
                for configurable in bare_shell.ipython.configurables
                if type(configurable).__name__ == "StreamState"
            ]
        )
        == 1
    )


def test_unloading_leaves_no_trace(bare_shell: Shell) -> None:
    """Magics, settings, completers and input transformers are removed."""
    shell = bare_shell.ipython
    unload(shell)
    before = [len(shell.configurables), len(shell.Completer.custom_matchers), len(shell.input_transformers_cleanup)]
    load(shell)
    unload(shell)
    after = [len(shell.configurables), len(shell.Completer.custom_matchers), len(shell.input_transformers_cleanup)]
    assert after == before
    assert all(magic.name not in shell.magics_manager.magics[magic.kind] for magic in MAGICS)


def test_unloading_stops_queries_and_leaves_the_session(
    shell: Shell, source: Source, spark: SparkSession, tmp_path: Path
) -> None:
    """Queries started by magics are stopped. The session and the user's own queries keep running."""
    source.add(letters(0))
    writer = counts(source).writeStream.format("noop").outputMode("update")
    own = writer.option("checkpointLocation", str(tmp_path / "own")).start()
    try:
        shell.names["counted"] = counts(source)
        handle = shell.run("%%stream counts\ncounted")
        shell.run("%unload_ext streamstate")
        unload(shell.ipython)  # the fixture loaded it without %load_ext
        assert handle.state == "stopped"
        assert handle.capture.status.state == "stopped"
        assert [query.id for query in spark.streams.active] == [own.id]
        assert spark.range(2).count() == 2
    finally:
        own.stop()


@pytest.mark.parametrize("magic", MAGICS, ids=lambda magic: f"{magic.kind}-{magic.name}")
def test_help_lists_every_option(bare_shell: Shell, magic: object) -> None:
    """``--help`` prints the same text as ``?``."""
    name = f"{'%' if magic.kind == 'line' else '%%'}{magic.name}"  # type: ignore[attr-defined]
    assert bare_shell.run(f"{name} --help") is None
    for argument in magic.parser.arguments:  # type: ignore[attr-defined]
        assert all(flag in bare_shell.printed for flag in argument.flags)
    function = bare_shell.ipython.find_magic(magic.name, magic.kind)  # type: ignore[attr-defined]
    assert function.__doc__ == magic.parser.format_help()  # type: ignore[attr-defined]


def test_every_verb_has_help(bare_shell: Shell) -> None:
    """``%stream VERB --help`` prints the verb's usage."""
    for verb in ("list", "status", "wait", "stop", "restart", "attach"):
        bare_shell.run(f"%stream {verb} --help")
        assert f"usage: %stream {verb}" in bare_shell.printed


def test_a_table_escapes_its_values() -> None:
    """Headings, values and the caption are escaped in HTML."""
    table = SummaryTable(["<b>"], [["<script>"], [None], [12345], [0.5]], caption="<i>")
    html = table._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "<i>" not in html
    assert repr(table).splitlines() == ["<b>", "<script>", "-", "12,345", "0.50"]
