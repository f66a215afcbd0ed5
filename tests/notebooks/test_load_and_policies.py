"""The notebook on load and policies. It asserts what it claims."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import streamstate as ss
from notebooks.running import RUNS, Shown, latest_run, output_of, shows_no_noise

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


@pytest.fixture(scope="module")
def policies() -> Shown:
    """The outputs of the notebook on load and policies."""
    return latest_run("09_load_and_policies")


@pytest.fixture(scope="module")
def policies_folder(policies: Shown) -> Path:
    """The folder in which the notebook on load and policies ran."""
    return RUNS / "09_load_and_policies" / "streamstate-data" / "overload"


def test_estimates_are_those_of_the_feed(policies: Shown, policies_folder: Path) -> None:
    """At the end, every large carrier's estimates are near what the files hold, though rows were dropped."""
    store = ss.open_store(policies_folder / "store")
    feed = pd.concat([pd.read_parquet(file) for file in (policies_folder / "arriving" / "flights").glob("*.parquet")])
    departed = feed.dropna(subset="dep_delay").groupby("carrier")["dep_delay"].count().to_dict()
    result = store["costs"].live().result().to_pandas().set_index("carrier")["departures"].to_dict()
    assert all(
        abs(result[carrier]["estimate"] - count) <= 5 * result[carrier]["error"]
        for carrier, count in departed.items()
        if count >= 1000
    )
    load = store["costs"].load().to_pandas()
    assert load["rows"].sum() == len(feed)
    assert 0 < load["dropped_rows"].sum() == (load["rows"] - load["kept_rows"]).sum()


def test_each_decision_has_a_reason(policies: Shown, policies_folder: Path) -> None:
    """The level that an epoch had is explained, and the promise that was broken says what would hold it."""
    assert "of the unprotected rows." in output_of(policies, "why-policy {epoch}")
    decisions = ss.open_store(policies_folder / "store")["costs"].decisions()
    assert decisions["reason"].str.len().gt(0).all()
    needs = [text for text in decisions.query("not holds")["needs"] if text]
    promise = output_of(policies, "def broken()")
    assert any(promise.startswith(f"promise broken: {text}") for text in needs)


def test_the_notebook_on_load_and_policies_shows_no_noise(policies: Shown) -> None:
    """There is no output of Spark or Java, and no local path."""
    assert shows_no_noise(policies)


def test_the_notebook_on_load_and_policies_waits_for_its_reader(policies: Shown) -> None:
    """Predictions and the reader's own estimate and query are not answered yet, and nothing is revealed."""
    said = [text for source, text in policies if "P09." in source and "P09.progress" not in source]
    assert {text.split()[0] for text in said} == {"…"}
    assert len(said) == 8
