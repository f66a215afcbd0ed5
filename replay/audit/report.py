"""The result of an audit."""

from __future__ import annotations

import html
import json
import os
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pandas as pd

from streamstate.replay.audit.record import DETERMINISTIC, DIVERGED, FORMAT, KIND, SAME, States, checksum, epoch_chain
from streamstate.replay.audit.record_check import AuditRecordCheck
from streamstate.replay.audit.suspects import Evidence, ranked
from streamstate.state_inspect.frames import as_html
from streamstate.state_inspect.suspects.suspect import Suspect

_SHOWN = 5


@dataclass(frozen=True)
class Divergence:
    """Where a replay first differed from what was recorded.

    Attributes:
        epoch: the first epoch that differs.
        table: the state table.
        key: the key columns with their values.
        column: the first value column that differs; None if only one side has the key.
        recorded: its value in the query's own run; None if that has no such key.
        replayed: its value in the replay; None if that has no such key.
        columns: all value columns that differ, each with both values.
        replay: the number of the replay, starting at 1.
        suspects: what in the query could explain it, the most likely first.
    """

    epoch: int
    table: str
    key: dict[str, Any]
    column: str | None
    recorded: Any
    replayed: Any
    columns: dict[str, tuple[Any, Any]]
    replay: int
    suspects: tuple[Suspect, ...] = ()

    def __str__(self) -> str:
        """The divergence in one line."""
        key = ", ".join(f"{name}={value!r}" for name, value in self.key.items())
        where = f"epoch {self.epoch}, {self.table}, {key}"
        if self.column is None:
            return f"{where}: only in the {'replay' if self.recorded is None else 'recorded state'}"
        return f"{where}: {self.column} was {_short(self.recorded)}, now {_short(self.replayed)}"

    def place(self) -> dict[str, Any]:
        """The divergence as plain data, for an audit record."""
        values = {"recorded": _short(self.recorded), "replayed": _short(self.replayed)}
        key = {name: _short(value) for name, value in self.key.items()}
        place = {"replay": self.replay, "epoch": self.epoch, "table": self.table, "key": key, "column": self.column}
        return {**place, **values, "suspects": [suspect.what for suspect in self.suspects]}


@dataclass(frozen=True)
class AuditedReplay:
    """One replay of an audit.

    Attributes:
        number: its number, starting at 1.
        partitions: the number of partitions of its state.
        upto: the last epoch that was run; a replay stops soon after it diverged.
        divergence: where it first differed from what was recorded; None: nowhere.
        epochs: one row per epoch and state table, as from :meth:`Comparison.epochs`; the recorded side is "here".
        keys: the keys that differ in the first epoch and table that differ, at most a hundred.
        seconds: how long it took.
        checkpoint: its checkpoint, if it was kept.
    """

    number: int
    partitions: int
    upto: int
    divergence: Divergence | None
    epochs: pd.DataFrame = field(repr=False, compare=False)
    keys: pd.DataFrame | None = field(default=None, repr=False, compare=False)
    seconds: float = field(default=0.0, compare=False)
    checkpoint: str | None = None
    left_out: tuple[str, ...] = ()
    """State tables and columns that only one side has."""

    @property
    def same(self) -> bool:
        """Whether every state was as recorded."""
        return self.divergence is None and not self.left_out

    def __str__(self) -> str:
        """The replay in one line."""
        title = f"Replay {self.number}, {self.partitions} partition{'s' * (self.partitions != 1)}"
        if self.divergence is not None:
            return f"{title}: {self.divergence}"
        if self.left_out:
            return f"{title}: not in both: {', '.join(self.left_out)}"
        return f"{title}: the same at every epoch up to {self.upto}"


@dataclass(frozen=True)
class Audit:
    """The result of :meth:`streamstate.Checkpoint.audit`.

    Attributes:
        checkpoint: the query's checkpoint.
        query_id: its id.
        mode: the output mode of the replays.
        epochs: the epochs that were replayed.
        partitions: the number of partitions of the query's own state.
        tables: its state tables.
        replays: the replays, in order.
        suspects: everything in the query that may be nondeterministic; in a clean audit it had no effect.
        states: the fingerprints of the recorded states.
        source_offsets: a digest of the epochs' input; None if the store does not have it for all of them.
        versions: of streamstate, Spark, Python and Java.
        started: when it started.
        finished: when it finished.
        against: the check of an audit record, if one was given.
    """

    checkpoint: str
    query_id: str
    mode: str
    epochs: range
    partitions: int
    tables: tuple[str, ...]
    replays: tuple[AuditedReplay, ...]
    suspects: tuple[Suspect, ...]
    states: States = field(repr=False)
    source_offsets: str | None
    versions: dict[str, str]
    started: datetime
    finished: datetime
    against: AuditRecordCheck | None = None

    @property
    def clean(self) -> bool:
        """Whether every replay had the recorded state at every epoch."""
        return all(replayed.same for replayed in self.replays)

    @property
    def first(self) -> Divergence | None:
        """The earliest divergence of all replays; None if there is none."""
        found = [replayed.divergence for replayed in self.replays if replayed.divergence is not None]
        return min(found, key=lambda divergence: divergence.epoch, default=None)

    @property
    def record(self) -> dict[str, Any]:
        """What was replayed, with a fingerprint of every state: a small record that others can check.

        Example:
            >>> audit.record["result"]  # doctest: +SKIP
            'deterministic'
        """
        replays = [
            {
                "number": replayed.number,
                "partitions": replayed.partitions,
                "upto": replayed.upto,
                "result": SAME if replayed.same else DIVERGED,
                "diverges": None if replayed.divergence is None else replayed.divergence.place(),
            }
            for replayed in self.replays
        ]
        record: dict[str, Any] = {
            "kind": KIND,
            "format": FORMAT,
            "made_by": self.versions,
            "query": {"id": self.query_id, "checkpoint": self.checkpoint, "mode": self.mode},
            "epochs": [self.epochs[0], self.epochs[-1]],
            "partitions": self.partitions,
            "source_offsets": self.source_offsets,
            "states": self.states,
            "chain": epoch_chain(self.states),
            "replays": replays,
            "result": DETERMINISTIC if self.clean else DIVERGED,
            "first": None if self.first is None else self.first.place(),
            "started": self.started.isoformat(timespec="seconds"),
            "finished": self.finished.isoformat(timespec="seconds"),
        }
        return {**record, "checksum": checksum(record)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record as JSON; :func:`streamstate.check_audit_record` checks it.

        Example:
            >>> audit.save("delays.audit.json")  # doctest: +SKIP
        """
        Path(path).write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")

    def _title(self) -> str:
        span = f"epochs {self.epochs[0]} to {self.epochs[-1]}" if len(self.epochs) > 1 else f"epoch {self.epochs[0]}"
        replays = f"{len(self.replays)} replay{'s' * (len(self.replays) != 1)}"
        if self.clean:
            return f"Deterministic at {span}: {replays}, and every state was as recorded."
        diverged = sum(not replayed.same for replayed in self.replays)
        return f"Not deterministic at {span}: {diverged} of {replays} diverged."

    def _details(self) -> list[str]:
        lines = [str(replayed) for replayed in self.replays]
        if self.clean and self.suspects:
            found = ", ".join(dict.fromkeys(suspect.what for suspect in self.suspects))
            lines.append(f"Possible sources of nondeterminism in the query, without effect here: {found}.")
        if self.first is not None:
            lines += _explanation(self.first)
        if self.against is not None:
            lines.append(repr(self.against).splitlines()[0])
        return lines

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"  {line}" for line in self._details())])

    def _repr_html_(self) -> str:
        sign = "✓" if self.clean else "✗"
        items = "".join(f"<li>{html.escape(line)}</li>" for line in self._details())
        first = self.first
        keys = next((replayed.keys for replayed in self.replays if replayed.divergence is first), None)
        shown = "" if keys is None or first is None else _table(keys, first)
        return f"<p><strong>{sign} {html.escape(self._title())}</strong></p><ul>{items}</ul>{shown}"


def with_ranked_suspects(
    replays: tuple[AuditedReplay, ...], suspects: list[Suspect], recorded_partitions: int
) -> tuple[AuditedReplay, ...]:
    """The replays, each divergence with the suspects that could explain it."""
    diverged = [(replayed.divergence, replayed.partitions) for replayed in replays if replayed.divergence is not None]
    same_partitions = [divergence for divergence, partitions in diverged if partitions == recorded_partitions]
    # With only one replay of the recorded number of partitions, the replay with another number has to tell whether
    # the divergence repeats.
    comparable = same_partitions if len(same_partitions) > 1 else [divergence for divergence, _ in diverged]
    distinct = {(divergence.epoch, repr(divergence.columns)) for divergence in comparable}
    agree = len(comparable) > 1 and len(distinct) == 1

    def explained(divergence: Divergence) -> Divergence:
        evidence = Evidence(
            divergence.column,
            same_partitions=bool(same_partitions),
            agree=agree,
            by_position="_position" in divergence.key,
        )
        return replace(divergence, suspects=tuple(ranked(suspects, evidence)))

    return tuple(
        replayed if replayed.divergence is None else replace(replayed, divergence=explained(replayed.divergence))
        for replayed in replays
    )


def _explanation(first: Divergence) -> list[str]:
    if not first.suspects:
        unexplained = "Nothing in the plan or in its Python functions explains it"
        return [f"{unexplained}: the code, the settings or the input may have changed since the query ran."]
    lines = [f"Likely: {first.suspects[0]}"]
    lines += [f"Or: {suspect}" for suspect in first.suspects[1:_SHOWN]]
    if len(first.suspects) > _SHOWN:
        lines.append(f"And {len(first.suspects) - _SHOWN} more in first.suspects.")
    return lines


def _table(keys: pd.DataFrame, first: Divergence) -> str:
    renamed = keys.head(_SHOWN).rename(columns=lambda name: _column_title(str(name)))
    caption = html.escape(f"{first.table} at epoch {first.epoch}: the first keys that differ")
    return f"<p>{caption}</p>{as_html(renamed)}"


def _column_title(name: str) -> str:
    for suffix, side in (("_here", " recorded"), ("_there", " replayed")):
        if name.endswith(suffix):
            return name.removesuffix(suffix) + side
    return "difference" if name == "_kind" else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
