"""The next epoch of a fork: the plan of the original's epoch of the same number, brought into the fork.

A query that starts and finds a planned epoch that is not committed runs that epoch first, with the offsets, the
watermark and the processing time of the plan. So the plan and the sources' logs up to its offsets are all that a fork
needs. The settings in the plan stay the fork's own, because its state was written with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from streamstate.errors import EpochGoneError, ForkError, NotReplayableError, choices
from streamstate.replay.stepping.fork_folder import ForkFolder
from streamstate.replay.stepping.step_report import InputOrigin
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.file_source_log import entries, log_upto
from streamstate.snapshots.checkpoint.filesystem import local_path
from streamstate.snapshots.checkpoint.fork_contents import why_unavailable
from streamstate.snapshots.checkpoint.logs import PlannedEpoch
from streamstate.snapshots.checkpoint.source_offsets import file_batch

_OFFSETS, _WATERMARK, _NEXT_WATERMARK = "offsets", "batchWatermarkMs", "nextBatchWatermarkMs"


@dataclass(frozen=True)
class NextEpoch:
    """An epoch that is about to be run."""

    number: int
    input: InputOrigin
    texts: Mapping[str, str] = field(default_factory=dict)
    """The files to write for it, the plan last."""
    partitions: int | None = None
    """The number of partitions to which the original repartitioned its state in this epoch; None: it did not."""


def next_epoch(
    original: CheckpointFiles,
    fork: CheckpointFiles,
    folder: ForkFolder,
    *,
    own_watermark: bool,
    pinned: Mapping[str, str],
) -> NextEpoch | None:
    """Return the next epoch of a fork; None if its original has no further epoch.

    Args:
        original: the checkpoint that it follows.
        fork: the fork.
        folder: its files.
        own_watermark: whether the watermark is the one that the fork's own last epoch computed, which changed code may
            change; else it is the original's.
        pinned: settings that the fork's first epoch pins it to, if they differ from the original's.

    Raises:
        EpochGoneError: the original has purged the epoch.
        ForkError: the fork no longer follows the original, or their sources differ.
        NotReplayableError: files that the epoch read are gone, or the source's log no longer names them.
    """
    number = max(fork.committed(), default=-1) + 1
    text = original.files.text(f"{original.path}/{_OFFSETS}/{number}")
    if text is None:
        _check_not_purged(original, number)
        return None
    planned = original.planned(number)
    assert planned is not None
    committed = number in original.committed()
    if committed and original.skipped(number):
        raise EpochGoneError(
            f"Epoch {number} of {original.path} {why_unavailable(original, number)}.\n"
            f"Fork at epoch {number + 1} or later to continue."
        )
    if committed and original.repartitioned(number):
        return NextEpoch(number, "none", partitions=planned.partitions)
    before = fork.planned(number - 1)
    behind = before or replace(planned, offsets=(None,) * len(planned.offsets))
    _check_follows(original, fork, number - 1, behind)
    _check_same_sources(original, number, behind, planned)
    texts = dict(_logs(original, folder, behind, planned))
    own = folder.text(f"{_OFFSETS}/{number - 1}"), folder.text(f"commits/{number - 1}")
    texts[f"{_OFFSETS}/{number}"] = with_own_conf(text, *own, own_watermark=own_watermark, pinned=pinned)
    return NextEpoch(number, "original" if committed else "planned", texts)


def with_own_conf(
    text: str, before: str | None, commit: str | None, *, own_watermark: bool, pinned: Mapping[str, str]
) -> str:
    """Return the original's plan with the settings that the fork is pinned to.

    Args:
        text: the original's plan.
        before: the fork's plan of the epoch before; None: the original's settings are used.
        commit: the fork's commit of the epoch before.
        own_watermark: whether the watermark is the fork's own too.
        pinned: the settings in the fork's first epoch that differ from the original's.
    """
    version, head, *sources = text.split("\n")
    metadata: dict[str, Any] = json.loads(head)
    changed = dict(metadata)
    if before is None:
        changed["conf"] = {**metadata.get("conf", {}), **pinned}
    else:
        own: dict[str, Any] = json.loads(before.split("\n")[1])
        changed["conf"] = own.get("conf", {})
        if own_watermark:
            changed[_WATERMARK] = max(own.get(_WATERMARK, 0), _next_watermark(commit))
    if changed == metadata:
        return text
    return "\n".join([version, json.dumps(changed, separators=(",", ":")), *sources])


def _next_watermark(commit: str | None) -> int:
    lines = (commit or "").splitlines()
    metadata = json.loads(lines[1]) if len(lines) > 1 and lines[1].startswith("{") else {}
    return int(metadata.get(_NEXT_WATERMARK, 0))


def _check_not_purged(original: CheckpointFiles, number: int) -> None:
    begun = original.begun()
    if begun and begun[0] > number:
        raise EpochGoneError(
            f"{original.path} no longer has what describes its epoch {number}: Spark has purged it; epochs {begun[0]}"
            f" to {begun[-1]} are left.\nFork at a later epoch, or raise spark.sql.streaming.minBatchesToRetain before"
            " the original starts."
        )


def _check_follows(original: CheckpointFiles, fork: CheckpointFiles, number: int, behind: PlannedEpoch) -> None:
    """Raise if the fork has read other input than the original so far."""
    theirs = original.planned(number)
    if theirs is None:
        return
    same = behind.input == theirs.input if number >= 0 else True
    for log, offset in zip(behind.logs, behind.offsets, strict=True):
        if (last := file_batch(offset)) is None:
            continue
        name = f"{log}/{last}"
        fork_log, original_log = (checkpoint.files.text(f"{checkpoint.path}/{name}") for checkpoint in (fork, original))
        same = same and (
            None in (fork_log, original_log)
            or _files_read(fork_log, last, last) == _files_read(original_log, last, last)
        )
    if not same:
        raise ForkError(
            f"{fork.path} has read other input than {original.path} up to epoch {number}, so it cannot run the"
            " original's next epoch.\nStep with new_input=True to continue with new input, or fork again."
        )


def _check_same_sources(original: CheckpointFiles, number: int, before: PlannedEpoch, after: PlannedEpoch) -> None:
    if before.logs != after.logs:
        now, then = (choices(plan.names) if plan.names else f"{len(plan.offsets)} sources" for plan in (after, before))
        raise ForkError(
            f"Epoch {number} of {original.path} read {now}, but the fork has read {then}: the original's query was"
            f" changed at this epoch.\nFork at epoch {number} or later."
        )


def _logs(
    original: CheckpointFiles, folder: ForkFolder, before: PlannedEpoch, after: PlannedEpoch
) -> Iterator[tuple[str, str]]:
    """Yield the log files of file sources that the fork lacks; the input files they name must exist."""
    files = original.files
    for source, start, end in zip(after.logs, before.offsets, after.offsets, strict=True):
        last, since = file_batch(end), file_batch(start)
        # A stream that is read twice, as in a self-join, has one log, under its first number.
        if last is None or last == since or not files.names(f"{original.path}/{source}"):
            continue
        log = log_upto(files, f"{original.path}/{source}", last)
        since = -1 if since is None else since
        paths = {path for text in log.values() for path in _files_read(text, since + 1, last)}
        _check_present(folder, source.removeprefix("sources/"), sorted(paths))
        present = {*folder.names(source)}
        yield from ((f"{source}/{name}", text) for name, text in log.items() if name not in present)


def _files_read(text: str | None, first: int, last: int) -> list[str]:
    """Paths of the files that some of a source's batches read."""
    listed = entries(text or "")
    return [str(entry["path"]) for entry in listed if first <= int(str(entry["batchId"])) <= last]


def _check_present(folder: ForkFolder, source: str, paths: Sequence[str]) -> None:
    missing = [path for path in paths if not _exists(folder, path)]
    if missing:
        raise NotReplayableError(
            f"Files that the epoch read from source {source} are gone: {choices(map(_shown, missing))}.\n"
            "Restore them under the same paths, or fork at a later epoch, after they were read."
        )


def _exists(folder: ForkFolder, path: str) -> bool:
    # Spark logs paths as URIs.
    local = local_path(path) if urlsplit(path).scheme in ("", "file") else None
    return local.exists() if local is not None else folder.files_of(path).modified(path) is not None


def _shown(path: str) -> str:
    return unquote(urlsplit(path).path) if urlsplit(path).scheme == "file" else path
