"""The findings of a checkup: on damaged files, the store, the query, and the time for which epochs are kept."""

from __future__ import annotations

import itertools
import math
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from streamstate.errors import CheckpointError, UnsupportedStateError
from streamstate.operations.checkup.report import CheckupFinding, Level, StoreState
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.damage.damage import BACKUP, Damage
from streamstate.snapshots.checkpoint.damage.epochs import EpochDamage
from streamstate.snapshots.checkpoint.damage.next_start import NextStart
from streamstate.snapshots.checkpoint.default_names import flow_version, versions_in
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.checkpoint.unfinished_epoch import ADVICE, EFFECT, WHAT, unfinished_epoch
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.manifest import Manifest
from streamstate.snapshots.store.registry import check_store

if TYPE_CHECKING:
    from streamstate.snapshots.capture.pass_plan import CaptureInterval
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles

_SHOWN = 10
_LOGS = 50
"""The newest epochs whose logs are read."""
_RETAIN = "spark.sql.streaming.minBatchesToRetain"
_KEPT_BY_DEFAULT = 100
_TIMED_EPOCHS = 21
_MINUTE = 60.0
# A restart of the capture, with Spark's start and a pass that catches up, takes less.
_SHORT_PAUSE = 2 * _MINUTE
_COMFORT = 10 * _MINUTE


def whole_epochs(
    checkpoint: CheckpointFiles, committed: Sequence[int], start: NextStart
) -> tuple[list[int], list[CheckupFinding]]:
    """Return the committed epochs that can be captured, and findings on those between them that cannot.

    Files of older epochs are looked up, and read only if Spark cannot restart.
    """
    damage = EpochDamage(checkpoint, read=start.can_restart is False)
    whole: list[int] = []
    lost: dict[int, Damage] = {}
    with checkpoint.read_once():
        for epoch in committed:
            follows = epoch == 0 or epoch - 1 in whole[-1:]
            found = damage.of_changes(epoch) if follows else damage.of_state(epoch)
            if found is None:
                whole.append(epoch)
            elif whole:
                lost[epoch] = found
    known = {damaged.file for damaged in start.damages}
    return whole, [*_lost_findings({at: why for at, why in lost.items() if at < whole[-1] and why.file not in known})]


def _lost_findings(lost: Mapping[int, Damage]) -> Iterator[CheckupFinding]:
    """Yield a finding for each file without which epochs cannot be captured, though later ones can."""
    by_file: dict[Damage, list[int]] = {}
    for epoch, damage in lost.items():
        by_file.setdefault(damage, []).append(epoch)
    for damage, epochs in [*by_file.items()][:_SHOWN]:
        which = f"Epoch {epochs[0]}" if len(epochs) == 1 else f"Epochs {epochs[0]} to {epochs[-1]}"
        yield CheckupFinding("warning", f"{damage}. {which} cannot be captured. {damage.advice}", file=damage.file)


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


def unfinished_findings(checkpoint: CheckpointFiles) -> Iterator[CheckupFinding]:
    """Yield a finding if the newest epoch has written its state and is not committed."""
    epoch = unfinished_epoch(checkpoint)
    if epoch is not None:
        yield CheckupFinding("warning", f"{WHAT.format(epoch=epoch)} {EFFECT} {ADVICE}")


def flow_findings(checkpoint: CheckpointFiles) -> Iterator[CheckupFinding]:
    """Yield a finding if a pipeline has gone on with a later version of the flow."""
    flow = flow_version(checkpoint.path)
    newest = max(versions_in(checkpoint.files, flow.folder), default=0) if flow else 0
    if flow and newest > flow.version:
        yield CheckupFinding(
            "note",
            f"This is version {flow.version} of a flow, which a full refresh ended: the newest is version {newest}."
            f" Follow {flow.folder} to capture every version.",
        )


def store_state(layout: Layout, query_id: str, committed: Sequence[int]) -> StoreState:
    """Return the captured epochs of a query in a store.

    Raises:
        StoreError: it cannot be reached or read, or is no place for a store.
    """
    known = check_store(layout)
    name = next((query.name for query in known.values() if query.query_id == query_id), None)
    if name is None:
        return StoreState(layout.root, None, behind=len(committed))
    manifest = Manifest(layout, name)
    manifest.refresh()
    newest = manifest.newest.epoch if manifest.newest else None
    last = manifest.entries[-1].epoch if manifest.entries else -1
    behind = sum(epoch > last for epoch in committed)
    # A query whose first epochs are purged before its first capture has that gap, too; it is in the past.
    lost = max(committed[0] - last - 1, 0) if committed and manifest.entries else 0
    return StoreState(layout.root, name, newest, behind, lost)


def store_findings(state: StoreState) -> Iterator[CheckupFinding]:
    """Yield findings on the store."""
    if state.lost:
        yield CheckupFinding(
            "warning", f"{state.lost} epochs were purged before they were captured: they will be a gap."
        )
    folder = local_path(state.path)
    if folder is None:
        yield CheckupFinding("note", "The store was read; whether it can be written was not tried.")
    elif not os.access(_existing(folder), os.W_OK | os.X_OK):
        yield CheckupFinding("problem", f"{_existing(folder)} cannot be written by this user.")


def _existing(folder: Path) -> Path:
    """Return the folder, or the closest folder above it that exists."""
    folder = folder.absolute()
    return next(path for path in (folder, *folder.parents) if path.exists())


def advice_findings(
    checkpoint: CheckpointFiles,
    committed: Sequence[int],
    store: StoreState | None,
    storage_options: Mapping[str, str] | None,
) -> Iterator[CheckupFinding]:
    """Advise on a query, from its captured epochs or, without any, from its checkpoint alone."""
    if store is not None and store.name is not None and store.newest is not None:
        yield from _from_store(store.path, store.name, storage_options)
    elif committed:
        yield from _from_checkpoint(checkpoint, committed)


def _from_store(path: str, name: str, storage_options: Mapping[str, str] | None) -> Iterator[CheckupFinding]:
    from streamstate.state_inspect import open_store
    from streamstate.state_inspect.advice.advise import quick_advice

    query = open_store(path, storage_options=storage_options)[name].recorded
    for advice in quick_advice(query):
        yield CheckupFinding("note", f"{advice.text} {advice.evidence}")


def _from_checkpoint(checkpoint: CheckpointFiles, committed: Sequence[int]) -> Iterator[CheckupFinding]:
    """Yield advice on the watermark, and on state that can never shrink; its growth shows only in captured epochs."""
    from streamstate.snapshots.store.epoch_progress import progress_in_checkpoint
    from streamstate.state_inspect.advice.kept_states import kept_by_checkpoint
    from streamstate.state_inspect.advice.stall import (
        MIN,
        Watermarks,
        deserves_advice,
        pinned_policy,
        stall_advice,
        stall_of,
    )

    found = stall_of(progress_in_checkpoint(checkpoint, committed[-_LOGS:]))
    watermarks = Watermarks(None, pinned_policy(checkpoint) or MIN)
    if found is not None and found.newest.watermark is not None and deserves_advice(found, watermarks, ()):
        advice = stall_advice(found, watermarks, ())
        yield CheckupFinding("note", f"{advice.text} {advice.evidence}")
    try:
        kept = kept_by_checkpoint(checkpoint, committed[-1])
    except (CheckpointError, UnsupportedStateError):
        return  # the findings on the state tables say why
    for state in kept:
        if not state.by_user_code:
            yield CheckupFinding("note", f"{' and '.join(state.tables)} can never shrink, because {state.why}.")


def epoch_seconds(checkpoint: CheckpointFiles, committed: Sequence[int]) -> float | None:
    """Return the median time between the plans of the last epochs; copying a checkpoint does not change it."""
    plans = [checkpoint.readable_plan(epoch) for epoch in committed[-_TIMED_EPOCHS:]]
    moments = [planned.began_at for planned in plans if planned and planned.began_at]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(moments)]
    return statistics.median(gaps) if gaps else None


def retention_findings(
    committed: Sequence[int], seconds: float | None, interval: CaptureInterval
) -> Iterator[CheckupFinding]:
    """Yield findings on epochs that Spark may purge before they are captured.

    The setting is not in the checkpoint. Once Spark has purged epochs, the number of the remaining ones shows it.
    """
    purged = bool(committed) and committed[0] > 0
    retained = len(committed) if purged else _KEPT_BY_DEFAULT
    held = f"the checkpoint holds {retained}" if purged else f"Spark's default is to keep {retained}"
    at_once = interval.epochs
    if interval.seconds and seconds:
        at_once = max(at_once, math.ceil(interval.seconds / seconds))
    if 2 * at_once > retained:
        yield CheckupFinding(
            "warning",
            f"A pass would take {at_once} epochs, and {held}: a delay makes a gap. Capture more often (--every), or"
            " have the query keep more epochs.",
            (_RETAIN, str(4 * at_once)),
        )
    elif seconds:
        pause = retained * seconds
        short = pause < _SHORT_PAUSE
        yield CheckupFinding(
            "warning" if short and purged else "note",
            f"A capture that pauses for more than {_span(pause)} leaves a gap ({held} epochs).",
            (_RETAIN, str(math.ceil(_COMFORT / seconds))) if short else None,
        )


def _span(seconds: float) -> str:
    if seconds < 2 * _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < 120 * _MINUTE else f"{seconds / _MINUTE / 60:.0f} h"
