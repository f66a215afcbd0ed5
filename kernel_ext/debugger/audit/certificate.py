"""A certificate of an audit: what was replayed, and a fingerprint of every state, for somebody else to check."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.errors import InvalidArgumentError, UnknownEpochError, choices

if TYPE_CHECKING:
    from streamstate.debugger.audit.report import Audit
    from streamstate.snapshots.checkpoint import Checkpoint
    from streamstate.state_inspect import History, Store

__all__ = ["CertificateCheck", "certificate_of", "check_certificate", "checksum", "offsets_digest", "recorded_states"]

KIND = "streamstate determinism certificate"
FORMAT = 1
_FIELDS = ("format", "made_by", "query", "epochs", "states", "chain", "source_offsets", "replays", "result", "checksum")

States = dict[str, dict[str, dict[str, Any]]]
"""By epoch and state table the number of rows and their fingerprint."""


@dataclass(frozen=True)
class CertificateCheck:
    """What came of checking a certificate.

    Attributes:
        path: the file.
        intact: whether it says what it said when it was written.
        matches: whether every state it tells of is the same in the history that it was checked against.
        differences: what is not, in words; the first come first.
        result: what the certificate says of the query: ``deterministic`` or ``diverged``.
        epochs: the first and the last epoch of which it tells.
    """

    path: str
    intact: bool
    matches: bool
    differences: tuple[str, ...]
    result: str
    epochs: tuple[int, int]

    @property
    def ok(self) -> bool:
        """Whether it is intact and matches."""
        return self.intact and self.matches

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        span = f"epochs {self.epochs[0]} to {self.epochs[1]}"
        if not self.intact:
            first = f"The certificate {self.path} was changed after it was written."
        elif not self.matches:
            first = f"The certificate {self.path} is of other states than these, at {span}."
        else:
            first = f"The certificate {self.path} is intact, and every state is as it says, at {span}."
        lines = [first, *(f"  {one}" for one in self.differences[:10])]
        if len(self.differences) > 10:
            lines.append(f"  and {len(self.differences) - 10:,} more")
        lines.append(f"It says of the query: {self.result}.")
        return "\n".join(lines)


def recorded_states(history: History, epochs: Sequence[int]) -> States:
    """The fingerprints of every state table at some epochs."""
    found: States = {str(epoch): {} for epoch in epochs}
    for row in history.fingerprints(epochs=epochs).to_dict("records"):
        found[str(row["epoch"])][str(row["table"])] = {
            "rows": int(row["rows"]),
            "fingerprint": str(row["fingerprint"]),
        }
    return found


def offsets_digest(checkpoint: Checkpoint, epochs: Sequence[int]) -> str:
    """A digest of where each epoch's input ended, and with which processing time and watermark it ran."""
    told = []
    for epoch in epochs:
        if (planned := checkpoint.planned(epoch)) is not None:
            moments = [None if one is None else one.isoformat() for one in (planned.watermark, planned.began_at)]
            told.append([epoch, list(planned.offsets), *moments])
    return _digest(told)


def certificate_of(audit: Audit) -> dict[str, Any]:
    """The certificate of an audit."""
    first = audit.first
    found: dict[str, Any] = {
        "kind": KIND,
        "format": FORMAT,
        "made_by": audit.versions,
        "query": {"id": audit.query_id, "checkpoint": audit.checkpoint, "mode": audit.mode},
        "epochs": [audit.epochs[0], audit.epochs[-1]],
        "partitions": audit.partitions,
        "source_offsets": audit.source_offsets,
        "states": audit.states,
        "chain": _chain(audit.states),
        "replays": [
            {
                "number": one.number,
                "partitions": one.partitions,
                "upto": one.upto,
                "result": "same" if one.same else "diverged",
                "diverges": None if one.divergence is None else one.divergence.place(),
            }
            for one in audit.replays
        ],
        "result": "deterministic" if audit.clean else "diverged",
        "first": None if first is None else first.place(),
        "started": _time(audit.started),
        "finished": _time(audit.finished),
    }
    return {**found, "checksum": checksum(found)}


def checksum(certificate: Mapping[str, Any]) -> str:
    """The SHA-256 of a certificate without its checksum: of its JSON with sorted keys and without spaces."""
    return _digest({key: value for key, value in certificate.items() if key != "checksum"})


def check_certificate(
    certificate: str | os.PathLike[str] | Mapping[str, Any], against: Store | History | str | os.PathLike[str]
) -> CertificateCheck:
    """Check a certificate against one's own captured history of the query.

    Args:
        certificate: the file, or what it holds.
        against: the history, or a store (or its path) that has the query, by its id.

    Returns:
        A :class:`CertificateCheck`, true where the certificate is intact and every state is as it says.

    Raises:
        InvalidArgumentError: where it is no certificate, or of a newer format.
        UnknownEpochError: where the history lacks epochs of which it tells.
        UnknownQueryError: where the store does not have the query.

    Example:
        >>> ss.check_certificate("delays.audit.json", ss.open_store("store")).ok  # doctest: +SKIP
        True
    """
    path, held = _read(certificate)
    first, last = (int(one) for one in held["epochs"])
    intact = held["checksum"] == checksum(held) and held["chain"] == _chain(held["states"])
    history = _history(against, held)
    captured = set(history.captured())
    epochs = sorted(int(one) for one in held["states"])
    if missing := [epoch for epoch in epochs if epoch not in captured]:
        raise UnknownEpochError(
            f"{history.name} lacks epochs of which the certificate tells: {choices(map(str, missing))}.\n"
            "Capture them, or replay them with audit(…, against=certificate)."
        )
    differences = tuple(_differences(held["states"], recorded_states(history, epochs)))
    return CertificateCheck(path, intact, not differences, differences, str(held["result"]), (first, last))


def _differences(said: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    lines = []
    for epoch in sorted(said, key=int):
        tables = {*said[epoch], *found[epoch]}
        for table in sorted(tables):
            pair = said[epoch].get(table), found[epoch].get(table)
            if pair[0] != pair[1]:
                told = ["no such table" if one is None else f"{one['rows']:,} rows" for one in pair]
                lines.append(f"epoch {epoch}, {table}: {told[0]} in the certificate, {told[1]} here, which differ")
    return lines


def _read(certificate: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    path = "given" if isinstance(certificate, Mapping) else os.fspath(certificate)
    held: Any = certificate
    if not isinstance(certificate, Mapping):
        try:
            held = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InvalidArgumentError(
                f"{path} cannot be read as a certificate: {error}.\nGive a file that Audit.save wrote."
            ) from error
    if not isinstance(held, Mapping) or held.get("kind") != KIND or any(name not in held for name in _FIELDS):
        raise InvalidArgumentError(f"{path} is no certificate of an audit.\nGive a file that Audit.save wrote.")
    if held["format"] != FORMAT:
        raise InvalidArgumentError(
            f"{path} is of format {held['format']!r}; this version of streamstate reads format {FORMAT}.\n"
            "Check it with the version that wrote it: " + str(held["made_by"])
        )
    return path, dict(held)


def _history(against: Any, held: Mapping[str, Any]) -> History:
    from streamstate.snapshots.errors import UnknownQueryError
    from streamstate.snapshots.registry import name_of
    from streamstate.state_inspect import History, open_store

    if isinstance(against, History):
        return against
    store = open_store(os.fspath(against)) if isinstance(against, str | os.PathLike) else against
    name = name_of(store.layout, str(held["query"]["id"]))
    if name is None:
        raise UnknownQueryError(
            f"{store.path} has no query with the id {held['query']['id']}, of which the certificate is."
            f"\nIts queries: {choices(store.queries())}. Give the history to check against."
        )
    return store[name]


def _chain(states: Mapping[str, Any]) -> str:
    """A hash over all epochs, each with that of the one before."""
    link = ""
    for epoch in sorted(states, key=int):
        link = _digest([link, int(epoch), states[epoch]])
    return link


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
