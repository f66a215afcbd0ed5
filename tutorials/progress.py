"""How far the demo is: bars that fill up in a terminal, a plain line now and then anywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

__all__ = ["Bars", "Step"]

_CELLS = 24
_TERMINAL_SECONDS = 0.2
_PLAIN_SECONDS = 15.0


@dataclass(frozen=True)
class Step:
    """How far one query is."""

    name: str
    done: int
    total: int
    note: str = ""


class Bars:
    """Shows the steps in place in a terminal; a line every 15 seconds where the output goes to a file."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._in_place = self._stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        self._started = time.monotonic()
        self._shown = 0.0 if self._in_place else self._started
        self._lines = 0

    def show(self, steps: Sequence[Step], *, last: bool = False) -> None:
        """Show the steps, unless they were shown a moment ago; the last time always."""
        now = time.monotonic()
        if not last and now - self._shown < (_TERMINAL_SECONDS if self._in_place else _PLAIN_SECONDS):
            return
        self._shown = now
        if self._in_place:
            self._redraw(steps)
        else:
            self._stream.write(f"{self._clock()}  {', '.join(_plain(step) for step in steps)}\n")
        self._stream.flush()

    def _redraw(self, steps: Sequence[Step]) -> None:
        back = f"\x1b[{self._lines}F" if self._lines else ""
        width = max(len(step.name) for step in steps)
        lines = [f"  {step.name:<{width}}  {_bar(step)}  {_counted(step)}  {step.note}" for step in steps]
        lines.append(f"  {self._clock()}")
        self._stream.write(back + "".join(f"\x1b[2K{line}\n" for line in lines))
        self._lines = len(lines)

    def _clock(self) -> str:
        seconds = int(time.monotonic() - self._started)
        return f"{seconds // 60}:{seconds % 60:02}"


def _bar(step: Step) -> str:
    filled = min(_CELLS, _CELLS * step.done // max(step.total, 1))
    return "█" * filled + "░" * (_CELLS - filled)


def _counted(step: Step) -> str:
    return f"{step.done:>3} of {step.total} epochs"


def _plain(step: Step) -> str:
    return f"{step.name} {step.done}/{step.total}"
