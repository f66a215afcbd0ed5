"""Migrations in a notebook and in a terminal, without Spark."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest
from pyspark.sql.types import DataType, DoubleType, LongType, StringType, StructType

from streamstate.operations.new_checkpoint.mapping_rules import beside, propose
from streamstate.operations.new_checkpoint.proposed_mapping import Preview, Proposal
from streamstate.operations.new_checkpoint.target import TargetTable
from streamstate.operations.new_checkpoint.writer import described
from streamstate.reports import ProposedMapping, WrittenCheckpoint
from streamstate.snapshots.checkpoint.state_tables import Shape, StateSource
from streamstate.snapshots.spark.state_comparison import TableDifference

TEXT, LONG, DOUBLE = StringType(), LongType(), DoubleType()
HOSTILE = "<script>&"


def table(name: str, keys: tuple[str, ...], /, **types: DataType) -> TargetTable:
    """A state table."""
    return TargetTable(StateSource(name, Shape.KEYED, {}, "stateStoreSave"), StructType(), keys, types)


def shown(*proposals: Proposal) -> ProposedMapping:
    """Return a mapping of some proposals."""
    return ProposedMapping("checkpoints/old", 3, proposals)


OLD = table("op0", ("carrier", "origin"), carrier=TEXT, origin=TEXT, sum=LONG, count=LONG)


def test_a_mapping_that_is_not_obvious() -> None:
    """Both schemas are shown with the reason; the other tables have their proposals."""
    new = {
        "op0": table("op0", ("carrier",), carrier=TEXT, sum=DOUBLE, last=TEXT),
        "op1": table("op1", ("name",), name=TEXT, count=LONG),
    }
    old = {"op0": OLD, "op1": table("op1", ("k",), k=TEXT, count=LONG, max=LONG)}
    proposed = shown(*propose(new, old))
    assert [proposal.sql for proposal in proposed] == [None, "SELECT k AS name, count FROM op1"]
    assert proposed.problems == [proposed[0].problem]
    text = re.sub(" +", " ", repr(proposed))
    assert "Checkpoint.migrate would refuse it, because of op0" in text
    assert "✗ It is not obvious how op0 follows from the old state: nothing says what last is" in text
    assert "sum bigint sum double ± another type" in text
    assert "k string (key) name string (key) ± renamed" in text
    assert '<td class="how added">+ only in the new state</td>' in proposed._repr_html_()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (
            "SELECT carrier, sum(sum) / 2 AS sum, 'x' AS last FROM op0 GROUP BY carrier",
            ["copied", "merged: sum(sum) / 2", "new: 'x'", "dropped", "dropped"],
        ),
        (
            "SELECT origin AS carrier, sum FROM op0",
            ["renamed", "was bigint", "missing from the mapping", *["dropped"] * 2],
        ),
        (
            "SELECT * FROM (SELECT * FROM op0)",
            ["", "another type", "only in the new state", *["only in the old state"] * 2],
        ),
        ("SELEC", ["", "another type", "only in the new state", *["only in the old state"] * 2]),
    ],
    ids=["a plain SELECT", "a column is missing", "a subquery", "no SQL"],
)
def test_what_columns_are_made_of(sql: str, expected: list[str]) -> None:
    """As far as the SQL says it; otherwise columns are compared by name."""
    new = table("op0", ("carrier",), carrier=TEXT, sum=DOUBLE, last=TEXT)
    assert [pair.how for pair in beside(Proposal("op0", sql), new, OLD).columns] == expected


def test_everything_is_escaped() -> None:
    """Names, SQL, problems and values; a group with more rows than are shown says so."""
    old, new = table(HOSTILE, ("k",), k=TEXT, **{HOSTILE: TEXT}), table("op0", ("k",), k=TEXT, **{HOSTILE: LONG})
    proposal = beside(Proposal("op0", f"SELECT '{HOSTILE}'", (HOSTILE,), HOSTILE), new, old)
    before, after = ([{"k": HOSTILE, HOSTILE: at} for at in range(rows)] for rows in (2, 1))
    preview = Preview(pd.DataFrame(before), pd.DataFrame(after), (7,), (2,), 7, 1)
    proposed = shown(Proposal(**{**vars(proposal), "preview": preview}))
    html = proposed._repr_html_() + WrittenCheckpoint(HOSTILE, 1, {HOSTILE: 1}, 0.1)._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;&amp;" in html
    assert "… and 5 more" in html


def test_a_new_checkpoint() -> None:
    """Its rows before and after, what was verified, and what to do next."""
    html = WrittenCheckpoint("new", 4, {"op0": 14}, 2.51, {"op0": None, "op1": 2_114})._repr_html_()
    assert '<td class="number">&gt; 10,000</td><td class="number">14</td>' in html
    assert '<td class="number">2,114</td><td></td>' in html
    assert "✓ Read back by Spark: no row differs; 2.5 s in all." in html
    assert "ss.start(build_query(), name, store, checkpoint=&#x27;new&#x27;)" in html


def test_what_differs_after_reading_back() -> None:
    """By key, with the columns that differ; nothing is said of rows that were not fetched."""
    meant = tuple(json.dumps({"k": k, "n": n, "m": 0}) for k, n in (("a", 1), ("b", 2)))
    read = tuple(json.dumps({"k": k, "n": n, "m": 0}) for k, n in (("a", 3),))
    difference = TableDifference("op0", "", 2, 9, 2, 1, meant, read)
    assert described(difference, ["k"]).splitlines() == [
        "op0: 2 of the rows that were meant are not read, 1 are read that were not meant.",
        "  k = 'a': meant n = 1, read n = 3",
        "  k = 'b': meant n = 2, m = 0, read no row",
    ]
    assert described(TableDifference("op0", "", 2, 9, 2, 8, meant, read), ["k"]).endswith("k = 'b': meant n = 2, m = 0")
