"""Kafka's records as they are shown, without a broker."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pytest

from streamstate.state_inspect.frames import as_html, as_text
from streamstate.state_inspect.inputs.kafka_records import with_text
from streamstate.widgets.tables.shown_frame import ShownFrame

TOPIC = "a-topic-with-a-name-" + "that-is-long-" * 12
NOW = datetime(2026, 11, 27, 12, 31, 10, 47_000, tzinfo=UTC)


def records(*pairs: tuple[Any, Any], **others: list[Any]) -> pd.DataFrame:
    """Records as Spark returns them."""
    rows = [(key, value, TOPIC, 11, 1_234_567_890_123, NOW, 0) for key, value in pairs]
    columns = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    return pd.DataFrame(rows, columns=pd.Index(columns)).assign(**others)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"k3", "k3"),
        ("Zürich ✈".encode(), "Zürich ✈"),
        (b'{"n": 1.10, "n": 2}', '{"n": 1.10, "n": 2}'),
        (b'{\n  "text": "a\\n b",\r\n  "n": 1e400\n}\n', '{ "text": "a\\n b", "n": 1e400 }'),
        (b"{\nno JSON", "{\nno JSON"),
        (b"\xff\xfe", b"\xff\xfe"),
        (b"\x00\x00\x00\x00\x07abc", b"\x00\x00\x00\x00\x07abc"),
        (b"", ""),
        (None, None),
    ],
)
def test_keys_and_values_are_text_where_they_are_utf_8(value: bytes | None, shown: object) -> None:
    """JSON is folded into one line, and otherwise unchanged; bytes with control characters are no text."""
    found = with_text(records((value, value)))
    assert found[["key", "value"]].iloc[0].tolist() == [shown, shown]


def test_the_place_of_a_record_comes_first_and_is_never_cut() -> None:
    """In text, in HTML and in the tables of magics, also beside other columns."""
    found = with_text(records((b"k3", b'{"carrier": "HA", "delay": 1272}' * 30), side=["left"]))
    assert [*found] == ["topic", "partition", "offset", "timestamp", "key", "value", "timestampType", "side"]
    for text in (as_text(found), as_html(found), str(ShownFrame.of(found)), ShownFrame.of(found)._repr_html_()):
        for part in (TOPIC, "1234567890123", "2026-11-27 12:31:10.047", "k3"):
            assert part in text.replace(",", "")
        assert "0x" not in text


def test_a_value_has_room() -> None:
    """Values are usually JSON, and longer than other cells."""
    short, long = '{"carrier": "HA", "origin": "JFK", "dest": "HNL", "flight": 51, "dep_delay": 1301.0}', "x" * 161
    assert as_text(with_text(records((b"k", short.encode())))).count(short) == 1
    assert "x" * 159 + "…" in as_text(with_text(records((b"k", long.encode()))))


def test_headers_are_text() -> None:
    """Their values are bytes, too."""
    found = with_text(records((b"k", b"v"), headers=[[{"key": "trace", "value": b"7f"}, {"key": "n", "value": None}]]))
    assert found["headers"][0] == [{"key": "trace", "value": "7f"}, {"key": "n", "value": None}]
    assert with_text(records((b"k", b"v"), headers=[None]))["headers"][0] is None


def test_other_rows_are_unchanged() -> None:
    """Bytes of other sources stay bytes."""
    frame = pd.DataFrame({"key": [b"k3"], "value": [b"v"]})
    assert with_text(frame) is frame
