"""The command ``streamstate``: captures, looks at and looks after stores, in a terminal or as a service.

``program`` parses and runs the commands. They have a module each: it parses, calls the library and prints the result.
"""

from __future__ import annotations

from streamstate.command_line.program import COMMANDS, main, parser

__all__ = ["COMMANDS", "main", "parser"]
