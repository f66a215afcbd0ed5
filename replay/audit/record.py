"""The record of an audit, as a file: its hashes, and reading it with every field checked."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from streamstate.errors import InvalidArgumentError
from streamstate.state_inspect import History

KIND = "streamstate audit record"
FORMAT = 2
"""Files of format 1 had another kind."""
DETERMINISTIC, DIVERGED, SAME = "deterministic", "diverged", "same"

_EARLIER_KIND = "streamstate determinism certificate"
_EPOCH = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)
_SHA256, _FINGERPRINT = re.compile(r"[0-9a-f]{64}", re.ASCII), re.compile(r"[0-9a-f]{32}", re.ASCII)
_MAX_NUMBER = 10**18

States = dict[str, dict[str, dict[str, Any]]]
"""The number of rows and their fingerprint, by epoch and state table."""


def recorded_states(history: History, epochs: Sequence[int]) -> States:
    """The fingerprints of every state table at some epochs."""
    found: States = {str(epoch): {} for epoch in epochs}
    for row in history.fingerprints(epochs=epochs).to_dict("records") if epochs else ():
        found[str(row["epoch"])][str(row["table"])] = {"rows": int(row["rows"]), "fingerprint": str(row["fingerprint"])}
    return found


def offsets_digest(history: History, epochs: Sequence[int]) -> str | None:
    """A digest of each epoch's end offsets, watermark and processing time; None if the history lacks some of them."""
    requested = set(epochs)
    inputs = []
    for entry in history.recorded.entries():
        if entry.epoch in requested and entry.offsets is not None and entry.began_at is not None:
            watermark = None if entry.watermark is None else _utc(entry.watermark)
            inputs.append([entry.epoch, json.loads(entry.offsets), watermark, _utc(entry.began_at)])
    return _digest(inputs) if len(inputs) == len(requested) else None


def checksum(record: Mapping[str, Any]) -> str:
    """The SHA-256 of a record without its checksum: of its JSON with sorted keys and without spaces."""
    return _digest({key: value for key, value in record.items() if key != "checksum"})


def epoch_chain(states: Mapping[str, Any]) -> str:
    """A hash over all epochs, each combined with the hash of the epoch before."""
    link = ""
    for epoch in sorted(states, key=int):
        link = _digest([link, int(epoch), states[epoch]])
    return link


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class RecordedReplay:
    """What a record says about one replay."""

    number: int
    partitions: int
    upto: int
    result: str


@dataclass(frozen=True)
class AuditRecord:
    """An audit record with fields of the right types; whether it is true is another question.

    Attributes:
        path: the file; ``The given record`` if there is none.
        epochs: the first and the last epoch.
        partitions: the number of partitions of the query's own state.
        source_offsets: a digest of the epochs' inputs; None if it was not known.
        result: ``deterministic`` or ``diverged``.
    """

    path: str
    data: dict[str, Any]
    query_id: str
    epochs: tuple[int, int]
    partitions: int
    states: States
    source_offsets: str | None
    replays: tuple[RecordedReplay, ...]
    result: str

    @classmethod
    def read(cls, record: str | os.PathLike[str] | Mapping[str, Any]) -> AuditRecord:
        """Read a file, or its content; the error for a malformed field names it."""
        path = "The given record" if isinstance(record, Mapping) else os.fspath(record)
        try:
            text = json.dumps(dict(record)) if isinstance(record, Mapping) else Path(path).read_text(encoding="utf-8")
            data = json.loads(text, object_pairs_hook=_without_duplicates)
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise InvalidArgumentError(
                f"{path} cannot be read as an audit record: {error}.\nPass a file that Audit.save wrote."
            ) from error
        return _checked(path, data)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has the name {duplicate!r} twice")
    return found


def _checked(path: str, data: Any) -> AuditRecord:
    if not isinstance(data, dict) or data.get("kind") not in (KIND, _EARLIER_KIND):
        raise InvalidArgumentError(f"{path} is not an audit record.\nPass a file that Audit.save wrote.")
    if data["kind"] == _EARLIER_KIND:
        raise InvalidArgumentError(
            f"{path} was written by an earlier version of streamstate, in a format that is no longer supported.\n"
            "Audit the query again, and save the new record."
        )
    fields = _Fields(path)
    if data.get("format") != FORMAT:
        raise fields.invalid("format", data.get("format"), f"{FORMAT}, the format that this version reads")
    first, last = fields.span(data)
    query = fields.mapping("query", data.get("query"))
    for name in ("made_by", "query"):
        for key, value in fields.mapping(name, data.get(name)).items():
            fields.text(f"{name}.{key}", value)
    for name in ("started", "finished"):
        fields.moment(name, data.get(name))
    fields.text("chain", data.get("chain"))  # empty if there are no states
    fields.digest("checksum", data.get("checksum"), _SHA256)
    offsets = data.get("source_offsets")
    result = fields.among("result", data.get("result"), (DETERMINISTIC, DIVERGED))
    return AuditRecord(
        path,
        data,
        fields.text("query.id", query.get("id")),
        (first, last),
        fields.number("partitions", data.get("partitions"), 1),
        fields.states(data.get("states")),
        None if offsets is None else fields.digest("source_offsets", offsets, _SHA256),
        fields.replays(data.get("replays")),
        result,
    )


@dataclass(frozen=True)
class _Fields:
    """Checks the fields of one record."""

    path: str

    def invalid(self, field: str, value: Any, expected: str) -> InvalidArgumentError:
        text = repr(value)
        shown = text if len(text) <= 80 else f"{text[:77]}…"
        return InvalidArgumentError(
            f"Invalid field {field} in {self.path}: expected {expected}, not {shown}.\n"
            "Pass a file that Audit.save wrote, unchanged."
        )

    def number(self, field: str, value: Any, least: int = 0) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MAX_NUMBER:
            raise self.invalid(field, value, f"an integer of at least {least}")
        return value

    def text(self, field: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self.invalid(field, value, "a string")
        return value

    def mapping(self, field: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.invalid(field, value, "an object")
        return value

    def among(self, field: str, value: Any, known: tuple[str, ...]) -> str:
        if not isinstance(value, str) or value not in known:
            raise self.invalid(field, value, " or ".join(known))
        return value

    def digest(self, field: str, value: Any, pattern: re.Pattern[str]) -> str:
        if not isinstance(value, str) or pattern.fullmatch(value) is None:
            raise self.invalid(field, value, "a hash in hexadecimal digits")
        return value

    def moment(self, field: str, value: Any) -> None:
        try:
            moment = datetime.fromisoformat(self.text(field, value))
        except ValueError as error:
            raise self.invalid(field, value, "an ISO 8601 time with its zone") from error
        if moment.tzinfo is None:
            raise self.invalid(field, value, "an ISO 8601 time with its zone")

    def span(self, data: Mapping[str, Any]) -> tuple[int, int]:
        both = data.get("epochs")
        if not isinstance(both, list) or len(both) != 2:
            raise self.invalid("epochs", both, "the first and the last epoch, such as [3, 12]")
        first, last = (self.number("epochs", epoch) for epoch in both)
        if first > last:
            raise self.invalid("epochs", both, "the first and the last epoch, such as [3, 12]")
        return first, last

    def states(self, value: Any) -> States:
        for epoch, tables in self.mapping("states", value).items():
            if _EPOCH.fullmatch(epoch) is None:
                raise self.invalid("states", epoch, "epochs such as '12' as its names")
            for table, state in self.mapping(f"states.{epoch}", tables).items():
                field = f"states.{epoch}.{table}"
                facts = self.mapping(field, state)
                self.number(f"{field}.rows", facts.get("rows"))
                self.digest(f"{field}.fingerprint", facts.get("fingerprint"), _FINGERPRINT)
        found: States = value
        return found

    def replays(self, value: Any) -> tuple[RecordedReplay, ...]:
        if not isinstance(value, list):
            raise self.invalid("replays", value, "a list")
        return tuple(self._replay(f"replays[{at}]", replay) for at, replay in enumerate(value))

    def _replay(self, field: str, value: Any) -> RecordedReplay:
        facts = self.mapping(field, value)
        number, partitions, upto = (
            self.number(f"{field}.{name}", facts.get(name), least)
            for name, least in (("number", 1), ("partitions", 1), ("upto", 0))
        )
        result = self.among(f"{field}.result", facts.get("result"), (SAME, DIVERGED))
        return RecordedReplay(number, partitions, upto, result)
