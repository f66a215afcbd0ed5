"""What other viewers of a served page wait for while one of them sends the slowest conditions that are allowed."""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness import Measurement
from benchmarks.size import Size

# The tests' own store writer and viewer.
sys.path.append(str(Path(__file__).parent.parent / "tests"))

_VIEWERS = 20
_BOUND = 0.5
_BETWEEN = 0.5
_SLOW = " OR ".join(["sha256(" * 35 + f"left(key, {number})" + ")" * 35 + " = 'x'" for number in range(100, 112)])


def hostile_viewer(_spark: Any, path: Path, size: Size) -> Iterator[Measurement]:
    """Seconds from moving the slider to the drawing, for 19 viewers who move it twice a second beside a hostile one.

    Args:
        _spark: not needed.
        path: where the store is written.
        size: keys, changes of an epoch, and how often each viewer moves the slider.
    """
    from served_viewer import Tab, Visitor
    from synthetic import write

    from streamstate.widgets.page import serve

    state = {f"k{number}": number for number in range(size.keys)}
    write(path, [state, *(state | {f"k{key}": -epoch for key in range(size.changes)} for epoch in (1, 2))])
    with serve(path) as server, ThreadPoolExecutor(_VIEWERS) as threads:
        tabs = list(threads.map(lambda _: Tab(Visitor(server), "?query=q"), range(_VIEWERS)))
        for tab in tabs:
            tab.shown()
        calm = _waits(threads, tabs[1:], size.epochs)
        done = threading.Event()
        attack = threading.Thread(target=_attack, args=(tabs[0], done))
        attack.start()
        beside = _waits(threads, tabs[1:], size.epochs)
        done.set()
        attack.join()
        for tab in tabs:
            tab.close()
    setting = f"{_VIEWERS} viewers, {size.keys:,} keys, {len(beside)} moves"
    median, ninth = statistics.median(beside), statistics.quantiles(beside, n=20)[-1]
    yield Measurement(
        "slider beside a hostile viewer", "median", median, "bound", _BOUND, len(beside), setting, wanted=1
    )
    yield Measurement("slider beside a hostile viewer", "95 %", ninth, "bound", _BOUND, len(beside), setting, wanted=1)
    usual = statistics.median(calm)
    yield Measurement(
        "what a hostile viewer costs the others", "median", median, "without", usual, len(beside), setting
    )


def _waits(threads: ThreadPoolExecutor, tabs: list[Any], moves: int) -> list[float]:
    return [seconds for found in threads.map(lambda tab: _moved(tab, moves), tabs) for seconds in found]


def _moved(tab: Any, moves: int) -> list[float]:
    found = []
    for move in range(moves):
        began = time.perf_counter()
        tab.shown(tab.do("epoch", move % 2))
        found.append(time.perf_counter() - began)
        time.sleep(max(0.0, _BETWEEN - found[-1]))
    return found


def _attack(tab: Any, done: threading.Event) -> None:
    """A slow condition, another as soon as the first is stopped or after two seconds, again and again."""
    number = 0
    while not done.wait(2 if number % 3 else 0.1):
        number += 1
        tab.do("filter", {"where": f"{_SLOW} OR value = {number}"})
