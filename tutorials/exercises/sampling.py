"""Seeded random cases, and the smallest one that fails. Hypothesis makes and shrinks them."""

from __future__ import annotations

import importlib.util
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from streamstate.errors import MissingDependencyError
from streamstate.tutorials import maven

if TYPE_CHECKING:
    from hypothesis import settings
    from hypothesis.strategies import SearchStrategy

Case = tuple[Any, ...]

_SHRINK_FOR = 4.0
"""Seconds."""


@cache
def sampled(cases: Callable[[], SearchStrategy[Case]], count: int) -> Sequence[Case]:
    """Return random cases, the same ones at each call; nobody may change them.

    Raises:
        MissingDependencyError: Hypothesis is not installed.
    """
    if importlib.util.find_spec("hypothesis") is None:
        raise MissingDependencyError.of_extra("tutorials", ["Hypothesis"])
    from hypothesis import given

    found: list[Case] = []

    @_settings(count)
    @given(cases())
    def collect(case: Case) -> None:
        found.append(case)

    with _own_folder():
        collect()
    return found


def no_case() -> SearchStrategy[tuple[()]]:
    """Return the only case of a function without arguments."""
    from hypothesis import strategies as st

    return st.just(())


def smallest(cases: Callable[[], SearchStrategy[Case]], fails: Callable[[Case], bool], known: Sequence[Case]) -> Case:
    """Return a small case that fails.

    Args:
        cases: makes the strategy to draw from.
        fails: checks whether a case fails.
        known: cases that fail.
    """
    from hypothesis import find
    from hypothesis.errors import HypothesisException

    end = time.monotonic() + _SHRINK_FOR
    failed = list(known)

    def condition(case: Case) -> bool:
        if time.monotonic() > end or not fails(case):
            return False
        failed.append(case)
        return True

    try:
        with _own_folder():
            return find(cases(), condition, settings=_settings(500), random=random.Random(0))  # noqa: S311 - a seed
    except HypothesisException:  # too little time, or a case that fails only sometimes
        return min(failed, key=lambda case: len(repr(case)))


@contextmanager
def _own_folder() -> Iterator[None]:
    """Let Hypothesis keep its notes in the user's cache rather than beside the notebook."""
    from hypothesis.configuration import set_hypothesis_home_dir

    set_hypothesis_home_dir(maven.cache() / "hypothesis")
    try:
        yield
    finally:
        set_hypothesis_home_dir(None)


def _settings(examples: int) -> settings:
    from hypothesis import HealthCheck, Phase, settings

    return settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=examples,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
