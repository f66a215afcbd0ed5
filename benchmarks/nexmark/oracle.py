"""The results of NEXMark's queries over all events at once, from DuckDB."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

_WINNING = """
    SELECT a.*, b.bidder, b.price, b.date_time AS bid_time, b.extra AS bid_extra, b.number AS bid_number
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires
    QUALIFY row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.number) = 1
"""
_CLOSED = {
    "q4": f"SELECT category, sum(price) // count(*) FROM ({_WINNING}) GROUP BY category",
    "q5": """
        WITH counted AS (
            SELECT auction, count(*) AS num, (date_time // 2000 - hop) * 2000 AS start
            FROM bid, range(5) hops(hop) GROUP BY ALL
        )
        SELECT auction, num, start FROM counted QUALIFY num = max(num) OVER (PARTITION BY start)
    """,
    "q6": f"""
        SELECT seller, sum(price) // count(*) FROM (
            FROM ({_WINNING})
            QUALIFY row_number() OVER (PARTITION BY seller ORDER BY bid_time DESC, bid_number DESC) <= 10
        ) GROUP BY seller
    """,
    "q7": """
        SELECT auction, price, bidder, date_time, extra FROM bid
        QUALIFY price = max(price) OVER (PARTITION BY date_time // 10000)
    """,
    "q8": """
        SELECT DISTINCT p.id, name, p.date_time // 10000 * 10000
        FROM person p JOIN auction a ON p.id = a.seller AND p.date_time // 10000 = a.date_time // 10000
    """,
    "q9": f"""
        SELECT id, item_name, description, initial_bid, reserve, expires, seller, category, extra, date_time,
            id, bidder, price, bid_time, bid_extra FROM ({_WINNING})
    """,
    "q11": """
        WITH begun AS (
            SELECT bidder, date_time, number, date_time > 10000 + coalesce(lag(date_time) OVER earlier, 0) AS begins
            FROM bid WINDOW earlier AS (PARTITION BY bidder ORDER BY number)
        ), numbered AS (
            SELECT *, sum(begins::INT) OVER (PARTITION BY bidder ORDER BY number) AS session FROM begun
        )
        SELECT bidder, count(*), min(date_time), max(date_time) + 10000 FROM numbered GROUP BY bidder, session
    """,
}
"""Queries that return what has ended, when it has."""
_AT_ONCE = {
    "q3": """
        SELECT name, city, state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
    """,
    "q12": """
        SELECT bidder, count(*), moment // 10000 * 10000 AS start
        FROM bid JOIN epoch ON number BETWEEN first_number AND last_number GROUP BY bidder, start
    """,
    "q18": """
        SELECT auction, bidder, price, channel, url, date_time, extra FROM bid
        QUALIFY row_number() OVER (PARTITION BY auction, bidder ORDER BY date_time DESC, number DESC) = 1
    """,
    "q19": """
        SELECT auction, bidder, price, channel, url, date_time, extra,
            row_number() OVER (PARTITION BY auction ORDER BY price DESC, number) AS rank
        FROM bid QUALIFY rank <= 10
    """,
    "q20": """
        SELECT auction, bidder, price, channel, url, b.extra, b.date_time, item_name, description, initial_bid, reserve,
            expires, seller, category, a.extra, a.date_time
        FROM bid b JOIN auction a ON b.auction = a.id WHERE category = 10
    """,
}


def answers(events: pa.Table, closing: int, epochs: Iterable[tuple[int, int, int]]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of every query, in any order, with times in milliseconds.

    Args:
        events: all events.
        closing: the number from which on events only move the watermark; the windows that they open stay open.
        epochs: the first and last number and the time of each epoch, for the windows in processing time.
    """
    found: dict[str, list[tuple[Any, ...]]] = {}
    first, last, moment = zip(*epochs, strict=True)
    for queries, end in ((_CLOSED, closing), (_AT_ONCE, None)):
        with duckdb.connect() as database:
            database.register("epoch", pa.table({"first_number": first, "last_number": last, "moment": moment}))
            _register(database, events if end is None else events.filter(pc.field("number") < end))
            found |= {name: database.sql(query).fetchall() for name, query in queries.items()}
    return found


def _register(database: duckdb.DuckDBPyConnection, events: pa.Table) -> None:
    for kind, name in enumerate(("person", "auction", "bid")):
        rows = events.filter(pc.field("event_type") == kind)
        fields = rows[name].combine_chunks()
        columns = dict(zip((field.name for field in fields.type), fields.flatten(), strict=True))
        columns |= {"number": rows["number"], "date_time": rows["date_time"]}
        for column, values in columns.items():
            if pa.types.is_timestamp(values.type):
                columns[column] = values.cast(pa.timestamp("ms", values.type.tz)).cast(pa.int64())
        database.register(name, pa.table(columns))
