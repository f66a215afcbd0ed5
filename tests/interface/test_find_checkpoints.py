"""``checkpoints``: every checkpoint under a folder, and the names of their queries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from capturing.buckets import Bucket, bucket  # noqa: F401 (a fixture)

import streamstate as ss
from streamstate.command_line.program import main
from streamstate.errors import InvalidArgumentError, InvalidNameError
from streamstate.snapshots.store.delta import Place


def copied(checkpoint: Path, target: Path, *, query_id: str | None = None) -> Path:
    """A copy of a checkpoint, of another query if an id is given."""
    shutil.copytree(checkpoint, target)
    if query_id is not None:
        (target / "metadata").write_text(json.dumps({"id": query_id}))
    return target


def names(root: Path) -> list[str]:
    """The names of the checkpoints, in the order of their paths."""
    return [checkpoint.name for checkpoint in ss.checkpoints(root)]


def made(folder: Path) -> Path:
    """A folder that looks like a checkpoint."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"1"}')
    return folder


def found(root: Path) -> list[Path]:
    """The paths of the checkpoints, relative to the root."""
    return [Path(checkpoint).relative_to(root.absolute()) for checkpoint in ss.checkpoints(root)]


def test_at_any_depth_and_sorted(tmp_path: Path) -> None:
    """Also those of pipelines, and of a query inside another one's folder."""
    for name in ("b", "a", "pipeline/checkpoints/flow/0", "a/inner"):
        made(tmp_path / name)
    (tmp_path / "metadata").write_text("none of a checkpoint")
    assert found(tmp_path) == [Path(name) for name in ("a", "a/inner", "b", "pipeline/checkpoints/flow/0")]
    assert names(tmp_path) == ["a", "inner", "b", "0"]


def test_names_have_as_many_folders_as_tell_them_apart(tmp_path: Path) -> None:
    """Ignoring case, as in SQL; whatever order they are found in. Letters of every script stay."""
    for name in ("team=a/orders", "team=b/Orders", "x/deep/y", "z/deep/y", "s=1/t/q", "s_1/t/q", "ümlaut", "注文"):
        made(tmp_path / name)
    assert names(tmp_path) == [
        *("s_1_t_q", "s_1_t_q_2", "team_a_orders", "team_b_Orders", "x_deep_y", "z_deep_y", "ümlaut", "注文"),
    ]


def test_names_of_flows_are_those_of_tables(tmp_path: Path) -> None:
    """Not the number of the version: the table and the flow, if it has another name; the schema tells them apart."""
    root = tmp_path / "storage" / "_checkpoints" / "main"
    for name in (
        "shop/seen/first/0",
        "shop/seen/first/1",
        "shop/seen/seen/0",
        "shop/totals/totals/12",
        "eu/seen/seen/0",
    ):
        made(root / name)
    expected = ["eu_seen", "seen_first", "seen_first_v1", "shop_seen", "totals_v12"]
    assert names(tmp_path) == expected
    assert ss.Checkpoint(root / "shop/seen/first/1").name == "seen_first_v1"


def test_a_name_that_another_query_has_begins_with_the_folder_above(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Two checkpoints of one folder's name can be captured into one store, in any order, and again."""
    first = copied(counted[0], tmp_path / "team=a" / "orders")
    second = copied(counted[0], tmp_path / "team=b" / "orders", query_id="second")
    for _ in range(2):
        assert ss.Checkpoint(second).capture(tmp_path / "store").query == "orders"
        assert ss.Checkpoint(first).capture(tmp_path / "store").query == "team_a_orders"
    (checkpoint, _) = ss.checkpoints(tmp_path / "team=a" / "..")
    assert checkpoint.capture(tmp_path / "other").query == "team_a_orders"


def test_a_query_has_any_letters_in_its_name(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """In the store, in SQL and as a folder, also if a disk gives letters and accents apart."""
    checkpoint = copied(counted[0], tmp_path / "umlaut")
    assert ss.Checkpoint(copied(counted[0], tmp_path / "u\u0308mlaut", query_id="other")).name == "ümlaut"
    ss.Checkpoint(checkpoint).capture(tmp_path / "store", "ümlaut_注文")
    store = ss.open_store(tmp_path / "store")
    count = store["ümlaut_注文"].live().table().count()
    assert store.sql("SELECT count(*) AS n FROM ümlaut_注文").to_pandas()["n"].tolist() == [count]
    for name in ("u\u0308", "_ü", "ü.x", "ü/x", "注" * 34, ""):
        with pytest.raises(InvalidNameError):
            ss.Checkpoint(checkpoint).capture(tmp_path / "store", name)


def test_the_overview_has_a_row_for_each(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Without Spark: what keeps no state, has not begun, or cannot be read is there too."""
    copied(counted[0], tmp_path / "counts")
    shutil.rmtree(copied(counted[0], tmp_path / "plain") / "state")
    made(tmp_path / "new")
    torn = copied(counted[0], tmp_path / "torn")
    (torn / "commits" / "4").unlink()
    (torn / "commits" / "4").symlink_to("/dev/null")
    frame = ss.checkpoints(tmp_path).overview().set_index("name")
    assert frame["stateful"].to_dict() == {"counts": True, "new": False, "plain": False, "torn": True}
    assert frame["epoch"].dropna().to_dict() == {"counts": 4, "plain": 4, "torn": 4}
    assert frame.loc["counts", "spark_version"] == "4.3 or later"
    committed = (tmp_path / "counts/commits/4").stat().st_mtime
    assert abs(frame["committed_at"].to_dict()["counts"].timestamp() - committed) < 0.001
    assert frame["problem"].isna().to_dict() == {"counts": True, "new": True, "plain": True, "torn": False}


def test_the_command_prints_the_overview(
    counted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row, or an object, for each checkpoint."""
    copied(counted[0], tmp_path / "team=a" / "orders")
    assert main(["find", str(tmp_path)]) == 0
    header, row = capsys.readouterr().out.splitlines()[:2]
    assert header.split() == ["name", "stateful", "spark_version", "epoch", "committed_at", "checkpoint"]
    assert row.split()[0] == "orders"
    assert main(["find", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["name"], shown["epoch"], shown["problem"]) == ("orders", 4, None)


@pytest.mark.slow
def test_requests_to_an_object_store(counted: tuple[Path, Path], bucket: Bucket) -> None:
    """Searching lists each folder above the state once, and no file; the overview takes four requests a checkpoint."""
    files = Place(f"{bucket.uri}/root", bucket.options).filesystem()
    for name in ("a/orders", "b/orders"):
        for path in (*counted[0].rglob("*"), counted[0] / "metadata"):
            if path.is_file():
                with files.open_output_stream(f"{name}/{path.relative_to(counted[0])}") as file:
                    file.write(path.read_bytes())
    bucket.requests()
    found = ss.checkpoints(f"{bucket.uri}/root", storage_options=bucket.options)
    assert [checkpoint.name for checkpoint in found] == ["a_orders", "b_orders"]
    assert sorted(bucket.requests()) == [
        f"LIST bucket/root/{name}" for name in ("", "a/", "a/orders/", "b/", "b/orders/")
    ]
    frame = found.overview()
    assert frame["epoch"].tolist() == [4, 4]
    assert frame["problem"].isna().all()
    assert len(bucket.requests()) == 4 * 2


def test_the_root_itself(tmp_path: Path) -> None:
    """A checkpoint is under itself."""
    assert found(made(tmp_path)) == [Path()]


def test_state_and_tables_are_not_searched(tmp_path: Path) -> None:
    """Spark's own folders hold none, nor do Delta tables."""
    made(made(tmp_path / "query") / "state" / "0")
    made(tmp_path / "table" / "part")
    (tmp_path / "table" / "_delta_log").mkdir()
    assert found(tmp_path) == [Path("query")]


def test_links_that_lead_back_are_followed_once(tmp_path: Path) -> None:
    """A circle of links ends."""
    made(tmp_path / "real" / "query")
    (tmp_path / "real" / "back").symlink_to(tmp_path)
    assert found(tmp_path) == [Path("real/query")]


def test_a_folder_is_needed(tmp_path: Path) -> None:
    """None is found in an empty one."""
    assert ss.checkpoints(tmp_path) == []
    with pytest.raises(InvalidArgumentError, match="is not a folder"):
        ss.checkpoints(tmp_path / "none")
