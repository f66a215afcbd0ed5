"""The names and files that the examples of the documentation take for granted.

An example says ``ss.Checkpoint("checkpoints/delays").capture("store")`` or ``delays.at(12)`` and does not define
everything again.
So each page runs in a folder with ``store``, ``checkpoints`` and ``flights`` (see ``recorded/examples.py``). A name
that an example uses without defining it is looked up in :class:`World`.
"""

from __future__ import annotations

import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import deltalake
import ipywidgets
import pandas as pd
import pyarrow as pa
import pytest
from IPython.display import display
from recorded import examples

import streamstate as ss
from examples.written_query import write_query
from streamstate import widgets
from streamstate.reports import Store
from streamstate.widgets.view import close_all

_LONGEST_WRITING = 60
"""Seconds after which a stopped query writes nothing more."""


class World:
    """Names of examples, each made when an example first uses it."""

    ss = ss

    def __init__(self) -> None:
        self.namespaces: list[Names] = []
        """The names that each example has defined or used."""

    @cached_property
    def store(self) -> Store:
        """The opened store."""
        return ss.open_store("store")

    @cached_property
    def delays(self) -> Any:
        """The history of the query that most examples read."""
        return self.store["delays"]

    @property
    def history(self) -> Any:
        """The same, under another name."""
        return self.delays

    @cached_property
    def checkpoint(self) -> ss.Checkpoint:
        """The checkpoint of the query that most examples read."""
        return ss.Checkpoint("checkpoints/delays")

    @cached_property
    def sessions(self) -> Any:
        """A query with windows and users."""
        return self.store["sessions"]

    @cached_property
    def delays_by_hour(self) -> Any:
        """A query with a watermark."""
        return self.store["delays_by_hour"]

    @cached_property
    def arrivals(self) -> Any:
        """A query whose key columns have the names of a keyword and of an argument."""
        row = {"from": "EWR", "table": "arrivals", "count": 3}
        return write_query(self.store, "arrivals", row, keys=("from", "table"))

    @cached_property
    def bookings(self) -> Any:
        """A query that reads a topic of Kafka."""
        row = {"user": "u1", "count": 3}
        return write_query(self.store, "bookings", row, keys=("user",), offsets=[{"bookings": {"0": 812, "1": 700}}])

    @cached_property
    def trips(self) -> Any:
        """A query with two sources, which have names."""
        offsets = {"flights": {"logOffset": 9}, "weather": {"topic": {"0": 812}}}
        facts = {"flights": {"kind": "files", "files": 100}, "weather": None}
        row = {"user": "u1", "count": 3}
        return write_query(self.store, "trips", row, keys=("user",), offsets=offsets, sources=facts)

    @cached_property
    def snapshot(self) -> Any:
        """An epoch of the query."""
        return self.delays.at(12)

    @cached_property
    def table(self) -> Any:
        """The newest state of the query."""
        return self.delays.live().table()

    @cached_property
    def comparison(self) -> Any:
        """The query compared with its fork."""
        return self.delays.compare(self.store["what_if"])

    @cached_property
    def limit(self) -> Any:
        """A shared variable with two versions."""
        limit = ss.shared("store", "limit", "double", init=60.0)
        limit.set(45.0)
        return limit

    @cached_property
    def timeline(self) -> Any:
        """A view of the query's epochs."""
        return widgets.Timeline(self.delays)

    @cached_property
    def browser(self) -> Any:
        """A view of the query's state."""
        return widgets.StateBrowser(self.delays)

    @cached_property
    def diff(self) -> Any:
        """A view of two epochs."""
        return widgets.DiffView(self.delays, 10, 12)

    @cached_property
    def seen(self) -> list[Any]:
        """A list for what callbacks receive."""
        return []

    @cached_property
    def frame(self) -> pa.Table:
        """A table of keys."""
        return pa.table({"carrier": ["UA"], "origin": ["EWR"]})

    DeltaTable = deltalake.DeltaTable
    StateBrowser = widgets.StateBrowser
    UTC = UTC
    datetime = datetime
    display = staticmethod(display)
    ipywidgets = ipywidgets
    pd = pd


class Names(dict[str, Any]):
    """The namespace of an example: what it defines, and what the world has by that name."""

    def __init__(self, world: World, names: Mapping[str, Any] | None = None) -> None:
        super().__init__({"ss": ss} | dict(names or {}))
        self._world = world
        world.namespaces.append(self)

    def __missing__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(type(self._world), name):
            raise KeyError(name)
        self[name] = getattr(self._world, name)
        return self[name]


class Folder:
    """The folder in which examples run. A page that follows one that changed it gets it as it was.

    Its path stays the same: checkpoints and stores contain the full paths of what they were made from.
    """

    def __init__(self, parent: Path) -> None:
        self.path = examples.examples(parent)
        shutil.copytree(self.path / "store", self.path / "elsewhere")
        self._original = Path(shutil.copytree(self.path, parent / "original"))
        self._listed = _listing(self.path)

    def reset(self) -> None:
        """Undo what examples wrote."""
        ends = time.monotonic() + _LONGEST_WRITING
        while added := _listing(self.path) - self._listed:
            assert time.monotonic() < ends, f"written although no query runs: {sorted(added)[:3]}"
            # Spark may still write the state of a query that has stopped.
            for path, _ in sorted(added, reverse=True):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
        for path, version in sorted(self._listed - _listing(self.path)):
            original = self._original / path.relative_to(self.path)
            shutil.copy2(original, path) if version else path.mkdir()
        known = {path for path, _ in self._listed}
        self._listed = {(path, version) for path, version in _listing(self.path) if path in known}


def _listing(folder: Path) -> set[tuple[Path, tuple[int, ...]]]:
    """Return the files and folders, and what tells a file from others of its path."""
    found: set[tuple[Path, tuple[int, ...]]] = set()
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # Spark deletes files too
            at = path.stat()
            found.add((path, () if stat.S_ISDIR(at.st_mode) else (at.st_ino, at.st_mtime_ns)))
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The recorded folder, unpacked and captured."""
    return Folder(tmp_path_factory.mktemp("examples"))


@pytest.fixture
def world(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The names of the examples, with the folder as the working folder."""
    folder.reset()
    monkeypatch.chdir(folder.path)
    monkeypatch.setenv("IPYTHONDIR", str(folder.path.parent / "ipython"))
    yield World()
    close_all()
