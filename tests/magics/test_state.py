from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from conftest import Source, run
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from streamstate.errors import (
    InvalidArgumentError,
    InvalidSQLError,
    NotAStoreError,
    UnknownColumnError,
    UnknownEpochError,
    UnknownQueryError,
    UnknownTableError,
)
from streamstate.reports import Store


@pytest.fixture
def reader(bare_shell: Shell, counted: tuple[Path, Path]) -> Shell:
    """A shell that uses the store of ``counts``, with five epochs."""
    bare_shell.run(f"%config StreamState.store = {str(counted[1])!r}")
    return bare_shell


def test_an_epoch_is_a_data_frame(reader: Shell, store: Store) -> None:
    """The rows are those of the Python API."""
    expected = store["counts"].at(2).table().to_pandas()
    pd.testing.assert_frame_equal(reader.run("%state counts at 2"), expected)
    pd.testing.assert_frame_equal(reader.run("%state counts.op0 at 2"), expected)
    pd.testing.assert_frame_equal(reader.run("%state counts at live-2"), expected)


def test_variables_are_expanded_except_in_sql(reader: Shell, store: Store) -> None:
    """``{epoch}`` is replaced by the user's variable. Braces and dollars in a condition are kept."""
    reader.run("epoch = 2; k = 'k1'")
    found = reader.run("%state counts at {epoch} --where \"k <> '{k}$k' AND k IN ('k1', 'k2')\"")
    assert found["k"].tolist() == ["k1", "k2"]


def test_a_time_with_a_zone_finds_its_epoch(reader: Shell, store: Store) -> None:
    """The zone is an offset or a name. A naive time is refused."""
    epochs = store["counts"].epochs()
    moment = epochs["committed_at"].iloc[3].tz_convert("Europe/Rome")
    expected = store["counts"].at(3).table().to_pandas()
    pd.testing.assert_frame_equal(reader.run(f"%state counts at {moment.isoformat()}"), expected)
    with_name = f"{moment.tz_localize(None)} Europe/Rome"
    pd.testing.assert_frame_equal(reader.run(f'%state counts at "{with_name}"'), expected)
    assert "no time zone" in reader.fails("%state counts at 2026-01-01T12:00", InvalidArgumentError)
    assert "with a time zone" in reader.fails('%state counts at "yesterday Europe/Rome"', InvalidArgumentError)
    assert "Nowhere" in reader.fails('%state counts at "2026-01-01 Nowhere"', InvalidArgumentError)


def test_without_a_name_the_only_query_is_read(reader: Shell, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """If there are several, the error lists them."""
    assert len(reader.run("%state at 2")) == len(reader.run("%state counts at 2"))
    for name in ("a", "b"):
        ss.Checkpoint(counted[0]).capture(tmp_path / "store", name)
    message = reader.fails(f"%state at 2 --store {tmp_path}/store", InvalidArgumentError)
    assert "Name a query: %state NAME at. Queries: a, b." in message


def test_a_keys_words_may_follow_options(reader: Shell) -> None:
    """In any order; the help of a verb needs no other argument."""
    assert reader.run("%state counts key --at 3 k=k1") == reader.run("%state counts key k=k1 --at 3")
    reader.run("%state counts why --help")
    assert "usage: %state NAME[.TABLE] why" in reader.printed


def test_top_rows_come_largest_first(reader: Shell, store: Store) -> None:
    """``--limit N --by COL`` sorts the rows of any epoch."""
    found = reader.run("%state counts at live --limit 3 --by max")
    assert found["max"].tolist() == store["counts"].live().table().to_pandas()["max"].nlargest(3).tolist()


def test_displayed_rows_are_limited(reader: Shell, store: Store) -> None:
    """A note has the total number of rows. -o assigns all rows."""
    total = store["counts"].live().table().count()
    reader.run("%config StreamState.rows = 4")
    assert len(reader.run("%state counts at 4")) == 4
    assert f"4 of {total} rows" in reader.printed
    assert len(reader.run("%state counts at 4 -o kept")) == total
    assert len(reader.names["kept"]) == total
    assert "rows of" not in reader.printed


def test_a_key_is_a_dict(reader: Shell, store: Store) -> None:
    """The dict is that of the Python API. A missing key is reported."""
    assert reader.run("%state counts key k=k1 --at 3") == store["counts"].at(3).table().lookup(k="k1")
    assert reader.run('%state counts key "k=no such" --at live') is None
    assert "has no row with k=no such at epoch 4.\n" in reader.printed
    assert "\nFor example: k=k0\n" in reader.printed


def test_a_keys_values_have_their_columns_types(
    bare_shell: Shell, spark: SparkSession, source: Source, tmp_path: Path
) -> None:
    """Numbers, dates, booleans, times and structs are parsed from text."""
    source.add({"k": ["a", "b"], "v": [1, 2]})
    kinds = source.stream().select(
        F.col("v").cast("int").alias("number"),
        F.expr("v = 1").alias("flag"),
        F.expr("date'2013-01-01' + cast(v as int)").alias("day"),
        F.expr("timestamp'2013-01-01 00:00:00Z' + make_interval(0, 0, 0, 0, v)").alias("time"),
        F.expr("named_struct('x', v, 'y', k)").alias("pair"),
        F.expr("cast(v as decimal(9, 2))").alias("amount"),
    )
    run(kinds.groupBy(*kinds.columns).count(), tmp_path / "checkpoint")
    ss.Checkpoint(tmp_path / "checkpoint").capture(tmp_path / "store", "kinds", spark=spark)
    found = bare_shell.run(
        f"%state kinds key number=1 flag=true day=2013-01-02 time=2013-01-01T02:00+01:00 --store {tmp_path}/store "
        '\'pair={"x": 1, "y": "a"}\' amount=1.00 --at live'
    )
    assert found is not None
    assert found["count"] == 1
    assert "of type int32" in bare_shell.fails("%state kinds key number=one", InvalidArgumentError)
    assert "of type bool" in bare_shell.fails("%state kinds key flag=perhaps", InvalidArgumentError)
    assert "expected a value of type" in bare_shell.fails("%state kinds key pair=1,a", InvalidArgumentError)


def test_a_keys_history_and_a_diff(reader: Shell, store: Store) -> None:
    """The results are those of the Python API."""
    history = reader.run("%state counts key k=k1")
    pd.testing.assert_frame_equal(history, store["counts"].key_history("op0", k="k1"))
    assert reader.run("%state counts diff 1 3 -o changes").counts == store["counts"].diff(1, 3).counts
    assert reader.names["changes"].a == 1
    assert reader.run("%state counts diff 1..3").counts == reader.names["changes"].counts


@pytest.mark.parametrize(
    ("line", "error", "expected"),
    [
        ("%state counts --at 1", InvalidArgumentError, "Did you mean at?"),
        ("%state counts key k=k1 table=op0", UnknownColumnError, "names: k. Options: --at, --store, "),
        ("%state counts why 1 k=k1 source=0", UnknownColumnError, "names: k. Options: --store, "),
        ("%state counts timeline --at 1", InvalidArgumentError, "no option --at"),
        ("%state counts dashbord", InvalidArgumentError, "Did you mean dashboard?"),
        ("%state --store nowhere counts at 1", InvalidArgumentError, "%state NAME[.TABLE] at …"),
        ("%state serve --port 70000", InvalidArgumentError, "65535"),
        ("%state serve --stop", InvalidArgumentError, "%state serve"),
        ("%state count at 1", UnknownQueryError, "Did you mean 'counts'?"),
        ("%state counts.op1 at 1", UnknownTableError, "op0"),
        ("%state counts at 99", UnknownEpochError, "4"),
        ("%state counts at newest", InvalidArgumentError, "'live - 10'"),
        ("%state counts at", InvalidArgumentError, "EPOCH is missing"),
        ("%state counts at live --limit 3 --by mxa", UnknownColumnError, "Did you mean 'max'?"),
        ("%state counts key max=3", UnknownColumnError, "k"),
        ("%state counts key k1", InvalidArgumentError, "COLUMN=VALUE"),
        ("%state counts key", InvalidArgumentError, "For example: k=k0"),
        ("%state counts diff 1", InvalidArgumentError, "diff 10 12"),
        ("%state counts diff 1 newest", InvalidArgumentError, "expected an integer"),
        ("%state counts diff 1 2 --at 3", InvalidArgumentError, "no option --at"),
        ("%state counts key k=k1 --limit 3", InvalidArgumentError, "no option --limit"),
        ("%state counts at 4 --where 'n >'", InvalidSQLError, "does not parse"),
        ('%state counts at 4 --where "n > \'x"', InvalidSQLError, "does not parse"),
        ("%state counts at 4 --where 'n > 3", InvalidArgumentError, "is not closed"),
        ("%state counts at 4 --where n > 3", InvalidArgumentError, "needs quotes"),
        ("%state counts at 2 --store nowhere", NotAStoreError, "nowhere"),
        ("%snapshots count", UnknownQueryError, "Did you mean 'counts'?"),
        ("%%statesql\n \n", InvalidArgumentError, "SELECT * FROM"),
        ("%%statesql\nSELECT * FROM count", LookupError, "counts"),
        ("%%statesql\nDROP TABLE counts", InvalidSQLError, "SELECT"),
        ("%%statesql --engine sparks\nSELECT 1", InvalidArgumentError, "duckdb, spark. Did you mean spark?"),
        ("%%statesql --at 77\nSELECT * FROM counts", UnknownEpochError, "4"),
    ],
)
def test_an_invalid_line_names_the_choices(reader: Shell, line: str, error: type[Exception], expected: str) -> None:
    """The cell fails with at most four lines and no traceback."""
    assert expected in reader.fails(line, error)
    assert "Traceback" not in reader.printed
    assert len(reader.printed.strip().splitlines()) <= 4


def test_sql_is_not_expanded(reader: Shell, store: Store) -> None:
    """Braces, dollars and shifts are kept. -o assigns the resulting DataFrame."""
    reader.run("k = 'wrong'")
    sql = "SELECT k, 1 << 2 AS four, '{k} $k' AS text FROM counts VERSION AS OF 1 WHERE k = 'k1'"
    found = reader.run(f"%%statesql -o kept\n{sql}")
    assert found.iloc[0].tolist() == ["k1", 4, "{k} $k"]
    assert reader.names["kept"] is found


def test_sql_reads_the_epoch_of_the_line(reader: Shell, store: Store) -> None:
    """``--at`` applies to relations without an epoch in the SQL."""
    found = reader.run("%%statesql --at 1\nSELECT sum(count) AS total FROM counts")
    assert int(found["total"][0]) == store["counts"].at(1).table().to_pandas()["count"].sum()


def test_snapshots_are_the_manifest_or_an_overview(reader: Shell, store: Store) -> None:
    """With a name, %snapshots lists the query's epochs; without a name, the store's queries."""
    shown, epochs = reader.run("%snapshots counts -o epochs"), store["counts"].epochs()
    # Which rows are counted depends on what has been read.
    pd.testing.assert_frame_equal(shown.drop(columns="rows"), epochs.drop(columns="rows"))
    assert len(reader.names["epochs"]) == 5
    overview = reader.run("%snapshots")
    assert overview[["query", "epochs", "gaps", "newest"]].iloc[0].tolist() == ["counts", 5, 0, 4]


def test_a_store_named_once_stays_in_use(bare_shell: Shell, counted: tuple[Path, Path]) -> None:
    """Lines after --store use the same store."""
    assert len(bare_shell.run(f"%snapshots --store {counted[1]}")) == 1
    assert len(bare_shell.run("%snapshots counts")) == 5


def test_without_a_verb_the_state_browser_is_shown(reader: Shell) -> None:
    """-o assigns it."""
    browser = reader.run("%state counts -o mine")
    assert type(browser).__name__ == "StateBrowser"
    assert reader.names["mine"] is browser
    assert type(reader.run("%state counts.op0")).__name__ == "StateBrowser"


def test_a_recreated_store_is_reopened(bare_shell: Shell, counted: tuple[Path, Path], tmp_path: Path) -> None:
    """A store can be deleted and recreated without restarting the kernel."""
    ss.Checkpoint(counted[0]).capture(tmp_path / "store", "before")
    assert bare_shell.run(f"%snapshots --store {tmp_path}/store")["query"].tolist() == ["before"]
    assert bare_shell.run("%state before at 1 --limit 1 --by count")["count"].tolist()
    shutil.rmtree(tmp_path / "store")
    assert "is not a store" in bare_shell.fails("%snapshots", NotAStoreError)
    ss.Checkpoint(counted[0]).capture(tmp_path / "store", "after")
    assert len(bare_shell.run("%state after at 1 -o kept")) == len(bare_shell.names["kept"])
    assert bare_shell.run("%snapshots")["query"].tolist() == ["after"]


def test_tracebacks_can_be_enabled(reader: Shell) -> None:
    """With ``%config StreamState.tracebacks``, errors are printed with a traceback."""
    reader.run("%config StreamState.tracebacks = True")
    reader.fails("%state nope at 1", UnknownQueryError)
    assert "Traceback" in reader.printed
