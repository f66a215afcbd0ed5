"""The notebook on changing code. It asserts that each changed query equals its recomputation."""

from __future__ import annotations

import pandas as pd
import pytest

import streamstate as ss
from notebooks.running import RUNS, latest_run, output_of, shows_no_noise

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.timeout(5400)]  # may run all of it


def test_the_notebook_on_changing_code() -> None:
    """It shows what the text says, and its last result is that of the departures' own files."""
    shown = latest_run("07_change_the_code")
    assert "refused (value_schema)" in output_of(shown, "%stream check")
    assert "min is dropped." in output_of(shown, "%stream migrate delays leaner")
    assert "The rows that differ only in origin become one." in output_of(shown, "%stream migrate leaner")
    assert "max was int and is bigint." in output_of(shown, "%stream migrate carriers")
    assert shows_no_noise(shown)
    assert [text.split()[0] for source, text in shown if "P07." in source] == [*["…"] * 7, "i"]
    changes = RUNS / "07_change_the_code" / "streamstate-data" / "changes"
    feed = sorted((changes / "arriving" / "flights").glob("*.parquet"))[:7]
    by_carrier = pd.concat([pd.read_parquet(file) for file in feed]).groupby("carrier")
    expected = pd.DataFrame(
        {
            "average": by_carrier["dep_delay"].mean(),
            "farthest": by_carrier["distance"].max().astype("int64"),
            "departures": by_carrier["dep_delay"].count(),
            "earliest": by_carrier["dep_delay"].min(),
        }
    )
    found = ss.open_store(changes / "store")["complete"].at(1).result().to_pandas()
    pd.testing.assert_frame_equal(found.set_index("carrier").sort_index(), expected)
