"""What the load policy of a query did: its decisions, when they acted, and why an epoch had the levels that it had."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from streamstate.errors import UnknownNameError
from streamstate.snapshots.calls.html import Html, joined, tag
from streamstate.snapshots.checkpoint.bindings import LEVEL, relation_of
from streamstate.snapshots.store.control_table import (
    ACTED,
    ADMISSION,
    DECISION,
    POLICY,
    RESCALE,
    SHEDDING,
    Control,
    ControlRow,
    in_force,
)
from streamstate.state_inspect.bound_versions import BoundVersions
from streamstate.state_inspect.captured_query import CapturedQuery

_KEPT_FOR_THE_RULES = {"epoch", "at", "strained_since", "state", "kept_promise", "limit_before", "cold"}
"""Inputs of a decision that later decisions need and that explain nothing by themselves."""
_COLUMNS = ["number", "epoch", "acted", "lever", "before", "after", "holds", "reason", "needs", "policy", "at"]


@dataclass(frozen=True)
class WhyPolicy:
    """What a load policy did to an epoch; :meth:`History.why_policy` returns it.

    Attributes:
        epoch: the epoch.
        policy: the policy in force, as JSON; None: there was none.
        declared: the epoch after which it was declared.
        kept, rows, partitions: the levels: the share of unprotected rows that was kept, the most rows that were read
            (None: no limit), and a new number of partitions (None: as the query began).
        decisions: the decisions that set them, by lever.
    """

    epoch: int
    policy: str | None
    declared: int | None
    kept: float
    rows: int | None
    partitions: int | None
    decisions: Mapping[str, ControlRow]

    def lines(self) -> list[str]:
        """Return the answer, a sentence or two a line."""
        if self.policy is None:
            head = f"Epoch {self.epoch} ran without a policy."
        else:
            since = "before the first epoch" if self.declared == -1 else f"after epoch {self.declared}"
            head = f"Epoch {self.epoch} ran under the policy {_policy_text(self.policy)}, declared {since}."
        levels = [
            f"It kept {self.kept:.0%} of the unprotected rows." if self.kept < 1 else "It kept all rows.",
            "Its sources had no other limit than their options'."
            if self.rows is None
            else f"It read at most {self.rows:,} rows.",
        ]
        if self.partitions is not None:
            levels.append(f"Its state had {self.partitions} partitions.")
        return [head, *levels, *(_decision_text(row) for row in self.decisions.values())]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    __repr__ = __str__

    def _repr_html_(self) -> Html:
        return joined([tag("p", line) for line in self.lines()])


def _policy_text(text: str) -> str:
    known = json.loads(text)
    return ", ".join(f"{name}={value}" for name, value in known.items()) if isinstance(known, dict) else text


def _decision_text(row: ControlRow) -> str:
    inputs = {name: value for name, value in row.inputs.items() if name not in _KEPT_FOR_THE_RULES}
    numbers = ", ".join(f"{_words(name)} {_number(value)}" for name, value in inputs.items() if value is not None)
    needs = f" What would hold it: {row.needs}" if row.needs else ""
    based = f" It follows from: {numbers}." if numbers else ""
    return f"Decision {row.number} set the {row.lever}, after epoch {row.epoch}: {row.reason}{needs}{based}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def moved_words(row: ControlRow) -> str:
    """Return what a decision moved in words, such as ``shedding: 100 % → 50 % kept``."""
    if row.lever == SHEDDING:
        return f"shedding: {_share(row.before)} → {_share(row.after)} kept"
    unit = "rows an epoch" if row.lever == ADMISSION else "partitions"
    return f"{row.lever}: {_count(row.before)} → {_count(row.after)} {unit}"


def _share(value: float | None) -> str:
    return f"{1.0 if value is None else value:.0%}"


def _count(value: float | None) -> str:
    return "all" if value is None else f"{value:,.0f}"


def decisions(query: CapturedQuery) -> pd.DataFrame:
    """Return the decisions, with the epochs from which they acted."""
    rows = Control(query.layout, query.name).rows()
    acted = acted_from(query, rows)
    found = [[getattr(row, name, None) for name in _COLUMNS] for row in rows if row.kind == DECISION]
    frame = pd.DataFrame(found, columns=pd.Index(_COLUMNS))
    frame["acted"] = pd.Series([acted.get(number) for number in frame["number"]], dtype="Int64")
    return frame.astype({"policy": "Int64", "holds": "boolean", "before": "Float64", "after": "Float64"})


def policies(query: CapturedQuery) -> pd.DataFrame:
    """Return the policies."""
    rows = [row for row in Control(query.layout, query.name).rows() if row.kind == POLICY]
    columns = ["number", "epoch", "policy", "at"]
    return pd.DataFrame([[row.number, row.epoch, row.text or None, row.at] for row in rows], columns=pd.Index(columns))


def why_policy(query: CapturedQuery, epoch: int) -> WhyPolicy:
    """Return what a load policy did to a captured epoch."""
    rows = Control(query.layout, query.name).rows()
    acted = acted_from(query, rows)
    policy = in_force(rows, upto=epoch - 1).policy
    set_by: dict[str, ControlRow] = {}
    for row in rows:
        since = acted.get(row.number) if row.kind == DECISION and row.lever in (SHEDDING, ADMISSION, RESCALE) else None
        if since is not None and since <= epoch and row.lever is not None:
            set_by[row.lever] = row
    kept, limit, partitions = (
        set_by[lever].after if lever in set_by else None for lever in (SHEDDING, ADMISSION, RESCALE)
    )
    return WhyPolicy(
        epoch,
        None if policy is None else policy.text,
        None if policy is None else policy.epoch,
        1.0 if kept is None else kept,
        None if limit is None else int(limit),
        None if partitions is None else int(partitions),
        set_by,
    )


def acted_from(query: CapturedQuery, rows: Sequence[ControlRow]) -> dict[int, int]:
    """Return the first epoch that each decision applied to, by the decision's number.

    A level acts in the epoch that is bound to its version; of limits and partitions a row says it.
    """
    found = {row.of: row.epoch for row in rows if row.kind == ACTED and row.of is not None}
    if not any(row.lever == SHEDDING for row in rows):
        return found
    bound = BoundVersions(query).all()
    levels = [name for name in bound if name.endswith(LEVEL)]
    if not levels:
        return found
    name = max(levels, key=lambda name: bound[name][-1].epoch)  # the first epochs of a fork had the original's
    first = {version.number: version.epoch for version in reversed(bound[name]) if not version.version.branch}
    try:
        versions = query.related(relation_of(name)).recorded.entries()
    except UnknownNameError:
        return found
    by = {row.by: row.number for row in rows if row.lever == SHEDDING}
    for version in versions:
        number = by.get((version.run_id or "").partition(" ")[2])
        if number is not None and version.epoch in first:
            found[number] = min(found.get(number, first[version.epoch]), first[version.epoch])
    return found
