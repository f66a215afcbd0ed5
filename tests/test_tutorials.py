from __future__ import annotations

from datetime import date
from pathlib import Path

import nbformat
import pandas as pd
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from nbclient import NotebookClient

import streamstate as ss
from streamstate.snapshots.delta import Place, append_once, open_or_create
from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.tutorials.data import prepare
from streamstate.tutorials.staging import Arrivals, power_cut

TUTORIALS = Path(__file__).resolve().parent.parent / "tutorials"
NOTEBOOKS = sorted(TUTORIALS.glob("*.ipynb"))

Shown = list[tuple[str, str]]
"""Each code cell's source and what it showed, as text."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the quickstart runs and leaves what it makes."""
    return tmp_path_factory.mktemp("quickstart")


@pytest.fixture(scope="module")
def quickstart(folder: Path) -> Shown:
    """The quickstart, run from top to bottom in a kernel of its own."""
    return _run("00_quickstart", folder)


@pytest.fixture(scope="module")
def consistency_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the notebook on consistency runs."""
    return tmp_path_factory.mktemp("consistency")


@pytest.fixture(scope="module")
def consistency(consistency_folder: Path) -> Shown:
    """The notebook on consistency; what it teaches it asserts itself, so running it is most of the test."""
    return _run("01_epochs_and_consistency", consistency_folder)


@pytest.fixture(scope="module")
def detective_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the detective story runs."""
    return tmp_path_factory.mktemp("detective")


@pytest.fixture(scope="module")
def detective(detective_folder: Path) -> Shown:
    """The detective story; it, too, asserts what it claims."""
    return _run("02_state_as_a_database", detective_folder)


@pytest.fixture(scope="module")
def watching(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The notebook on watching a stream; it, too, asserts what it claims."""
    return _run("03_watching_a_stream", tmp_path_factory.mktemp("watching"))


def _run(name: str, folder: Path) -> Shown:
    """Run a notebook from top to bottom in a kernel of its own."""
    notebook = nbformat.read(TUTORIALS / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, resources=resources, store_widget_state=False).execute()
    return [(cell.source, _text(cell.outputs)) for cell in notebook.cells if cell.cell_type == "code"]


def _text(outputs: list[nbformat.NotebookNode]) -> str:
    """What a reader of plain text sees of a cell's outputs."""
    return "\n".join(one.text if one.output_type == "stream" else one.data["text/plain"] for one in outputs)


def _of(quickstart: Shown, part: str) -> str:
    """What the one cell with this text in it showed."""
    (found,) = [text for source, text in quickstart if part in source]
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    """What they show is made by running them; a diff of one shows what somebody wrote."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert "widgets" not in notebook.metadata


def test_the_quickstart_captures_every_file_as_an_epoch(quickstart: Shown, folder: Path) -> None:
    """Thirty files, one epoch each, none missing, none twice."""
    assert "epoch 29" in _of(quickstart, "%stream wait")
    assert ss.open_store(folder / "streamstate-data" / "store")["delays"].captured() == list(range(30))


def test_the_quickstart_finds_the_flight(quickstart: Shown, folder: Path) -> None:
    """The prose says what the cells show: the sum leapt in epoch 2, by one flight that was 1301 minutes late."""
    assert "1301" in _of(quickstart, "--history")
    table = [ss.open_store(folder / "streamstate-data" / "store")["delays"].at(epoch).table() for epoch in (1, 2)]
    before, after = (one.lookup(carrier="HA", origin="JFK") for one in table)
    assert before is not None
    assert after is not None
    assert before["max"] < after["max"] == 1301
    assert "HA" in _of(quickstart, "AS average_after").splitlines()[1]


def test_the_same_epoch_is_the_same_through_python_and_sql(quickstart: Shown, folder: Path) -> None:
    """One key at one epoch, as the notebook's Python shows it and as SQL selects it."""
    store = ss.open_store(folder / "streamstate-data" / "store")
    (row,) = store.sql("SELECT * FROM delays VERSION AS OF 2 WHERE carrier = 'HA'").to_arrow().to_pylist()
    assert row == store["delays"].at(2).table().lookup(carrier="HA", origin="JFK")
    assert f"'sum': {row['sum']}" in _of(quickstart, "open_store")


def test_the_torn_picture_is_torn_and_no_snapshot_is(consistency: Shown, consistency_folder: Path) -> None:
    """Two reads of Spark's newest state disagree by a file; the store, opened afresh, balances at every epoch."""
    assert _of(consistency, "at_first = passed()") == "{'operator 1': 7900, 'operator 0': 10452}"
    history = ss.open_store(consistency_folder / "streamstate-data" / "consistency" / "store")["departures"]
    for epoch in history.captured():
        snapshot = history.at(epoch)
        assert snapshot.table("op1").count() == sum(snapshot.table("op0").to_arrow()["count"].to_pylist())


def test_the_epochs_that_spark_purged_are_gaps(consistency: Shown, consistency_folder: Path) -> None:
    """The notebook comes too late for epochs 6 and 7, is told so by number, and goes on with a keyframe at 8."""
    assert "Epoch 6 of departures was gone" in _of(consistency, "report.gaps[0]")
    epochs = ss.open_store(consistency_folder / "streamstate-data" / "consistency" / "store")["departures"].epochs()
    assert epochs[epochs["status"] == "gap"]["epoch"].to_list() == [6, 7]
    assert epochs.set_index("epoch")["keyframes"][8] == {"op0": 8, "op1": 8}


def test_a_power_cut_leaves_one_log_ahead_and_nothing_to_see(consistency: Shown) -> None:
    """As the prose says: torn on disk after the first attempt, invisible until the third."""
    shown = _of(consistency, "power_cut(after=1)").splitlines()
    numbers = {line.rsplit(maxsplit=3)[0].strip(): line.split()[-3:] for line in shown}
    assert numbers["newest snapshot"] == ["4", "4", "5"]
    assert numbers["its books differ by"] == ["0", "0", "0"]
    assert [one == "0" for one in numbers["books in the logs differ by"]] == [False, True, True]


def test_the_notebook_on_consistency_shows_nothing_but_its_own(consistency: Shown) -> None:
    """What Spark and Java print would stand between the reader and the point; nor is a path of this machine shown."""
    shown = "\n".join(text for _, text in consistency)
    assert not any(noise in shown for noise in ("WARN", "Warning", "ERROR", "incubator", "Exception"))
    assert str(TUTORIALS.parent) not in shown


def test_the_detective_finds_the_flight_and_what_became_of_it(detective: Shown, detective_folder: Path) -> None:
    """The prose names flight 51, the epochs of its coming and going, and both causes; the store says the same."""
    assert "N384HA" in _of(detective, "witness = cut.sql(")
    assert _of(detective, "events = other.life").count("watermark") == 2
    store = ss.open_store(detective_folder / "streamstate-data" / "detective" / "store")
    flight = "SELECT _valid_from, _valid_to FROM weather.op0_left.history WHERE flight = 51 AND dep_delay > 1000"
    assert store.sql(flight).to_arrow().to_pylist() == [{"_valid_from": 1, "_valid_to": 2}]


def test_the_detectives_numbers_are_those_of_the_feed(detective: Shown, detective_folder: Path) -> None:
    """The dashboard's first row, computed from the departures themselves, without a query or its state."""
    feed = sorted((detective_folder / "streamstate-data" / "flights" / "flights").glob("*.parquet"))[:25]
    departures = pd.concat([pd.read_parquet(file) for file in feed])
    means = departures.groupby(["carrier", "origin"])["dep_delay"].agg(["count", "mean"]).query("count >= 50")["mean"]
    first = _of(detective, "-o board").splitlines()[1]
    assert means.sort_values().index.to_list()[-1] == ("HA", "JFK")
    assert f"{means.max():.1f}" in first.split()
    assert "Hawaiian" in first


def test_the_detectives_trap_rings_once(detective: Shown) -> None:
    """For the one key that begins to meet the condition, not for those that met it before."""
    assert _of(detective, "rang.get").splitlines()[-1].split()[1:3] == ["DL", "JFK"]


def test_the_detective_story_shows_nothing_but_its_own(detective: Shown) -> None:
    """As for the notebook on consistency."""
    shown = "\n".join(text for _, text in detective)
    assert not any(noise in shown for noise in ("WARN", "Warning", "ERROR", "incubator", "Exception"))
    assert str(TUTORIALS.parent) not in shown


@pytest.mark.slow
def test_the_detective_story_runs_again_where_it_ran(detective: Shown, detective_folder: Path) -> None:
    """It begins anew, whatever an earlier run left."""
    again = _run("02_state_as_a_database", detective_folder)
    assert _of(again, "untouched = history") == _of(detective, "untouched = history")


@pytest.mark.slow
def test_the_notebook_on_consistency_runs_again_where_it_ran(consistency: Shown, consistency_folder: Path) -> None:
    """It clears away what it left, and nothing else; the second run shows what the first did."""
    left = consistency_folder / "streamstate-data" / "other"
    left.mkdir()
    again = _run("01_epochs_and_consistency", consistency_folder)
    assert _of(again, "power_cut(after=1)") == _of(consistency, "power_cut(after=1)")
    assert left.is_dir()


def test_files_arrive_in_order_once_until_there_are_none(tmp_path: Path) -> None:
    """A reader holds the clock: one file a call, the latest once more when asked, and an error after the last."""
    data = prepare(tmp_path / "data", days_per_file=1, first=date(2013, 1, 1), last=date(2013, 1, 2))
    arrivals = Arrivals(data, tmp_path / "arriving")
    with pytest.raises(InvalidArgumentError, match="No file has arrived"):
        arrivals.again()
    assert [arrivals.next(), arrivals.again()] == ["2013-01-01.parquet", "2013-01-01-repeat-1.parquet"]
    assert arrivals.next() == "2013-01-02.parquet"
    with pytest.raises(InvalidArgumentError, match="All files have arrived"):
        arrivals.next()
    assert len(list((tmp_path / "arriving" / "flights").glob("*"))) == 3
    with pytest.raises(InvalidArgumentError, match="no prepared flights"):
        Arrivals(tmp_path, tmp_path / "arriving")


def test_a_power_cut_ends_a_block_before_its_next_commit(tmp_path: Path) -> None:
    """So many commits of rows stand, no more, and no handler of exceptions sees it; afterwards commits work as ever."""
    place = Place(str(tmp_path / "table"))
    open_or_create(place, pa.schema([("n", pa.int64())]), "a table")

    def commit(version: int) -> None:
        append_once(place, "test", version, lambda _: pa.table({"n": pa.array([version], pa.int64())}))

    with power_cut(after=2):
        for version in range(5):
            commit(version)
    table = DeltaTable(tmp_path / "table")
    assert table.to_pyarrow_table()["n"].to_pylist() in ([0, 1], [1, 0])
    commit(2)
    table.update_incremental()
    assert table.to_pyarrow_table().num_rows == 3


@pytest.mark.slow
def test_a_file_that_comes_twice_is_seen_while_watching(watching: Shown) -> None:
    """The diff of the epoch shows changes alone, the key's life the step, and a page and a file are left to others."""
    assert "+0 ~65 −0" in _of(watching, "change = history.diff(15, 16)")
    assert "removed at epoch 18 (watermark)" in _of(watching, "life = KeyHistoryView")
    assert "is served at http://127.0.0.1:" in _of(watching, "%state serve")
    assert "10 epochs" in _of(watching, "report = StateBrowser")
