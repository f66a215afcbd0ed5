"""``Running``: a query that this process follows, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import streamstate as ss
from streamstate.errors import QueryError
from streamstate.reports import Running


@pytest.fixture
def followed(counted: tuple[Path, Path], tmp_path: Path) -> Iterator[Running]:
    """A handle of a query that runs elsewhere."""
    capture = ss.Checkpoint(counted[0]).follow(tmp_path / "store", "counts", verify="never")
    running = Running("counts", capture.store, capture.checkpoint, capture)
    yield running
    running.stop()


def test_the_nouns_of_a_running_query(followed: Running, counted: tuple[Path, Path]) -> None:
    """It gives its checkpoint and its history."""
    assert followed.wait(4, timeout=300) == 4
    assert followed.checkpoint == ss.Checkpoint(counted[0])
    assert followed.history.captured() == [0, 1, 2, 3, 4]


def test_only_a_query_of_this_process_is_restarted(followed: Running) -> None:
    """The error says where to restart it."""
    for call in (followed.restart, followed.supervise):
        with pytest.raises(QueryError, match="counts was not started in this process"):
            call()
