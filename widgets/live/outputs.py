"""The outputs of a notebook that show a view in its still form.

JupyterLab saves what the kernel displays, not what a page draws. So a view displays its still form in an output of its
own, which the live view beside it hides, and replaces that output when a new drawing has been seen for a moment.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Callable

from streamstate.snapshots.calls.html import Html, tag

REST = 0.5
"""Seconds without a new drawing after which the outputs are replaced."""
LONGEST = 3.0
"""The most seconds between a drawing and its output while new drawings keep coming."""
SHARE = 0.1
"""The most of a processor's time that drawing still forms takes: some have plots."""

Forms = dict[str, str]
"""A still form by MIME type."""


class StillOutputs:
    """The outputs that show one view. A page ignores those that it no longer has."""

    def __init__(self) -> None:
        self._ids: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._ids)

    def add(self, forms: Forms) -> str:
        """Display the still form, and return the name of its element."""
        from IPython.display import display

        name = f"streamstate-{uuid.uuid4().hex}"
        display(_named(forms, name), raw=True, display_id=name)
        self._ids.append(name)
        return name

    def replace(self, forms: Forms) -> None:
        """Replace the still form in every output. Any thread may call this."""
        from IPython.display import update_display

        for name in tuple(self._ids):
            update_display(_named(forms, name), raw=True, display_id=name)

    def clear(self) -> None:
        """Leave the outputs as they are from now on."""
        self._ids.clear()


def _named(forms: Forms, name: str) -> Forms:
    return forms | {"text/html": tag("div", Html(forms["text/html"]), id=name)}


class Pace:
    """The moments to replace the outputs: once drawings rest, but not too late, and not too often.

    Example:
        >>> pace = Pace(clock=iter([0.0, 0.1, 0.5]).__next__)
        >>> pace.drawn()
        >>> pace.wait(), pace.wait()
        (0.4, 0.0)
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first = self._newest = math.inf
        self._earliest = 0.0

    def drawn(self) -> None:
        """Note a new drawing."""
        now = self._clock()
        self._first, self._newest = min(self._first, now), now

    def wait(self) -> float:
        """Seconds until the outputs should be replaced: 0 if it is time, infinite if they are current."""
        due = max(min(self._newest + REST, self._first + LONGEST), self._earliest)
        return max(0.0, due - self._clock())

    def replaced(self, took: float) -> None:
        """Note that the outputs are current, which took some seconds."""
        self._first = self._newest = math.inf
        self._earliest = self._clock() + took / SHARE
