"""Persons, auctions and bids after the generators of Apache Beam and nexmark-flink, made as arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_Numbers: TypeAlias = "npt.NDArray[np.int64]"
_Bits: TypeAlias = "npt.NDArray[np.uint64]"

PERSON, AUCTION, BID = range(3)
"""Types of events."""
CYCLE = 50
"""Events of which the first is a person, the next three are auctions, and the rest are bids."""
_AUCTIONS, _FIRST_BID = 3, 4
SCHEMA = (
    "number long, event_type int, date_time timestamp, "
    "person struct<id: long, name: string, email: string, credit_card: string, city: string, state: string, "
    "extra: string>, "
    "auction struct<id: long, item_name: string, description: string, initial_bid: long, reserve: long, "
    "expires: timestamp, seller: long, category: long, extra: string>, "
    "bid struct<auction: long, bidder: long, price: long, channel: string, url: string, extra: string>"
)
"""Spark's schema of the files: of ``person``, ``auction`` and ``bid``, one is not null."""

_BEGIN = 1_436_918_400_000  # Beam's base time, in milliseconds: 2015-07-15 00:00 UTC
_FIRST_ID, _FIRST_CATEGORY, _CATEGORIES = 1000, 10, 5
_LEAD, _ACTIVE_PERSONS, _IN_FLIGHT, _HOT = 10, 1000, 100, 100
_CLOSING_SECONDS = 3600
_STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CITIES = pa.array(
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
)
_FIRST_NAMES = pa.array(
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
)
_LAST_NAMES = pa.array(["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"])
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000
_TIME = pa.timestamp("ms", tz="UTC")


@dataclass(frozen=True)
class Events:
    """An endless sequence of events; each is a function of the seed and of its number.

    Args:
        seed: equal seeds make equal events.
        rate: events in a second of event time.
    """

    seed: int = 1
    rate: int = 10_000

    @property
    def longest_auction(self) -> int:
        """The most milliseconds from an auction's start until it expires."""
        return 2 * (_IN_FLIGHT * CYCLE // _AUCTIONS) * 1000 // self.rate

    def table(self, first: int, last: int) -> pa.Table:
        """Return the events from ``first`` to before ``last``, with the columns of ``SCHEMA``."""
        numbers = np.arange(first, last)
        kinds = np.digitize(numbers % CYCLE, (1, _FIRST_BID))
        columns: dict[str, Any] = {
            "number": numbers,
            "event_type": kinds.astype(np.int32),
            "date_time": pa.array(self._times(numbers), _TIME),
        }
        for kind, rows in enumerate((self._persons, self._auctions, self._bids)):
            chosen = kinds == kind
            places = pa.array(np.cumsum(chosen) - 1, mask=~chosen)
            columns[("person", "auction", "bid")[kind]] = rows(numbers[chosen]).take(places)
        return pa.table(columns)

    def write(self, folder: Path, first: int, last: int, each: int) -> None:
        """Write events as Parquet files of ``each`` events, which Spark reads in their order."""
        folder.mkdir(parents=True, exist_ok=True)
        for start in range(first, last, each):
            file = folder / f"{start:012}.parquet"
            hidden = file.with_name(f"_{file.name}")
            pq.write_table(self.table(start, min(start + each, last)), hidden)
            written = (_BEGIN + start) * 1_000_000
            os.utime(hidden, ns=(written, written))  # Spark sorts files by time, in milliseconds
            hidden.rename(file)

    def close(self, folder: Path, last: int) -> None:
        """Write a file of 50 events an hour later, after which every earlier window is closed."""
        later = -(-last // CYCLE) * CYCLE + _CLOSING_SECONDS * self.rate
        self.write(folder, later, later + CYCLE, CYCLE)

    def _times(self, numbers: _Numbers) -> _Numbers:
        return _BEGIN + numbers * 1000 // self.rate

    def _persons(self, numbers: _Numbers) -> pa.StructArray:
        draws = _Draws(self.seed, numbers)
        fields = {
            "id": _FIRST_ID + numbers // CYCLE,
            "name": pc.binary_join_element_wise(draws.of(_FIRST_NAMES), draws.of(_LAST_NAMES), " "),
            "email": pc.binary_join_element_wise(draws.text(3, 7), "@", draws.text(3, 5), ".com", ""),
            "credit_card": draws.text(16, 17, digits=True),
            "city": draws.of(_CITIES),
            "state": draws.of(_STATES),
        }
        texts = ("name", "email", "credit_card", "city", "state")
        return draws.struct(fields, 8 + _bytes(fields, *texts), 200)

    def _auctions(self, numbers: _Numbers) -> pa.StructArray:
        draws = _Draws(self.seed, numbers)
        person = numbers // CYCLE
        hot = draws.below(4) > 0
        initial = draws.price()
        fields = {
            "id": _FIRST_ID + _last_auction(numbers),
            "item_name": draws.text(3, 20),
            "description": draws.text(3, 100),
            "initial_bid": initial,
            "reserve": initial + draws.price(),
            "expires": pa.array(self._times(numbers) + 1 + draws.below(self.longest_auction), _TIME),
            "seller": _FIRST_ID + np.where(hot, person // _HOT * _HOT, draws.person(person)),
            "category": _FIRST_CATEGORY + draws.below(_CATEGORIES),
        }
        return draws.struct(fields, 48 + _bytes(fields, "item_name", "description"), 500)

    def _bids(self, numbers: _Numbers) -> pa.StructArray:
        draws = _Draws(self.seed, numbers)
        person, auction = numbers // CYCLE, _last_auction(numbers)
        earliest = np.maximum(auction - _IN_FLIGHT, 0)
        other = earliest + draws.below(auction - earliest + 1 + _LEAD)
        hot_auction, hot_bidder, hot_channel = draws.below(2) > 0, draws.below(4) > 0, draws.below(2) > 0
        channels, urls = _channels()
        rare = len(_HOT_CHANNELS) + draws.below(_CHANNELS)
        channel = pa.array(np.where(hot_channel, draws.below(len(_HOT_CHANNELS)), rare))
        fields = {
            "auction": _FIRST_ID + np.where(hot_auction, auction // _HOT * _HOT, other),
            # The second of a hundred persons, so that hot bidders and hot sellers are others.
            "bidder": _FIRST_ID + np.where(hot_bidder, person // _HOT * _HOT + 1, draws.person(person)),
            "price": draws.price(),
            "channel": channels.take(channel),
            "url": urls.take(channel),
        }
        return draws.struct(fields, np.full(len(numbers), 32), 100)


class _Draws:
    """Random values for events: hashes of the seed, an event's number, and the count of draws so far."""

    def __init__(self, seed: int, numbers: _Numbers) -> None:
        self._states = _mixed(numbers.astype(np.uint64) + _mixed(np.array([seed], np.uint64)))
        self._count = 0

    def share(self) -> npt.NDArray[np.float64]:
        """Return numbers from 0 to before 1."""
        self._count += 1
        hashes = _mixed(self._states + np.uint64(self._count))
        return (hashes >> np.uint64(12)).astype(np.float64) * np.float64(2.0**-52)

    def below(self, bound: int | _Numbers) -> _Numbers:
        """Return whole numbers from 0 to before a bound."""
        return (self.share() * bound).astype(np.int64)

    def price(self) -> _Numbers:
        """Return prices in cents, equally many of each order of magnitude."""
        return np.rint(10.0 ** (self.share() * 6) * 100).astype(np.int64)

    def person(self, newest: _Numbers) -> _Numbers:
        """Return active persons, some of whom register only later."""
        active = np.minimum(newest + 1, _ACTIVE_PERSONS)
        return newest + 1 - active + self.below(active + _LEAD)

    def of(self, values: pa.Array) -> pa.Array:
        """Return some of the values."""
        return values.take(pa.array(self.below(len(values))))

    def text(self, shortest: int, longer: int | _Numbers, *, digits: bool = False) -> pa.Array:
        """Return texts with at least so many letters or digits, and fewer than ``longer``."""
        return self._text(shortest + self.below(longer - shortest), digits=digits)

    def struct(self, fields: dict[str, Any], used: _Numbers, size: int) -> pa.StructArray:
        """Return the fields, and a text ``extra`` that brings the ``used`` bytes to ``size`` on average."""
        room = np.maximum(size - used, 0)
        spread = np.rint(room * 0.2).astype(np.int64)
        fields["extra"] = self._text(room - spread + self.below(2 * spread), digits=False)
        return pa.StructArray.from_arrays([pa.array(values) for values in fields.values()], list(fields))

    def _text(self, lengths: _Numbers, *, digits: bool) -> pa.Array:
        characters = _characters(digits=digits)
        starts = self.below(len(characters) - lengths)
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        buffers = pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(characters[places])
        return pa.StringArray.from_buffers(len(lengths), *buffers)


def _mixed(values: _Bits) -> _Bits:
    """Return hashes: the last step of SplitMix64."""
    values = (values + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xD1342543DE82EF95)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


@cache
def _characters(*, digits: bool) -> npt.NDArray[np.uint8]:
    """Return the letters or digits of which texts are parts."""
    bits = _mixed(np.arange(2**16, dtype=np.uint64))
    return (ord("0") + bits % 10 if digits else ord("a") + bits % 26).astype(np.uint8)


@cache
def _channels() -> tuple[pa.Array, pa.Array]:
    """Return the names of all channels and their addresses."""
    names = [*_HOT_CHANNELS, *(f"channel-{number}" for number in range(_CHANNELS))]
    draws = _Draws(0, np.arange(len(names)))
    words = zip(*(draws.text(3, 6).to_pylist() for _ in range(3)), strict=True)
    urls = [f"https://www.nexmark.com/{'/'.join(path)}/item.htm?query=1" for path in words]
    known = draws.below(10) > 0
    known[: len(_HOT_CHANNELS)] = False
    return pa.array(names), pa.array(
        [f"{url}&channel_id={at}" if known[at] else url for at, url in enumerate(urls)], pa.string()
    )


def _bytes(fields: dict[str, Any], *names: str) -> _Numbers:
    """Return the bytes of texts, together."""
    lengths: _Numbers = np.sum([pc.binary_length(fields[name]) for name in names], axis=0, dtype=np.int64)
    return lengths


def _last_auction(numbers: _Numbers) -> _Numbers:
    """Return how many auctions come before the newest one, for events that are auctions or bids."""
    return numbers // CYCLE * _AUCTIONS + np.clip(numbers % CYCLE, 1, _AUCTIONS) - 1
