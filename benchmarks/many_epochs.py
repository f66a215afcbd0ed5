"""A store of many epochs: opening it, and reading its newest epoch, with no Spark at all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import streamstate as ss
from benchmarks.harness import Measurement, alternate
from benchmarks.size import Size
from streamstate.reports import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from synthetic import State

_FEW, _MANY = 100, 10_000
_KEYS, _CHANGES = 200, 10
# A capture that follows looks every five seconds whether files are to be merged.
_TIDIED = 10


def many_epochs(_spark: SparkSession | None, folder: Path, _size: Size) -> Iterator[Measurement]:
    """Stores of 100 and of 10,000 epochs, 200 keys of which each epoch changes 10.

    Each epoch is committed by itself, and small files are merged as they come.
    """
    few, many = folder / "few", folder / "many"
    made(few, _FEW)
    made(many, _MANY)
    setting = f"{_KEYS} keys, {_CHANGES} changes an epoch, a keyframe every {_FEW}"
    opened, _ = alternate(partial(_opened, many), partial(_opened, few), 7)
    yield Measurement(
        f"open a store of {_MANY:,} epochs", "opened, manifest read", opened, "the bound", 1.0, 7, setting, wanted=1
    )
    many_seconds, few_seconds = alternate(partial(_newest, many, _MANY), partial(_newest, few, _FEW), 7)
    yield Measurement(
        "open it and read the newest epoch",
        f"{_MANY:,} epochs",
        many_seconds,
        f"{_FEW} epochs",
        few_seconds,
        7,
        setting,
    )
    histories = {store: ss.open_store(store)["q"] for store in (few, many)}
    for store, epochs in ((few, _FEW), (many, _MANY)):
        _read(histories[store], epochs)
    many_seconds, few_seconds = alternate(
        partial(_read, histories[many], _MANY), partial(_read, histories[few], _FEW), 15
    )
    yield Measurement(
        "read the newest epoch of an open store",
        f"{_MANY:,} epochs",
        many_seconds,
        f"{_FEW} epochs",
        few_seconds,
        15,
        setting,
        wanted=1 / 1.5,
    )


def made(path: Path, epochs: int) -> None:
    """The store, epoch by epoch; key ``k`` has the number of the last epoch that changed it."""
    # The tests' own writer of stores: the layout on disk is spelled out once.
    sys.path.append(str(Path(__file__).parent.parent / "tests"))
    from synthetic import write

    if path.exists():
        return
    state: State = dict.fromkeys(map(str, range(_KEYS)), 0)
    states: list[State | None] = []
    for epoch in range(epochs):
        state = state | {str(key % _KEYS): epoch for key in range(epoch * _CHANGES, (epoch + 1) * _CHANGES)}
        states.append(state)
    write(path, states, keyframe_every=_FEW, tidy_every=_TIDIED)


def _opened(path: Path) -> int:
    return len(ss.open_store(path)["q"].captured())


def _newest(path: Path, epochs: int) -> None:
    _read(ss.open_store(path)["q"], epochs)


def _read(history: History, epochs: int) -> None:
    snapshot = history.live()
    rows = snapshot.table().to_arrow()
    if snapshot.epoch != epochs - 1 or rows.num_rows != _KEYS or max(rows["value"].to_pylist()) != epochs - 1:
        raise AssertionError(f"the newest epoch, {epochs - 1}, was not read: {snapshot}")


if __name__ == "__main__":
    made(Path(sys.argv[1]), int(sys.argv[2]))
