"""Reads everything from a store, and compares each answer with that of Spark's state reader."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from oracle import captured_rows

import streamstate as ss
from streamstate.errors import InvalidArgumentError, NotAStoreError, StreamStateError, UnknownNameError
from streamstate.reports import History, Snapshot

QUERY = "q"
"""The name of the captured query in every store."""

Rows = dict[str, str]
"""The rows of a state table: key and values, both as text."""

# Reporting damaged data as missing, or the call as invalid, is a wrong answer.
_MISLEADING = (UnknownNameError, NotAStoreError, InvalidArgumentError)


@dataclass(frozen=True)
class Expected:
    """The expected states of a query: the number of key columns per state table, and its rows at every epoch."""

    widths: dict[str, int]
    states: dict[str, list[Rows]]

    @property
    def epochs(self) -> int:
        """The number of epochs; the first is 0."""
        return len(next(iter(self.states.values())))

    def save(self, path: Path) -> Path:
        """Write it to where a child process can load it."""
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def load(cls, path: Path) -> Expected:
        """Read what ``save`` wrote."""
        return cls(**json.loads(path.read_text()))


@dataclass
class Findings:
    """The results of the questions."""

    visible: int = 0
    """The number of visible epochs, starting from 0."""
    right: int = 0
    refused: list[str] = field(default_factory=list)
    """Questions that raised one of streamstate's errors."""
    wrong: dict[str, list[str]] = field(default_factory=dict)
    """Questions that were answered wrong, by kind: ``answer``, or the name of an unexpected exception."""

    def ask(self, question: str, answer: Callable[[], Any], right: Any) -> Any:
        """Ask a question; return the answer if it is right, else None."""
        try:
            result = answer()
        except StreamStateError as error:
            if not isinstance(error, _MISLEADING):
                self.refused.append(f"{question}: {type(error).__name__}: {error}")
                return None
            return self._is_wrong(type(error).__name__, f"{question}: {error}")
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise  # an interrupt or an exit
            return self._is_wrong(type(error).__name__, f"{question}: {error}")
        if not (right(result) if callable(right) else result == right):
            what = f"{question}: {_short(result)}"
            return self._is_wrong("answer", what if callable(right) else f"{what}, not {_short(right)}")
        self.right += 1
        return result

    def _is_wrong(self, kind: str, question: str) -> None:
        self.wrong.setdefault(kind, []).append(_short(question))

    def brief(self) -> list[str]:
        """The errors, with an example of each kind; a refusal is an error if nothing is damaged."""
        kinds = self.wrong | ({"refused": self.refused} if self.refused else {})
        return [f"{kind}, {len(questions)} times, such as {questions[0]}" for kind, questions in kinds.items()]


def inspect(store: Path | str, expected: Expected, at_least: int, at_most: int | None = None) -> Findings:
    """Read everything from a store that must show epochs 0 to n, between ``at_least`` and ``at_most`` of them."""
    findings = Findings()
    most = expected.epochs if at_most is None else at_most
    history = findings.ask("open", lambda: ss.open_store(store)[QUERY], lambda _: True)
    if history is None:
        return findings
    captured = findings.ask("epochs", history.captured, lambda given: _is_prefix(given, at_least, most))
    if captured is None:
        return findings
    findings.visible = len(captured)
    for table in expected.states:
        _ask_states(findings, history, expected, table)
        _ask_diffs(findings, history, expected, table)
        _ask_keys(findings, history, expected, table)
    findings.ask("manifest", lambda: list(history.epochs()["status"]), ["captured"] * len(captured))
    return findings


def _is_prefix(given: list[int], at_least: int, at_most: int) -> bool:
    return given == list(range(len(given))) and at_least <= len(given) <= at_most


def _ask_states(findings: Findings, history: History, expected: Expected, table: str) -> None:
    # Newest first, as a reader would: the older epochs are then loaded already.
    for epoch in reversed(range(findings.visible)):
        rows, where, at = expected.states[table][epoch], f"{table} at {epoch}", partial(history.at, epoch)
        findings.ask(f"tables at {epoch}", partial(_tables, at), sorted(expected.states))
        findings.ask(f"{where}: rows", partial(_rows, at, table, expected.widths[table]), rows)
        findings.ask(f"{where}: count", partial(_count, at, table), len(rows))
        findings.ask(f"{where}: manifest", partial(_counted, at, table), len(rows))


def _tables(at: Callable[[], Snapshot]) -> list[str]:
    return sorted(at().tables())


def _rows(at: Callable[[], Snapshot], table: str, width: int) -> Rows:
    found = captured_rows(at().table(table))
    assert set(found.values()) <= {1}, "a row is duplicated"
    return keyed(found, width)


def _count(at: Callable[[], Snapshot], table: str) -> int:
    return at().table(table).count()


def _counted(at: Callable[[], Snapshot], table: str) -> int:
    return at().rows()[table]


def _ask_diffs(findings: Findings, history: History, expected: Expected, table: str) -> None:
    for epoch in range(1, findings.visible):
        old, new = expected.states[table][epoch - 1 : epoch + 1]
        changed = {key: [old[key], new[key]] for key in old.keys() & new.keys() if old[key] != new[key]}
        right = {
            "added": {key: new[key] for key in new.keys() - old.keys()},
            "removed": {key: old[key] for key in old.keys() - new.keys()},
            "changed": changed,
        }
        findings.ask(
            f"{table}: diff {epoch - 1} to {epoch}",
            partial(_diff, history, epoch, table, expected.widths[table]),
            right,
        )


def _diff(history: History, epoch: int, table: str, width: int) -> dict[str, dict[str, Any]]:
    diff = history.diff(epoch - 1, epoch, table)
    return {
        "added": {_text(row[:width]): _text(row[width:]) for row in _listed(diff.added)},
        "removed": {_text(row[:width]): _text(row[width:]) for row in _listed(diff.removed)},
        "changed": {
            _text(row[:width]): [_text(row[width::2]), _text(row[width + 1 :: 2])] for row in _listed(diff.changed)
        },
    }


def _ask_keys(findings: Findings, history: History, expected: Expected, table: str) -> None:
    """The histories of three keys, folded epoch by epoch."""
    states = expected.states[table][: findings.visible]
    keys = sorted({key for state in states for key in state})
    for key in dict.fromkeys([*keys[:1], *keys[len(keys) // 2 :][:1], *keys[-1:]]):
        findings.ask(
            f"{table}: history of {key}",
            partial(_folded, history, table, json.loads(key), len(states)),
            [state.get(key) for state in states],
        )


def _folded(history: History, table: str, key: list[Any], epochs: int) -> list[str | None]:
    names = history.live().table(table).key_columns
    found = history.key_history(table, **dict(zip(names, key, strict=True)))
    at: list[str | None] = []
    for epoch in range(epochs):
        value = at[-1] if at else None
        for _, change, _, *values, _cause in _listed(found[found["epoch"] == epoch]):
            value = None if change == "delete" else _text(values)
        at.append(value)
    return at


def _listed(frame: pd.DataFrame) -> Iterator[list[Any]]:
    for row in frame.astype(object).itertuples(index=False, name=None):
        yield [None if pd.isna(value) else value for value in row]


def keyed(rows: Iterable[str], width: int) -> Rows:
    """Rows as the oracle formats them, each split after its key columns."""
    parsed = [json.loads(text) for text in rows]
    return {json.dumps(row[:width]): json.dumps(row[width:]) for row in parsed}


def _text(values: list[Any]) -> str:
    """Formats values like the oracle: timestamps in UTC, the rest as JSON."""
    return json.dumps([value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value for value in values])


def _short(value: Any) -> str:
    text = " ".join((value if isinstance(value, str) else repr(value)).split())
    return text if len(text) < 300 else f"{text[:300]}…"
