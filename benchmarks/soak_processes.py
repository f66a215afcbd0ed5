"""The processes of the soak: a follower whose clock is quickened, and a reader that asks all the time.

Each begins as the command does, or the kernel of a notebook: its memory is set up before Arrow is imported.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING
from unittest.mock import patch

from streamstate.snapshots.capture.memory import give_back, keep_pandas_out, set_plain_memory

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from streamstate.snapshots.store.delta import Place

QUICKENED = 100
RECENT = 1_000
LOOK_UPS = (
    "look-up of a key in the newest epoch, which is one epoch newer",
    f"look-up of a key in one of the newest {RECENT:,} epochs",
    "look-up of a key in any epoch",
)
MEMORY = "256MiB"
"""What the reader's index may take; it is full after some 1,500 epochs."""
_PERIOD = 0.5


def _follow(checkpoint: str, store: str, query: str) -> None:
    """``streamstate follow`` with a quick clock."""
    set_plain_memory(on=True)
    keep_pandas_out()
    from streamstate.command_line import main as command
    from streamstate.snapshots.store.delta.log_checks import shorten

    left: dict[str, dict[str, float]] = {}

    def held(table: DeltaTable, grace: timedelta) -> set[str]:
        """As the function that it replaces, whose grace is in whole hours."""
        now, known = time.monotonic(), left.get(table.table_uri, {})
        paths = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
        names = [path.rsplit("/", 1)[-1] for path in paths]
        left[table.table_uri] = known = {name: known.get(name, now) for name in names}
        kept = grace.total_seconds() / QUICKENED
        current = {uri.rsplit("/", 1)[-1] for uri in table.file_uris()}
        return current | {path for path, since in known.items() if now - since < kept}

    def shortened(place: Place, kept: timedelta, newest: int) -> int:
        return shorten(place, kept / QUICKENED, newest)

    with (
        patch("streamstate.snapshots.capture.epoch_commit._SWEEP_SECONDS", 600 / QUICKENED),
        patch("streamstate.snapshots.store.delta.maintenance.shorten", shortened),
        patch("streamstate.snapshots.store.delta.maintenance._held", held),
    ):
        sys.exit(command(["follow", checkpoint, "--store", store, "--name", query, "--quiet"]))


def _ask(store: str, answers: str, query: str, keys: str) -> None:
    """Look up keys at random, now and at past epochs; a line for each round of questions, every half a second."""
    set_plain_memory(on=True)
    import psutil

    import streamstate as ss

    random, process = Random(2013), psutil.Process()
    history, due = ss.open_store(store, memory_limit=MEMORY)[query], time.monotonic()
    with Path(answers).open("w", encoding="utf-8") as lines:
        while True:
            live, key = history.live(), f"key-{random.randrange(int(keys))}"
            answer = {"at": time.time(), "epoch": live.epoch, "memory of the reader": process.memory_info().rss}
            recent, any_epoch = random.randint(max(0, live.epoch - RECENT), live.epoch), random.randint(0, live.epoch)
            for asked, epoch in zip(LOOK_UPS, (live.epoch, recent, any_epoch), strict=True):
                start = time.perf_counter()
                history.at(epoch).table().lookup(key=key)
                answer[asked] = time.perf_counter() - start
            give_back()  # as live views do
            print(json.dumps(answer), file=lines, flush=True)
            due = max(due + _PERIOD, time.monotonic())
            threading.Event().wait(due - time.monotonic())


if __name__ == "__main__":
    (_follow if sys.argv[1] == "follow" else _ask)(*sys.argv[2:])
