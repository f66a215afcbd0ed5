"""The stateful queries of NEXMark, as nexmark-flink numbers and defines them, on Structured Streaming.

Numbers of events decide between events of the same millisecond, so that every result is determined. Where a query has
windows or auctions that end, it returns a row once the watermark has passed its end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql import Column, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.nexmark.generator import AUCTION, BID, PERSON

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# The workers that Spark starts need not find the benchmarks.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

_DELAY = "4 seconds"
_WINDOW = "10 seconds"


@dataclass(frozen=True)
class Stream:
    """The events as they arrive.

    Args:
        load: returns a new streaming DataFrame of them, with the columns of the generator's ``SCHEMA``.
        longest_auction: the most milliseconds that an auction takes.
    """

    load: Callable[[], DataFrame]
    longest_auction: int

    def persons(self) -> DataFrame:
        """Return the persons. No two of these three have a column of the same name."""
        columns = "person.id AS person", "person.name", "person.city", "person.state", "date_time AS registered"
        return self._of(PERSON, *columns)

    def auctions(self) -> DataFrame:
        """Return the auctions."""
        return self._of(AUCTION, "auction.*", "date_time").withColumnRenamed("extra", "auction_extra")

    def bids(self) -> DataFrame:
        """Return the bids."""
        values = (f"bid.{name}" for name in ("auction", "bidder", "price", "channel", "url"))
        return self._of(BID, *values, "bid.extra AS bid_extra", "date_time AS bid_time", "number AS bid_number")

    def won(self, keys: tuple[str, ...], best: Column) -> DataFrame:
        """Return an aggregate of each auction's bids once it has ended.

        The join has two conditions on time: the published one, by the auction's own end, and the longest auction,
        without which Spark would keep all auctions and bids.
        """
        longest = f"date_time + INTERVAL '{self.longest_auction / 1000:.3f}' SECOND"
        ended = F.expr(f"auction = id AND bid_time BETWEEN date_time AND expires AND bid_time <= {longest}")
        joined = self.bids().join(self.auctions(), ended).withColumn("bid_time", _unmarked())
        return joined.groupBy("id", "date_time", *keys).agg(best.alias("best"))

    def _of(self, kind: int, *columns: str) -> DataFrame:
        events = self.load().withWatermark("date_time", _DELAY).where(F.col("event_type") == kind)
        return events.selectExpr(*columns)


@dataclass(frozen=True)
class Query:
    """A query, and how its rows are read."""

    build: Callable[[Stream], DataFrame]
    mode: str = "append"
    key: tuple[str, ...] = ()
    """Columns of which the rows of the newest epoch count; none if every row counts."""


def _q3(stream: Stream) -> DataFrame:
    """Local item suggestion: as published, an inner join whose state grows."""
    persons = stream.persons().where("state IN ('OR', 'ID', 'CA')")
    auctions = stream.auctions().where("category = 10")
    return auctions.join(persons, F.expr("seller = person")).select("name", "city", "state", "id")


def _q4(stream: Stream) -> DataFrame:
    """Average price for a category: counts an auction once it has ended, not while it runs."""
    won = stream.won(("category",), F.max("price")).select("category", F.col("best").alias("price"))
    return _per_key(won, "category", _Average(), "category long, price long")


def _q5(stream: Stream) -> DataFrame:
    """Hot items: an aggregate of the windows' aggregate in place of its join with itself."""
    counts = stream.bids().groupBy("auction", F.window("bid_time", _WINDOW, "2 seconds")).agg(F.count("*").alias("num"))
    most = counts.groupBy("window").agg(F.collect_list(F.struct("num", "auction")).alias("counts"))
    hottest = most.select("window", F.expr("explode(filter(counts, c -> c.num = array_max(counts).num)) AS hot"))
    return hottest.select("hot.auction", "hot.num", "window.start")


def _q6(stream: Stream) -> DataFrame:
    """Average selling price by seller: the ten newest winning bids, of auctions that have ended."""
    best = F.max_by(F.struct("price", "bid_number"), _order("price"))
    won = stream.won(("seller",), best).select("seller", "best.price", "best.bid_number")
    return _per_key(won, "seller", _LastTen(), "seller long, price long")


def _q7(stream: Stream) -> DataFrame:
    """Highest bid: as published, but a bid belongs to one window also at its end."""
    highest = stream.bids().groupBy(F.window("bid_time", _WINDOW)).agg(F.max("price").alias("highest"))
    bids = stream.bids().withColumn("of", F.window("bid_time", _WINDOW)).withColumn("bid_time", _unmarked())
    joined = bids.join(highest, F.expr("of = window AND price = highest"))
    return joined.select("auction", "price", "bidder", "bid_time", "bid_extra")


def _q8(stream: Stream) -> DataFrame:
    """Monitor new users: as published, a join of two windowed aggregates."""
    window = F.window("registered", _WINDOW).alias("joined")
    persons = stream.persons().groupBy("person", "name", window).count().drop("count")
    sellers = stream.auctions().groupBy("seller", F.window("date_time", _WINDOW)).count().drop("count")
    both = persons.join(sellers, F.expr("person = seller AND joined = window"))
    return both.select("person", "name", "joined.start")


def _q9(stream: Stream) -> DataFrame:
    """Winning bids: returns a winner once the auction has ended, not the best bid so far."""
    auction = "item_name", "description", "initial_bid", "reserve", "expires", "seller", "category", "auction_extra"
    bid = F.struct("auction", "bidder", "price", "bid_time", "bid_extra")
    return stream.won(auction, F.max_by(bid, _order("price"))).select("id", *auction, "date_time", "best.*")


def _q11(stream: Stream) -> DataFrame:
    """User sessions: as published."""
    sessions = stream.bids().groupBy("bidder", F.session_window("bid_time", _WINDOW)).agg(F.count("*").alias("bids"))
    return sessions.select("bidder", "bids", "session_window.start", "session_window.end")


def _q12(stream: Stream) -> DataFrame:
    """Processing-time windows: the time is the epoch's, which its checkpoint keeps and a replay uses again."""
    bids = stream.load().where(F.col("event_type") == BID).select("bid.bidder", F.current_timestamp().alias("at"))
    windows = bids.withWatermark("at", "0 seconds").groupBy("bidder", F.window("at", _WINDOW))
    return windows.agg(F.count("*").alias("bids")).select("bidder", "bids", "window.start")


def _q18(stream: Stream) -> DataFrame:
    """Last bid of a bidder for an auction: an aggregate in place of ROW_NUMBER."""
    bid = F.struct("price", "channel", "url", "bid_time", "bid_extra")
    last = stream.bids().groupBy("auction", "bidder").agg(F.max_by(bid, "bid_number").alias("last"))
    return last.select("auction", "bidder", "last.*")


def _q19(stream: Stream) -> DataFrame:
    """Ten highest bids of an auction: an aggregate in place of ROW_NUMBER, which returns all ten when one changes."""
    bid = F.struct("bidder", "price", "channel", "url", "bid_time", "bid_extra")
    highest = stream.bids().groupBy("auction").agg(F.max_by(bid, _order("price"), 10).alias("highest"))
    ranked = highest.select("auction", F.posexplode("highest").alias("rank", "bid"))
    return ranked.select("auction", "bid.*", (F.col("rank") + 1).alias("rank"))


def _q20(stream: Stream) -> DataFrame:
    """Bids with their auctions: as published, an inner join whose state grows."""
    auctions = stream.auctions().where("category = 10")
    return stream.bids().drop("bid_number").join(auctions, F.expr("auction = id")).drop("id")


QUERIES = {
    "q3": Query(_q3),
    "q4": Query(_q4, key=("category",)),
    "q5": Query(_q5),
    "q6": Query(_q6, key=("seller",)),
    "q7": Query(_q7),
    "q8": Query(_q8),
    "q9": Query(_q9),
    "q11": Query(_q11),
    "q12": Query(_q12, "update", ("bidder", "start")),
    "q18": Query(_q18, "update", ("auction", "bidder")),
    "q19": Query(_q19, "update", ("auction",)),
    "q20": Query(_q20),
}


def _unmarked() -> Column:
    """Return the time of bids as a column that carries no watermark: an operator takes only one that does."""
    return F.expr("timestamp_millis(unix_millis(bid_time))")


def _order(first: str) -> Column:
    """Order bids by a column; of equal ones, the earlier is higher."""
    return F.struct(first, -F.col("bid_number"))


def _per_key(rows: DataFrame, key: str, processor: StatefulProcessor, schema: str) -> DataFrame:
    return rows.groupBy(key).transformWithState(
        statefulProcessor=processor, outputStructType=schema, outputMode="Append", timeMode="None"
    )


class _Average(StatefulProcessor):
    """Average price of a key's rows so far, in whole cents."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "price long, rows long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        price, count = self._total.get() or (0, 0)
        for row in rows:
            price, count = price + row.price, count + 1
        self._total.update((price, count))
        yield Row(category=key[0], price=price // count)


class _LastTen(StatefulProcessor):
    """Average price of the ten newest of a key's rows, in whole cents."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._newest = handle.getListState("newest", "bid_number long, price long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Row]:
        both = [*map(tuple, self._newest.get()), *((row.bid_number, row.price) for row in rows)]
        newest = sorted(both)[-10:]
        self._newest.put(newest)
        yield Row(seller=key[0], price=sum(price for _, price in newest) // len(newest))
