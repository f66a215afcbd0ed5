"""What came of an audit."""

from __future__ import annotations

import html
import json
import os
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamstate.debugger.audit.certificate import CertificateCheck, States, certificate_of
from streamstate.debugger.audit.suspects import Evidence, Suspect, ranked

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Audit", "AuditedReplay", "Divergence"]

_SHOWN = 5


@dataclass(frozen=True)
class Divergence:
    """Where a replay first came out otherwise.

    Attributes:
        epoch: the first epoch at which it did.
        table: the state table.
        key: the key columns with their values.
        column: the first value column that differs; None where only one of the two has the key.
        recorded: what it was in the query's own run; None where that has no such key.
        replayed: what it was in the replay; None where that has no such key.
        columns: all value columns that differ, each with both values.
        replay: the number of the replay, from 1 on.
        suspects: what in the query speaks for it, the likeliest first.
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
        """In one line."""
        key = ", ".join(f"{name}={value!r}" for name, value in self.key.items())
        where = f"epoch {self.epoch}, {self.table}, {key}"
        if self.column is None:
            side = "only in the replay" if self.recorded is None else "only in what was recorded"
            return f"{where}: {side}"
        return f"{where}: {self.column} was {_short(self.recorded)} and is {_short(self.replayed)}"

    def place(self) -> dict[str, Any]:
        """As plain data, for a certificate."""
        values = {"recorded": _short(self.recorded), "replayed": _short(self.replayed)}
        key = {name: _short(value) for name, value in self.key.items()}
        place = {"replay": self.replay, "epoch": self.epoch, "table": self.table, "key": key, "column": self.column}
        return {**place, **values, "suspects": [one.what for one in self.suspects]}


@dataclass(frozen=True)
class AuditedReplay:
    """One replay of an audit.

    Attributes:
        number: from 1 on.
        partitions: over how many its state was spread.
        upto: the last epoch that was run; a replay ends soon after it diverged.
        divergence: where it first came out otherwise; None: nowhere.
        epochs: one row per epoch and state table, as :meth:`Comparison.epochs` gives them: recorded is "here".
        keys: keys that differ at the first epoch and table that do, the first hundred.
        seconds: how long it took.
        checkpoint: where it is, if it was kept.
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
    """State tables and columns that only one of the two has."""

    @property
    def same(self) -> bool:
        """Whether every state was as recorded."""
        return self.divergence is None and not self.left_out

    def __str__(self) -> str:
        """In one line."""
        spread = f"{self.partitions} partition{'s' * (self.partitions != 1)}"
        if self.divergence is not None:
            return f"Replay {self.number}, {spread}: {self.divergence}"
        if self.left_out:
            return f"Replay {self.number}, {spread}: not in both: {', '.join(self.left_out)}"
        return f"Replay {self.number}, {spread}: the same at every epoch up to {self.upto}"


@dataclass(frozen=True)
class Audit:
    """What came of :func:`streamstate.audit`.

    Attributes:
        checkpoint: the query's.
        query_id: its id.
        mode: the output mode of the replays.
        epochs: those that were replayed.
        partitions: over how many the query's own state is spread.
        tables: its state tables.
        replays: the replays, in their order.
        suspects: all in the query that may come out otherwise; in a clean audit it did not matter.
        states: the fingerprints of what was recorded.
        source_offsets: a digest of what the epochs read.
        versions: of streamstate, Spark, Python and Java.
        started: when it began.
        finished: when it ended.
        against: what came of checking a certificate, where one was given.
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
    source_offsets: str
    versions: dict[str, str]
    started: datetime
    finished: datetime
    against: CertificateCheck | None = None

    @property
    def clean(self) -> bool:
        """Whether every replay came out as recorded at every epoch."""
        return all(one.same for one in self.replays)

    @property
    def first(self) -> Divergence | None:
        """The earliest divergence of all replays; None where there is none."""
        found = [one.divergence for one in self.replays if one.divergence is not None]
        return min(found, key=lambda one: one.epoch, default=None)

    @property
    def certificate(self) -> dict[str, Any]:
        """What was replayed, and a fingerprint of every state: small, plain data that somebody else can check.

        Example:
            >>> audit.certificate["result"]  # doctest: +SKIP
            'deterministic'
        """
        return certificate_of(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate as JSON; :func:`streamstate.check_certificate` checks it.

        Example:
            >>> audit.save("delays.audit.json")  # doctest: +SKIP
        """
        Path(path).write_text(json.dumps(self.certificate, indent=1) + "\n", encoding="utf-8")

    def _title(self) -> str:
        span = f"epochs {self.epochs[0]} to {self.epochs[-1]}" if len(self.epochs) > 1 else f"epoch {self.epochs[0]}"
        times = f"{len(self.replays)} replay{'s' * (len(self.replays) != 1)}"
        if self.clean:
            return f"Deterministic at {span}: {times}, and every state came out as recorded."
        odd = sum(not one.same for one in self.replays)
        return f"Not deterministic at {span}: {odd} of {times} came out otherwise."

    def _told(self) -> list[str]:
        lines = [str(one) for one in self.replays]
        if self.clean and self.suspects:
            seen = ", ".join(dict.fromkeys(one.what for one in self.suspects))
            lines.append(f"Seen in the query, and it did not matter: {seen}.")
        if self.first is not None:
            lines += _accusations(self.first)
        if self.against is not None:
            lines.append(repr(self.against).splitlines()[0])
        return lines

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"  {line}" for line in self._told())])

    def _repr_html_(self) -> str:
        sign = "✓" if self.clean else "✗"
        items = "".join(f"<li>{html.escape(line)}</li>" for line in self._told())
        keys = next((one.keys for one in self.replays if one.divergence is self.first and one.keys is not None), None)
        shown = "" if keys is None or self.first is None else _table(keys, self.first)
        return f"<p><strong>{sign} {html.escape(self._title())}</strong></p><ul>{items}</ul>{shown}"


def with_suspects(
    replays: tuple[AuditedReplay, ...], suspects: list[Suspect], recorded: int
) -> tuple[AuditedReplay, ...]:
    """The replays, each divergence with what speaks for it."""
    odd = [one for one in replays if one.divergence is not None]
    same = [one for one in odd if one.partitions == recorded]
    # Where only one has the recorded number of partitions, the one with another has to tell chance from change.
    several = same if len(same) > 1 else odd
    told = {(one.divergence.epoch, repr(one.divergence.columns)) for one in several if one.divergence is not None}
    agree = len(several) > 1 and len(told) == 1
    found = []
    for replayed in replays:
        one = replayed
        if one.divergence is not None:
            evidence = Evidence(
                one.divergence.column,
                same_partitions=bool(same),
                agree=agree,
                by_position="_position" in one.divergence.key,
            )
            likely = tuple(ranked(suspects, evidence))
            one = replace(one, divergence=replace(one.divergence, suspects=likely))
        found.append(one)
    return tuple(found)


def _accusations(first: Divergence) -> list[str]:
    if not first.suspects:
        said = (
            "Nothing in the plan or in its Python functions explains it: "
            "the code, the settings or the input may not be those that it ran with."
        )
        return [said]
    lines = [f"Likely: {first.suspects[0]}"]
    lines += [f"Or: {one}" for one in first.suspects[1:_SHOWN]]
    if len(first.suspects) > _SHOWN:
        lines.append(f"And {len(first.suspects) - _SHOWN} more: first.suspects has them.")
    return lines


def _table(keys: pd.DataFrame, first: Divergence) -> str:
    renamed = keys.head(_SHOWN).rename(columns=lambda name: _renamed(str(name)))
    caption = html.escape(f"{first.table} at epoch {first.epoch}: the first keys that differ")
    return f"<p>{caption}</p>{renamed.to_html(index=False)}"


def _renamed(name: str) -> str:
    for end, said in (("_here", " recorded"), ("_there", " replayed")):
        if name.endswith(end):
            return name.removesuffix(end) + said
    return "difference" if name == "_kind" else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
