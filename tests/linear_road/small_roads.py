"""Small inputs, and both ways to answer them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from benchmarks.linear_road.oracle import Oracle
from benchmarks.linear_road.query import ANSWER, Past, Road, drive
from benchmarks.linear_road.traffic import BALANCE, EXPENDITURE, FEET, ROW, as_table

Row = dict[str, int]
Answered = Callable[[np.ndarray], pd.DataFrame]


def report(time: int, vid: int, seg: int, **facts: int) -> Row:
    """A position report, at the beginning of a segment in lane 1 of direction 0, at 50 mph."""
    return {"time": time, "vid": vid, "seg": seg, "pos": seg * FEET, "spd": 50, "lane": 1} | facts


def balance(time: int, vid: int) -> Row:
    """A question for a car's balance."""
    return {"type": BALANCE, "time": time, "vid": vid, "qid": time}


def rows_of(listed: Sequence[Row]) -> np.ndarray:
    """The rows as the query reads them, by time."""
    rows = np.zeros(len(listed), ROW)
    for at, row in enumerate(sorted(listed, key=lambda row: row["time"])):
        for name, value in row.items():
            rows[name][at] = value
    return rows


def by_oracle(rows: np.ndarray, folder: Path) -> pd.DataFrame:
    """The answers of the oracle."""
    file = folder / "rows.parquet"
    pq.write_table(as_table(rows), file)
    answers: pd.DataFrame = Oracle([file], folder / "past").answers().to_pandas()
    return answers


def by_query(rows: np.ndarray, folder: Path, most: int = 40) -> pd.DataFrame:
    """The answers of the query's processor without Spark, in epochs of 1 to ``most`` seconds."""
    random, begin, found = np.random.default_rng(1), 0, [np.zeros(0, ANSWER)]
    roads: dict[int, Any] = {}
    cars: dict[int, Any] = {}
    accounts: dict[int, Any] = {}
    asked = rows["type"] == EXPENDITURE
    found.append(Past(folder / "past").answers(rows[asked]))
    rows = rows[~asked]
    while begin <= rows["time"].max(initial=-1):
        end = begin + int(random.integers(1, most))
        epoch = rows[(rows["time"] >= begin) & (rows["time"] < end)]
        for xway in np.unique(epoch["xway"]):
            for kept, new in ((roads, None), (cars, {}), (accounts, {})):
                kept.setdefault(xway, new)
            road = Road.read(roads[xway])
            found += drive(random.permutation(epoch[epoch["xway"] == xway]), road, cars[xway], accounts[xway])
            roads[xway] = road.kept()
        begin = end
    answers = pd.DataFrame(np.concatenate(found))
    return answers.sort_values([*answers.columns], ignore_index=True)
