"""Examples in guides and reference pages run."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.left_out import PAGES as LEFT_OUT
from examples.pages import PAGES, ROOT, blocks, run
from examples.spark_world import PAGES as WITH_SPARK
from examples.world import World

_ELSEWHERE = {*LEFT_OUT, *WITH_SPARK}
_RUN = [page for page in PAGES if page.relative_to(ROOT).as_posix() not in _ELSEWHERE and any(blocks(page))]


@pytest.mark.parametrize("page", _RUN, ids=lambda page: page.stem)
def test_examples_of_pages_run(page: Path, world: World) -> None:
    """Every Python block of a page runs, after those above it."""
    assert run(page, world)


def test_pages_that_are_listed_exist() -> None:
    """A page that was renamed is not listed under its old name."""
    assert [page for page in _ELSEWHERE if not (ROOT / page).exists()] == []
