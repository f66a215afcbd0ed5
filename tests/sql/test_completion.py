"""Completion of SQL: the relations of a statement, the completions at the cursor, and robustness to any text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamstate.magics.sql_completion import complete_sql
from streamstate.magics.sql_scanner import Named, Scan


class Names:
    """The names of two queries and a frame."""

    travels = True

    def relations(self, begun: str) -> list[str]:
        """All names, or after a dot the tables of a query."""
        if begun.startswith("flights."):
            return ["flights.op0_left", "flights.op0_right"]
        return ["delays", "flights", "airlines"]

    def columns(self, relation: str) -> list[str]:
        """The columns of a relation."""
        known = {
            "delays": ["carrier", "count", "mean delay"],
            "flights.op0_left": ["tail", "carrier"],
            "airlines": ["carrier", "name"],
        }
        return known[relation]

    def epochs(self, relation: str) -> list[str]:
        """The epochs of a relation, as listed by a store."""
        return ["12", "11", "live", "live-1"] if relation == "delays" else ["3"]

    def times(self, relation: str) -> list[str]:
        """A timestamp."""
        return ["2026-01-01T00:00:00+00:00"]


def completions(cell: str) -> list[str]:
    """The completions at the ``|``."""
    before, _, after = cell.partition("|")
    return complete_sql(before + after, len(before), Names())[1]


LIVE = ["'live'", "'live - 1'", "'live - 10'"]
FOLLOWING = ["VERSION AS OF", "TIMESTAMP AS OF", "AS", "JOIN", "LEFT JOIN", "ON", "USING", "WHERE"]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("SELECT * FROM |", ["delays", "flights", "airlines"]),
        ("FROM de|", ["delays"]),
        ("FROM DE|", ["delays"]),
        ("SELECT * FROM delays d JOIN ai|", ["airlines"]),
        ("SELECT * FROM delays, |", ["delays", "flights", "airlines"]),
        ("SELECT * FROM (SELECT * FROM |) AS x", ["delays", "flights", "airlines"]),
        ("WITH late AS (FROM delays) SELECT * FROM la|", ["late"]),
        ("SELECT * FROM flights.|", ["flights.op0_left", "flights.op0_right"]),
        ("SELECT ca| FROM delays", ["carrier"]),
        ("SELECT | FROM delays", ["carrier", "count", '"mean delay"', "delays"]),
        ("SELECT d.| FROM delays AS d", ["d.carrier", "d.count", 'd."mean delay"']),
        ("SELECT d.| FROM delays d", ["d.carrier", "d.count", 'd."mean delay"']),
        ("SELECT D.ca| FROM delays VERSION AS OF 3 AS d", ["D.carrier"]),
        ("SELECT l.| FROM flights.op0_left l JOIN airlines a USING (carrier)", ["l.tail", "l.carrier"]),
        ("SELECT flights.op0_left.| FROM flights.op0_left", ["flights.op0_left.tail", "flights.op0_left.carrier"]),
        ("SELECT * FROM delays JOIN airlines USING (na|", ["name"]),
        ("SELECT * FROM delays d JOIN airlines a ON d.carrier = a.|", ["a.carrier", "a.name"]),
        ("SELECT * FROM delays VERSION AS OF |", ["12", "11", *LIVE]),
        ("SELECT * FROM delays VERSION AS OF 1|", ["12", "11"]),
        ("SELECT * FROM delays FOR VERSION AS OF 1| AS old", ["12", "11"]),
        ("SELECT * FROM delays VERSION AS OF 'li|", LIVE),
        ("SELECT * FROM delays VERSION AS OF 3 a JOIN flights.op0_left VERSION AS OF |", ["3", *LIVE]),
        ("FROM delays TIMESTAMP AS OF |", ["'2026-01-01T00:00:00+00:00'"]),
        ("FROM delays TIMESTAMP AS OF '2026|", ["'2026-01-01T00:00:00+00:00'"]),
        ("FROM delays ver|", ["version as of", "version"]),
        ("FROM delays WHE|", ["WHERE", "WHEN"]),
        ("select * from delays where carrier is not nu|", ["null", "nulls"]),
        ("SELECT 'ca| FROM delays", []),
        ("-- FROM |", []),
        ("/* FROM | */ SELECT 1", []),
        ("SELECT 'FROM airlines' AS x, na| FROM delays", []),
        ("SELECT nosuch.|", []),
    ],
)
def test_completions(cell: str, expected: list[str]) -> None:
    """Relations, columns of the statement's relations, epochs after AS OF, and keywords are completed."""
    assert completions(cell) == expected


def test_completions_after_a_relation() -> None:
    """Only keywords that can follow a relation are listed."""
    assert completions("FROM delays |")[:8] == FOLLOWING
    assert "CASE" not in completions("FROM delays |")


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("FROM a", [Named("a")]),
        ('FROM "A b".c AS d', [Named("A b.c", "d")]),
        ("FROM a x, b AS y WHERE z", [Named("a", "x"), Named("b", "y")]),
        ("FROM a LEFT JOIN b y ON a.k = y.k", [Named("a"), Named("b", "y")]),
        ("SELECT (SELECT max(x) FROM b) FROM a", [Named("b"), Named("a")]),
        ("FROM a TIMESTAMP AS OF '2026-01-01' t", [Named("a", "t")]),
        ("SELECT extract(year FROM day) FROM a", [Named("day"), Named("a")]),
    ],
)
def test_relations_and_aliases(sql: str, named: list[Named]) -> None:
    """They are found at any place of the statement."""
    assert Scan(sql).named == named


WORDS = "SELECT FROM JOIN delays d VERSION AS OF 12 . , ( ) ' ` -- /* */ WITH WHERE = é 🛫 ;"


@given(st.lists(st.sampled_from([*WORDS.split(), '"', "\n", " "]), max_size=30), st.integers(0, 200))
def test_completion_never_fails(tokens: list[str], at: int) -> None:
    """For any text, completions are unique, and the replaced fragment is before the cursor."""
    sql = " ".join(tokens)
    cursor = min(at, len(sql))
    fragment, found = complete_sql(sql, cursor, Names())
    assert sql[:cursor].endswith(fragment)
    assert len(found) == len(set(found))
