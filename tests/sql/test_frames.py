"""The user's own data as relations: frames of all kinds, and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from synthetic import write

import streamstate as ss
from streamstate.errors import InvalidArgumentError, UnknownNameError
from streamstate.reports import Store

ROWS = {"key": ["a", "b", "z"], "name": ["Ann", "Bob", None]}
JOINED = "SELECT q.key, names.name FROM q JOIN names USING (key) ORDER BY 1"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store with the query ``q``."""
    folder = tmp_path_factory.mktemp("framed")
    write(folder, [{"a": 1}, {"a": 2, "b": 5}])
    return ss.open_store(folder)


def csv(folder: Path) -> Path:
    """The rows as CSV."""
    pd.DataFrame(ROWS).to_csv(folder / "names.csv", index=False)
    return folder / "names.csv"


def zipped(folder: Path) -> str:
    """The rows as compressed CSV, with a string as its path."""
    pd.DataFrame(ROWS).to_csv(folder / "names.csv.gz", index=False)
    return str(folder / "names.csv.gz")


def parquet(folder: Path) -> Path:
    """The rows as Parquet."""
    pq.write_table(pa.table(ROWS), folder / "names.parquet")
    return folder / "names.parquet"


def parquet_folder(folder: Path) -> Path:
    """A folder of Parquet files."""
    parquet(folder)
    return folder


@pytest.mark.parametrize(
    "make",
    [
        lambda _: pd.DataFrame(ROWS),
        lambda _: pd.DataFrame(ROWS).convert_dtypes(),
        lambda _: polars.DataFrame(ROWS),
        lambda _: polars.LazyFrame(ROWS),
        lambda _: pa.table(ROWS),
        lambda _: pa.record_batch(ROWS),
        lambda _: pa.table(ROWS).to_reader(),
        lambda _: ds.dataset(pa.table(ROWS)),
        lambda folder: ds.dataset(parquet(folder)),
        csv,
        zipped,
        parquet,
        parquet_folder,
    ],
)
def test_frames_of_all_kinds_are_relations(small: Store, tmp_path: Path, make: Callable[[Path], Any]) -> None:
    """Frames can be joined with state by name, used twice in a statement, and read repeatedly."""
    frames = {"names": make(tmp_path)}
    result = small.sql(JOINED, frames=frames)
    assert result.epochs == {"q": [1]}
    assert (len(result), "Ann" in repr(result)) == (2, True)
    assert result.to_arrow().to_pylist() == [{"key": "a", "name": "Ann"}, {"key": "b", "name": "Bob"}]
    if not isinstance(frames["names"], pa.RecordBatchReader):
        twice = "SELECT count(*) AS n FROM names AS x JOIN names AS y USING (key) WHERE x.name IS NOT NULL"
        assert small.sql(twice, frames=frames).to_pandas()["n"].tolist() == [2]


def test_an_iterator_of_batches_can_be_used_twice(small: Store) -> None:
    """It is read once, when the result is created."""
    sql = "SELECT count(*) AS n FROM names AS x JOIN names AS y USING (key)"
    assert small.sql(sql, frames={"names": pa.table(ROWS).to_reader()}).to_pandas()["n"].tolist() == [3]


def test_a_result_is_a_frame(small: Store) -> None:
    """Results and state tables can be passed as frames."""
    first = small.sql("SELECT key, value * 10 AS v FROM q VERSION AS OF 0")
    joined = small.sql(
        "SELECT v, t.value FROM first JOIN t USING (key)", frames={"first": first, "t": small["q"].live().table()}
    )
    assert joined.to_arrow().to_pylist() == [{"v": 10, "value": 2}]


def test_names_are_case_insensitive_and_can_be_quoted(small: Store) -> None:
    """Frames have the same rules as queries."""
    for sql in ("FROM NAMES", 'FROM "names" AS x', "SELECT Names.key FROM Names"):
        assert len(small.sql(sql, frames={"names": pd.DataFrame(ROWS)})) == 3


def test_ctes_take_precedence_over_frames(small: Store) -> None:
    """A name defined by WITH hides the frame."""
    result = small.sql("WITH names AS (SELECT 1 AS one) FROM names", frames={"names": pd.DataFrame(ROWS)})
    assert result.columns == ["one"]


def test_variables_are_not_relations(small: Store) -> None:
    """SQL can read only the frames that are passed, and not the caller's variables."""
    names = pd.DataFrame(ROWS)
    with pytest.raises(UnknownNameError, match="Relation names: q"):
        small.sql("FROM names")
    assert len(names) == 3


@pytest.mark.parametrize(
    ("frames", "message"),
    [
        ({"q": pd.DataFrame(ROWS)}, "would hide the query 'q'"),
        ({"Q": pd.DataFrame(ROWS)}, "would hide the query 'q'"),
        ({"x": pd.DataFrame(ROWS), "X": pd.DataFrame(ROWS)}, "Two frames"),
        ({"a.b": pd.DataFrame(ROWS)}, "without dots"),
        ({"": pd.DataFrame(ROWS)}, "without dots"),
        ({3: pd.DataFrame(ROWS)}, "without dots"),
        ({"x": 3}, "of type int"),
        ({"x": [1, 2]}, "of type list"),
        ({"x": pd.DataFrame}, "cannot be read as a table"),
        ({"x": pd.DataFrame({"mixed": [1, "a"]})}, "cannot be read as a table"),
        ({"x": "nowhere.csv"}, "does not exist"),
        ({"x": "https://example.com/x.csv"}, "not on this machine"),
        ({"x": __file__}, "neither a CSV nor a Parquet suffix"),
        ([("x", pd.DataFrame(ROWS))], "expected a dict"),
    ],
)
def test_invalid_frames_are_refused(small: Store, frames: Any, message: str) -> None:
    """Invalid and taken names, and values that are not tables, are refused."""
    with pytest.raises(InvalidArgumentError, match=message):
        small.sql("FROM x", frames=frames)


def test_a_file_with_a_wrong_suffix_is_an_error(small: Store, tmp_path: Path) -> None:
    """The error names the file."""
    (tmp_path / "x.parquet").write_text("no parquet")
    with pytest.raises(InvalidArgumentError, match=r"x\.parquet"):
        small.sql("FROM x", frames={"x": tmp_path / "x.parquet"})
