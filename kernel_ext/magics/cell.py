"""Running a cell for its value, as IPython runs one: in the user's namespace, the last expression's value returned."""

from __future__ import annotations

import ast
from typing import Any

__all__ = ["cell_value", "last_assigned"]


def cell_value(shell: Any, cell: str) -> Any:
    """Run a cell's code in the user's namespace.

    Args:
        shell: IPython's shell, whose namespace and transformations apply.
        cell: Python, in which line magics and shell commands work as in any cell.

    Returns:
        The value of its last expression; None where it ends with another statement.

    Raises:
        Whatever the cell raises; its traceback shows the cell's own lines.
    """
    __tracebackhide__ = True
    source = shell.transform_cell(cell)
    filename = shell.compile.cache(source, shell.execution_count)
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=filename))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(shell.compile(tree, filename, "exec"), shell.user_ns)  # noqa: S102 (the user's own code)
    if last is None:
        return None
    return eval(shell.compile(ast.Expression(last.value), filename, "eval"), shell.user_ns)  # noqa: S307 (likewise)


def last_assigned(shell: Any, cell: str) -> str | None:
    """The variable that the cell's last statement assigns to, for telling people what to end it with."""
    body = shell.compile.ast_parse(shell.transform_cell(cell)).body
    if body and isinstance(body[-1], ast.Assign) and isinstance(body[-1].targets[0], ast.Name):
        return body[-1].targets[0].id
    return None
