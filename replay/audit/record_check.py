"""Checking an audit record against captured history: what holds, what does not, and what cannot be checked."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamstate.errors import UnknownEpochError, UnknownQueryError, choices
from streamstate.replay.audit.record import (
    DETERMINISTIC,
    SAME,
    AuditRecord,
    checksum,
    epoch_chain,
    offsets_digest,
    recorded_states,
)
from streamstate.snapshots.store.registry import name_of, registered
from streamstate.state_inspect import History, Store, open_store

_SHOWN = 10


@dataclass(frozen=True)
class AuditRecordCheck:
    """The result of checking an audit record. Each claim is a sentence that begins with its subject.

    Attributes:
        path: the file.
        verified: claims that hold.
        unverified: claims that cannot be checked; a record is not signed.
        wrong: claims that do not hold.
        result: what the record says about the query: ``deterministic`` or ``diverged``.
        epochs: the first and the last epoch of the record.
    """

    path: str
    verified: tuple[str, ...]
    unverified: tuple[str, ...]
    wrong: tuple[str, ...]
    result: str
    epochs: tuple[int, int]

    @property
    def ok(self) -> bool:
        """Whether everything that can be checked holds; :attr:`unverified` lists the rest."""
        return not self.wrong

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        span = f"epochs {self.epochs[0]} to {self.epochs[1]}"
        title = f"The audit record {self.path} says about {span}: {self.result}."
        verdict = "Everything that can be checked holds" if self.ok else "Some of its claims do not hold"
        lines = [f"{title} {verdict}."]
        for name, claims in (("Wrong", self.wrong), ("Verified", self.verified), ("Not verified", self.unverified)):
            lines += [f"{name}:"] * bool(claims)
            lines += [f"  {claim}" for claim in claims[:_SHOWN]]
            lines += [f"  and {len(claims) - _SHOWN:,} more"] * (len(claims) > _SHOWN)
        return "\n".join(lines)


def check_audit_record(
    record: str | os.PathLike[str] | Mapping[str, Any], against: Store | History | str | os.PathLike[str]
) -> AuditRecordCheck:
    """Check an audit record against your own captured history of the query.

    Args:
        record: the file, or its content.
        against: the history, or a store (or its path) that has the query with the same id.

    Returns:
        What was verified, what was not, and what is wrong; true if nothing is wrong.

    Raises:
        InvalidArgumentError: it is not an audit record, has another format, or one of its fields is malformed.
        UnknownEpochError: the history lacks epochs of the record.
        UnknownQueryError: the store does not have the query.

    Example:
        >>> check = ss.check_audit_record("delays.audit.json", ss.open_store("store"))  # doctest: +SKIP
        >>> check.ok, check.unverified  # doctest: +SKIP
    """
    parsed = AuditRecord.read(record)
    history = _history(against, parsed)
    captured = set(history.captured())
    epochs = sorted(map(int, parsed.states))
    if missing := [epoch for epoch in epochs if epoch not in captured]:
        raise UnknownEpochError(
            f"{history.name} lacks epochs of the record: {choices(map(str, missing))}.\n"
            "Capture them, or replay them with audit(…, against=record)."
        )
    checking = _Checking(parsed, history, epochs)
    checking.run()
    claims = (tuple(checking.verified), tuple(checking.unverified), tuple(checking.wrong))
    return AuditRecordCheck(parsed.path, *claims, parsed.result, parsed.epochs)


@dataclass
class _Checking:
    """One check."""

    record: AuditRecord
    history: History
    epochs: list[int]
    verified: list[str] = field(default_factory=list)
    unverified: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Check every claim that can be checked, and list the others."""
        self._claim("Whole", self._integrity_errors(), "the checksum and the chain of states match the record.")
        first, last = self.record.epochs
        self._claim("Complete", self._gaps(), f"there are states of every epoch from {first} to {last}, and no others.")
        self._query()
        self._claim("The states", self._differences(), f"they match {self.history.name} here, row by row.")
        self._input()
        replays = f"the {len(self.record.replays)} listed ones are consistent with each other and with the result."
        self._claim("The replays", self._inconsistent_replays(), replays)
        self.unverified += [
            "The author: the record is not signed, so anyone could have written it.",
            "The replaying: whether these replays ran, with these results; ss.audit(…, against=…) runs them again.",
            "The rest: the versions, the times, the checkpoint's path and the output mode.",
        ]

    def _claim(self, subject: str, wrong: Iterator[str], holds: str) -> None:
        found = [f"{subject}: {claim}" for claim in wrong]
        self.wrong += found
        if not found:
            self.verified.append(f"{subject}: {holds}")

    def _integrity_errors(self) -> Iterator[str]:
        if self.record.data["checksum"] != checksum(self.record.data):
            yield "the checksum does not match; the record was changed after it was written."
        elif self.record.data["chain"] != epoch_chain(self.record.states):
            yield "the chain does not match the states."

    def _gaps(self) -> Iterator[str]:
        first, last = self.record.epochs
        outside = [epoch for epoch in self.epochs if not first <= epoch <= last]
        missing = last - first + 1 - (len(self.epochs) - len(outside))
        if missing:
            known = set(self.epochs)
            example = next(epoch for epoch in range(first, last + 1) if epoch not in known)
            yield f"there are no states for {missing:,} of its epochs, such as {example}."
        if outside:
            yield f"there are states for epochs outside {first} to {last}, such as {outside[0]}."

    def _query(self) -> None:
        known = registered(self.history.recorded.layout).get(self.history.name)
        if known is not None and known.query_id == self.record.query_id:
            self.verified.append(f"The query: {self.history.name} has the id in the record.")
        else:
            self.unverified.append(
                f"The query: the record is about the query with the id {self.record.query_id}, which is not the id of"
                f" {self.history.name}."
            )

    def _differences(self) -> Iterator[str]:
        if not self.epochs:
            yield "the record has none."
        found = recorded_states(self.history, self.epochs)
        for epoch in map(str, self.epochs):
            for table in sorted({*self.record.states[epoch], *found[epoch]}):
                recorded, here = self.record.states[epoch].get(table), found[epoch].get(table)
                if recorded != here:
                    sides = ["no such table" if side is None else f"{side['rows']:,} rows" for side in (recorded, here)]
                    yield f"epoch {epoch}, {table}: {sides[0]} in the record, {sides[1]} here, which differ."

    def _input(self) -> None:
        recorded, here = self.record.source_offsets, offsets_digest(self.history, self.epochs)
        if recorded is None or here is None:
            which = "the record" if recorded is None else f"{self.history.name} here"
            self.unverified.append(f"The input: {which} does not say what the epochs read.")
            return
        different = ["the source offsets, watermarks or processing times differ from those of the epochs here."]
        same = "the source offsets, watermarks and processing times are those of the epochs here."
        self._claim("The input", iter(different if recorded != here else ()), same)

    def _inconsistent_replays(self) -> Iterator[str]:
        replays, last = self.record.replays, self.record.epochs[1]
        if not replays:
            yield "none are listed."
            return
        numbers = [replay.number for replay in replays]
        expected = range(1, len(replays) + 1)
        if numbers != [*expected]:
            yield f"their numbers are {choices(map(str, numbers))}, not {choices(map(str, expected))}."
        if self.record.partitions not in [replay.partitions for replay in replays]:
            yield f"none ran with the recorded number of partitions, {self.record.partitions}."
        for replay in replays:
            if replay.result == SAME and replay.upto != last:
                before = "before" if replay.upto < last else "after"
                yield f"replay {replay.number} ends at epoch {replay.upto}, {before} the last epoch, {last}."
        diverged = [replay.number for replay in replays if replay.result != SAME]
        if self.record.result == DETERMINISTIC and diverged:
            yield f"the record says {self.record.result}, but replay {diverged[0]} diverged."
        if self.record.result != DETERMINISTIC and not diverged:
            yield f"the record says {self.record.result}, but no replay did."


def _history(against: Any, record: AuditRecord) -> History:
    if isinstance(against, History):
        return against
    store = open_store(os.fspath(against)) if isinstance(against, str | os.PathLike) else against
    name = name_of(store.layout, record.query_id)
    if name is None:
        raise UnknownQueryError(
            f"{store.path} does not have the query of the record, with the id {record.query_id}."
            f"\nIts queries: {choices(store.queries())}. Pass the history to check against."
        )
    return store[name]
