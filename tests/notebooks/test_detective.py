"""The notebook on state as a database: the detective story. It asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import streamstate as ss
from notebooks.running import RUNS, Shown, latest_run, output_of, run_again, shows_no_noise
from streamstate.tutorials.exercises import Statement, p02_sql

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


@pytest.fixture(scope="module")
def detective() -> Shown:
    """The outputs of the detective story."""
    return latest_run("02_state_as_a_database")


@pytest.fixture(scope="module")
def detective_folder(detective: Shown) -> Path:
    """The folder in which the detective story ran."""
    return RUNS / "02_state_as_a_database"


def test_the_detective_finds_those_that_are_missing(detective: Shown, detective_folder: Path) -> None:
    """The store confirms what the text says about the flights of that night: when they were added and removed."""
    assert output_of(detective, "night = cut.sql(").split()[-1] == "0"
    assert output_of(detective, "events = other.key_history").count("watermark") == 2
    store = ss.open_store(detective_folder / "streamstate-data" / "detective" / "store")
    flights = """
        SELECT DISTINCT _valid_from, _valid_to FROM weather.op0_left.history
        WHERE field0 BETWEEN '2013-02-08 22:00+00' AND '2013-02-09 04:00+00'
    """
    assert store.sql(flights).to_arrow().to_pylist() == [{"_valid_from": 3, "_valid_to": 4}]


def test_the_detectives_numbers_match_the_feed(detective: Shown, detective_folder: Path) -> None:
    """JetBlue's planned and departed flights, and how many averages fell, without a query or its state."""
    feed = sorted((detective_folder / "streamstate-data" / "flights" / "flights").glob("*.parquet"))
    before, storm = pd.concat(map(pd.read_parquet, feed[:12])), pd.read_parquet(feed[12])
    jetblue = storm.query("carrier == 'B6' and origin == 'JFK'")["dep_delay"]
    assert (len(jetblue), jetblue.count()) == (316, 273)
    means = [frame.groupby(["carrier", "origin"])["dep_delay"].mean() for frame in (before, pd.concat([before, storm]))]
    assert sum(means[1] < means[0]) == 19
    [row] = [line.split() for line in output_of(detective, "life = store.sql(").splitlines() if line.startswith("12 ")]
    assert row[2:4] == ["316", "273"]


def test_the_detectives_watch_fires_once(detective: Shown) -> None:
    """It fires for the one key that starts to match, not for those that matched before."""
    assert output_of(detective, "rang.get").splitlines()[-1].split()[1:3] == ["US", "LGA"]


def test_the_detective_waits_for_its_reader(detective: Shown) -> None:
    """Predictions and the reader's own statement are not answered yet, and nothing is revealed."""
    said = [text for source, text in detective if "P02." in source and "P02.progress" not in source]
    assert {text.split()[0] for text in said} == {"…"}
    assert len(said) == 5


def test_a_statement_is_checked_against_the_detectives_store(
    detective_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The solution is right for what Spark wrote, and each typical wrong statement gets its own message."""
    monkeypatch.chdir(detective_folder)
    [exercise] = [item for item in p02_sql.EXERCISES if isinstance(item, Statement)]
    assert exercise.check(exercise.solution).mark == "right"
    for wrong in exercise.wrong:
        assert exercise.check(wrong.answer).lines == [wrong.message]


def test_the_detective_story_shows_no_noise(detective: Shown) -> None:
    """There is no output of Spark or Java, and no local path."""
    assert shows_no_noise(detective)


@pytest.mark.exhaustive
def test_the_detective_story_can_run_again_in_its_folder(detective: Shown, detective_folder: Path) -> None:
    """It starts over, whatever an earlier run left."""
    again = run_again("02_state_as_a_database", detective_folder)
    assert output_of(again, "untouched = history") == output_of(detective, "untouched = history")
