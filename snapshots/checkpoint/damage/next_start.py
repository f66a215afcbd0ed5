"""The next start from a checkpoint: it needs every file that it reads to be there and whole.

The next start reads the newest plan and the one before, the newest commit, the logs of the file sources from their last
compaction on, what describes the operators, and the state at the epoch before the one that it runs: the newest
snapshot of each store and the changes after it. It runs the epoch after the newest, or the newest planned one again if
that is not committed (``MicroBatchExecution.populateStartOffsets``).
"""

from __future__ import annotations

from dataclasses import dataclass

from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.damage import Damage
from streamstate.snapshots.checkpoint.damage.epochs import EpochDamage
from streamstate.snapshots.checkpoint.damage.logs import LogDamage
from streamstate.snapshots.checkpoint.damage.schemas import SchemaDamage
from streamstate.snapshots.checkpoint.damage.state import stopping
from streamstate.snapshots.checkpoint.state_files import StateFile

_ATTEMPTS = 3


@dataclass(frozen=True)
class NextStart:
    """The condition in which the next start of a query would find its checkpoint."""

    damages: tuple[Damage, ...]
    """The damaged files, those first because of which Spark cannot start."""
    unknown: str = ""
    """The reason why it is not known whether Spark can start, as a sentence; empty if it is known."""
    whole: int | None = None
    """If Spark cannot start because of files that earlier epochs do without, the newest epoch that is whole: the query
    can continue from there. Otherwise, and if there is none, None."""
    unread: int = 0
    """Bytes of data files of which only the sizes were compared."""

    @property
    def can_restart(self) -> bool | None:
        """True if Spark can start, False if it cannot; None if that is not known."""
        if stopping(self.damages):
            return False
        return None if self.unknown else True


def next_start(checkpoint: CheckpointFiles) -> NextStart:
    """Check every file that the next start of a checkpoint's query reads, without Spark and without decoding rows."""
    for _ in range(_ATTEMPTS - 1):
        committed, start = checkpoint.committed(), _checked(checkpoint)
        # A running query also purges meanwhile.
        if start.can_restart is not False or checkpoint.committed() == committed:
            return start
    return _checked(checkpoint)


def _checked(checkpoint: CheckpointFiles) -> NextStart:
    with checkpoint.read_once():
        epochs = EpochDamage(checkpoint)
        logs, state = epochs.logs, epochs.state
        damages = [*logs.all(), *SchemaDamage(checkpoint).all()]
        if logs.unknown:
            return NextStart(_ordered(damages), logs.unknown)
        if "state" not in checkpoint.files.names(checkpoint.path):
            return _without_folder(logs, damages)
        # What is torn and was not committed is deleted first: then Spark runs the epoch again, on the state before it.
        epoch = logs.committed if logs.committed == logs.planned and logs.commit is not None else logs.planned - 1
        unnamed = _unnamed(checkpoint, logs, epoch)
        damages += unnamed or (state.at(epoch) if epoch >= 0 else [])
        stops = stopping(damages)
        whole = epochs.newest_whole() if stops and all(damage.of_epoch for damage in stops) else None
        return NextStart(_ordered(damages), state.unknown, whole, state.unread)


def _without_folder(logs: LogDamage, damages: list[Damage]) -> NextStart:
    """Return the next start of a checkpoint without a folder for state."""
    if logs.commit and logs.commit.get("stateUniqueIds"):
        damages.append(Damage("state", "is missing, although the commit log names state files"))
    unknown = "" if logs.planned < 0 else _NO_FOLDER
    return NextStart(_ordered(damages), unknown)


def _unnamed(checkpoint: CheckpointFiles, logs: LogDamage, epoch: int) -> list[Damage]:
    """In format 2, the damage that the newest commit does not name the state files of an epoch."""
    files = [StateFile.parse(name) for number in checkpoint.operators() for name in checkpoint.state_files(number)]
    if epoch < 0 or not any(file is not None and file.unique_id for file in files):
        return []
    name = f"commits/{epoch}"
    if epoch not in checkpoint.committed() or (logs.commit is not None and logs.committed != epoch):
        return [Damage(name, "is missing, and only it names the state files of the epoch")]
    if logs.commit is not None and not checkpoint.unique_ids(epoch):
        return [Damage(name, "does not name the state files of the epoch")]
    return []


def _ordered(damages: list[Damage]) -> tuple[Damage, ...]:
    return tuple(sorted(dict.fromkeys(damages), key=lambda damage: not damage.stops))


_NO_FOLDER = "It has no folder state/: a query without state can start, one whose folder was deleted cannot."
