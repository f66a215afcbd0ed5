"""Which names of a statement are relations, and which are what a WITH of the statement defines where they stand."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp


def relations(tree: exp.Query) -> list[exp.Table]:
    """The tables, also table functions, that are no common table expressions."""
    return [one for one in tree.find_all(exp.Table) if definition(one) is None]


def definition(table: exp.Table) -> exp.CTE | None:
    """The common table expression that a table means; None where it means something outside the statement."""
    if table.db or not isinstance(table.this, exp.Identifier):
        return None
    wanted = table.name.casefold()
    return next((one for one in _visible(table) if one.alias.casefold() == wanted), None)


def _visible(table: exp.Table) -> Iterator[exp.CTE]:
    """The common table expressions that can be seen from a table, those nearest to it first."""
    below: exp.Expr = table
    above = table.parent
    while above is not None:
        defined = above.args.get("with_")
        if isinstance(above, exp.With):
            yield from _before(below, above)
        elif defined is not None and defined is not below:
            yield from reversed(defined.expressions)
        below, above = above, above.parent


def _before(one: exp.Expr, among: exp.With) -> list[exp.CTE]:
    """What one definition of a WITH can see of it: those before it, and itself where it is a recursion."""
    at = next(place for place, other in enumerate(among.expressions) if other is one)
    recursion = among.recursive and isinstance(one.this, exp.SetOperation)
    return list(reversed(among.expressions[: at + 1 if recursion else at]))
