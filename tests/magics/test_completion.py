from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from browser.stores import Written
from conftest import Source
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from pyspark.sql import SparkSession
from reading.test_keys_given import MINUTE, START, WINDOW, Window
from synthetic import write

from streamstate.magics import completion_values

STATE_VERBS = [
    *("at", "key", "diff", "why", "inputs", "late", "load", "why-policy", "timeline", "dashboard", "save", "serve"),
    *("publish", "contracts"),
]
EPOCHS = ["4", "3", "2", "1", "0", "live", "live-1", "live-2", "live-3", "live-4"]


@pytest.fixture
def reader(bare_shell: Shell, counted: tuple[Path, Path]) -> Shell:
    """A shell that uses the store of ``counts``, with five epochs."""
    bare_shell.run(f"%config StreamState.store = {str(counted[1])!r}")
    return bare_shell


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%state counts at 3 --wh|", ["--where"]),
        ("x = %state counts ti|", ["timeline"]),
        ("%state counts |", STATE_VERBS),
        ("%state co|", ["counts", "contracts"]),
        ("%state counts.|", ["counts.op0"]),
        ("%snapshots c|", ["counts", "compact"]),
        ("%state counts at 1|", ["1"]),
        ("%state counts key k=k1 --at li|", EPOCHS[5:]),
        ("%state counts diff 1 |", EPOCHS),
        ("%state counts why |", EPOCHS),
        ("%state counts at 4 --limit 3 --by |", ["k", "count", "sum", "count_2", "max"]),
        ("%state counts key |", ["k="]),
        ("%state counts why 3 |", ["k="]),
        ("%stream st|", ["status", "stop", "standby", "step"]),
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
def test_words_are_completed(reader: Shell, cell: str, expected: list[str]) -> None:
    """Options, verbs, choices, names, tables, columns and epochs are completed anywhere in a cell."""
    assert reader.completions(cell) == expected


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("%state se|", ["serve"]),
        ("%state serve --p|", ["--port"]),
        ("%state counts key k=k1 --at=li|", ["live", "live-1", "live-2", "live-3", "live-4"]),
        ("%state counts key k=k1 --at=4|", ["4"]),
        ("%state counts key k=only|", ["k=only0", "k=only1", "k=only2", "k=only3", "k=only4"]),
        ('%state counts key "k=only4|', ["k=only4"]),
        ("%state counts key k=none|", ["%never"]),
        ("%state counts key k=k1 |", ["%never"]),
        ('%state counts at 4 --where "max > 1 and cou|', ["count", "count_2"]),
        ("%state counts why 1 k=k1 --sto|", ["--store", "--storage-option"]),
        ("for name in names:\n    found = %state counts di|", ["diff"]),
        ("x = 1\n%state co|\ny = 2", ["counts", "contracts"]),
        ("self.x = %state co|", ["counts", "contracts"]),
        ("%state counts \\\n   ti|", ["timeline"]),
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
        ("%snapshots counts export --to out --table |", ["op0"]),
    ],
)
def test_values_are_completed(reader: Shell, cell: str, expected: list[str]) -> None:
    """Values of options, keys and variables are completed in any line of a cell."""
    reader.run("import pandas as pd\nnames = pd.DataFrame({'k': ['k1'], 'full name': ['one']})")
    found = reader.completions(cell)
    if expected == ["%never"]:
        assert not [name for name in found if name.startswith("k")]
    else:
        assert found == expected


def test_completed_values_are_quoted(bare_shell: Shell, tmp_path: Path) -> None:
    """Completions with spaces, quotes, braces and dollars are valid arguments."""
    awkward = ["two words", 'a "b" c', "it's", "{k}", "$k", "back\\slash", "naïve 🛫"]
    write(tmp_path / "s", [dict.fromkeys(awkward, 1)])
    bare_shell.run("k = 'filled in'")
    found = bare_shell.completions(f"%state q key --store {tmp_path}/s key=|")
    assert len(found) == len(awkward)
    keys = [bare_shell.run(f"%state q key --store {tmp_path}/s {value} --at live")["key"] for value in found]
    assert sorted(keys) == sorted(awkward)


def test_windows_and_nulls_are_offered_as_keys(bare_shell: Shell, tmp_path: Path) -> None:
    """A window by its start, whether its table is loaded or not; what is offered is accepted."""
    columns = {"window": WINDOW, "n": pa.int64()}
    Written(tmp_path / "s", "q", {"op0": (columns, 1)}).add(
        {"op0": {(Window(START + at * MINUTE),): (at,) for at in range(3)}}
    )
    line = f"%state q key --store {tmp_path}/s window="
    starts = [f"2026-11-26T09:5{at}:00Z" for at in (1, 2, 3)]
    for _ in range(2):
        found = bare_shell.completions(f"{line}2026-11-26T09:5|")
        assert found == [f"window={start}" for start in starts]
        assert [bare_shell.run(f"%state q key --store {tmp_path}/s {key} --at live")["n"] for key in found] == [0, 1, 2]
    assert not [text for text in bare_shell.completions(f"{line}2027|") if "2027" in text]


def test_few_rows_are_read_for_values(bare_shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rows of the newest files are read, unless the state is already loaded."""
    monkeypatch.setattr(completion_values, "ROWS", 100)
    monkeypatch.setattr(completion_values, "BATCH", 50)
    monkeypatch.setattr(completion_values, "OFFERED", 10_000)
    write(tmp_path / "s", [{f"old{number:06}": 1 for number in range(1000)}, {"new": 1}])
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 's')!r}")
    assert bare_shell.completions("%state q key key=n|") == ["key=new"]
    assert 0 < len(bare_shell.completions("%state q key key=old|")) <= 100
    index = bare_shell.notebook.open()["q"].recorded.index
    assert index.held("q", "op0") is None
    assert bare_shell.run("%state q key key=old000001 --at 0")["value"] == 1
    assert index.held("q", "op0") is not None
    assert bare_shell.completions("%state q key key=|") == ["key=new"]


def test_directories_of_the_right_kind_come_first(bare_shell: Shell, tmp_path: Path) -> None:
    """Stores or checkpoints are listed before other directories."""
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
    """At most a hundred epochs are listed."""
    write(tmp_path / "s", [{"a": epoch} for epoch in range(130)], commit_every=130)
    found = bare_shell.completions(f"%state q why --store {tmp_path}/s |")
    assert found[:2] == ["129", "128"]
    assert sum(name.isdigit() for name in found) == 100
    assert "live-100" in found


def test_completion_changes_nothing(reader: Shell, tmp_path: Path) -> None:
    """The store in use stays the same."""
    write(tmp_path / "other", [{"a": 1}])
    assert reader.completions(f"%state q at --store {tmp_path}/other |")[0] == "0"
    assert reader.completions("%state co|") == ["counts", "contracts"]


def test_completion_does_not_import_pyspark(tmp_path: Path) -> None:
    """This includes the completion of Spark SQL."""
    write(tmp_path / "s", [{"a": 1}])
    setting = f"StreamState.store = {str(tmp_path / 's')!r}"
    program = (
        "import sys\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "from IPython.core.completer import provisionalcompleter\n"
        "shell = InteractiveShell.instance()\n"
        "shell.run_line_magic('load_ext', 'streamstate')\n"
        f"shell.run_line_magic('config', {setting!r})\n"
        "for cell in ('%state q at ', '%%stream x --sql\\nSELECT * FROM ', '%stream wait ', '%state q key key='):\n"
        "    with provisionalcompleter():\n"
        "        list(shell.Completer.completions(cell, len(cell)))\n"
        "from streamstate.snapshots.spark.session import running_session\n"
        "print(running_session())"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "None"


def test_spark_sql_completes_views(reader: Shell, spark: SparkSession, source: Source) -> None:
    """If a session is running, views and their columns are completed."""
    source.stream().createOrReplaceTempView("letters_view")
    assert reader.completions("%%stream x --sql\nSELECT * FROM letters_|") == ["letters_view"]
    assert reader.completions("%%stream x --sql\nSELECT l.| FROM letters_view l") == ["l.k", "l.v"]
    spark.catalog.dropTempView("letters_view")


@pytest.mark.exhaustive
@given(st.text(st.sampled_from("%state counts--keykey=at\"' {}$\\\n.|wheronq"), max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_completion_never_fails(reader: Shell, text: str) -> None:
    """Incomplete and invalid lines raise no error."""
    reader.completions("%state counts " + text.replace("|", "") + "|")


def test_all_verbs_are_completed(reader: Shell) -> None:
    """The first word after %stream is a verb, and the first after a query of %state."""
    running = [
        "list",
        "status",
        "wait",
        "stop",
        "restart",
        "attach",
        "check",
        "migrate",
        "rescale",
        "policy",
        "promote",
        "standby",
        "handover",
    ]
    assert reader.completions("%stream |") == [*running, "fork", "step", "back", "debug", "replay", "audit"]


def test_completion_through_the_deprecated_interface(reader: Shell) -> None:
    """Terminals and older kernels use ``shell.complete``."""
    line = "%state counts diff 1 "
    with pytest.warns(PendingDeprecationWarning):
        found = reader.ipython.complete("", line, len(line))[1]
    assert found == EPOCHS


def test_without_a_store_only_options_are_completed(bare_shell: Shell) -> None:
    """A missing store is not an error."""
    assert bare_shell.completions("%state --s|") == ["--store", "--storage-option"]
    assert "counts" not in bare_shell.completions("%state co|")


def test_python_is_left_to_ipython(reader: Shell) -> None:
    """Python code is completed by IPython, also below ``%%stream``."""
    reader.run("counters = 1")
    assert "counters" in reader.completions("counte|")
    assert "counters" in reader.completions("%%stream x\ncounte|")


def test_unloading_removes_completion(reader: Shell) -> None:
    """Options are no longer completed."""
    from streamstate.extension import unload

    unload(reader.ipython)
    assert "timeline" not in reader.completions("%state counts tim|")
