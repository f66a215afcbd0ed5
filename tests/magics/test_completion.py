from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Source
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from pyspark.sql import SparkSession
from synthetic import write

from streamstate.magics import key_values

EPOCHS = ["4", "3", "2", "1", "0", "live", "live-1", "live-2", "live-3", "live-4"]


@pytest.fixture
def reader(bare_shell: Shell, counted: tuple[Path, Path]) -> Shell:
    """A shell that reads the store of ``counts``, five epochs of it."""
    bare_shell.run(f"%config StreamState.store = {str(counted[1])!r}")
    return bare_shell


@pytest.mark.parametrize(
    ("cell", "offered"),
    [
        ("%state counts --as|", ["--as-of"]),
        ("x = %state counts --hi|", ["--history"]),
        ("%state co|", ["counts"]),
        ("%state counts.|", ["counts.op0"]),
        ("%snapshots c|", ["counts", "compact"]),
        ("%state counts --at |", EPOCHS),
        ("%state counts --diff 1 |", EPOCHS),
        ("%state counts --top 3 --by |", ["k", "count", "sum", "count_2", "max"]),
        ("%state counts --key |", ["k="]),
        ("%stream st|", ["status", "stop", "step"]),
        ("%stream wait --t|", ["--timeout"]),
        ("%%stream x --mode |\nframe", ["update", "append", "complete"]),
        ("%%stream x --tr|\nframe", ["--trigger"]),
        ("%%statesql --engine |\nSELECT 1", ["duckdb", "spark"]),
        (
            "%%statesql\nSELECT * FROM counts.|",
            ["counts.op0", "counts.history", "counts.changes", "counts.op0.history", "counts.op0.changes"],
        ),
        ("%%statesql\nSELECT * FROM counts.hi|", ["counts.history"]),
        ("%%statesql\nSELECT * FROM co|", ["counts"]),
        ("%%statesql\nSELECT ma| FROM counts", ["max"]),
        ("%%statesql\n-- of counts\nSELECT *\nFROM counts WHERE su|", ["sum"]),
    ],
)
def test_tab_offers(reader: Shell, cell: str, offered: list[str]) -> None:
    """Options, verbs, choices, names, tables, columns and epochs, in the middle of a cell too."""
    assert reader.completions(cell) == offered


@pytest.mark.parametrize(
    ("cell", "offered"),
    [
        ("%state se|", ["serve"]),
        ("%state serve --p|", ["--port"]),
        ("%state counts --at=li|", ["live", "live-1", "live-2", "live-3", "live-4"]),
        ("%state counts --at=4|", ["4"]),
        ("%state counts --key k=only|", ["k=only0", "k=only1", "k=only2", "k=only3", "k=only4"]),
        ('%state counts --key "k=only4|', ["k=only4"]),
        ("%state counts --key k=none|", ["%never"]),
        ("%state counts --key k=k1 --key |", ["%never"]),
        ('%state counts --where "max > 1 and cou|', ["count", "count_2"]),
        ("%state --at 1 counts --b|", ["--by"]),
        ("for one in names:\n    found = %state counts --di|", ["--diff"]),
        ("x = 1\n%state co|\ny = 2", ["counts"]),
        ("self.x = %state co|", ["counts"]),
        ("%state counts \\\n   --hi|", ["--history"]),
        ("%stream wait --timeout 3 --ep|", ["--epoch"]),
        ("%stream attach x --every |", ["1", "10", "1s", "10s", "1m"]),
        ("%%stream x --trigger av|\nframe", ["available-now"]),
        ("%%stream x --mode=c|\nframe", ["complete"]),
        ("%%statesql --frame |\nSELECT 1", ["names"]),
        ("%%statesql -o |\nSELECT 1", ["names"]),
        ("%%statesql\nSELECT n.| FROM names n", ["n.k", 'n."full name"']),
        ("%%statesql\nSELECT c.su| FROM names n JOIN counts AS c USING (k)", ["c.sum"]),
        ("%%statesql\nSELECT * FROM counts VERSION AS OF |", [*EPOCHS[:5], "'live'", "'live - 1'", "'live - 10'"]),
        ("%%statesql\nSELECT * FROM counts.history WHERE _va|", ["_valid_from", "_valid_to"]),
        ("%%statesql\nSELECT _ch| FROM counts.changes", ["_change"]),
        ("\n\n%%statesql\nSELECT su| FROM counts", ["sum"]),
        ("%snapshots counts export out --table |", ["op0"]),
    ],
)
def test_tab_offers_values(reader: Shell, cell: str, offered: list[str]) -> None:
    """Of options, keys, variables, in any line of a cell; where there are none, IPython's own guesses are left."""
    reader.run("import pandas as pd\nnames = pd.DataFrame({'k': ['k1'], 'full name': ['one']})")
    found = reader.completions(cell)
    if offered == ["%never"]:
        assert not [one for one in found if one.startswith("k")]
    else:
        assert found == offered


def test_values_are_spelled_as_the_line_has_to_spell_them(bare_shell: Shell, tmp_path: Path) -> None:
    """Spaces, quotes, braces and dollars survive the way back."""
    awkward = ["two words", 'a "b" c', "it's", "{k}", "$k", "back\\slash", "naïve 🛫"]
    write(tmp_path / "s", [dict.fromkeys(awkward, 1)])
    bare_shell.run("k = 'filled in'")
    found = bare_shell.completions(f"%state q --store {tmp_path}/s --key key=|")
    assert len(found) == len(awkward)
    keys = [bare_shell.run(f"%state q --store {tmp_path}/s --key {one}")["key"] for one in found]
    assert sorted(keys) == sorted(awkward)


def test_few_rows_are_looked_at_for_values(bare_shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the newest files, and no state is loaded; once it was read, all of it is searched."""
    monkeypatch.setattr(key_values, "ROWS", 100)
    monkeypatch.setattr(key_values, "BATCH", 50)
    monkeypatch.setattr(key_values, "OFFERED", 10_000)
    write(tmp_path / "s", [{f"old{number:06}": 1 for number in range(1000)}, {"new": 1}])
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 's')!r}")
    assert bare_shell.completions("%state q --key key=n|") == ["key=new"]
    assert 0 < len(bare_shell.completions("%state q --key key=old|")) <= 100
    index = bare_shell.notebook.open()["q"].index
    assert index.held("q", "op0") is None
    assert bare_shell.run("%state q --at 0 --key key=old000001")["value"] == 1
    assert index.held("q", "op0") is not None
    assert bare_shell.completions("%state q --key key=|") == ["key=new"]


def test_folders_come_with_what_is_meant_first(bare_shell: Shell, tmp_path: Path) -> None:
    """Stores where a store is meant, checkpoints where a checkpoint is, then folders to go into."""
    write(tmp_path / "mine", [{"a": 1}])
    (tmp_path / "kept" / "q" / "offsets").mkdir(parents=True)
    (tmp_path / "kept" / "q" / "metadata").write_text("{}")
    (tmp_path / "another").mkdir()
    used = str(tmp_path / "streamstate-data" / "store")
    assert bare_shell.completions("%state q --store |") == [used, "mine", "another/", "kept/"]
    assert bare_shell.completions("%stream attach |") == ["another/", "kept/", "mine/"]
    assert bare_shell.completions("%stream attach kept/|") == ["kept/q"]
    assert bare_shell.completions("%state q --store mi|") == ["mine"]


def test_epochs_are_bounded_and_newest_first(bare_shell: Shell, tmp_path: Path) -> None:
    """A hundred of them, whatever the store holds."""
    write(tmp_path / "s", [{"a": epoch} for epoch in range(130)], commit_every=130)
    found = bare_shell.completions(f"%state q --store {tmp_path}/s --at |")
    assert found[:2] == ["129", "128"]
    assert sum(one.isdigit() for one in found) == 100
    assert "live-100" in found


def test_completing_changes_nothing(reader: Shell, tmp_path: Path) -> None:
    """Not even the store in use."""
    write(tmp_path / "other", [{"a": 1}])
    assert reader.completions(f"%state q --store {tmp_path}/other --at |")[0] == "0"
    assert reader.completions("%state co|") == ["counts"]


def test_completing_loads_no_spark(tmp_path: Path) -> None:
    """Neither its names nor its process, also in SQL that is for Spark."""
    write(tmp_path / "s", [{"a": 1}])
    setting = f"StreamState.store = {str(tmp_path / 's')!r}"
    program = (
        "import sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from IPython.core.completer import provisionalcompleter\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'streamstate')\n"
        f"shell.run_line_magic('config', {setting!r})\n"
        "for cell in ('%state q --at ', '%%stream x --sql\\nSELECT * FROM ', '%stream wait ', '%state q --key key='):\n"
        "    with provisionalcompleter():\n"
        "        list(shell.Completer.completions(cell, len(cell)))\n"
        "from streamstate.spark_session import running_session\n"
        "print(running_session())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"


def test_sql_for_spark_knows_its_views(reader: Shell, spark: SparkSession, source: Source) -> None:
    """Where Spark runs already; their columns too, without reading them."""
    source.stream().createOrReplaceTempView("letters_view")
    assert reader.completions("%%stream x --sql\nSELECT * FROM letters_|") == ["letters_view"]
    assert reader.completions("%%stream x --sql\nSELECT l.| FROM letters_view l") == ["l.k", "l.v"]
    spark.catalog.dropTempView("letters_view")


@given(st.text(st.sampled_from("%state counts--key=at\"' {}$\\\n.|wheronq"), max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_nothing_that_is_written_breaks_completion(reader: Shell, text: str) -> None:
    """Half a line is no line; something or nothing is offered."""
    reader.completions("%state counts " + text.replace("|", "") + "|")


def test_tab_offers_every_verb_and_no_more(reader: Shell) -> None:
    """The first word after %stream."""
    running = ["list", "status", "wait", "stop", "restart", "attach", "rescale"]
    assert reader.completions("%stream |") == [*running, "fork", "step", "back", "debug", "replay", "audit"]


def test_tab_in_the_kernels_old_interface(reader: Shell) -> None:
    """``shell.complete``, which terminals and older kernels use."""
    line = "%state counts --at "
    with pytest.warns(PendingDeprecationWarning):
        found = reader.ipython.complete("", line, len(line))[1]
    assert found == EPOCHS


def test_tab_without_a_store_offers_options_only(bare_shell: Shell) -> None:
    """A store that is not there yet is no reason to fail."""
    assert bare_shell.completions("%state --a|") == ["--at", "--as-of"]
    assert "counts" not in bare_shell.completions("%state co|")


def test_python_is_completed_as_ever(reader: Shell) -> None:
    """Cells without our magics are left to IPython."""
    reader.run("counters = 1")
    assert "counters" in reader.completions("counte|")
    assert "counters" in reader.completions("%%stream x\ncounte|")


def test_unloading_takes_completion_away(reader: Shell) -> None:
    """No names are offered for a magic that is gone."""
    from streamstate.extension import unload

    unload(reader.ipython)
    assert "--as-of" not in reader.completions("%state counts --as|")
