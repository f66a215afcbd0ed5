"""Jars are fetched whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.jars import SETS, NotInstalledError, jars


@pytest.mark.parametrize("name", SETS)
def test_nothing_is_fetched_where_that_is_forbidden(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has what is missing, and the cache stays empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("STREAMSTATE_NO_INSTALL", "1")
    with pytest.raises(NotInstalledError, match=SETS[name].artifacts[0]):
        jars(name)
    assert not [*tmp_path.iterdir()]
