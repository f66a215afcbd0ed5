"""Which notebook a kernel belongs to, as far as its views must know."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = ["widget_needed"]

_SIGNS = ("VSCODE_PID", "VSCODE_CWD", "VSCODE_IPC_HOOK", "VSCODE_IPC_HOOK_CLI", "VSCODE_IPC_HOOK_EXTHOST")


def widget_needed(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this kernel was started by a notebook that shows widgets and lacks Panel's line: VS Code, or Colab.

    A JupyterLab that was started from a terminal of VS Code has its environment, and names itself besides.

    Args:
        environment: the kernel's.

    Example:
        >>> widget_needed({"VSCODE_PID": "4711"}), widget_needed({"VSCODE_PID": "4711", "JPY_SESSION_NAME": "a.ipynb"})
        (True, False)
    """
    if "google.colab" in sys.modules:
        return True
    return "JPY_SESSION_NAME" not in environment and any(sign in environment for sign in _SIGNS)
