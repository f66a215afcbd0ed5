"""Commands that read and tidy a store print what the library returns."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import synthetic

import streamstate as ss
from streamstate.command_line import main

STATES: list[synthetic.State | None] = [{"a": 1}, {"a": 3, "b": 2}, None, {"a": 3, "c": 7}]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with four epochs of the query ``q``, one of them a gap."""
    path = tmp_path_factory.mktemp("reading") / "store"
    synthetic.write(path, STATES)
    return str(path)


@pytest.fixture
def rows(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command with ``--json``; returns the objects that it prints."""

    def run(*arguments: object) -> list[dict[str, Any]]:
        assert main([*map(str, arguments), "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def test_ls_lists_queries(store: str, rows: Any) -> None:
    """One row for each, with its newest epoch."""
    (query,) = rows("ls", store)
    committed_at = "2026-01-01T00:03:00+00:00"
    newest = {"newest": 3, "committed_at": committed_at, "rows": {"op0": 2}}
    assert query.pop("bytes") > 0
    facts = {"changes": 1, "checkpoint": "checkpoint"}
    empty = dict.fromkeys(("behind", "watermark", "version", "replaced_by", "problem"))
    assert query == {"query": "q", "epochs": 3, "gaps": 1, **newest, **facts, **empty}


def test_ls_lists_epochs_as_the_history_does(store: str, rows: Any) -> None:
    """The same rows as ``history.epochs()``, gaps included, once they are counted."""
    found = rows("ls", store, "q")
    history = ss.open_store(store)["q"]
    history.recorded.count_soon()
    frame = history.epochs()
    for column in ("epoch", "status", "rows", "changes"):
        assert [row[column] for row in found] == frame[column].tolist()


def test_rows_that_capture_has_not_counted_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In every epoch, and as plain numbers; a table that cannot be read is left uncounted."""
    synthetic.write(tmp_path / "store", [{"a": 1}, {"a": 1, "b": 2}, {"b": 3}, {"b": 3, "c": 4, "d": 5}])
    entries = ss.open_store(tmp_path / "store")["q"].recorded.entries()
    assert [entry.tables["op0"].rows for entry in entries] == [1, None, None, None]
    assert main(["ls", str(tmp_path / "store")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:6] == ["q", "4", "0", "3", "2026-01-01T00:03:00+00:00", "3"]
    assert main(["ls", str(tmp_path / "store"), "q"]) == 0
    assert [line.split()[5] for line in capsys.readouterr().out.splitlines()[1:]] == ["1", "2", "1", "3"]
    for file in (tmp_path / "store" / "q" / "op0").glob("*.parquet"):
        file.write_bytes(b"damaged")
    assert main(["ls", str(tmp_path / "store")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[5] == "-"


def test_tables_are_aligned(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers to the right, without thousands separators."""
    assert main(["sql", store, "SELECT key, value * 1000 AS n FROM q ORDER BY n"]) == 0
    assert capsys.readouterr().out == "key     n\na    3000\nc    7000\n"


@pytest.mark.parametrize(("at", "state"), [("0", STATES[0]), ("live-2", STATES[1]), ("live", STATES[3])])
def test_show_prints_an_epoch(store: str, rows: Any, at: str, state: synthetic.State) -> None:
    """Named by its number or counted back from the newest."""
    assert {row["key"]: row["value"] for row in rows("show", store, "q", "--at", at)} == state


def test_show_prints_the_epoch_of_a_time(store: str, rows: Any) -> None:
    """The time has a zone."""
    assert rows("show", store, "q", "--at", "2026-01-01T01:00:30+01:00") == [{"key": "a", "value": 1}]


def test_show_says_how_many_rows_there_are(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error, so that a pipe gets rows only."""
    assert main(["show", store, "q", "--by", "value", "--limit", "1"]) == 0
    output, errors = capsys.readouterr()
    assert output.split() == ["key", "value", "c", "7"]
    assert errors == "1 of 2 rows of op0 at epoch 3; --limit shows more\n"


def test_key_prints_its_row_or_its_history(store: str, rows: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A key that is missing has no row."""
    assert rows("key", store, "q", "--at", "live", "key=c") == [{"key": "c", "value": 7}]
    assert rows("key", store, "q", "key=c", "--at", "0") == []
    history = rows("key", store, "q", "key=a")
    assert [(row["epoch"], row["change"], row["value"]) for row in history] == [
        (0, "put", 1),
        (1, "put", 3),
        (3, "keyframe", 3),
    ]
    assert main(["key", store, "q"]) == 1
    assert "needs a value for at least one column.\nFor example: key=" in capsys.readouterr().err


@pytest.mark.parametrize("line", [["key"], ["key", "--at", "0"], ["why", "1"]])
def test_a_misspelt_key_column_or_option(store: str, capsys: pytest.CaptureFixture[str], line: list[str]) -> None:
    """The error lists the key columns and the options: the word may be an option without its dashes."""
    command, *rest = line
    assert main([command, store, "q", *rest, "key=a", "table=op0"]) == 1
    error = capsys.readouterr().err
    assert "There is no key column 'table' in op0." in error
    assert "\nKey column names: key. Options: --storage-options-file, --storage-option, --table, " in error
    assert "\nFor example: key=" in error


@pytest.mark.parametrize("line", [["key", "key=a"], ["show"], ["why", "1", "key=a"]])
def test_a_misspelt_option(store: str, capsys: pytest.CaptureFixture[str], line: list[str]) -> None:
    """The error is that of the command, and lists its options."""
    command, *rest = line
    with pytest.raises(SystemExit):
        main([command, store, "q", *rest, "--tabel", "op0"])
    error = capsys.readouterr().err
    assert error.startswith(f"usage: streamstate {command} ")
    assert "there is no option --tabel. Did you mean --table?\nOptions: --help, --storage-options-file, " in error


def test_the_example_of_a_key_error_runs_in_a_shell(
    tmp_path: Path, rows: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error quotes it for a shell, not for a magic."""
    synthetic.write(tmp_path / "store", [{"it's {$HOME}": 1}])
    assert main(["key", str(tmp_path / "store"), "q", "x=1"]) == 1
    example = capsys.readouterr().err.rpartition("For example: ")[2]
    words = shlex.split(example.partition("\n")[0])
    assert rows("key", tmp_path / "store", "q", *words, "--at", "live") == [{"key": "it's {$HOME}", "value": 1}]


def test_sql_reads_any_epoch(store: str, rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command line or from standard input."""
    assert rows("sql", store, "SELECT sum(value) AS total FROM q VERSION AS OF 1") == [{"total": 5}]
    assert rows("sql", store, "SELECT sum(value) AS total FROM q", "--at", "0") == [{"total": 1}]
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT count(*) AS n\nFROM q"))
    assert rows("sql", store, "-") == [{"n": 2}]


def test_sql_without_rows_prints_nothing(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard error says that there are none."""
    assert main(["sql", store, "SELECT 1 WHERE false"]) == 0
    assert capsys.readouterr() == ("", "No rows.\n")


def test_sql_cannot_read_files_unless_allowed(store: str, tmp_path: Path, rows: Any) -> None:
    """``--files`` allows it."""
    file = tmp_path / "x.csv"
    file.write_text("n\n1\n")
    assert main(["sql", store, f"FROM '{file}'"]) == 1
    assert rows("sql", store, f"FROM '{file}'", "--files") == [{"n": 1}]


def test_diff_prints_changed_keys(store: str, rows: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """One row a key; the counts on their own with ``--count``."""
    found = {row["key"]: (row["_change"], row["value_old"], row["value_new"]) for row in rows("diff", store, "q", 1, 3)}
    assert found == {"b": ("removed", 2, None), "c": ("added", None, 7)}
    assert [row["key"] for row in rows("diff", store, "q", "live-2", "live", "--change", "added")] == ["c"]
    counts = {"added": 1, "removed": 1, "changed": 0}
    assert rows("diff", store, "q", 1, 3, "--count") == [{"table": "op0", "a": 1, "b": 3, **counts}]
    assert main(["diff", store, "q", "1", "3", "--count"]) == 0
    assert capsys.readouterr().out == "op0 from epoch 1 to 3: 1 added, 1 removed, 0 changed\n"


def test_retain_drops_epochs(tmp_path: Path, rows: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run drops nothing; without a policy nothing happens."""
    store = str(tmp_path / "store")
    synthetic.write(tmp_path / "store", STATES)
    assert main(["retain", store, "q"]) == 1
    assert "--last" in capsys.readouterr().err
    assert rows("retain", store, "q", "--last", 1, "--dry-run")[0]["dropped"] == [0, 1]
    (report,) = rows("retain", store, "q", "--last", 1)
    assert (report["query"], report["dropped"], report["kept"], report["dry_run"]) == ("q", [0, 1], 1, False)
    assert ss.open_store(store)["q"].captured() == [3]
    assert main(["retain", store, "q", "--last", "1"]) == 0
    assert capsys.readouterr().out.startswith("q: dropped 0 epochs, 1 kept")


def test_compact_prints_its_tables(tmp_path: Path, rows: Any) -> None:
    """The same as ``compact`` returns, and every epoch reads as before."""
    store = str(tmp_path / "store")
    synthetic.write(tmp_path / "store", STATES)
    before = rows("show", store, "q", "--at", 1)
    tables = {row["table"]: (row["files_before"], row["files_after"]) for row in rows("compact", store, "q")}
    assert tables["op0"][1] <= tables["op0"][0] == 3
    assert rows("show", store, "q", "--at", 1) == before


def test_export_writes_versions(store: str, tmp_path: Path, rows: Any) -> None:
    """Version i is the i-th epoch."""
    from deltalake import DeltaTable

    (report,) = rows("export", store, "q", "--to", tmp_path / "out", "--epochs", "0..1")
    assert (report["table"], report["epochs"], report["written"], report["rows"]) == ("op0", [0, 1], 2, 3)
    assert DeltaTable(report["path"], version=1).to_pyarrow_table().num_rows == 2
