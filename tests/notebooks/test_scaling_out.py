"""The notebook on scaling out and recovery. It asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import streamstate as ss
from notebooks.running import RUNS, Shown, latest_run, output_of, shows_no_noise
from streamstate.tutorials.medians import median_of

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


@pytest.fixture(scope="module")
def scaling() -> Shown:
    """The outputs of the notebook on scaling out and recovery."""
    return latest_run("05_scale_out_and_recovery")


@pytest.fixture(scope="module")
def scaling_folder(scaling: Shown) -> Path:
    """The folder in which the notebook on scaling out and recovery ran."""
    return RUNS / "05_scale_out_and_recovery"


def test_the_heaviest_key_matches_the_feed(scaling: Shown, scaling_folder: Path) -> None:
    """It is the lower bound for any number of partitions, counted from the departures."""
    feed = sorted((scaling_folder / "streamstate-data" / "weeks" / "flights").glob("*.parquet"))[:6]
    departed = pd.concat([pd.read_parquet(file) for file in feed]).dropna(subset=["dep_delay"])
    heaviest = departed.groupby("carrier")["dep_delay"].nunique().max()
    rows = [line.split() for line in output_of(scaling, "further = ").splitlines() if line[:1].isdigit()]
    assert [(row[0], int(row[3])) for row in rows] == [("2", heaviest), ("8", heaviest), ("16", heaviest)]
    assert int(rows[0][1]) > int(rows[1][1]) >= heaviest


def test_the_medians_are_right(scaling: Shown, scaling_folder: Path) -> None:
    """The final state, repartitioned three times, matches the departures' delays for each carrier."""
    feed = sorted((scaling_folder / "streamstate-data" / "weeks" / "flights").glob("*.parquet"))[:7]
    departed = pd.concat([pd.read_parquet(file) for file in feed]).dropna(subset=["dep_delay"])
    history = ss.open_store(scaling_folder / "streamstate-data" / "scaling" / "store")["medians"]
    state = history.live().table().to_pandas()
    found = {
        carrier: median_of(dict(zip(rows["delay"], rows["flights"], strict=True)))
        for carrier, rows in state.groupby("carrier")
    }
    assert found == departed.groupby("carrier")["dep_delay"].median().to_dict()


def test_the_drill_of_the_notebook_recovers(scaling: Shown) -> None:
    """The report matches what the text says about it."""
    shown = output_of(scaling, "report = drill")
    assert "while epoch 1 was in progress" in shown
    assert "The state at epoch 1 is the same, key by key" in shown


def test_the_notebook_on_scaling_out_waits_for_its_reader(scaling: Shown) -> None:
    """Predictions and the reader's own rule and query are not answered yet, and nothing is revealed."""
    said = [text.split()[0] for source, text in scaling if "P05." in source]
    assert said == [*["…"] * 8, "i"]


def test_the_notebook_on_scaling_out_shows_no_noise(scaling: Shown) -> None:
    """There is no output of Spark or Java, and no local path."""
    assert shows_no_noise(scaling)
