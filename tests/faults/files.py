"""Checks a store's files without its readers: duplicates, wrong counts, and orphans."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from faults.inspection import QUERY, Expected


def faulty(store: Path, expected: Expected) -> list[str]:
    """The errors in the tables of a store in which every epoch is captured."""
    manifest = pa.table(DeltaTable(store / QUERY / "_epochs").scan()).to_pylist()
    found = [
        f"{count} manifest rows of epoch {epoch}" for epoch, count in _duplicates(row["epoch"] for row in manifest)
    ]
    for table, width in expected.widths.items():
        log = pa.table(DeltaTable(store / QUERY / table).scan())
        keys = log.column_names[3 : 3 + width]
        rows = [(row["_epoch"], row["_change"], *(repr(row[key]) for key in keys)) for row in log.to_pylist()]
        found += [f"{table}: {count} times {row}" for row, count in _duplicates(rows)]
        counted = Counter(epoch for epoch, change, *_ in rows if change != "keyframe")
        for row in manifest:
            recorded = dict(row["changes"])[table]
            if recorded != counted[row["epoch"]]:
                found.append(
                    f"{table}: {counted[row['epoch']]} changes at {row['epoch']}, the manifest says {recorded}"
                )
    return found


def orphans(store: Path) -> list[str]:
    """Data files that no commit refers to."""
    return sorted(str(file.relative_to(store)) for log in store.glob("**/_delta_log") for file in _orphans(log))


def unfinished(store: Path) -> list[str]:
    """Small, harmless temporary files that deltalake leaves in a log when it is killed."""
    return sorted(str(file.relative_to(store)) for file in store.glob("**/_delta_log/*") if "#" in file.name)


def _orphans(log: Path) -> list[Path]:
    named = set()
    for entry in log.glob("*.json"):
        if entry.stem.isdigit():
            actions = [json.loads(line) for line in entry.read_text().splitlines() if line]
            named |= {unquote(action["add"]["path"]) for action in actions if "add" in action}
    data = [file for file in log.parent.rglob("*") if file.is_file() and log not in file.parents]
    return [file for file in data if str(file.relative_to(log.parent)) not in named]


def _duplicates(values: Any) -> list[tuple[Any, int]]:
    return [(value, count) for value, count in Counter(values).items() if count > 1]
