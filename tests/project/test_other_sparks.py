"""Other Sparks are installed whole or not at all."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from scripts.jars import NotInstalledError
from scripts.other_sparks import OTHERS, folder_of
from scripts.typecheck import ROOT


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no package index."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("STREAMSTATE_NO_INSTALL", raising=False)
    return tmp_path / "streamstate" / "sparks"


def test_nothing_is_installed_where_that_is_forbidden(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the command to run by hand, which installs into the folder that is looked for."""
    monkeypatch.setenv("STREAMSTATE_NO_INSTALL", "1")
    with pytest.raises(
        NotInstalledError, match=f"pip install --no-deps --target {cache / OTHERS[0]} pyspark=={OTHERS[0]}"
    ):
        folder_of(OTHERS[0])
    assert not cache.exists()


def test_what_could_not_be_installed_leaves_nothing(cache: Path) -> None:
    """A later run tries again."""
    with pytest.raises(subprocess.CalledProcessError):
        folder_of(OTHERS[0])
    assert not [*cache.iterdir()]


def test_the_version_of_this_environment_needs_no_folder() -> None:
    """It runs as it is."""
    assert folder_of(version("pyspark")) == ROOT
