"""Selects the test cases that always run; `make test-exhaustive` runs the others."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def sampled(cases: Iterable[str | int], usual: int) -> list[object]:
    """Mark all but ``usual`` of the cases as exhaustive.

    The usual cases are evenly spaced. They include the last case, and the first case if there are at least two.
    """
    names = list(cases)
    step = (len(names) - 1) / max(1, usual - 1)
    chosen = {round(number * step) for number in range(usual - 1)} | {len(names) - 1}
    return [
        name if index in chosen else pytest.param(name, marks=pytest.mark.exhaustive)
        for index, name in enumerate(names)
    ]
