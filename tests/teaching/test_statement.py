"""Statements that learners write over their own store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamstate.tutorials.exercises import Statement, p00_quickstart, p02_sql

[COUNTED] = [item for item in p00_quickstart.EXERCISES if isinstance(item, Statement)]
[CANCELLED] = [item for item in p02_sql.EXERCISES if isinstance(item, Statement)]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (lambda: "SELECT 1", "This is no text, but function."),
        ("SELECT carrier FROM delays VERSION AS OF $epoch", "32 rows of 1 columns"),
        ("SELECT sum(count) FROM delays VERSION AS OF $epoch WHERE carrier = 'ZZ'", "NULL"),
        ("SELECT passengers FROM delays", "There is no column 'passengers'."),
        ("DELETE FROM delays", "snapshots are read-only"),
    ],
)
def test_what_is_no_number_is_said(departures: Path, statement: Any, said: str) -> None:
    """Nothing that a learner writes ends in a traceback."""
    checked = replace(COUNTED, store=departures).check(statement)
    assert checked.mark == "wrong"
    assert said in repr(checked)


def test_a_statement_waits_for_the_state(departures: Path, tmp_path: Path) -> None:
    """Before the notebook has captured its query, or the epochs that are asked for."""
    assert "The state is not captured yet." in repr(replace(CANCELLED, store=tmp_path / "none").check("SELECT 1"))
    early = replace(CANCELLED, store=departures, until=30).check("SELECT 1")
    assert (early.mark, "Epoch 30 is not captured yet." in repr(early)) == ("waiting", True)


@pytest.mark.parametrize(
    "statement",
    [
        """
        SELECT sum(count - count_2) - (SELECT sum(count - count_2) FROM delays VERSION AS OF $before)
        FROM delays VERSION AS OF $last
        """,
        """
        SELECT sum(new.count - new.count_2) - sum(coalesce(old.count - old.count_2, 0))
        FROM delays VERSION AS OF $last AS new LEFT JOIN delays VERSION AS OF $before AS old USING (carrier, origin)
        """,
        """
        SELECT sum(cancelled) FROM (
            SELECT _epoch, count - count_2 - lag(count - count_2, 1, 0) OVER (
                PARTITION BY carrier, origin ORDER BY _epoch
            ) AS cancelled
            FROM delays.changes
        )
        WHERE _epoch > $before AND _epoch <= $last
        """,
    ],
    ids=["two epochs", "joined", "changes"],
)
def test_each_way_to_ask_is_right(departures: Path, statement: str) -> None:
    """The statement is judged by what it returns."""
    assert replace(CANCELLED, store=departures).check(statement).mark == "right"
