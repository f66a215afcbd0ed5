"""A store that keeps its state in memory, in changelogs, in snapshots and in a remote store, and may lose its disk.

Changes gather in a memtable. A commit writes them to a changelog, one for each version; now and then a compaction
writes a snapshot of all that a version holds (O'Neil et al. 1996; Rosenblum and Ousterhout 1992). Spark's state stores
keep their files in this way.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Self, TypeAlias

from streamstate.tutorials.simulation.protocol import Action, Invariant, Protocol
from streamstate.tutorials.simulation.scene import LINE, Item, Scene, Tone, fit
from streamstate.tutorials.simulation.store_files import (
    Entries,
    File,
    Files,
    chain,
    held,
    in_words,
    merged,
    needed,
    newest_snapshot,
    with_file,
)

Fate: TypeAlias = Literal["kept", "lost"]
READ, PURGED, KEPT = "a load finds the version", "a purge leaves what is needed", "a crash loses nothing"
"""The names of the invariants."""


class Stored(NamedTuple):
    """A state of the simulation.

    Args:
        version: the version in memory; None: the engine is down.
        table: what memory holds of that version.
        memtable: what has changed since.
        flushed: the memtable is in a changelog on the local disk.
        local: files on the local disk, by version.
        remote: files in the remote store.
        history: for each acknowledged version, what it holds; version 0 is empty.
        purge_fault: what the last purge took by mistake; empty if nothing.
        crashes: how often the engine may still crash.
    """

    version: int | None
    table: Entries
    memtable: Entries
    flushed: bool
    local: Files
    remote: Files
    history: tuple[Entries, ...]
    purge_fault: str
    crashes: int

    @property
    def visible(self) -> Files:
        """The files that the engine can read. Of two with one name, it takes that on the local disk."""
        there = {file.name for file in self.local}
        return (*self.local, *(file for file in self.remote if file.name not in there))


class LogStructured(Protocol[Stored]):
    """One engine with a local disk, and a remote store that never fails.

    A put in version n gives a key the value n.

    Args:
        versions: how many versions are committed.
        keys: the keys, of one letter each.
        retain: how many of the newest versions must stay readable.
        crashes: how often the engine may crash.
        disk: what may become of the local disk in a crash.

    Example:
        >>> from streamstate.tutorials.simulation import explore
        >>> from streamstate.tutorials.simulation.store_mutants import PurgesByAge
        >>> explore(PurgesByAge(2, keys="x", retain=1)).shortest(PURGED).violations[0].reason
        'It took changelog 1, which version 2 needs.'
    """

    name: ClassVar[str] = "a log-structured store"

    def __init__(
        self,
        versions: int = 3,
        *,
        keys: str = "xy",
        retain: int = 2,
        crashes: int = 1,
        disk: Sequence[Fate] = ("kept", "lost"),
    ) -> None:
        self.versions, self.keys, self.retain = versions, keys, retain
        self.crashes, self.disk = crashes, tuple(disk)

    @classmethod
    def random(cls, seed: int) -> Self:
        """Return a scenario of four to seven versions with one or two crashes."""
        chance = random.Random(seed)  # noqa: S311 (reproducible, not secret)
        keys, retain = chance.choice(["x", "xy", "xyz"]), chance.randint(1, 3)
        return cls(chance.randint(4, 7), keys=keys, retain=retain, crashes=chance.randint(1, 2))

    # The rules, which mutants and learners override.

    def base(self, files: Collection[File], version: int) -> File | None:
        """Return the snapshot that a load begins with: the newest one up to the version."""
        return newest_snapshot(files, version)

    def entries(self, memtable: Entries) -> Entries:
        """Return the entries of a changelog, deletions among them."""
        return memtable

    def compact(self, files: Files) -> Entries:
        """Return the entries of a snapshot, from the files that its version is loaded from."""
        return merged(files)

    def may_acknowledge(self, state: Stored, changelog: File) -> bool:
        """Check that a version may be acknowledged: its changelog is in the remote store."""
        return changelog in state.remote

    def may_purge(self, file: File, state: Stored) -> bool:
        """Check that a file may leave the remote store: no retained version needs it."""
        return all(file not in needed(state.remote, version) for version in self.retained(state))

    # What can happen.

    def start(self) -> Stored:
        """Return the first state: version 0, without files."""
        return Stored(
            0, (), (), flushed=False, local=(), remote=(), history=((),), purge_fault="", crashes=self.crashes
        )

    def actions(self, state: Stored) -> list[Action]:
        """Return what can happen next."""
        if state.version is None:
            return [Action(("load",), f"The engine starts, and loads version {len(state.history) - 1}")]
        found = [*self._changes(state, state.version + 1), *self._maintenance(state, state.version)]
        if state.crashes:
            crash = "The engine crashes; its local disk is"
            found += [Action(("crash", fate), f"{crash} {fate}", 0.15) for fate in self.disk]
        return found

    def _changes(self, state: Stored, new: int) -> Iterator[Action]:
        if new > self.versions:
            return
        if state.flushed:
            changelog = _find(state.local, "changelog", new)
            if changelog not in state.remote:
                yield Action(("upload", "changelog", new), f"Changelog {new} is uploaded")
            if self.may_acknowledge(state, changelog):
                yield Action(("acknowledge",), f"Version {new} is acknowledged")
            return
        changed, table = dict(state.memtable), dict(state.table)
        for key in self.keys:
            if key not in changed:
                yield Action(("put", key), f"{key} becomes {new}")
                if key in table:
                    yield Action(("delete", key), f"{key} is deleted")
        if changed:
            yield Action(("flush",), f"Changelog {new} is written to the local disk")

    def _maintenance(self, state: Stored, version: int) -> Iterator[Action]:
        snapshots = [file for file in state.visible if file.kind == "snapshot"]
        if version and version not in {file.version for file in snapshots}:
            yield Action(("snapshot",), f"Snapshot {version} is written to the local disk")
        for file in snapshots:
            if file not in state.remote:
                yield Action(("upload", file.kind, file.version), f"Snapshot {file.version} is uploaded")
        if not state.flushed and self._left(state) != state.remote:
            yield Action(("purge",), "Old files are purged")

    def act(self, state: Stored, action: Action) -> Stored:
        """Return the state after an action."""
        kind, version = action.key[0], state.version
        if kind == "crash":
            local = state.local if action.key[1] == "kept" else ()
            down = state._replace(version=None, table=(), memtable=(), flushed=False, local=local)
            return down._replace(crashes=state.crashes - 1)
        return self._loaded(state) if version is None else self._done(state, action, version)

    def _done(self, state: Stored, action: Action, version: int) -> Stored:
        kind = action.key[0]
        if kind in ("put", "delete"):
            changed = dict(state.memtable) | {str(action.key[1]): version + 1 if kind == "put" else None}
            return state._replace(memtable=tuple(sorted(changed.items())))
        if kind == "flush":
            file = File(version + 1, "changelog", self.entries(state.memtable))
            return state._replace(local=with_file(state.local, file), flushed=True)
        if kind == "upload":
            file = _find(state.local, *action.key[1:])
            return state._replace(remote=with_file(state.remote, file))
        if kind == "snapshot":
            files = chain(state.visible, version, self.base(state.visible, version)) or ()
            return state._replace(local=with_file(state.local, File(version, "snapshot", self.compact(files))))
        return self._acknowledged(state, version + 1) if kind == "acknowledge" else self._after_purge(state)

    def load(self, files: Files, version: int) -> Entries | None:
        """Return what files say that a version holds; None if one is missing."""
        found = chain(files, version, self.base(files, version))
        return None if found is None else merged(found)

    def _loaded(self, state: Stored) -> Stored:
        """Return the state with the newest version in memory that can be loaded."""
        tables = {version: self.load(state.visible, version) for version in range(len(state.history))}
        version, table = max((version, table) for version, table in tables.items() if table is not None)
        return state._replace(version=version, table=table)

    def _acknowledged(self, state: Stored, version: int) -> Stored:
        table = held(dict(state.table) | dict(state.memtable))
        history = (*state.history[:version], table)
        return state._replace(version=version, table=table, memtable=(), flushed=False, history=history)

    def retained(self, state: Stored) -> range:
        """Return the versions that must stay readable."""
        return range(max(1, len(state.history) - self.retain), len(state.history))

    def _left(self, state: Stored) -> Files:
        """Return the files that a purge leaves in the remote store."""
        return tuple(file for file in state.remote if not self.may_purge(file, state))

    def _after_purge(self, state: Stored) -> Stored:
        left = self._left(state)
        needs = {file: version for version in self.retained(state) for file in needed(state.remote, version)}
        taken = [file for file in state.remote if file not in left]
        local = tuple(file for file in state.local if file.name not in {gone.name for gone in taken})
        faults = (f"It took {file.name}, which version {needs[file]} needs." for file in taken if file in needs)
        fault = next(faults, "")
        return state._replace(remote=left, local=local, purge_fault=fault)

    def finished(self, state: Stored) -> bool:
        """Check that all versions are committed."""
        return state.version == self.versions

    # What must hold.

    @property
    def invariants(self) -> Mapping[str, Invariant[Stored]]:
        """What the store promises."""
        return {READ: self._reads, PURGED: lambda state: state.purge_fault or None, KEPT: self._kept}

    def _reads(self, state: Stored) -> str | None:
        for version in self.retained(state):
            found, expected = self.load(state.visible, version), state.history[version]
            if found is not None and found != expected:
                return f"A load of version {version} finds {in_words(found)}, and it held {in_words(expected)}."
        return None

    def _kept(self, state: Stored) -> str | None:
        newest = len(state.history) - 1
        lost = self.load(state.visible, newest) is None
        return f"Version {newest} is acknowledged, and cannot be loaded any more." if lost else None

    # How it looks.

    def scene(self, state: Stored) -> Scene:
        """Return the picture of a state: memory, and the files of each version on the local disk and remotely."""
        scene = Scene(_WIDTH)
        tone: Tone
        title, cells, tone = "engine: down", ["its memory is gone"], "bad"
        if state.version is not None:
            title, tone = f"engine: version {state.version} in memory", "busy"
            cells = [f"holds {in_words(state.table)}", f"memtable: {in_words(state.memtable)}"]
        scene.box("engine", 8, 8, _WIDTH - 16, title, cells=cells, tone=tone, lines=2)
        retained = self.retained(state)
        for version in range(1, self.versions + 1):
            text = f"version {version}{' ✓' if version < len(state.history) else ''}"
            scene.text(f"row {version}", 8, _TOP + _ROW * version, text, tone="" if version in retained else "faint")
        read = {file for version in retained for file in needed(state.remote, version)}
        for place, files in enumerate((state.local, state.remote)):
            where = ("local disk", "remote store")[place]
            heading = _LEFT + 2 * place * _COLUMN
            scene.text(f"head {place}", heading, _TOP - 16, where)
            scene.text(f"kinds {place}", heading, _TOP, "changelog, snapshot", tone="faint")
            for file in files:
                left, top = _LEFT + _COLUMN * (2 * place + (file.kind == "snapshot")), _TOP - 10 + _ROW * file.version
                kind = "cell mark" if not place else "cell good" if file in read else "cell faint"
                name, text = f"{place} {file.name}", fit(in_words(file.entries), _COLUMN - 6)
                scene.add(Item(name, kind, left, top, _COLUMN - 6, LINE, text, words=f"{where}: {file}."))
        scene.height = max(scene.height, _TOP + 20 + _ROW * self.versions)
        return scene


_WIDTH, _LEFT, _COLUMN, _TOP, _ROW = 460, 84, 93, 118, 24


def _find(files: Files, *name: str | int) -> File:
    return next(file for file in files if (file.kind, file.version) == name)
