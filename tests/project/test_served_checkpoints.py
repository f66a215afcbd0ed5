"""A checkpoint that only a Spark Connect server reaches is read through the server, without loss."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from recorded.make import HERE
from recorded.unpacked import CURRENT, unpacked

import streamstate as ss
from project import served_checkpoints
from project.connect_server import connect_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_LAYOUTS = ("3.5/HDFS/left-outer-join", "3.5/RocksDB/two-operators", "3.5/RocksDB-with-changelog/session-window")


class Seen:
    """The observations of a client, and a copy of the files that only the server had."""

    def __init__(self, outcomes: dict[str, Any], store: Path, originals: Path) -> None:
        self.outcomes, self.store, self.originals = outcomes, store, originals


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """The observations of a client, up to the end of its server."""
    folder = tmp_path_factory.mktemp("served")
    own, hidden, originals = (folder / name for name in ("client", "hidden", "originals"))
    own.mkdir()
    hidden.mkdir()
    with connect_server(folder, hidden) as (address, server):
        command = [sys.executable, "-m", served_checkpoints.__name__, address, str(server.pid), str(own), str(hidden)]
        paths = os.pathsep.join(path for path in (str(HERE.parent), os.environ.get("PYTHONPATH")) if path)
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": paths}
        client = subprocess.Popen([*command, *_recorded(folder)], stdout=subprocess.PIPE, text=True, env=environment)
        assert client.stdout is not None
        outcomes = {}
        for line in client.stdout:
            name, found = json.loads(line)
            outcomes[name] = found
            if name == "started":  # the client ends the server after that
                shutil.copytree(f"/proc/{server.pid}/root{hidden}", originals)
        client.wait(60)
    return Seen(outcomes, own / "store", originals)


def _recorded(folder: Path) -> list[str]:
    """Recorded checkpoints: of each provider, with one store and several, with column families and without."""
    with tarfile.open(HERE / "spark-restarts.tar.xz") as tar:
        tar.extractall(folder, filter="data")
    found = [unpacked(CURRENT, folder) / "counted" / "checkpoint", folder / "restarts" / "changelog-2" / "processor"]
    unpacked("3.5", folder)
    return [str(path) for path in [*found, *(folder / layout for layout in _LAYOUTS)]]


def test_every_layout_is_copied_whole(seen: Seen) -> None:
    """Folders that Spark hides from listings are there too, and paths within lead into the copy."""
    assert list(seen.outcomes["layouts"].values()) == [[]] * (len(_LAYOUTS) + 2)


def test_large_files_come_in_pieces(seen: Seen) -> None:
    """Those that would take too much of the server's memory are refused."""
    assert seen.outcomes["pieces"] == []
    assert "state/0/0/1.snapshot has 1,024 MiB. Through the server sc://localhost, files" in seen.outcomes["too large"]


def test_a_query_is_captured_through_its_server(seen: Seen) -> None:
    """The copy follows the query to its last epoch; it can be examined and forked."""
    found = seen.outcomes["captured"]
    original = "a [check] point, runId = 1 on the server sc://localhost"
    assert found["here"] is False
    assert (found["capture"], found["once"], found["fork"]) == (["stopped", None], [0, 1, 2, 3], [1])
    assert f"{original}>" in found["shown"]
    assert f"{original}. Calls that only read work on it." in found["doctor"]


@pytest.mark.parametrize(("name", "folder"), [("captured", "a [check] point, runId = 1"), ("join", "join")])
def test_every_epoch_is_that_of_a_capture_on_the_server(seen: Seen, tmp_path: Path, name: str, folder: str) -> None:
    """Key by key, in every table, and with the same times and offsets."""
    ss.Checkpoint(seen.originals / folder).capture(tmp_path / "store", name)
    copied, original = ss.open_store(seen.store)[name], ss.open_store(tmp_path / "store")[name]
    columns = ["epoch", "offsets", "watermark"]
    assert copied.epochs()[columns].equals(original.epochs()[columns])
    assert [*copied.epochs()["committed_at"].dt.floor("ms")] == [*original.epochs()["committed_at"].dt.floor("ms")]
    assert len(original.epochs()) > 2
    for epoch in original.epochs()["epoch"]:
        for table in original.at(epoch).tables():
            rows, expected = (side.at(epoch).table(table).to_pandas() for side in (copied, original))
            columns = list(expected.columns)
            assert rows.sort_values(columns, ignore_index=True).equals(expected.sort_values(columns, ignore_index=True))


def test_a_join_is_read_from_its_copy(seen: Seen) -> None:
    """Also after its end."""
    assert seen.outcomes["join"] == "CopiedCheckpoint"


def test_a_client_starts_and_resumes_queries(seen: Seen) -> None:
    """Under a path that only the server has; what would change the checkpoint from here is refused."""
    found = seen.outcomes["started"]
    assert (found["waited"], found["then"], found["again"]) == (3, "stopped", 3)
    assert found["path"].endswith("/started")
    assert "so it cannot be the checkpoint of a query that starts: only the server" in found["from the copy"]
    assert "so it cannot be rescaled: only the server" in found["rescaled"]


def test_a_server_that_does_not_answer_is_tried_again(seen: Seen) -> None:
    """The status names it, and the capture goes on once it answers."""
    found = seen.outcomes["lost"]
    assert "sc://localhost does not answer" in found["silent"]
    assert "sc://localhost does not answer" in found["gone"]
    assert (found["again"], found["state"], found["then"]) == (4, "running", "stopped")
