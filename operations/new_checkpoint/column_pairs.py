"""Column lineage of a mapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from streamstate.operations.new_checkpoint.target import TargetTable
from streamstate.operations.report_html import ColumnPair, SchemaColumn


@dataclass(frozen=True)
class Origin:
    """The origin of a column of a plain SELECT."""

    text: str
    """The expression."""
    columns: tuple[str, ...]
    """The old columns in it."""
    plain: bool
    """Whether it is an old column and nothing else."""
    merges: bool
    """Whether it makes one value of several rows."""


def origins(sql: str | None, old: TargetTable) -> dict[str, Origin]:
    """Return the origin of each new column, by its name in lower case; empty unless the SQL is one plain SELECT."""
    try:
        statement = sqlglot.parse_one(sql or "", read="spark")
    except SqlglotError:
        return {}
    if not isinstance(statement, exp.Select) or not _is_plain(statement):
        return {}
    named = {name.casefold(): name for name in old.types}
    return {
        projection.alias_or_name.casefold(): _origin(projection.unalias(), named) for projection in statement.selects
    }


def tables_in(sql: str) -> list[str]:
    """Return the tables that a statement reads; none if it cannot be parsed."""
    try:
        return [table.name for table in sqlglot.parse_one(sql, read="spark").find_all(exp.Table)]
    except SqlglotError:
        return []


def _is_plain(statement: exp.Select) -> bool:
    """Check that its expressions are over the columns of one table, each written out."""
    stars = all(isinstance(star.parent, exp.Count) for star in statement.find_all(exp.Star))
    return stars and len([*statement.find_all(exp.Table)]) == 1 and not statement.find(exp.Subquery, exp.CTE)


def _origin(expression: exp.Expr, named: Mapping[str, str]) -> Origin:
    found = list[str]()
    for column in expression.find_all(exp.Column):
        parts = (part.name.casefold() for part in column.parts)
        found += [named[part] for part in parts if part in named][:1]
    merges = expression.find(exp.AggFunc) is not None
    text = expression.sql("spark", normalize_functions="lower")
    return Origin(text, tuple(dict.fromkeys(found)), isinstance(expression, exp.Column) and len(found) == 1, merges)


def column_pairs(new: TargetTable, old: TargetTable, found: Mapping[str, Origin]) -> Iterator[ColumnPair]:
    """Yield the columns of both, side by side: in the order of the new table, then the dropped ones.

    Args:
        new: the new table.
        old: the old table.
        found: what the SQL says, from :func:`origins`. If it says nothing, columns with the same name are side by side.
    """
    before, after = _columns(old), _columns(new)
    used = set[str]()
    for name, column in after.items():
        origin = found.get(name.casefold())
        if found and origin is None:
            yield ColumnPair(None, column, "missing from the mapping", wrong=True)
            continue
        sources = origin.columns if origin is not None else [name] * (name in before)
        used |= {*sources}
        yield _pair(before[sources[0]] if len(sources) == 1 else None, column, origin)
    for name, column in before.items():
        if name not in used:
            yield ColumnPair(column, None, "dropped" if found else "only in the old state")


def _pair(old: SchemaColumn | None, new: SchemaColumn, origin: Origin | None) -> ColumnPair:
    if origin is None:
        words = ["another type"] * (old is not None and old.type != new.type)
        return ColumnPair(old, new, ", ".join(words) if old else "only in the new state")
    if not origin.plain or old is None:
        verb = "merged" if origin.merges else "new" if not origin.columns else "computed"
        return ColumnPair(old, new, f"{verb}: {origin.text}")
    words = ["renamed"] * (old.name != new.name) + [f"was {old.type}"] * (old.type != new.type)
    return ColumnPair(old, new, ", ".join(words) or "copied")


def _columns(table: TargetTable) -> dict[str, SchemaColumn]:
    return {name: SchemaColumn(name, kind.simpleString(), name in table.keys) for name, kind in table.types.items()}


def key_sources(new: TargetTable, found: Mapping[str, Origin]) -> Sequence[tuple[str, str]] | None:
    """For each key column of the new table, the old column that it is; None if one is anything else."""
    pairs = [(name, found.get(name.casefold())) for name in new.keys]
    if not all(origin is not None and origin.plain for _, origin in pairs):
        return None
    return [(name, origin.columns[0]) for name, origin in pairs if origin is not None]
