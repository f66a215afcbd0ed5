"""The right answers, from SQL over the whole input: windows and joins, where the query keeps state."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from benchmarks.linear_road.traffic import CARS_OF_A_ROAD

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS = "type, time, vid, qid, seg, lav, value"
_STEPS = """
-- A trip is a run of reports at intervals of 30 seconds.
CREATE TABLE reports AS
    SELECT time, vid, spd, xway, lane, dir, seg, pos, time // 60 AS minute,
        coalesce(time - lag(time) OVER car <> 30, true) AS starts,
        lag(seg) OVER car AS seg_before,
        lead(time) OVER car AS until,
        time - lag(time, 3) OVER car = 90
            AND (lane, dir, pos) = (lag(lane, 1) OVER car, lag(dir, 1) OVER car, lag(pos, 1) OVER car)
            AND (lane, dir, pos) = (lag(lane, 2) OVER car, lag(dir, 2) OVER car, lag(pos, 2) OVER car)
            AND (lane, dir, pos) = (lag(lane, 3) OVER car, lag(dir, 3) OVER car, lag(pos, 3) OVER car) AS stopped
    FROM input WHERE type = 0 WINDOW car AS (PARTITION BY vid ORDER BY time);
CREATE TABLE averages AS
    SELECT xway, dir, seg, minute, avg(speed) AS speed, count(*) AS cars
    FROM (SELECT xway, dir, seg, minute, vid, avg(spd) AS speed FROM reports GROUP BY ALL) GROUP BY ALL;
CREATE TABLE accidents AS
    SELECT DISTINCT xway, dir, seg, unnest(range(begins // 60, (ends - 1) // 60 + 1)) AS minute
    FROM (SELECT one.xway, one.dir, one.seg, greatest(one.time, two.time) AS begins,
            least(coalesce(one.until, $end), coalesce(two.until, $end)) AS ends
        FROM reports AS one JOIN reports AS two USING (xway, dir, lane, pos)
        WHERE one.stopped AND two.stopped AND one.vid < two.vid) WHERE begins < ends;
CREATE TABLE crossings AS
    SELECT *, sum(starts::int) OVER (PARTITION BY vid ORDER BY time) AS trip
    FROM reports WHERE starts OR seg <> seg_before;
CREATE TABLE segments AS SELECT DISTINCT xway, dir, seg, minute FROM crossings;
CREATE TABLE speeds AS
    SELECT segments.*, floor(avg(speed) + 1e-9)::int AS lav
    FROM segments JOIN averages AS past USING (xway, dir, seg)
    WHERE past.minute BETWEEN segments.minute - 5 AND segments.minute - 1 GROUP BY ALL;
CREATE TABLE warnings AS
    SELECT segments.*, arg_min(there.seg, abs(there.seg - segments.seg)) AS accident
    FROM segments JOIN accidents AS there USING (xway, dir)
    WHERE there.minute = segments.minute - 1
        AND CASE dir WHEN 0 THEN there.seg - segments.seg ELSE segments.seg - there.seg END BETWEEN 0 AND 4
    GROUP BY ALL;
CREATE TABLE notices AS
    SELECT crossings.*, coalesce(lav, 0) AS lav, accident,
        CASE WHEN lane <> 4 AND lav < 40 AND cars > 50 AND accident IS NULL THEN 2 * (cars - 50) ** 2 ELSE 0 END AS toll
    FROM crossings LEFT JOIN speeds USING (xway, dir, seg, minute) LEFT JOIN warnings USING (xway, dir, seg, minute)
        LEFT JOIN averages ON averages.minute = crossings.minute - 1
            AND (averages.xway, averages.dir, averages.seg) = (crossings.xway, crossings.dir, crossings.seg);
CREATE TABLE charges AS
    SELECT vid, time, lag(toll, 1, 0) OVER (PARTITION BY vid, trip ORDER BY time) AS toll FROM notices;
CREATE TABLE accounts AS SELECT vid, time, sum(toll) OVER (PARTITION BY vid ORDER BY time) AS balance FROM charges;
CREATE TABLE right_answers AS
    SELECT 0 AS type, time, vid, 0 AS qid, seg::int AS seg, lav, toll::bigint AS value FROM notices WHERE lane <> 4
    UNION ALL SELECT 1, time, vid, 0, accident, 0, 0 FROM notices WHERE lane <> 4 AND accident IS NOT NULL
    UNION ALL SELECT 2, input.time, input.vid, qid, 0, 0, balance::bigint
        FROM (FROM input WHERE type = 2) AS input ASOF JOIN accounts
        ON input.vid = accounts.vid AND input.time >= accounts.time
    UNION ALL SELECT 3, time, vid, qid, 0, 0, spent FROM expenditures;
"""


@dataclass(frozen=True)
class Judged:
    """A comparison of a query's answers with the right ones."""

    answers: int
    """The right answers."""
    missing: int
    """Those that the query did not give, as often as it should have."""
    wrong: int
    """Answers of the query that are not among them, or once too often."""
    kinds: dict[int, int]
    """The right answers, by type."""
    tolls: int
    """Toll notifications above 0."""


class Oracle:
    """The right answers to an input.

    Args:
        seconds: the files of the input.
        past: the folder of the historical table.
    """

    def __init__(self, seconds: Sequence[Path], past: Path) -> None:
        self._database = duckdb.connect()
        files = [str(file) for file in seconds]
        self._database.execute("CREATE VIEW input AS FROM read_parquet(" + str(files) + ")")
        spent = self._expenditures(past)
        self._database.register("expenditures", spent)
        end = self._number("SELECT coalesce(max(time), 0) + 60 FROM input")
        for statement in _STEPS.split(";\n"):
            if statement.strip():
                self._database.execute(statement.replace("$end", str(end)))

    def answers(self) -> pa.Table:
        """Return the right answers, in order."""
        return self._database.sql(f"SELECT {_COLUMNS} FROM right_answers ORDER BY ALL").to_arrow_table()

    def judge(self, answers: Sequence[Path]) -> Judged:
        """Compare with the files that a query has written."""
        given = f"(SELECT {_COLUMNS} FROM read_parquet({[str(file) for file in answers]}))"
        right = f"(SELECT {_COLUMNS} FROM right_answers)"
        counts = [f"SELECT count(*) FROM ({one} EXCEPT ALL {two})" for one, two in ((right, given), (given, right))]
        missing, wrong = (self._number(query) for query in counts)
        kinds = dict(self._database.execute("SELECT type, count(*) FROM right_answers GROUP BY 1").fetchall())
        tolls = self._number("SELECT count(*) FROM right_answers WHERE type = 0 AND value > 0")
        return Judged(sum(kinds.values()), missing, wrong, kinds, tolls)

    def _number(self, query: str) -> int:
        (found,) = self._database.execute(query).fetchall()
        return int(found[0])

    def _expenditures(self, past: Path) -> pa.Table:
        asked = self._database.execute("SELECT time, vid, qid, xway, day FROM input WHERE type = 3").df()
        spent = np.zeros(len(asked), "i8")
        for road, queries in asked.groupby(asked["vid"] // CARS_OF_A_ROAD):
            tolls = np.load(past / f"{road}.npy")[queries["vid"] % CARS_OF_A_ROAD, queries["day"]]
            spent[queries.index] = np.where(tolls["xway"] == queries["xway"], tolls["toll"], 0)
        return pa.table({**{name: asked[name].to_numpy() for name in ("time", "vid", "qid")}, "spent": spent})
