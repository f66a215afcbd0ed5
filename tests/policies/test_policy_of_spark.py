"""The real parts of a policy together: the rules, levels, sheds and counts of a query that Spark runs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import Source
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamstate as ss
from policies.planned_epochs import planned_epochs
from policies.test_running_policy import until
from streamstate.errors import SparkConnectError
from streamstate.launch.launch import Launch
from streamstate.launch.load_policy import check_policy
from streamstate.reports import History, Running

pytestmark = pytest.mark.slow
ROWS = 400
POLICY = ss.Policy(latency="20ms", keep="v >= 80", may_drop=0.4)
"""No epoch is that short: as much as is allowed is dropped as soon as the rules decide."""


def rows_of(number: int) -> dict[str, list[Any]]:
    """The rows of a file, of which a fifth is protected."""
    numbers = range(ROWS * number, ROWS * (number + 1))
    return {"event_id": [f"e{n}" for n in numbers], "k": [n % 3 for n in numbers], "v": [n * 7 % 100 for n in numbers]}


@dataclass
class Fed:
    """A query that reads a file an epoch."""

    source: Source
    folder: Path
    files: int = 0

    def start(self, name: str = "q", **options: Any) -> Running:
        """Start it."""
        return ss.start(self.build(), name, self.folder / "store", **options)

    def build(self) -> DataFrame:
        """The query's code."""
        kept = ss.shed(self.source.stream(), value="v", weight="w")
        return kept.groupBy("k").agg(F.count("*").alias("n"), F.sum("w").alias("weight"))

    def feed(self, running: Running, files: int) -> None:
        """Add files, each once the one before is in a committed epoch; then all is captured."""
        checkpoint, level = Path(running.checkpoint.path), f"{running.name}_shed"
        for _ in range(files):
            self.source.add(rows_of(self.files))
            self.files += 1
            until(lambda: sum(len(each.files) for each in planned_epochs(checkpoint, level).values()) == self.files)
        running.wait(timeout=300)


@dataclass
class Kept:
    """The rule, written again: what each epoch kept of the files that it read."""

    spark: SparkSession
    fed: Fed

    def epochs(self, checkpoint: Path) -> dict[int, Counter[Any]]:
        """The kept rows of each epoch by key, and its dropped ones."""
        everything = self.spark.range(self.fed.files * ROWS).select(F.concat(F.lit("e"), "id").alias("event_id"), "id")
        hashed = {row[0]: row[1] for row in everything.select("event_id", F.xxhash64("event_id")).collect()}
        history = ss.shared(self.fed.folder / "store", "q_shed").history()
        levels = dict(zip(history["version"], history["value"], strict=True))
        found = {}
        for epoch, planned in planned_epochs(checkpoint, "q_shed").items():
            level, counted = levels[planned.version], Counter[Any]()
            for name in planned.files:
                for event, key, value in zip(*rows_of(int(Path(name).stem)).values(), strict=True):
                    share = level["keep"][sum(value >= bound for bound in level["bounds"])]
                    counted[key if hashed[event] % 10_000 < share else "dropped"] += 1
            found[epoch] = counted
        return found


def result_of(history: History, epoch: int) -> dict[int, int]:
    """The counts by key."""
    return {row["k"]: row["n"] for row in history.at(epoch).result().to_arrow().to_pylist()}


def test_a_policy_from_start_to_end(
    spark: SparkSession,
    tmp_path: Path,
    shell: Shell,
    warm: None,
) -> None:
    """It sheds, goes on after a restart and under supervision, is changed, and ends; all of it can be run again."""
    fed = Fed(Source(spark, tmp_path / "input", "event_id string, k long, v long"), tmp_path)
    running = fed.start(policy=POLICY, partitions=2)
    fed.feed(running, 4)
    assert 0.5 < running.history.decisions()["after"].dropna().iloc[0] < 0.75
    assert "promise broken: " in (running.status().policy or "")
    running = running.restart()
    assert running.policy == POLICY
    fed.feed(running, 1)
    running = running.supervise()
    assert running.policy == POLICY
    fed.feed(running, 1)
    shell.notebook.running["q"] = running
    changed = shell.run("%stream policy q --may-drop 0.7").to_pandas()
    assert changed["policy"].tolist() == ["Policy(latency='20ms', keep='v >= 80', may_drop=0.7)"]
    fed.feed(running, 4)
    assert shell.run("%stream policy q").to_pandas()["last decision"].iloc[0].startswith("after epoch ")
    shell.run("%stream policy q --off")
    fed.feed(running, 1)
    running.stop()

    history, checkpoint = running.history, Path(running.checkpoint.path)
    decided = history.decisions().query("lever == 'shedding'")
    shares = decided["after"].tolist()
    assert len(shares) >= 3
    assert shares[-2] < shares[0] < shares[-1] == 1
    assert (decided["acted"] > decided["epoch"]).all()
    assert [text and ss.Policy.of(text).may_drop for text in history.policies()["policy"]] == [0.4, 0.7, None]

    kept, total = Kept(spark, fed).epochs(checkpoint), Counter[Any]()
    load = history.load().to_pandas().set_index("epoch")
    bound = {epoch: planned.version or 0 for epoch, planned in planned_epochs(checkpoint, "q_shed").items()}
    levels = ss.shared(tmp_path / "store", "q_shed").history().set_index("version")
    for epoch, expected in kept.items():
        total += expected
        counts = {key: count for key, count in total.items() if key != "dropped"}
        assert result_of(history, epoch) == counts, epoch
        dropped = expected["dropped"]
        assert (load["kept_rows"][epoch], load["dropped_rows"][epoch]) == (expected.total() - dropped, dropped), epoch
        assert load["rows"][epoch] == expected.total()
        why = history.why_policy(epoch)
        share = math.ceil(round(why.kept * 10_000, 6))
        value = levels["value"][bound[epoch]]
        assert value["keep"] == ([share, 10_000] if value["bounds"] else [share])
        if "shedding" in why.decisions:
            assert levels["by"][bound[epoch]] == why.decisions["shedding"].by
    assert kept[0]["dropped"] == kept[max(kept)]["dropped"] == 0
    assert total["dropped"] > ROWS

    at = next(epoch for epoch in reversed(kept) if kept[epoch]["dropped"])
    assert running.checkpoint.replay(fed.build, epochs=(at - 1, at + 1)).same
    fork = running.checkpoint.fork(tmp_path / "fork", at=at)
    forked = fed.start("forked", checkpoint=fork.path)
    assert forked.policy is None
    assert forked.history.decisions().empty
    assert ss.shared(tmp_path / "store", "forked_shed").get() == levels["value"][bound[at]]
    forked.policy = POLICY
    fed.feed(forked, 4)  # two are ignored, one is decided on, and one is bound to the decision
    forked.stop()
    found = forked.history.decisions().query("lever == 'shedding'").dropna(subset=["acted"])
    assert forked.history.why_policy(forked.history.live().epoch).kept == found["after"].iloc[-1] < 1


def test_a_server_of_spark_connect_keeps_no_policy() -> None:
    """It is refused in words, before the query starts."""

    class Frame:
        of_connect = True

    launch = Launch("q", cast(Any, Frame()), "checkpoint")
    with pytest.raises(SparkConnectError, match="needs a classic Spark session"):
        check_policy(POLICY, launch)
