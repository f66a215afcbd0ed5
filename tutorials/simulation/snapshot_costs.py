"""The price of snapshots: what a store writes, and what a load reads, by the interval between two snapshots."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from streamstate.tutorials.simulation.log_structured import LogStructured, Stored
from streamstate.tutorials.simulation.protocol import Action
from streamstate.tutorials.simulation.scene import Scene
from streamstate.tutorials.simulation.store_files import File, held, needed, with_file

_KEYS = "abcdefgh"
_CHANGED = 2
_VERSIONS = 12


class Costs(NamedTuple):
    """What a store does from one snapshot to the next, in entries.

    Args:
        written: what it writes for each version, on average.
        read: the most that a load reads.
    """

    written: float
    read: int


def measured(keys: int, changed: int, every: int) -> Costs:
    """Return the costs of a store that takes a snapshot after each ``every``-th version.

    Args:
        keys: how many keys there are.
        changed: how many of them each version changes.
        every: the versions from one snapshot to the next.

    Example:
        >>> measured(1_000, 10, 100)
        Costs(written=20.0, read=1990)
    """
    entries = tuple((f"k{number}", 0) for number in range(keys))
    files = [File(0, "snapshot", entries)]
    files += (File(version, "changelog", entries[:changed]) for version in range(1, every + 1))
    return Costs(entries_in(files) / every, entries_in(needed(files, every - 1)))


def entries_in(files: Iterable[File]) -> int:
    """Return how many entries files have together."""
    return sum(len(file.entries) for file in files)


class SnapshotsEvery(LogStructured):
    """A store in which each step is a version that changes two of eight keys.

    Args:
        every: the versions from one snapshot to the next.
    """

    def __init__(self, every: int) -> None:
        super().__init__(_VERSIONS, keys=_KEYS, retain=1, crashes=0)
        self.every = every

    def actions(self, state: Stored) -> list[Action]:
        """Return the next version."""
        new = len(state.history)
        snapshot = f", and snapshot {new}" if new % self.every == 0 else ""
        return [Action(("version",), f"Changelog {new} is written{snapshot}")] if new <= self.versions else []

    def act(self, state: Stored, action: Action) -> Stored:
        """Return the state after the next version."""
        new = len(state.history)
        changed = tuple((self.keys[(_CHANGED * new + place) % len(self.keys)], new) for place in range(_CHANGED))
        table = held(dict(state.table) | dict(changed))
        remote = with_file(state.remote, File(new, "changelog", changed))
        if new % self.every == 0:
            remote = with_file(remote, File(new, "snapshot", table))
        return state._replace(version=new, table=table, remote=remote, history=(*state.history, table))

    def scene(self, state: Stored) -> Scene:
        """Return the picture of a state: what was written, what a load reads, and the files."""
        scene, version = Scene(460), len(state.history) - 1
        read = needed(state.remote, version)
        written, most = entries_in(state.remote), _VERSIONS * (_CHANGED + len(_KEYS))
        each = f", {written / (_CHANGED * version):.1f} for each change" if version else ""
        scene.bar("written", 8, 8, 444, f"written so far: {written} entries{each}", share=written / most, tone="busy")
        text = f"a load of version {version} reads {entries_in(read)} entries; files: {len(read)}"
        share = entries_in(read) / (_VERSIONS * _CHANGED + len(_KEYS))
        scene.bar("read", 8, 34, 444, text, share=share, tone="mark")
        for file in state.remote:
            column, row = divmod(file.version - 1, _VERSIONS // 2)
            left = 8 + 226 * column + (110 if file.kind == "snapshot" else 0)
            name = f"{file.name}: {len(file.entries)}"
            scene.cell(file.name, left, 64 + 24 * row, 106, name, tone="good" if file in read else "faint")
        scene.height = max(scene.height, 70 + 12 * _VERSIONS)
        return scene
