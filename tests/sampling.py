"""Which of many cases run every time: some of each sort; `make test-exhaustive` runs the others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def sampled(cases: Iterable[str | int], usual: int) -> list[object]:
    """The cases, of which so many, evenly spread, run in the usual tests, and the others when asked for.

    The last is always among them, and the first where there are to be two.
    """
    names = list(cases)
    step = (len(names) - 1) / max(1, usual - 1)
    kept = {round(at * step) for at in range(usual - 1)} | {len(names) - 1}
    return [name if at in kept else pytest.param(name, marks=pytest.mark.exhaustive) for at, name in enumerate(names)]
