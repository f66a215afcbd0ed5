"""Sharing measured: the changes of a granted view, a subscriber's freshness, and answers to many subscribers.

The writer, the server and the subscribers are processes of their own.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Measurement, Size, bounded
from benchmarks.large_stores import QUERY, TABLE, LargeState
from streamstate.sharing import open_share, serve
from streamstate.sharing.granted_view import GrantedView
from streamstate.sharing.profile import Profile, ShareClient
from streamstate.sharing.shared_files import parquet
from streamstate.sharing.table_changes import _link
from streamstate.state_inspect.store import Store

_CPU, _VISIBLE, _ANSWER = 0.3, 1.0, 0.1
_NARROW, _WIDE = 3, 8
"""Columns of the state, of which all but the last are granted."""
_WHERE = "right(key, 1) <> '9'"
_SUBSCRIBERS = 50
_EVERY = 0.25
"""Seconds between two questions of the subscriber whose freshness is measured."""
_ASKED = 100
"""Requests of which the processor time is measured."""
_TABLE = ("shares", QUERY, "schemas", QUERY, "tables", TABLE)


def sharing(_spark: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure sharing: an epoch's changes of a granted view, until a subscriber has them, and 50 subscribers.

    The changes are measured with a tenth of the keys too, with more columns, and after 100 times as many epochs.
    """
    tenth = Size(size.keys // 10, min(size.changes, size.keys // 10), size.epochs)
    for scaled, columns in ((tenth, _NARROW), (size, _NARROW), (size, _WIDE)):
        load = LargeState(folder / f"{scaled.keys}-{columns}", scaled.keys, scaled.changes, columns)
        yield from _changes(load, scaled)
    few = Size(size.keys // 10, size.changes // 10, size.epochs)
    load = LargeState(folder / "history", few.keys, few.changes, _NARROW)
    for more in (0, 100 * size.epochs):
        for _ in range(more):
            load.add()
            if load.epochs % 20 == 0:
                load.tidy()
        yield from _changes(load, few)
        yield from _requests(load, few)
    yield from _served(folder / "served", size)


def _changes(load: LargeState, size: Size) -> Iterator[Measurement]:
    """Measure the file of an epoch's changes, and one of the whole view, each from an index of its own, in turn."""
    while load.epochs < 2:
        load.add()
    store, last = Store(load.path), load.epochs - 1
    names = store[QUERY].live().table().schema.names[:-1]
    contract = store[QUERY].publish("partner", columns=names, where=_WHERE, freshness=1.0)
    view = GrantedView(Store(load.path)[QUERY], contract.terms.tables[0])
    took: dict[Callable[[int], object], list[float]] = {
        lambda epoch: parquet(view.changes(epoch - 1, epoch)): [],
        partial(_exported, Store(load.path), names): [],
    }
    for what in took:
        what(last)  # loads the index
    for epoch in range(last + 1, last + 1 + size.epochs):
        load.add()
        for what, found in [*took.items()][:: 1 if epoch % 2 else -1]:
            found.append(_cpu(partial(what, epoch)))
    cpu, whole = (statistics.median(found) for found in took.values())
    setting = f"{size}, {load.epochs} epochs, {len(names)} of {load.columns} columns and nine of ten rows granted"
    question, ours = "CPU time of an epoch's granted changes", "from the index"
    yield bounded(question, ours, cpu, _CPU, runs=size.epochs, setting=setting)
    yield Measurement(question, ours, cpu, "an export of the view", whole, size.epochs, setting, wanted=6)


def _exported(store: Store, names: list[str], _epoch: int) -> None:
    """Export the granted rows as one would who has nothing else: a query of the newest epoch, and a Parquet file."""
    rows = store.sql(f"SELECT {', '.join(names)} FROM {QUERY} WHERE {_WHERE}").to_arrow()
    pq.write_table(rows, pa.BufferOutputStream())


def _cpu(what: Callable[[], object]) -> float:
    began = time.process_time()
    what()
    return time.process_time() - began


class _Process:
    """A process with one of the roles below, which ends when its input does."""

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.sharing", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._measured = psutil.Process(self._process.pid)

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()

    def say(self, *words: object) -> None:
        """Write a line to it."""
        assert self._process.stdin is not None
        print(*words, file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """Return the JSON of the next line that it writes."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def cpu(self) -> float:
        """Return the CPU seconds of the process so far."""
        times = self._measured.cpu_times()
        return float(times.user + times.system)


def _requests(load: LargeState, size: Size) -> Iterator[Measurement]:
    """Measure the server's CPU time for a request of metadata, without new epochs: one recipient, and 50."""
    store = Store(load.path)
    for recipients in (1, _SUBSCRIBERS):
        with _Process("serve", load.path) as server:
            clients = _clients(store, server.answer(), recipients)
            clients[0].lines(*_TABLE, "metadata")
            before = server.cpu()
            for number in range(_ASKED):
                clients[number % recipients].lines(*_TABLE, "metadata")
            took = (server.cpu() - before) / _ASKED
        setting = f"{size}, {load.epochs} epochs, {recipients} recipients"
        yield bounded("CPU time of a request of metadata", "of the server", took, _ANSWER, runs=_ASKED, setting=setting)


def _clients(store: Store, url: str, recipients: int) -> list[ShareClient]:
    return [ShareClient(Profile.read(profile)) for profile in _profiles(store, url, recipients)]


def _profiles(store: Store, url: str, recipients: int) -> list[dict[str, Any]]:
    """Return the profile of each of some recipients, to whom the same is granted."""
    names = store[QUERY].live().table().schema.names[:-1]
    return [
        store[QUERY].publish(f"partner-{number}", columns=names, where=_WHERE, freshness=1.0).profile(url)
        for number in range(recipients)
    ]


def _served(path: Path, size: Size) -> Iterator[Measurement]:
    """Measure a server: until a subscriber has an epoch, and the answers to many of them, at an epoch a second."""
    with ExitStack() as running:
        writer = running.enter_context(_Process("write", path, size.keys, size.changes))
        writer.say(2, 0)
        writer.answer()
        server = running.enter_context(_Process("serve", path))
        profiles = _profiles(Store(path), server.answer(), _SUBSCRIBERS)
        setting = f"{size}, two of three columns and nine of ten rows granted"
        yield from _fresh(writer, profiles[0], path, size.epochs, setting)
        for fetched in (False, True):
            newest = Store(path)[QUERY].live().epoch
            yield from _many(writer, server, profiles, newest if fetched else -1, setting)


def _fresh(writer: _Process, profile: dict[str, Any], path: Path, epochs: int, setting: str) -> Iterator[Measurement]:
    theirs = open_share(profile, cache=path.with_name("copy"))
    seconds = []
    with theirs.follow(every=_EVERY):
        for _ in range(epochs):
            before = theirs[QUERY].live().epoch
            writer.say(1, 0)
            committed = writer.answer()
            while theirs[QUERY].live().epoch == before:
                time.sleep(0.01)
            seconds.append(time.time() - committed)
    shown = f"asked every {_EVERY:g} s, {statistics.median(seconds) * 1000:.0f} ms at the median"
    yield bounded("from commit to a subscriber", shown, max(seconds), _VISIBLE, runs=epochs, setting=setting)
    copied = theirs[QUERY].live().table().count()
    assert copied == Store(path)[QUERY].live().table().count(where=_WHERE)


def _many(
    writer: _Process, server: _Process, profiles: list[dict[str, Any]], newest: int, setting: str
) -> Iterator[Measurement]:
    """Measure the answers to subscribers that each ask once a second: for metadata, and the changes after an epoch."""
    seconds = 20
    with _Process("subscribe", seconds, newest) as subscribers:
        subscribers.say(json.dumps(profiles))
        subscribers.answer()  # they begin
        before = server.cpu()
        writer.say(seconds, 1)
        took = subscribers.answer()
        share = (server.cpu() - before) / seconds
        writer.answer()
    p99 = float(np.percentile(took, 99))
    shown = (
        f"{len(profiles)} subscribers, an epoch a second, median {statistics.median(took) * 1000:.1f} ms,"
        f" the server takes {100 * share:.0f} % of a core"
    )
    question = f"99th percentile of metadata{'' if newest < 0 else ', while all fetch the changes'}"
    yield bounded(question, shown, p99, _ANSWER, runs=len(took), setting=setting)


def _write(path: str, keys: str, changes: str) -> None:
    """Add as many epochs as each line says, with so many seconds between them; answer with the time of the last."""
    load = LargeState(Path(path), int(keys), int(changes), _NARROW)
    for line in sys.stdin:
        epochs, pause = map(float, line.split())
        began = time.monotonic()
        for number in range(int(epochs)):
            time.sleep(max(0.0, began + number * pause - time.monotonic()))
            load.add()
        print(time.time(), flush=True)


def _serve(path: str) -> None:
    """Serve a store; answer with the URL."""
    with serve(path, port=0) as server:
        print(json.dumps(server.url), flush=True)
        sys.stdin.read()


def _subscribe(seconds: str, newest: str) -> None:
    """Ask once a second with each profile of a line; answer with the seconds of the answers.

    They ask for the metadata, and, if ``newest`` is not negative, then fetch the changes after that epoch.
    """
    took: list[float] = []
    profiles = json.loads(sys.stdin.readline())
    began = time.monotonic()

    def subscribe(number: int, profile: dict[str, Any]) -> None:
        client, last = ShareClient(Profile.read(profile)), int(newest)
        due = began + number / len(profiles)
        while due < began + float(seconds):
            time.sleep(max(0.0, due - time.monotonic()))
            due = max(due + 1, time.monotonic())
            asked = time.monotonic()
            client.lines(*_TABLE, "metadata")
            took.append(time.monotonic() - asked)
            if last >= 0:
                last = _fetched(client, last)

    threads = [threading.Thread(target=subscribe, args=given) for given in enumerate(profiles)]
    for thread in threads:
        thread.start()
    print(json.dumps(None), flush=True)
    for thread in threads:
        thread.join()
    print(json.dumps(took), flush=True)


def _fetched(client: ShareClient, last: int) -> int:
    """Read the changes after an epoch; returns the newest that has some."""
    for line in client.lines(*_TABLE, "changes", startingVersion=last + 1):
        if (link := _link(line)) is not None:
            client.file(link[1])
            last = max(last, link[0])
    return last


if __name__ == "__main__":
    part: Any = {"write": _write, "serve": _serve, "subscribe": _subscribe}[sys.argv[1]]
    part(*sys.argv[2:])
