"""Which names of a statement are relations: all tables that no WITH of the statement defines where they stand."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp


def relations(tree: exp.Query) -> list[exp.Table]:
    """The tables, also table functions, that are no common table expressions."""
    return [one for one in tree.find_all(exp.Table) if not _is_common(one)]


def _is_common(table: exp.Table) -> bool:
    """Whether a common table expression of that name is visible where the table stands."""
    if table.db or not isinstance(table.this, exp.Identifier):
        return False
    return any(table.name.casefold() == name for name in _visible(table))


def _visible(table: exp.Table) -> Iterator[str]:
    """The names of the common table expressions that can be seen from a table."""
    below: exp.Expr = table
    above = table.parent
    while above is not None:
        defined = above.args.get("with_")
        if isinstance(above, exp.With):
            # Within a definition: those before it, and itself and the later ones where WITH is RECURSIVE.
            for one in above.expressions:
                if one is below and not above.recursive:
                    break
                yield one.alias.casefold()
        elif defined is not None and defined is not below:
            yield from (one.alias.casefold() for one in defined.expressions)
        below, above = above, above.parent
