"""Texts to copy that read a row again: a magic, SQL and Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamstate.snapshots.store.duckdb_sql import quoted
from streamstate.state_inspect.keys.key_text import arguments, in_magic, in_sql, magic_word

if TYPE_CHECKING:
    from streamstate.state_inspect import StateTable

LONGEST = 1_000
"""Characters of a key's text; rows with a longer key have none."""
WAYS = ("magic", "SQL", "Python")


def beginnings(table: StateTable, store: str) -> dict[str, str]:
    """Return the beginning of each text, before the key: the query, the table and the epoch."""
    query, epoch = table.history.name, table.epoch
    relation = ".".join(map(quoted, [query, *table.name.split(".")]))
    return {
        "magic": f"%state {query}.{table.name} key --store {magic_word(store)} --at {epoch} ",
        "SQL": f"SELECT * FROM {relation} VERSION AS OF {epoch} WHERE ",
        "Python": "import streamstate as ss\n\n"
        f"ss.open_store({store!r})[{query!r}].at({epoch}).table({table.name!r}).lookup(",
    }


def endings(table: StateTable, key: Mapping[str, Any]) -> list[str]:
    """Return a key, in the order of :data:`WAYS`; nothing for a key that is too long to be copied."""
    kinds = {name: table.intervals.kind(name) for name in key}
    texts = [in_magic(key), in_sql(key, table.intervals.schema, kinds), f"{arguments(key)})"]
    return [] if sum(map(len, texts)) > LONGEST * len(WAYS) else texts
