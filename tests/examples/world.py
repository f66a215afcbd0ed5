"""The names and files that the examples of the documentation take for granted.

An example says ``ss.Checkpoint("checkpoints/delays").capture("store")`` or ``delays.at(12)`` and does not define
everything again.
So each page runs in a folder with ``store``, ``checkpoints`` and ``flights`` (see ``recorded/examples.py``). A name
that an example uses without defining it is looked up in :class:`World`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from recorded import examples

import streamstate as ss
from streamstate.reports import Store
from streamstate.widgets.view import close_all


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
    def snapshot(self) -> Any:
        """An epoch of the query."""
        return self.delays.at(12)

    @cached_property
    def frame(self) -> pa.Table:
        """A table of keys."""
        return pa.table({"carrier": ["UA"], "origin": ["EWR"]})

    @property
    def DeltaTable(self) -> Any:  # noqa: N802
        """The class of deltalake."""
        from deltalake import DeltaTable

        return DeltaTable

    @property
    def display(self) -> Callable[..., None]:
        """Stand-in for the notebook's function, which shows text outside of one."""
        from IPython.display import display

        return display


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
        if _listing(self.path) != self._listed:
            shutil.rmtree(self.path)
            shutil.copytree(self._original, self.path)
            self._listed = _listing(self.path)


def _listing(folder: Path) -> set[tuple[Path, int]]:
    return {(path, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """The recorded folder, unpacked and captured."""
    return Folder(tmp_path_factory.mktemp("examples"))


@pytest.fixture
def world(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The names of the examples, with the folder as the working folder."""
    folder.reset()
    monkeypatch.chdir(folder.path)
    yield World()
    close_all()
