"""The next epoch of a fork: what the original's epoch of the same number read, brought into the fork.

A query that starts and finds a planned epoch that is not committed runs that one first, from the offsets, with the
watermark and the processing time of the plan. So a plan and the sources' logs up to its offsets are all that a fork
needs. The settings in the plan stay the fork's own: its state has been written with them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from streamstate.debugger.report import Input
from streamstate.snapshots.checkpoint import SPREAD, Checkpoint
from streamstate.snapshots.errors import EpochGoneError, ForkError, NotReplayableError, choices
from streamstate.snapshots.filesystem import local_path
from streamstate.snapshots.forks.source_log import entries, log_upto, source_batch

if TYPE_CHECKING:
    from streamstate.debugger.fork_folder import ForkFolder

__all__ = ["NextEpoch", "next_epoch", "with_own_conf"]

_OFFSETS, _WATERMARK, _NEXT_WATERMARK = "offsets", "batchWatermarkMs", "nextBatchWatermarkMs"


@dataclass(frozen=True)
class NextEpoch:
    """An epoch that is to be run."""

    number: int
    input: Input
    texts: Mapping[str, str] = field(default_factory=dict)
    """The files to be written for it, the plan last."""
    partitions: int | None = None
    """Over how many partitions the original spread its state anew in this epoch; None: it did not."""


def next_epoch(
    original: Checkpoint, fork: Checkpoint, folder: ForkFolder, *, own_watermark: bool, pinned: Mapping[str, str]
) -> NextEpoch | None:
    """What a fork runs next; None where its original has no further epoch.

    Args:
        original: what it follows.
        fork: the fork.
        folder: its files.
        own_watermark: whether the watermark is what the fork's own last epoch made it, as changed code may change it;
            else it is the original's.
        pinned: settings of the first epoch, to which the fork is pinned then, other than the original's.

    Raises:
        EpochGoneError: the original has purged the epoch.
        ForkError: the fork does not follow the original any more, or their sources differ.
        NotReplayableError: files that the epoch read are gone, or the source's log does not name them any more.
    """
    number = max(fork.committed(), default=-1) + 1
    text = folder.transfer.files.text(f"{original.path}/{_OFFSETS}/{number}")
    if text is None:
        _check_not_purged(original, number)
        return None
    planned = original.planned(number)
    assert planned is not None
    committed = number in original.committed()
    if committed and original.repartitioned(number):
        return NextEpoch(number, "none", partitions=int(planned.conf[SPREAD]))
    before = fork.planned(number - 1)
    behind: Sequence[str | None] = before.offsets if before else [None] * len(planned.offsets)
    _check_follows(original, fork, folder, number - 1, behind)
    _check_as_many(original, number, behind, planned.offsets)
    texts = dict(_logs(original, folder, behind, planned.offsets))
    own = folder.text(f"{_OFFSETS}/{number - 1}"), folder.text(f"commits/{number - 1}")
    texts[f"{_OFFSETS}/{number}"] = with_own_conf(text, *own, own_watermark=own_watermark, pinned=pinned)
    return NextEpoch(number, "original" if committed else "planned", texts)


def with_own_conf(
    text: str, before: str | None, commit: str | None, *, own_watermark: bool, pinned: Mapping[str, str]
) -> str:
    """A plan of the original's with the settings that the fork is pinned to.

    Args:
        text: the original's plan.
        before: the fork's plan of the epoch before; None: there is none, and the original's settings hold.
        commit: the fork's commit of the epoch before.
        own_watermark: whether the watermark is the fork's own too.
        pinned: what the settings are in the fork's first epoch where they differ.
    """
    version, head, *sources = text.split("\n")
    wanted: dict[str, Any] = json.loads(head)
    changed = dict(wanted)
    if before is None:
        changed["conf"] = {**wanted.get("conf", {}), **pinned}
    else:
        mine: dict[str, Any] = json.loads(before.split("\n")[1])
        changed["conf"] = mine.get("conf", {})
        if own_watermark:
            changed[_WATERMARK] = max(mine.get(_WATERMARK, 0), _next_watermark(commit))
    if changed == wanted:
        return text
    return "\n".join([version, json.dumps(changed, separators=(",", ":")), *sources])


def _next_watermark(commit: str | None) -> int:
    lines = (commit or "").splitlines()
    metadata = json.loads(lines[1]) if len(lines) > 1 and lines[1].startswith("{") else {}
    return int(metadata.get(_NEXT_WATERMARK, 0))


def _check_not_purged(original: Checkpoint, number: int) -> None:
    begun = original.begun()
    if begun and begun[0] > number:
        raise EpochGoneError(
            f"{original.path} no longer has what describes its epoch {number}: Spark has purged it; it holds the"
            f" epochs {begun[0]} to {begun[-1]}.\nFork at a later epoch, or raise"
            " spark.sql.streaming.minBatchesToRetain before the original starts."
        )


def _check_follows(
    original: Checkpoint, fork: Checkpoint, folder: ForkFolder, number: int, behind: Sequence[str | None]
) -> None:
    """Raise where the fork has read other input than the original up to here."""
    theirs = original.planned(number)
    if theirs is None:
        return
    same = [*behind] == [*theirs.offsets] if number >= 0 else True
    for at, offset in enumerate(behind):
        if (last := source_batch(offset)) is None:
            continue
        name = f"sources/{at}/{last}"
        ours, other = (folder.transfer.files.text(f"{one.path}/{name}") for one in (fork, original))
        same = same and (None in (ours, other) or _taken(ours, last, last) == _taken(other, last, last))
    if not same:
        raise ForkError(
            f"{fork.path} has read other input than {original.path} by epoch {number}, so its next epoch is not the"
            " original's.\nStep with new_input=True, which goes on with what the sources have now; or fork again."
        )


def _check_as_many(
    original: Checkpoint, number: int, before: Sequence[str | None], after: Sequence[str | None]
) -> None:
    if len(before) != len(after):
        raise ForkError(
            f"Epoch {number} of {original.path} read {len(after)} sources, and the fork has read {len(before)}: the"
            f" original's query was changed there.\nFork at epoch {number} or later to go on from its new form."
        )


def _logs(
    original: Checkpoint, folder: ForkFolder, before: Sequence[str | None], after: Sequence[str | None]
) -> Iterator[tuple[str, str]]:
    """The files that the logs of file sources lack in the fork; the input files are looked for.

    Raises:
        NotReplayableError: where files are gone.
    """
    files = folder.transfer.files
    for at, offset in enumerate(after):
        last, since = source_batch(offset), source_batch(before[at])
        # A stream that is read twice, as in a join with itself, has one log, under its first number.
        if last is None or last == since or not files.names(f"{original.path}/sources/{at}"):
            continue
        log = log_upto(files, f"{original.path}/sources/{at}", last)
        since = -1 if since is None else since
        taken = {path for text in log.values() for path in _taken(text, since + 1, last)}
        _check_there(folder, at, sorted(taken))
        there = {*folder.names(f"sources/{at}")}
        yield from ((f"sources/{at}/{name}", text) for name, text in log.items() if name not in there)


def _taken(text: str | None, first: int, last: int) -> list[str]:
    """Paths of the files that some of a source's batches took."""
    listed = entries(text or "")
    return [str(one["path"]) for one in listed if first <= int(str(one["batchId"])) <= last]


def _check_there(folder: ForkFolder, source: int, paths: Sequence[str]) -> None:
    missing = [path for path in paths if not _is_there(folder, path)]
    if missing:
        raise NotReplayableError(
            f"Files that the epoch read from source {source} are gone: {choices(map(_shown, missing))}.\n"
            "Put them back under the same paths, or fork at an epoch after which nothing of them was read."
        )


def _is_there(folder: ForkFolder, path: str) -> bool:
    # Spark writes paths down as URIs.
    local = local_path(path) if urlsplit(path).scheme in ("", "file") else None
    return local.exists() if local is not None else folder.transfer.files.modified(path) is not None


def _shown(path: str) -> str:
    return unquote(urlsplit(path).path) if urlsplit(path).scheme == "file" else path
