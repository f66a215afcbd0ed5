"""Sharing measured: the changes of a granted view, a subscriber's freshness, and answers to many subscribers."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness import Measurement, Size, bounded
from benchmarks.large_stores import QUERY, TABLE, LargeState
from streamstate.sharing import open_share, serve
from streamstate.sharing.granted_view import GrantedView
from streamstate.sharing.profile import Profile, ShareClient
from streamstate.sharing.shared_files import parquet
from streamstate.state_inspect.store import Store

_CPU, _VISIBLE, _ANSWER = 0.3, 1.0, 0.1
_SUBSCRIBERS = 50
_SECONDS = 20.0
_WHERE = "right(key, 1) <> '9'"


def sharing(_spark: object, folder: Path, size: Size) -> Iterator[Measurement]:
    """Measure sharing: an epoch's changes of a granted view, until a subscriber has them, and 50 subscribers."""
    path = folder / "store"
    load = LargeState(path, size.keys, size.changes, columns=3)
    for _ in range(2):
        load.add()
    store = Store(path)
    history = store[QUERY]
    columns = history.live().table().schema.names
    contract = history.publish("partner", columns=columns[:-1], where=_WHERE, freshness=1.0)
    view = GrantedView(history, contract.terms.tables[0])
    view.changes(0, 1)  # loads the index
    changes, whole = [], []
    for epoch in range(2, 2 + size.epochs):
        load.add()
        changes.append(_cpu(lambda at=epoch: parquet(view.changes(at - 1, at))))  # type: ignore[misc]
        whole.append(_cpu(lambda at=epoch: parquet(view.rows(at))))  # type: ignore[misc]
    setting = f"{size}, {len(columns) - 1} of {len(columns)} columns and nine of ten rows granted"
    cpu = statistics.median(changes)
    yield bounded(
        "CPU time of an epoch's granted changes", "from the index", cpu, _CPU, runs=size.epochs, setting=setting
    )
    yield Measurement(
        "CPU time of an epoch's granted changes", "from the index", cpu, "a full export of the view",
        statistics.median(whole), size.epochs, setting, wanted=6,
    )  # fmt: skip
    with serve(store, port=0) as server:
        profile = contract.profile(server.url)
        theirs = open_share(profile, cache=folder / "copy")
        seconds = []
        for epoch in range(2 + size.epochs, 2 + 2 * size.epochs):
            load.add()
            began = time.monotonic()
            theirs.refresh()
            assert theirs[QUERY].live().epoch == epoch
            seconds.append(time.monotonic() - began)
        shown = f"asked at once, {statistics.median(seconds) * 1000:.0f} ms at the median"
        yield bounded("from commit to a subscriber", shown, max(seconds), _VISIBLE, runs=size.epochs, setting=setting)
        yield from _many(profile, load, setting)


def _cpu(what: Callable[[], object]) -> float:
    began = time.process_time()
    what()
    return time.process_time() - began


def _many(profile: dict[str, object], load: LargeState, setting: str) -> Iterator[Measurement]:
    """Measure the answers to subscribers that each ask for the version once a second, at an epoch a second."""
    took: list[float] = []
    end = threading.Event()

    def subscribe(after: float) -> None:
        client = ShareClient(Profile.read(profile))
        end.wait(after)
        while not end.is_set():
            began = time.monotonic()
            client.lines("shares", QUERY, "schemas", QUERY, "tables", TABLE, "metadata")
            took.append(time.monotonic() - began)
            end.wait(max(0.0, 1 - (time.monotonic() - began)))

    threads = [threading.Thread(target=subscribe, args=(at / _SUBSCRIBERS,)) for at in range(_SUBSCRIBERS)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    for second in itertools.count(1):
        if time.monotonic() - began > _SECONDS:
            break
        load.add()
        time.sleep(max(0.0, began + second - time.monotonic()))
    end.set()
    for thread in threads:
        thread.join()
    p99 = float(np.percentile(took, 99))
    shown = f"{_SUBSCRIBERS} subscribers, an epoch a second, median {statistics.median(took) * 1000:.1f} ms"
    yield bounded("99th percentile of metadata", shown, p99, _ANSWER, runs=len(took), setting=setting)
