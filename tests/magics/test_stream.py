from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from conftest import Source, counts, letters
from deltalake import write_deltalake
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from pyspark.sql import SparkSession

from streamstate.errors import (
    InvalidArgumentError,
    InvalidNameError,
    InvalidSQLError,
    NameTakenError,
    NewerStoreError,
    NoStateError,
    NotACheckpointError,
    NotAStoreError,
    QueryError,
)
from streamstate.launch.running import Running
from streamstate.snapshots.store.layout import FORMAT, QUERIES


@pytest.fixture
def letters_in(source: Source, shell: Shell) -> Source:
    """A source with three epochs of input, in the notebook as ``stream`` and ``counted``."""
    for epoch in range(3):
        source.add(letters(epoch))
    shell.names.update(stream=source.stream(), counted=counts(source))
    return source


def nothing_started(shell: Shell, spark: SparkSession, folder: Path) -> bool:
    """Return whether no query is running and nothing was written."""
    return not spark.streams.active and not shell.notebook.running and not (folder / "streamstate-data").exists()


def test_a_cell_becomes_a_captured_query(shell: Shell, letters_in: Source, tmp_path: Path) -> None:
    """The cell returns a handle. The store and the checkpoint are in the default folder."""
    handle = shell.run("%%stream counts --trigger available-now -o mine\ncounted")
    assert isinstance(handle, Running)
    assert shell.names["mine"] is handle
    assert handle.wait(timeout=300) == 2
    assert handle.state == "finished"
    assert handle.store == str(tmp_path / "streamstate-data" / "store")
    assert (tmp_path / "streamstate-data" / "checkpoints" / "counts" / "metadata").exists()


def test_the_handle_has_a_text_and_an_escaped_html_form(shell: Shell, letters_in: Source) -> None:
    """Both have the query's name, its state and the newest epoch."""
    handle = shell.run("%%stream counts --trigger available-now\ncounted")
    handle.wait(timeout=300)
    for text in (repr(handle), handle._repr_html_()):
        assert "counts" in text
        assert "finished" in text
        assert "epoch 2" in text
    assert "<b>counts</b>" in handle._repr_html_()


def test_the_cell_runs_in_the_users_namespace(shell: Shell, letters_in: Source) -> None:
    """Its variables are kept, and its last expression is the query."""
    shell.run('%%stream counts --trigger available-now\nby_k = stream.groupBy("k")\nby_k.count()').wait(timeout=300)
    assert "by_k" in shell.names


def test_a_cell_can_be_sql(shell: Shell, letters_in: Source) -> None:
    """With --sql, the cell is a SELECT over streaming views. Dollars and braces are not expanded."""
    shell.run('stream.createOrReplaceTempView("letters"); k = "wrong"')
    sql = "SELECT k, '{k} $k' AS `{k} $k`, 1 << 2 AS four, count(*) FROM letters GROUP BY k"
    handle = shell.run(f"%%stream q --sql --trigger available-now\n{sql}")
    assert handle.wait(timeout=300) == 2
    assert handle.launch.frame.columns[:3] == ["k", "{k} $k", "four"]


@pytest.mark.exhaustive
def test_the_same_name_resumes(shell: Shell, letters_in: Source) -> None:
    """The old query is stopped, and the new one continues from its checkpoint. One line reports this."""
    shell.run("%%stream counts --trigger 1s\ncounted").wait(epoch=2, timeout=300)
    letters_in.add(letters(3))
    handle = shell.run("%%stream counts --trigger available-now\ncounted")
    assert "counts was stopped. counts resumes after epoch" in shell.printed
    assert len(shell.printed.strip().splitlines()) == 2  # the report, and Out[…]
    assert handle.wait(timeout=300) == 3
    assert list(shell.notebook.running) == ["counts"]


def test_a_memory_sink_that_cannot_resume_leaves_the_query_running(shell: Shell, letters_in: Source) -> None:
    """The error is raised before the running query is stopped."""
    handle = shell.run("%%stream counts --sink memory\ncounted")
    handle.wait(epoch=2, timeout=300)
    assert "sink noop" in shell.fails("%%stream counts --sink memory\ncounted", QueryError)
    assert handle.state == "running"
    assert shell.run("spark.table('counts').count()") > 0


def test_partitions_are_set_for_the_query_only(shell: Shell, letters_in: Source, spark: SparkSession) -> None:
    """The session's setting is unchanged."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    handle = shell.run("%%stream counts --partitions 3 --trigger available-now\ncounted")
    handle.wait(timeout=300)
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    assert handle.query.lastProgress["stateOperators"][0]["numShufflePartitions"] == 3


def test_a_sink_is_a_format_and_a_path(shell: Shell, letters_in: Source, tmp_path: Path) -> None:
    """Files are written in append mode. Spark's writer has options."""
    sink = f"--mode append --sink json:{tmp_path}/out --sink-option compression=gzip"
    handle = shell.run(f'%%stream seen {sink} --trigger once\nstream.dropDuplicates(["k"])')
    handle.wait(timeout=300)
    assert list((tmp_path / "out").glob("*.json.gz"))
    assert "gzip" not in repr(handle.launch)


def test_a_sink_that_dies_at_its_start_fails_the_cell(shell: Shell, letters_in: Source, tmp_path: Path) -> None:
    """Spark itself returns a handle before it opens the sink. Nothing runs on."""
    cell = f"--mode append --sink json:{tmp_path}/out --sink-option compression=none-such"
    message = shell.fails(f'%%stream dies {cell}\nstream.dropDuplicates(["k"])', QueryError)
    assert message.startswith("Spark did not start dies: ")
    assert "none-such" in message


@pytest.mark.parametrize(
    ("line", "error", "expected"),
    [
        ("%%stream", InvalidArgumentError, "NAME"),
        ("%%stream ../x", InvalidNameError, "letters, digits"),
        ("%%stream a/b", InvalidNameError, "letters, digits"),
        ("%%stream counts --mode upsert", InvalidArgumentError, "update, append, complete"),
        ("%%stream counts --mode append", QueryError, "Use mode update (complete would work too)"),
        ("%%stream counts --trigger soon", InvalidArgumentError, "available-now"),
        ("%%stream counts --sink nowhere", InvalidArgumentError, "noop"),
        ("%%stream counts --sink parquet:out", QueryError, "mode append"),
        ("%%stream counts --sink kafka:out", InvalidArgumentError, "--sink-option kafka.bootstrap.servers=host:9092"),
        ("%%stream counts --sink kafka --sink-option topic", InvalidArgumentError, "expected KEY=VALUE"),
        (
            "%%stream counts --sink kafka:out --sink-option kafka.bootstrap.servers=host:1",
            QueryError,
            "value of type string or binary; the query returns k, n",
        ),
        ("%%stream counts --every 0", InvalidArgumentError, "at least 1"),
        ("%%stream counts --partitions many", InvalidArgumentError, "at least 1"),
        ("%%stream counts -o 1x", InvalidArgumentError, "Python variable"),
        ("%%stream counts --tigger 1s", InvalidArgumentError, "Did you mean --trigger?"),
    ],
)
def test_an_invalid_line_starts_nothing(
    shell: Shell,
    letters_in: Source,
    spark: SparkSession,
    tmp_path: Path,
    line: str,
    error: type[Exception],
    expected: str,
) -> None:
    """The cell fails with an error that says what is expected."""
    assert expected in shell.fails(f"{line}\ncounted", error)
    assert nothing_started(shell, spark, tmp_path)


@pytest.mark.parametrize(
    ("cell", "error", "expected"),
    [
        (" ", InvalidArgumentError, "cell is empty"),
        ("frame = counted", QueryError, "End it with a line that contains only frame"),
        ("42", QueryError, "a value of type int"),
        ("spark.range(3)", QueryError, "spark.readStream"),
        ("counted.writeStream", QueryError, "Remove .writeStream"),
        ("stream", NoStateError, "keeps no state"),
        (
            'stream.join(spark.createDataFrame([("k1", 1)], "k string, w int").groupBy("k").count(), "k")',
            NoStateError,
            "",
        ),
        ('stream.groupBy("k").count().orderBy("k")', QueryError, "Use mode complete."),
        ('stream.orderBy("k").dropDuplicates(["k"])', QueryError, "Sorting is not supported"),
    ],
)
def test_a_cell_without_a_stateful_stream_starts_nothing(
    shell: Shell,
    letters_in: Source,
    spark: SparkSession,
    tmp_path: Path,
    cell: str,
    error: type[Exception],
    expected: str,
) -> None:
    """The error describes the value of the cell."""
    assert expected in shell.fails(f"%%stream counts\n{cell}", error)
    assert nothing_started(shell, spark, tmp_path)


@pytest.mark.parametrize(
    "sql", ["SELEC k FROM letters", "SELECT nope FROM letters", "SELECT 1", "SELECT * FROM nowhere"]
)
def test_invalid_sql_starts_nothing(
    shell: Shell, letters_in: Source, spark: SparkSession, tmp_path: Path, sql: str
) -> None:
    """The error for SQL that Spark cannot parse or analyze has at most eight lines."""
    shell.run('stream.createOrReplaceTempView("letters")')
    message = shell.fails(f"%%stream counts --sql\n{sql}", (InvalidSQLError, QueryError))
    assert len(message.splitlines()) <= 8
    assert nothing_started(shell, spark, tmp_path)


def test_an_error_in_the_cell_is_raised_unchanged(
    shell: Shell, letters_in: Source, spark: SparkSession, tmp_path: Path
) -> None:
    """Its traceback shows the cell's line, and no line of the library."""
    shell.fails("%%stream counts\nx = 1\nmissing_name + x", NameError)
    assert "missing_name + x" in shell.printed
    assert "_cell_value" not in shell.printed
    assert nothing_started(shell, spark, tmp_path)


def test_a_name_of_another_checkpoint_is_refused(
    shell: Shell, letters_in: Source, spark: SparkSession, tmp_path: Path
) -> None:
    """The message has the path of the name's checkpoint."""
    shell.run("%%stream counts --trigger available-now\ncounted").wait(timeout=300)
    shell.run("%stream stop counts")
    message = shell.fails(f"%%stream counts --checkpoint {tmp_path}/other\ncounted", NameTakenError)
    assert "whose checkpoint is " in message
    assert "streamstate-data/checkpoints/counts" in message
    assert not (tmp_path / "other").exists()


def test_a_path_that_is_not_a_store_or_checkpoint_is_refused(
    shell: Shell, letters_in: Source, spark: SparkSession, tmp_path: Path
) -> None:
    """A file is not a store, and a directory with other files is not a checkpoint."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    assert "is a file" in shell.fails("%%stream counts --store file\ncounted", NotAStoreError)
    assert "is not empty" in shell.fails("%%stream counts --checkpoint full\ncounted", NotACheckpointError)
    assert nothing_started(shell, spark, tmp_path)


def test_a_store_of_a_newer_version_is_not_written(
    shell: Shell, letters_in: Source, spark: SparkSession, tmp_path: Path
) -> None:
    """The error is raised before anything starts."""
    row = dict.fromkeys(QUERIES.names) | {"name": "later", "query_id": "x", "format": FORMAT + 1}
    write_deltalake(tmp_path / "newer" / "_queries", pa.Table.from_pylist([row], schema=QUERIES))
    before = sorted(tmp_path.rglob("newer/**/*"))
    assert "Upgrade streamstate." in shell.fails("%%stream counts --store newer\ncounted", NewerStoreError)
    assert sorted(tmp_path.rglob("newer/**/*")) == before
    assert nothing_started(shell, spark, tmp_path)


def test_a_query_started_without_the_magics_keeps_its_name(
    shell: Shell, letters_in: Source, spark: SparkSession, tmp_path: Path
) -> None:
    """A query that the user started with the same name keeps running."""
    writer = counts(letters_in).writeStream.queryName("counts").format("noop").outputMode("update")
    query = writer.option("checkpointLocation", str(tmp_path / "other")).start()
    try:
        assert "was not started here" in shell.fails("%%stream counts\ncounted", QueryError)
        assert query.isActive
        assert shell.run("%stream list").to_pandas()["state"].tolist() == ["not captured"]
    finally:
        query.stop()


def test_spark_is_assigned_only_if_undefined(bare_shell: Shell, spark: SparkSession) -> None:
    """The session is assigned to ``spark``. An existing variable is kept."""
    bare_shell.fails("%%stream counts\n42", QueryError)
    assert bare_shell.names["spark"] is spark
    bare_shell.run("spark = 'mine'")
    bare_shell.fails("%%stream counts\n42", QueryError)
    assert bare_shell.run("spark") == "mine"
