"""The result of an audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from streamstate.snapshots.calls.html import Html, joined, listed, tag
from streamstate.state_inspect.frames import as_html
from streamstate.state_inspect.keys.key_text import arguments, in_python
from streamstate.state_inspect.suspects.suspect import Suspect, SuspectKind

_SHOWN = 5


@dataclass(frozen=True)
class AuditDivergence:
    """The first difference between a replay and the recorded state.

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
        """Return the divergence in one line."""
        where = f"epoch {self.epoch}, {self.table}, {arguments(self.key)}"
        if self.column is None:
            return f"{where}: only in the {'replay' if self.recorded is None else 'recorded state'}"
        return f"{where}: {self.column} was {_short(self.recorded)}, now {_short(self.replayed)}"


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
    divergence: AuditDivergence | None
    epochs: pd.DataFrame = field(repr=False, compare=False)
    keys: pd.DataFrame | None = field(default=None, repr=False, compare=False)
    seconds: float = field(default=0.0, compare=False)
    checkpoint: str | None = None
    left_out: tuple[str, ...] = ()
    """State tables and columns that only one side has."""

    @property
    def same(self) -> bool:
        """True if every state was as recorded."""
        return self.divergence is None and not self.left_out

    def __str__(self) -> str:
        """Return the replay in one line."""
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
        doubts: for epochs that may have read fewer records than the query's own run, the reason.
    """

    checkpoint: str
    query_id: str
    mode: str
    epochs: range
    partitions: int
    tables: tuple[str, ...]
    replays: tuple[AuditedReplay, ...]
    suspects: tuple[Suspect, ...]
    doubts: Mapping[int, str] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """True if every replay had the recorded state at every epoch."""
        return all(replayed.same for replayed in self.replays)

    @property
    def first(self) -> AuditDivergence | None:
        """The earliest divergence of all replays; None without one."""
        found = [replayed.divergence for replayed in self.replays if replayed.divergence is not None]
        return min(found, key=lambda divergence: divergence.epoch, default=None)

    def _title(self) -> str:
        span = f"epochs {self.epochs[0]} to {self.epochs[-1]}" if len(self.epochs) > 1 else f"epoch {self.epochs[0]}"
        replays = f"{len(self.replays)} replay{'s' * (len(self.replays) != 1)}"
        if self.clean:
            return f"Deterministic at {span}: {replays}, and every state was as recorded."
        diverged = sum(not replayed.same for replayed in self.replays)
        return f"Not deterministic at {span}: {diverged} of {replays} diverged."

    def _details(self) -> list[str]:
        lines = [str(replayed) for replayed in self.replays]
        lines += [f"Epoch {epoch}: {doubt}." for epoch, doubt in [*self.doubts.items()][:_SHOWN]]
        if len(self.doubts) > _SHOWN:
            lines.append(f"And {len(self.doubts) - _SHOWN} more epochs in doubts.")
        if self.clean and self.suspects:
            found = ", ".join(dict.fromkeys(suspect.what for suspect in self.suspects))
            lines.append(f"Possible sources of nondeterminism in the query, without effect here: {found}.")
        if self.first is not None:
            lines += _explanation(self.first)
        return lines

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"  {line}" for line in self._details())])

    def _repr_html_(self) -> str:
        sign = "✓" if self.clean else "✗"
        first = self.first
        keys = next((replayed.keys for replayed in self.replays if replayed.divergence is first), None)
        shown = None if keys is None or first is None else _table(keys, first)
        return joined(listed(tag("strong", f"{sign} {self._title()}"), self._details()), shown)


def with_ranked_suspects(
    replays: tuple[AuditedReplay, ...], suspects: list[Suspect], recorded_partitions: int
) -> tuple[AuditedReplay, ...]:
    """Return the replays, each divergence with the suspects that could explain it."""
    diverged = [(replayed.divergence, replayed.partitions) for replayed in replays if replayed.divergence is not None]
    same_partitions = [divergence for divergence, partitions in diverged if partitions == recorded_partitions]
    # With only one replay of the recorded number of partitions, the replay with another number has to tell whether
    # the divergence repeats.
    comparable = same_partitions if len(same_partitions) > 1 else [divergence for divergence, _ in diverged]
    distinct = {(divergence.epoch, repr(divergence.columns)) for divergence in comparable}
    agree = len(comparable) > 1 and len(distinct) == 1

    def explained(divergence: AuditDivergence) -> AuditDivergence:
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


def _explanation(first: AuditDivergence) -> list[str]:
    if not first.suspects:
        unexplained = "Nothing in the plan or in its Python functions explains it"
        return [f"{unexplained}: the code, the settings or the input may have changed since the query ran."]
    lines = [f"Likely: {first.suspects[0]}"]
    lines += [f"Or: {suspect}" for suspect in first.suspects[1:_SHOWN]]
    if len(first.suspects) > _SHOWN:
        lines.append(f"And {len(first.suspects) - _SHOWN} more in first.suspects.")
    return lines


def _table(keys: pd.DataFrame, first: AuditDivergence) -> Html:
    renamed = keys.head(_SHOWN).rename(columns=lambda name: _column_title(str(name)))
    caption = f"{first.table} at epoch {first.epoch}: the first keys that differ"
    return joined(tag("p", caption), as_html(renamed))


def _column_title(name: str) -> str:
    for suffix, side in (("_here", " recorded"), ("_there", " replayed")):
        if name.endswith(suffix):
            return name.removesuffix(suffix) + side
    return "difference" if name == "_kind" else name


def _short(value: Any) -> str:
    text = in_python(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


@dataclass(frozen=True)
class Evidence:
    """The evidence of all replays.

    Attributes:
        column: the first column that differs; None: only one side has the row.
        same_partitions: whether a replay with the recorded number of partitions diverged.
        agree: whether all of these diverged in the same way.
        by_position: whether the table is that of a list variable.
    """

    column: str | None
    same_partitions: bool
    agree: bool
    by_position: bool = False

    def weight(self, suspect: Suspect) -> int:
        """Return a number that says how well a suspect explains the divergence; 0: not at all."""
        kind = SuspectKind
        if not self.same_partitions:
            fits = {kind.PARTITION: 3, kind.ORDER: 3, kind.OUTSIDE: 1, kind.RANDOM: 1, kind.CLOCK: 1}
        elif self.agree:
            fits = {kind.OUTSIDE: 3, kind.ORDER: 2, kind.CLOCK: 1, kind.RANDOM: 1, kind.PARTITION: 0}
        else:
            fits = {kind.RANDOM: 3, kind.CLOCK: 3, kind.OUTSIDE: 2, kind.ORDER: 1, kind.PARTITION: 0}
        weight = 2 * fits[suspect.kind]
        if weight and self.column is not None and suspect.columns:
            weight = weight + 10 if without_number(self.column) in suspect.columns else max(weight - 5, 0)
        return weight + 3 if weight and self.by_position and suspect.kind is kind.ORDER else weight


def without_number(column: str) -> str:
    """Return a state column's name without its numeric suffix: ``sum_2`` is the second ``sum``."""
    stem, _, number = column.rpartition("_")
    return stem if stem and number.isdigit() else column


def ranked(suspects: Iterable[Suspect], evidence: Evidence) -> list[Suspect]:
    """Return the suspects that could explain what was found, the most likely first."""
    return sorted(filter(evidence.weight, dict.fromkeys(suspects)), key=evidence.weight, reverse=True)
