"""``python -m streamstate``: the command line, where the command itself is not on the path."""

from __future__ import annotations

from streamstate.command_line import main

if __name__ == "__main__":
    raise SystemExit(main())
