"""Nothing beyond the grant leaves: every byte that is served, for random contracts, against a brute-force view."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import synthetic
from hypothesis import given, settings
from hypothesis import strategies as st

import streamstate as ss
from sharing.conftest import Partner
from streamstate.sharing import serve
from streamstate.sharing.recipients import Recipients

KEYS = [f"key-{letter * 6}" for letter in "abcdef"]
STATES = st.lists(st.dictionaries(st.sampled_from(KEYS), st.integers(7_000_000, 7_000_009)), min_size=2, max_size=6)
CONDITIONS = (None, "value < 7000005", "key < 'key-d'", "value = 7000003 AND key > 'key-b'", "false")


def shown(state: dict[str, int], where: str | None) -> dict[str, int]:
    """The rows of a state that meet a condition, by another engine than ours: Python."""
    text = "True" if where is None else where.replace(" = ", " == ").replace("AND", "and").replace("false", "False")
    return {key: value for key, value in state.items() if eval(text, {}, {"key": key, "value": value})}


def served(partner: Partner, path: str, body: bytes | None = None) -> tuple[list[Any], list[pa.Table], bytes]:
    """An answer's lines, its files, and everything that was sent: bodies, headers, and what the files say of them."""
    answer = partner.ask(path, body, **{"delta-sharing-capabilities": "responseformat=parquet;streamstate=1"})
    sent, tables = answer.content + repr(answer.headers).encode(), []
    for _, url in partner.files(answer) if answer.status == 200 else ():
        content = partner.ask(url).content
        file = pq.ParquetFile(pa.BufferReader(content))
        sent += content + repr(file.metadata.to_dict()).encode() + repr(file.schema_arrow.metadata).encode()
        tables.append(file.read())
        sent += repr(tables[-1].to_pydict()).encode()
    return answer.lines, tables, sent


def check_served(folder: Path, states: list[dict[str, int]], columns: list[str], where: str | None, since: int) -> None:
    """Rows and changes are those of the view; no value of another row, column or epoch is in any byte."""
    synthetic.write(folder, [*states])
    store = ss.open_store(folder)
    store["q"].publish("partner", columns=columns, where=where, since=since)
    views = [shown(state, where) if epoch >= since else {} for epoch, state in enumerate(states)]
    granted = {
        str(part)
        for view in views
        for key, value in view.items()
        for name, part in (("key", key), ("value", value))
        if name in columns
    }
    everything = b""
    with serve(store, port=0) as server:
        partner = Partner(server, Recipients(store.layout).issue("partner").secret)
        table = "/shares/q/schemas/q/tables/op0"
        for epoch, view in enumerate(views):
            lines, tables, sent = served(partner, f"{table}/query", json.dumps({"version": epoch}).encode())
            everything += sent
            if epoch < since:
                assert lines[0]["errorCode"] == "400"
                continue
            rows = Counter(tuple(row.values()) for found in tables for row in found.to_pylist())
            assert rows == Counter(_projected(key, value, columns) for key, value in view.items())
        lines, tables, sent = served(partner, f"{table}/changes?startingVersion=0")
        everything += sent
        assert len(tables) == sum(
            _differ(before, view, columns) for before, view in zip([{}, *views], views, strict=False)
        )
        for path in ("/shares", "/shares/q/all-tables", f"{table}/metadata", f"{table}/version", "/nothing"):
            everything += served(partner, path)[2]
    for text in {*KEYS, *(str(value) for value in range(7_000_000, 7_000_010))} - granted:
        assert text.encode() not in everything, text
        if text.isdigit():
            assert int(text).to_bytes(8, "little") not in everything, text
    for name in {"key", "value"} - {*columns}:
        assert f'"{name}"'.encode() not in everything.replace(b'"keys": ["key"]', b"")


def _projected(key: str, value: int, columns: list[str]) -> tuple[Any, ...]:
    return tuple({"key": key, "value": value}[name] for name in columns)


def _differ(before: dict[str, int], view: dict[str, int], columns: list[str]) -> bool:
    """Whether the granted columns of any key differ."""
    was, now = ({key: _projected(key, value, columns) for key, value in of.items()} for of in (before, view))
    return was != now


CONTRACTS = {
    "states": STATES,
    "columns": st.sampled_from([["key"], ["value"], ["key", "value"]]),
    "where": st.sampled_from(CONDITIONS),
    "since": st.integers(0, 2),
}


@settings(max_examples=8)
@given(**CONTRACTS)
def test_every_byte_of_some_contracts(tmp_path_factory: pytest.TempPathFactory, **contract: Any) -> None:
    """Eight random contracts; two hundred are exhaustive."""
    check_served(tmp_path_factory.mktemp("store"), **contract)


@pytest.mark.exhaustive
@settings(max_examples=200)
@given(**CONTRACTS)
def test_every_byte_of_two_hundred_contracts(tmp_path_factory: pytest.TempPathFactory, **contract: Any) -> None:
    """As above."""
    check_served(tmp_path_factory.mktemp("store"), **contract)
