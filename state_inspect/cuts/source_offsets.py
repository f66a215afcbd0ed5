"""Travel by source offset: the newest epoch that reflects no more of its sources than an offset says.

An offset is written as Spark writes it and as ``snapshot.offsets`` shows it: Kafka's ``{"flights": {"0": 812}}``,
Delta's with its ``reservoirId``, a number. For Spark's file source there is ``{"files": 100}`` beside its own
``{"logOffset": 9}``, which counts the query's batches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError
from streamstate.snapshots.manifest import Entry
from streamstate.snapshots.sources import FILES


class _IncomparableError(Exception):
    """Two offsets that do not count the same thing."""


def epoch_at_offset(entries: Sequence[Entry], query: str, offset: Any) -> Entry:
    """The newest captured epoch that reflects no more than a source offset.

    Args:
        entries: the manifest, ascending.
        query: the query's name.
        offset: where the query has one source, its offset; else a list with one for each source in the query's order,
            None for a source that does not matter. JSON text will do as well. Of an offset with parts, such as Kafka's
            partitions, those that it does not name do not matter.

    Raises:
        UnknownEpochError: where even the first captured epoch reflects more; the message names it.
        InvalidArgumentError: where the offset cannot be compared with those of the query; the message shows one.

    Example:
        >>> epoch_at_offset(manifest.entries, "delays", {"flights": {"0": 812}}).epoch  # doctest: +SKIP
        12
    """
    told = [entry for entry in entries if entry.captured and entry.offsets is not None]
    if not told:
        raise UnknownEpochError(f"No captured epoch of {query} has source offsets to compare with.")
    wanted = _per_source(offset, len(json.loads(told[-1].offsets or "[]")))
    try:
        found = next((entry for entry in reversed(told) if _reflects_no_more(entry, wanted)), None)
    except _IncomparableError as error:
        raise InvalidArgumentError(
            f"The offset {json.dumps(offset, default=str)} cannot be compared with those of {query}: {error}.\n"
            f"Epoch {told[-1].epoch} has {_shown(told[-1])}."
        ) from error
    if found is None:
        raise UnknownEpochError(
            f"Every captured epoch of {query} reflects more than {json.dumps(offset)}.\n"
            f"The first that is captured, {told[0].epoch}, has {_shown(told[0])}."
        )
    return found


def _per_source(offset: Any, sources: int) -> list[Any]:
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError as error:
            raise InvalidArgumentError(
                f"The offset {offset!r} is no JSON: {error}.\nWrite it as snapshot.offsets shows it."
            ) from error
    listed = list(offset) if isinstance(offset, (list, tuple)) else [offset]
    if len(listed) != sources or all(one is None for one in listed):
        raise InvalidArgumentError(
            f"The query has {sources} source{'s' * (sources != 1)}, and the offset is {json.dumps(offset, default=str)}"
            ".\nGive a list with one offset for each source, None for one that does not matter."
        )
    return listed


def _reflects_no_more(entry: Entry, wanted: Sequence[Any]) -> bool:
    offsets = json.loads(entry.offsets or "[]")
    known = json.loads(entry.sources) if entry.sources is not None else []
    for at, limit in enumerate(wanted):
        if limit is None or at >= len(offsets):
            continue
        facts = known[at] if at < len(known) else None
        if isinstance(limit, dict) and [*limit] == ["files"]:
            if not _files_within(offsets[at], facts, limit["files"]):
                return False
        elif offsets[at] is not None and not within(offsets[at], limit):
            return False
    return True


def _files_within(offset: Any, facts: dict[str, Any] | None, limit: Any) -> bool:
    if offset is None:
        return True
    if facts is None or facts["kind"] != FILES:
        raise _IncomparableError("how many files an epoch reflects is not known")
    return bool(facts["files"] <= _number(limit))


def within(offset: Any, limit: Any) -> bool:
    """Whether an offset, parsed, is at or before another of the same source, part by part."""
    if isinstance(offset, dict) and isinstance(limit, dict):
        if "reservoirId" in offset or "reservoirId" in limit:
            return _delta(offset, limit)
        both = offset.keys() & limit.keys()
        if not both:
            raise _IncomparableError("they have no part in common")
        verdicts = [within(offset[name], limit[name]) for name in sorted(both)]
        return all(verdicts)
    return _number(offset) <= _number(limit)


def _delta(offset: dict[str, Any], limit: dict[str, Any]) -> bool:
    if offset.get("reservoirId") != limit.get("reservoirId"):
        raise _IncomparableError("they are offsets of different Delta tables")
    names = ("reservoirVersion", "index")
    pairs = [tuple(_number(one.get(name)) for name in names) for one in (offset, limit)]
    return pairs[0] <= pairs[1]


def _number(part: Any) -> int | float:
    if isinstance(part, bool) or not isinstance(part, (int, float)):
        raise _IncomparableError(f"{json.dumps(part, default=str)} is no number")
    return part


def _shown(entry: Entry) -> str:
    """An entry's offsets, as they are to be written."""
    offsets = json.loads(entry.offsets or "[]")
    shown = json.dumps(offsets[0] if len(offsets) == 1 else offsets)
    known = [one for one in json.loads(entry.sources or "[]") if one and one["kind"] == FILES]
    return shown + (f" ({', '.join(str(one['files']) for one in known)} files)" if known else "")
