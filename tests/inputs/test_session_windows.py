"""The rows behind a session window, asked by the window that the result shows."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from pyspark.sql import functions as F

from inputs.streams import EPOCHS, ids, read, rows_of_file, run, watermark_before, write_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAP = pd.Timedelta("1min")


@dataclass
class Session:
    """A session window, with the ids of its rows of one epoch."""

    start: pd.Timestamp
    end: pd.Timestamp
    new: list[int] = field(default_factory=list)

    @property
    def key(self) -> dict[str, pd.Timestamp]:
        """The window as the result has it."""
        return {"start": self.start, "end": self.end}


def merged(held: list[Session], rows: pd.DataFrame) -> list[Session]:
    """Sessions with further rows; those that overlap or touch are one."""
    arrived = [Session(time, time + GAP, [number]) for time, number in zip(rows.ts, rows.id, strict=True)]
    found: list[Session] = []
    for session in sorted([*(Session(one.start, one.end) for one in held), *arrived], key=lambda one: one.start):
        if found and session.start <= found[-1].end:
            found[-1] = Session(found[-1].start, max(found[-1].end, session.end), [*found[-1].new, *session.new])
        else:
            found.append(session)
    return found


@pytest.mark.exhaustive
def test_the_rows_of_a_session(spark: SparkSession, bare_shell: Shell, tmp_path: Path) -> None:
    """Those that were merged into it: a session that goes on, one that also ended in the epoch, one that merged two."""
    files = [rows_of_file(epoch, 0) for epoch in range(EPOCHS)]
    write_files(tmp_path / "in", files)
    sessions = read(spark, tmp_path / "in").groupBy(F.session_window("ts", "1 minute"), "user")
    history, _ = run(sessions.agg(F.avg("x").alias("mean")), tmp_path, "append")
    held: list[Session] = []
    known: list[Session] = []
    for epoch, rows in enumerate(files[:3]):
        before = watermark_before(history, epoch)
        held = [one for one in known if one.end > before]
        known = merged(held, rows[(rows.user == "a") & (rows.ts + GAP > before)])
    now = watermark_before(history, 3)
    grown = sorted((one for one in known if one.new), key=lambda one: len(one.new))
    goes_on = next(one for one in grown if one.end > now)
    ended = next(one for one in grown if one.end <= now)
    merges = next(one for one in grown if sum(one.start <= other.start < one.end for other in held) > 1)
    for session in (goes_on, merges, ended):
        why = history.why(2, user="a", session_window=session.key)
        assert ids(why.sides) == [sorted(session.new)]
        assert why.count() == len(session.new)
    bare_shell.run(f"%config StreamState.store = {str(tmp_path / 'store')!r}")
    window = json.dumps(session.key, default=str)
    why = bare_shell.run(f"%state q why 2 user=a 'session_window={window}'")
    assert ids(why.sides) == [sorted(session.new)]
    assert set(ids(history.late(2).sides)[0]) == set(files[2].id[files[2].ts + GAP <= watermark_before(history, 2)])
    shown = history.why(2, table="result", user="a", session_window=session.key)
    assert shown.count() == len(session.new)
    assert {*(shown.before or {}), *(shown.after or {})} <= {"session_window", "user", "mean"}
