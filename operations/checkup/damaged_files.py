"""Findings on damaged files, and the epochs that can be captured all the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streamstate.operations.checkup.report import CheckupFinding, Level, StoreState
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.damage import BACKUP
from streamstate.snapshots.checkpoint.damage.epochs import EpochDamage
from streamstate.snapshots.checkpoint.damage.next_start import NextStart

_SHOWN = 10


def whole_epochs(checkpoint: CheckpointFiles, committed: Sequence[int], start: NextStart) -> list[int]:
    """Return the committed epochs that can be captured.

    Files of older epochs are looked up, and read only if Spark cannot restart.
    """
    damage = EpochDamage(checkpoint, read=start.can_restart is False)
    found: list[int] = []
    with checkpoint.read_once():
        for epoch in committed:
            follows = epoch == 0 or epoch - 1 in found[-1:]
            if (damage.of_changes(epoch) if follows else damage.of_state(epoch)) is None:
                found.append(epoch)
    return found


def damage_findings(
    checkpoint: CheckpointFiles, start: NextStart, store: StoreState | None
) -> Iterator[CheckupFinding]:
    """Yield a finding for each damaged file, with a way out."""
    for damage in start.damages[:_SHOWN]:
        effect = " Spark cannot restart." if damage.stops else ""
        level: Level = "problem" if damage.stops or damage.hides_state else "warning"
        yield CheckupFinding(level, f"{damage}.{effect} {damage.advice}", file=damage.file)
    if len(start.damages) > _SHOWN:
        yield CheckupFinding("problem", f"{len(start.damages) - _SHOWN} other files are damaged.")
    if start.can_restart is False:
        yield from _way_out(checkpoint, start, store)
    if start.unknown:
        yield CheckupFinding("note", f"Whether Spark can restart is not known. {start.unknown}")
    if start.unread:
        size = f"{start.unread / (1 << 30):.1f} GiB"
        yield CheckupFinding(
            "note", f"Of {size} of RocksDB's data files only the sizes were compared, not the checksums."
        )


def _way_out(checkpoint: CheckpointFiles, start: NextStart, store: StoreState | None) -> Iterator[CheckupFinding]:
    """Yield the ways to continue the query without a backup."""
    ways = []
    if start.whole is not None:
        ways.append(
            f"from epoch {start.whole} in a new checkpoint: ss.Checkpoint({checkpoint.path!r}).fork(to=…,"
            f" at={start.whole})"
        )
    if store is not None and store.newest is not None and any(d.stops and d.advice == BACKUP for d in start.damages):
        code = "" if start.whole is not None else " --code MODULE:FUNCTION"
        restore = f"streamstate restore {store.path} {store.name} --at {store.newest} --to PATH{code}"
        ways.append(f"from epoch {store.newest} of the store: {restore}")
    if ways:
        yield CheckupFinding("note", f"Without a backup, the query can go on {', or '.join(ways)}.")
