"""Damaged logs: the plans and commits of epochs, the query's metadata, and the logs of file sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from streamstate.errors import DamagedCheckpointError, NewerCheckpointError, first_line
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.damage import BACKUP, Damage
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError
from streamstate.snapshots.checkpoint.decoding.integrity import verify
from streamstate.snapshots.checkpoint.file_source_log import read_at_start
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.checkpoint.logs import PlannedEpoch, parse_commit, parse_plan
from streamstate.snapshots.checkpoint.source_offsets import file_batch

_T = TypeVar("_T")


class LogDamage:
    """The damage of the logs that the next start reads.

    Attributes:
        planned: the newest planned epoch; −1 if there is none.
        committed: the newest committed epoch; −1 if there is none.
        plan: what the newest plan says; None if it is damaged.
        commit: what the newest commit says; None if it is damaged.
        unknown: why a file cannot be judged: it has a version that is not known; empty if all can.
    """

    def __init__(self, checkpoint: CheckpointFiles) -> None:
        self._checkpoint = checkpoint
        self._root = checkpoint.path
        # In this order: a query that runs plans an epoch before it commits it.
        self._committed, self._planned = checkpoint.committed(), checkpoint.begun()
        self.planned = max(self._planned, default=-1)
        self.committed = max(self._committed, default=-1)
        self.plan: PlannedEpoch | None = None
        self.commit: dict[str, Any] | None = None
        self.unknown = ""

    def all(self) -> Iterator[Damage]:
        """Return all damage; the plan and the commit are set then."""
        try:
            _ = self._checkpoint.query_id
            self._verified("metadata")
        except DamagedCheckpointError as error:
            yield Damage.of(error, self._root)
        yield from self._plans()
        yield from self._commits()
        if self.plan is not None:
            yield from self._sources(self.plan)
        elif self.planned > self.committed:
            self.planned -= 1

    def of_plan(self, epoch: int) -> Damage | None:
        """Return the damage of an epoch's plan."""
        return self._parsed(f"offsets/{epoch}", parse_plan, BACKUP)[1]

    def of_commit(self, epoch: int) -> Damage | None:
        """Return the damage of an epoch's commit."""
        return self._parsed(f"commits/{epoch}", parse_commit, _rerun(epoch))[1]

    def _plans(self) -> Iterator[Damage]:
        if not self._planned:
            if self._committed:
                yield Damage("offsets", "has no plan, although epochs are committed")
            return
        newest = self.planned
        self.plan, found = self._parsed(f"offsets/{newest}", parse_plan, BACKUP)
        if self.plan is not None and not self.plan.offsets:
            found = Damage(f"offsets/{newest}", "has no offset of any source")
        if found and newest > self.committed:
            yield replace(found, advice=_replan(newest))
        elif found:
            yield replace(found, of_epoch=True)
        if self.committed > newest:
            yield Damage(f"offsets/{self.committed}", "is missing, although the epoch is committed", of_epoch=True)
        if newest > 0:
            yield from self._plan_before(newest - 1)
        yield from self._older("offsets", self._planned, newest - 1, parse_plan)

    def _plan_before(self, epoch: int) -> Iterator[Damage]:
        """Damage of the plan before the newest: Spark asks where its epoch ended."""
        before, found = self._parsed(f"offsets/{epoch}", parse_plan, BACKUP)
        if before and self.plan and self.plan.offsets and len(before.offsets) != len(self.plan.offsets):
            counts = f"{len(before.offsets)} sources instead of {len(self.plan.offsets)}"
            found = Damage(f"offsets/{epoch}", f"has offsets of {counts}")
        if found:
            yield replace(found, of_epoch=True)

    def _commits(self) -> Iterator[Damage]:
        if not self._committed:
            return
        newest = self.committed
        self.commit, found = self._parsed(f"commits/{newest}", parse_commit, _rerun(newest))
        if found:
            yield found
        yield from self._older("commits", self._committed, newest, parse_commit)

    def _older(self, log: str, epochs: list[int], before: int, parse: Callable[[str, str], object]) -> Iterator[Damage]:
        """Damage of files that Spark does not read any more: the first of the log is where Spark has purged up to."""
        present = {*epochs}
        for epoch in range(epochs[0], before):
            if epoch not in present:
                yield Damage(f"{log}/{epoch}", "is missing", _UNREAD, stops=False)
                continue
            _, found = self._parsed(f"{log}/{epoch}", parse, _UNREAD, stops=False)
            if found:
                yield found

    def _parsed(
        self, name: str, parse: Callable[[str, str], _T], advice: str, *, stops: bool = True
    ) -> tuple[_T | None, Damage | None]:
        """Return a parsed file and its damage: one of them is None."""
        try:
            return parse(self._verified(name), f"{self._root}/{name}"), None
        except DamagedCheckpointError as error:
            return None, Damage.of(error, self._root, advice, stops=stops)
        except NewerCheckpointError as error:
            self.unknown = self.unknown or first_line(error)
            return None, None

    def _verified(self, name: str) -> str:
        """Return the text of a file, compared with the checksum file that Hadoop writes beside it on a local disk."""
        path = f"{self._root}/{name}"
        content = self._checkpoint.files.content(path)
        if content is None:
            raise DamagedCheckpointError.file(path, "is missing")
        folder, _, base = path.rpartition("/")
        local = local_path(self._root) is not None
        checksum = self._checkpoint.files.content(f"{folder}/.{base}.crc") if local and content else None
        try:
            verify(content, path, hadoop=checksum)
            return content.decode()
        except DamagedChangelogError:
            why = f"does not match its checksum file .{base}.crc"
            advice = f"Restore it from a backup. If it was edited on purpose, delete .{base}.crc."
            raise DamagedCheckpointError.file(path, why, advice) from None
        except UnicodeDecodeError:
            raise DamagedCheckpointError.file(path, "is no text") from None

    def _sources(self, plan: PlannedEpoch) -> Iterator[Damage]:
        seen: set[str] = set()
        logged = self._checkpoint.files.names(f"{self._root}/sources")
        for folder, offset in zip(plan.logs, plan.offsets, strict=True):
            batch = file_batch(offset)
            # A stream that is read twice, as in a self-join, has one log.
            shared = folder.rpartition("/")[2] not in logged and any(offset == other for other in seen)
            if batch is not None and not shared:
                yield from self._source(folder, batch)
                seen.add(offset or "")

    def _source(self, folder: str, batch: int) -> Iterator[Damage]:
        for number, name in read_at_start(self._checkpoint.files, f"{self._root}/{folder}", batch).items():
            advice = BACKUP if number <= batch else "Delete it: no epoch was planned with it."
            _, found = self._parsed(f"{folder}/{name}", _parse_files, advice)
            if found:
                yield found


def _parse_files(text: str, path: str) -> None:
    """Check the text of a file source's log."""
    version, *lines = text.splitlines() or [""]
    if version.strip() != "v1":
        raise DamagedCheckpointError.file(path, f"begins with {version[:20]!r} instead of v1" if text else "is empty")
    try:
        for line in lines:
            json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedCheckpointError.file(path, "ends within a line, or is no JSON there") from error


def _rerun(epoch: int) -> str:
    return f"Delete it, and its checksum file .{epoch}.crc: Spark then runs epoch {epoch} again."


def _replan(epoch: int) -> str:
    return (
        f"Delete it, and its checksum file .{epoch}.crc: the epoch was not committed, and Spark plans it again. If it"
        " had begun to write results, restore the file from a backup instead."
    )


_UNREAD = "Spark does not read it any more. The epoch cannot be captured without it; restore it from a backup."
