"""The checkpoints of a pipeline's flows: a version for each full refresh, captured one after another."""

from __future__ import annotations

import argparse
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from commands.test_follow_command import following, line_with
from recorded.make import HERE

import streamstate as ss
from streamstate.command_line.many import found_checkpoints
from streamstate.command_line.program import main
from streamstate.errors import DamagedCheckpointError, NotACheckpointError
from streamstate.reports import Capture
from streamstate.widgets.overview import OverviewModel, OverviewSelection
from streamstate.widgets.timeline.actions import TimelineSelection
from streamstate.widgets.timeline.model import TimelineModel

IN_STORAGE = "_checkpoints/spark_catalog/default/seen/first"


def version(counted: Path, flow: Path, number: int, *, epochs: int = 5) -> Path:
    """A version of a flow, with epochs of the recorded query, as Spark starts it: its metadata come last."""
    target = flow / str(number)
    shutil.copytree(counted, target, ignore=shutil.ignore_patterns("metadata"))
    for operator in counted.glob("state/*/_metadata/metadata"):
        shutil.copy(operator, target / operator.relative_to(counted))
    for epoch in range(epochs, 5):
        commit(counted, target, epoch, undo=True)
    (target / "metadata").write_text(json.dumps({"id": f"version-{number}"}))
    return target


def commit(counted: Path, target: Path, epoch: int, *, undo: bool = False) -> None:
    """Commit an epoch of the recorded query, or undo it."""
    if undo:
        (target / "commits" / str(epoch)).unlink()
    else:
        shutil.copy(counted / "commits" / str(epoch), target / "commits" / str(epoch))


def wait_for_version(capture: Capture, name: str) -> None:
    """Wait until a capture has gone on with a version."""
    with capture._changed:
        assert capture._changed.wait_for(lambda: capture._status.name == name, 60)


def test_following_a_flow_goes_on_with_its_next_version(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """What the old version committed last is captured first, also if too few epochs wait; each has its history."""
    flow = tmp_path / IN_STORAGE
    old = version(counted[0], flow, 0, epochs=3)
    capture = ss.Checkpoint(flow).follow(tmp_path / "store", every=2)
    assert capture.wait(epoch=1, timeout=300) >= 1
    commit(counted[0], old, 3)
    version(counted[0], flow, 1)
    wait_for_version(capture, "seen_first_v1")
    assert capture.wait(epoch=3, timeout=300) >= 3
    capture.stop()
    assert capture.checkpoint == str(flow / "1")
    store = ss.open_store(tmp_path / "store")
    assert {name: store[name].captured() for name in store} == {
        "seen_first": [0, 1, 2, 3],
        "seen_first_v1": [0, 1, 2, 3, 4],
    }
    for history in store.queries():
        assert store[history].versions() == ["seen_first", "seen_first_v1"]
    assert repr(store["seen_first"]).endswith("the newest version of this flow is seen_first_v1>")
    assert "flow" not in repr(store["seen_first_v1"])
    (note,) = [found.text for found in ss.Checkpoint(old).doctor().findings if "full refresh" in found.text]
    assert f"the newest is version 1. Follow {flow} to capture every version." in note
    assert "full refresh" not in str(ss.Checkpoint(flow / "1").doctor())


@pytest.mark.parametrize("given", [None, "mine"])
def test_following_one_version_goes_on_with_the_next(
    counted: tuple[Path, Path], tmp_path: Path, given: str | None
) -> None:
    """From that version on; under the names that following the flow gives, or made from the given one."""
    flow = tmp_path / IN_STORAGE
    version(counted[0], flow, 0)
    own = version(counted[0], flow, 1)
    name = "seen_first" if given is None else given
    capture = ss.Checkpoint(own).follow(tmp_path / "store", given and f"{given}_v1")
    assert capture.wait(timeout=300) == 4
    assert (capture.name, capture.checkpoint) == (f"{name}_v1", str(own))
    version(counted[0], flow, 2)
    wait_for_version(capture, f"{name}_v2")
    assert capture.wait(timeout=300) == 4
    assert capture.checkpoint == str(flow / "2")
    capture.stop()
    assert ss.open_store(tmp_path / "store").queries() == [f"{name}_v1", f"{name}_v2"]


def test_versions_are_shown(counted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the overview, on the page, by ``ls`` and in the timeline, which marks where they begin."""
    flow, place = tmp_path / IN_STORAGE, tmp_path / "store"
    for number in range(3):
        ss.Checkpoint(version(counted[0], flow, number)).capture(place)
    ss.Checkpoint(counted[0]).capture(place, "other")
    store = ss.open_store(place)
    frame = store.overview().set_index("query")[["version", "replaced_by"]]
    first, second, third = names = ["seen_first", "seen_first_v1", "seen_first_v2"]
    assert frame.loc[names].to_numpy().tolist() == [[0, second], [1, third], [2, None]]
    assert frame.loc["other"].isna().all()
    page = str(OverviewModel(store).view(OverviewSelection()).html())
    assert f"version 1, after {first}, replaced by {third}" in page
    assert main(["ls", str(place), "--json"]) == 0
    listed = {row["query"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert (listed[first]["version"], listed[first]["replaced_by"]) == (0, second)
    assert (listed["other"]["version"], listed["other"]["replaced_by"]) == (None, None)
    drawn = TimelineModel(store[second]).view(TimelineSelection())
    assert [mark.epoch for mark in drawn.marks.versions] == [-1, 4]
    assert [*drawn.caption()][1:3] == [
        "Version 1 of the flow begins: a full refresh ended seen_first.",
        "A full refresh ended this version after epoch 4: seen_first_v2 is the next.",
    ]
    assert [row["epoch"] for row in drawn.message()["marks"] if row["kind"] == "version"][1:] == [-0.5, 4.5]
    assert not TimelineModel(store["other"]).view(TimelineSelection()).marks.versions


@pytest.mark.slow
@pytest.mark.parametrize("output", ["text", "json"])
def test_the_command_says_that_it_goes_on(counted: tuple[Path, Path], tmp_path: Path, output: str) -> None:
    """A line, or another checkpoint in the objects."""
    flow = tmp_path / IN_STORAGE
    own = version(counted[0], flow, 0)
    with following(own, tmp_path / "store", *(["--json"] if output == "json" else [])) as process:
        line_with(process.stdout, "seen_first")
        later = version(counted[0], flow, 1)
        line = line_with(process.stdout, "seen_first_v1")
    if output == "json":
        assert json.loads(line)["checkpoint"] == str(later)
    else:
        assert line.endswith(f" seen_first_v1: following {later}: a full refresh ended seen_first\n")


def test_many_given_versions_bring_the_later_ones(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Also with other checkpoints in one process; a version that has not begun is left out."""
    flow = tmp_path / IN_STORAGE
    versions = [str(version(counted[0], flow, number)) for number in range(3)]
    (flow / "2/metadata").unlink()
    given = argparse.Namespace(
        checkpoints=[versions[0], str(counted[0])], root=[], storage_option=[], storage_options_file=None
    )
    assert found_checkpoints(given, versions=True) == [*versions[:2], str(counted[0])]
    assert found_checkpoints(given) == [versions[0], str(counted[0])]


def test_following_again_captures_what_is_left_of_older_versions(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """Under the given name; a version without state, or whose state is lost, does not hold up the next."""
    flow = tmp_path / IN_STORAGE
    shutil.rmtree(version(counted[0], flow, 0) / "state")
    version(counted[0], flow, 1)
    (version(counted[0], flow, 2) / "offsets" / "2").write_text("v1")
    version(counted[0], flow, 3)
    capture = ss.Checkpoint(flow).follow(tmp_path / "store", "first")
    wait_for_version(capture, "first_v3")
    assert capture.wait(timeout=300) == 4
    capture.stop()
    store = ss.open_store(tmp_path / "store")
    captured = {name: store[name].captured() for name in store}
    assert captured.pop("first_v2")[:2] == [0, 1]
    assert captured == {"first_v1": [0, 1, 2, 3, 4], "first_v3": [0, 1, 2, 3, 4]}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storage of a pipeline that Spark 4.3 has run four times, the third time with a full refresh of ``seen``.

    Two flows append to the table ``seen``, of Parquet files: the first run of ``second`` failed, and the sink skipped
    its next batch.
    """
    folder = tmp_path_factory.mktemp("storage")
    with tarfile.open(HERE / "pipeline.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    return folder


def test_a_recorded_pipeline(recorded: Path, tmp_path: Path) -> None:
    """Each version of a stateful flow has a history under the names of its table and flow."""
    frame = ss.checkpoints(recorded).overview().set_index("name")
    assert frame["stateful"].to_dict() == {
        **dict.fromkeys(["copied", "per_minute", "seen_first", "seen_first_v1", "seen_second", "seen_second_v1"], True),
        "raw": False,
    }
    store = tmp_path / "store"
    for checkpoint in ss.checkpoints(recorded):
        if checkpoint.name in ("per_minute", "seen_first", "seen_first_v1"):
            assert checkpoint.capture(store).query == checkpoint.name
    opened = ss.open_store(store)
    counts = [opened[name].live().table().count() for name in ("seen_first", "seen_first_v1")]
    assert counts == [6, 4]  # as Spark's state reader counts them
    assert opened["per_minute"].versions() == ["per_minute"]


def test_skipped_batches_are_named(recorded: Path, tmp_path: Path) -> None:
    """Commits without state of a flow that shares its table: as that, with a way out, by doctor and by capture."""
    second = recorded / "_checkpoints/spark_catalog/default/seen/second/0"
    said = "its sink skipped these batches as another query's"
    report = ss.Checkpoint(second).doctor()
    assert (report.can_restart, said in str(report), "give each its own" in str(report)) == (False, True, True)
    with pytest.raises(DamagedCheckpointError, match=f"state ends at epoch 0.*{said}"):
        ss.Checkpoint(second).capture(tmp_path / "store")


def test_commits_without_any_state_are_named(recorded: Path, tmp_path: Path) -> None:
    """As Spark leaves them if all batches are skipped: nothing is said of changelogs, which there are none of."""
    empty = Path(shutil.copytree(recorded / "_checkpoints/spark_catalog/default/seen/first/0", tmp_path / "empty"))
    for file in empty.glob("state/0/*/*.changelog"):
        file.unlink()
    report = ss.Checkpoint(empty).doctor()
    assert (report.can_capture, report.can_restart, report.tables) == (False, False, ())
    assert [finding.level for finding in report.findings] == ["problem"]
    assert "state has no file of any epoch, but epochs 0 to 3 are committed" in report.findings[0].text
    with pytest.raises(DamagedCheckpointError, match="state has no file of any epoch, but epochs 0 to 3 are committed"):
        ss.Checkpoint(empty).capture(tmp_path / "store")


def test_a_folder_above_checkpoints_is_an_error_that_names_them(counted: tuple[Path, Path], tmp_path: Path) -> None:
    """That of a flow, too, for what acts on one checkpoint; an empty folder has none to name."""
    for number in (0, 1):
        version(counted[0], tmp_path / IN_STORAGE, number)
    with pytest.raises(NotACheckpointError, match=r"folder above checkpoints.\nPass one of them: first/0, first/1\."):
        ss.Checkpoint((tmp_path / IN_STORAGE).parent).doctor()
    with pytest.raises(NotACheckpointError, match=r"Pass one of them: 0, 1\."):
        ss.Checkpoint(tmp_path / IN_STORAGE).capture(tmp_path / "store")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotACheckpointError, match="no readable 'metadata' file"):
        _ = ss.Checkpoint(tmp_path / "empty").query_id


def test_a_large_folder_is_searched_for_a_moment(tmp_path: Path) -> None:
    """Of a thousand folders some are looked at, level by level."""
    for number in range(1000):
        (tmp_path / f"{number:04}" / "deep").mkdir(parents=True)
    for number in (5, 999):
        (tmp_path / f"{number:04}" / "offsets").mkdir()
        (tmp_path / f"{number:04}" / "metadata").write_text('{"id": "1"}')
    with pytest.raises(NotACheckpointError):
        _ = ss.Checkpoint(tmp_path).query_id


def test_the_command_follows_a_flow(
    counted: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder above several flows is refused at once, with their names."""
    version(counted[0], tmp_path / IN_STORAGE, 0)
    assert main(["follow", str((tmp_path / IN_STORAGE).parent), "--store", str(tmp_path / "store")]) == 1
    assert "Pass one of them: first/0. streamstate find lists them all." in capsys.readouterr().err
