"""Pages with magics, whose blocks run as the cells of a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from notebook_shell import Shell, ipython


@contextmanager
def notebook(names: dict[str, Any]) -> Iterator[Shell]:
    """Within the block, the process's shell runs cells with these names; nothing that they start outlives it."""
    shell = ipython()
    before = shell.user_module, shell.user_ns
    shell.user_module, shell.user_ns = shell.prepare_user_module(user_ns=names)
    shell.init_user_ns()
    try:
        yield Shell(shell)
    finally:
        shell.run_line_magic("unload_ext", "streamstate")
        shell.user_module, shell.user_ns = before
