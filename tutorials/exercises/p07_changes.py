"""The exercises of the notebook 07, "Change the code, keep the state": what a change makes of a state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamstate as ss
from streamstate.tutorials import flights
from streamstate.tutorials.exercises.construct import Construct, Exercise, StateExercise
from streamstate.tutorials.exercises.own_query import OWN, OwnQuery, Runs, same_state
from streamstate.tutorials.exercises.questions import Keys, Question, WrongAnswer

if TYPE_CHECKING:
    import duckdb
    from hypothesis.strategies import SearchStrategy
    from pyspark.sql import DataFrame

    from streamstate.tutorials.exercises.attempts import Function
    from streamstate.tutorials.exercises.sampling import Case

Departure = tuple[str, str, int | None, int]
"""A carrier, an airport, minutes of delay (none if cancelled), and a distance."""

COLUMNS = ("airline", "sum", "count", "min", "max")
"""The state of the new code, which counts in seconds."""

CHANGES = ("drop", "rename", "filter", "order", "nearest")

_OLD = {"carrier": "VARCHAR", "origin": "VARCHAR", "sum": "DOUBLE", "count": "BIGINT", "min": "DOUBLE", "max": "INT"}
"""The state of the old code, with a row for each carrier and airport."""


def old_state(departures: Sequence[Departure]) -> list[tuple[Any, ...]]:
    """Return the state of the old code after some departures."""
    keys = sorted({(carrier, origin) for carrier, origin, *_ in departures})
    return [(*key, *_buffers([given for given in departures if given[:2] == key])) for key in keys]


def new_state(departures: Sequence[Departure]) -> list[tuple[Any, ...]]:
    """Return the state of the new code after some departures."""
    keys = sorted({carrier for carrier, *_ in departures})
    return [(key, *_buffers([given for given in departures if given[0] == key], seconds=60)) for key in keys]


def _buffers(departures: Sequence[Departure], *, seconds: int = 1) -> tuple[int, int, int | None, int]:
    """Return the buffers of an average and a minimum of the delays, and of the maximum of the distances."""
    delays = [delay * seconds for _, _, delay, _ in departures if delay is not None]
    return sum(delays), len(delays), min(delays, default=None), max(distance for *_, distance in departures)


def mapped(sql: str, departures: Sequence[Departure]) -> list[tuple[Any, ...]]:
    """Return the rows that a mapping makes of the old state, in order.

    Raises:
        TypeError: it is no text.
        ValueError: it is no query over the old state, or returns other columns than the new one has.
    """
    if not isinstance(sql, str):
        raise TypeError(f"expected SQL as a text, not {type(sql).__name__}")
    return list(_mapped(_for_duckdb(sql), tuple(old_state(departures))))


@cache
def _for_duckdb(sql: str) -> str:
    """Return a query in Spark's SQL for DuckDB, which runs hundreds of small cases quickly."""
    import sqlglot
    from sqlglot import exp

    try:
        query = sqlglot.parse_one(sql, read="spark")
    except (sqlglot.ParseError, sqlglot.TokenError) as error:
        raise ValueError(str(error).splitlines()[0]) from None
    if not isinstance(query, exp.Query):
        raise ValueError("this is no SELECT")
    return query.sql(dialect="duckdb")


@cache
def _mapped(sql: str, old: tuple[tuple[Any, ...], ...]) -> Sequence[tuple[Any, ...]]:
    import duckdb

    values = ", ".join(f"({', '.join(map(_literal, row))})" for row in old)
    columns = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in _OLD.items())
    rows = f"SELECT {columns} FROM (VALUES {values}) AS given({', '.join(_OLD)})"
    connection = _connection()
    connection.execute(f"CREATE OR REPLACE TEMP VIEW op0 AS {rows}")
    try:
        result = connection.execute(sql)
    except duckdb.Error as error:
        raise ValueError(str(error).splitlines()[0]) from None
    names = [str(name).lower() for name, *_ in result.description or ()]
    if sorted(names) != sorted(COLUMNS):
        raise ValueError(f"the new state has the columns {', '.join(COLUMNS)}, and this returns {', '.join(names)}")
    places = [names.index(name) for name in COLUMNS]
    return sorted((tuple(_plain(row[place]) for place in places) for row in result.fetchall()), key=repr)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    import duckdb

    return duckdb.connect(config={"enable_external_access": False, "python_enable_replacements": False})


def _literal(value: object) -> str:
    return "NULL" if value is None else repr(value)


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _run(function: Function, case: Case) -> list[tuple[Any, ...]] | None:
    sql = function()
    return None if sql is None or sql is ... else mapped(sql, case[0])


def _judge(case: Case, rows: list[tuple[Any, ...]]) -> str:
    right = new_state(case[0])
    return "" if rows == right else f"From these departures, the new code computes {right}."


def _cases() -> SearchStrategy[Case]:
    from hypothesis import strategies as st

    delays = st.none() | st.integers(-9, 99)
    departure = st.tuples(st.sampled_from("AB"), st.sampled_from("xy"), delays, st.integers(1, 9))
    return st.tuples(st.lists(departure, min_size=1, max_size=5))


def _mapping(total: str = "sum(sum) * 60", count: str = "sum(count)", least: str = "min(min) * 60") -> Function:
    columns = f"carrier AS airline, {total} AS sum, {count} AS count, {least} AS min, max(max) AS max"
    return lambda: f"SELECT {columns} FROM op0 GROUP BY carrier"


def changed(function: Function) -> Runs | None:
    """Run the query of the quickstart over two files, and a learner's change of it from there; compute that anew."""
    own = OwnQuery(Path("streamstate-data/own-change"), files=2)
    given = function(own.departures())
    if given is None or given is ...:
        return None
    frame, mapping = given if isinstance(given, tuple) else (given, None)
    own.run(flights.delays(ss.session(), own.arriving), "delays", partitions=1)
    to = own.checkpoint(OWN)
    ss.Checkpoint(own.checkpoint("delays")).migrate(lambda: frame, to=to, mapping=mapping, store=own.store)
    own.arrive(1)
    return Runs(own.run(frame), own.run(frame, "recomputed", partitions=1), "Computed from all files")


def _figures(departures: DataFrame, keys: Sequence[str], *figures: str) -> DataFrame:
    from pyspark.sql import functions as F

    return departures.groupBy(*keys).agg(*map(F.expr, figures))


EXERCISES: Sequence[Question | Exercise] = (
    Question(
        id="starts",
        task="Which changes does Spark start?",
        kind=Keys(CHANGES),
        truth=None,
        because="Spark compares the number and the types of the state's columns, by their place. It compares neither "
        "names nor meaning.",
        wrong=[
            WrongAnswer(set(CHANGES), "The state has a sum, a count, a minimum and a maximum. Which does `drop` have?"),
            WrongAnswer({"rename"}, "That would be safe. Spark compares the types of columns, and no more."),
            WrongAnswer({"rename", "filter"}, "Carriers and airports are strings. How could Spark tell them apart?"),
            WrongAnswer({"rename", "filter", "order"}, "The least and the largest distance are both integers."),
        ],
        hints=[
            "What is in the state: the results, or what they are computed from?",
            "Write down the types of the columns of the state, in order, for each change.",
        ],
    ),
    Question(
        id="same",
        task="After which changes does the state mean the same?",
        kind=Keys(CHANGES),
        truth=None,
        because="A result's name is not in the state. The other changes continue from numbers that the new code would "
        "not have computed.",
        wrong=[
            WrongAnswer({"rename", "filter"}, "`filter` is right from now on. What is in the state already?"),
            WrongAnswer({"rename", "order"}, "The groups are the same. Which old column does it take for the carrier?"),
            WrongAnswer({"drop", "rename"}, "What `drop` needs is right. But with one column too many, does it start?"),
            WrongAnswer(set(), "Does the state know what a result is called?"),
        ],
        hints=["Compare with the new code as a batch over all input so far."],
    ),
    Construct(
        id="to_seconds",
        task="Write a mapping for the code in seconds",
        solution=_mapping(),
        arguments=["departures"],
        cases=_cases,
        run=_run,
        judge=_judge,
        wrong=[
            WrongAnswer(
                _mapping(total="sum(sum)", least="min(min)"),
                "Names and types fit, and the unit does not: seconds would be added to minutes.",
            ),
            WrongAnswer(_mapping(least="min(min)"), "The sum is in seconds. In what is the smallest delay?"),
            WrongAnswer(_mapping(count="sum(count) * 60"), "A number of departures has no unit."),
            WrongAnswer(
                _mapping(total="avg(sum) * 60"), "An airport with one flight would weigh as much as any other."
            ),
            WrongAnswer(
                lambda: "SELECT carrier AS airline, sum * 60 AS sum, count, min * 60 AS min, max FROM op0",
                "An airline has several old rows, one for each airport. What becomes one row, and how?",
            ),
        ],
        hints=[
            "For each column of the new state: is it copied, added up, or the smallest or largest of several rows?",
            "A sum and a minimum of delays are in the unit of the delays.",
            "`SELECT carrier AS airline, … FROM op0 GROUP BY carrier`",
        ],
    ),
    StateExercise(
        id="own",
        task="A change of your own",
        solution=lambda departures: _figures(departures, ["carrier"], "count(*)", "avg(dep_delay)", "max(dep_delay)"),
        capture=changed,
        grades=[same_state],
        wrong=[
            WrongAnswer(
                lambda departures: _figures(
                    departures.where("dep_delay > 0"),
                    ["carrier", "origin"],
                    "count(*)",
                    "avg(dep_delay)",
                    "max(dep_delay)",
                ),
                "Computed from all files, it has count",
            ),
            WrongAnswer(
                lambda departures: (
                    _figures(departures, ["carrier"], "count(*)", "sum(dep_delay * 60)"),
                    {"op0": "SELECT carrier, sum(count) AS count, sum(sum) AS sum FROM op0 GROUP BY carrier"},
                ),
                "Computed from all files, it has count",
            ),
            WrongAnswer(
                lambda departures: (
                    _figures(departures, ["carrier"], "count(*)", "max(dep_delay)"),
                    {"op0": "SELECT carrier, count, max FROM op0"},
                ),
                "StateWriteError",
            ),
        ],
        hints=[
            "Begin with less: leave a figure out, or group by less.",
            "What the old state does not contain, no mapping can compute. What does it contain?",
            "`Checkpoint.propose_mapping` shows the columns of both states, and what it proposes for each.",
        ],
    ),
)
