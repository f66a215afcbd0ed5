"""``%config StreamState``: defaults of the magics, checked where they are set."""

from __future__ import annotations

from typing import Any

import pytest
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)

from streamstate.snapshots.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows", 5), ("refresh", 2), ("refresh", 0.2), ("every", 10), ("every", "10s"), ("tracebacks", True)],
)
def test_a_setting_is_kept(bare_shell: Shell, name: str, value: Any) -> None:
    """As it was given."""
    bare_shell.run(f"%config StreamState.{name} = {value!r}")
    assert bare_shell.run(f"%config StreamState.{name}") == value


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("rows", 0, "whole number from 1 on"),
        ("rows", True, "whole number from 1 on"),
        ("rows", "many", "whole number from 1 on"),
        ("refresh", 0.1, "seconds from 0.2 on"),
        ("refresh", "fast", "seconds from 0.2 on"),
        ("refresh", float("nan"), "seconds from 0.2 on"),
        ("every", "often", "span of time such as 10s"),
        ("every", 0, "from 1 on"),
        ("tracebacks", 3, "True or False"),
        ("store", "", "a folder or a URI"),
        ("store", 3, "a folder or a URI"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_line(bare_shell: Shell, name: str, value: object, said: str) -> None:
    """Naming what would be right; the setting stays."""
    settings = bare_shell.notebook.settings
    before = getattr(settings, name)
    with pytest.raises(InvalidArgumentError, match=said) as raised:
        setattr(settings, name, value)
    assert f"StreamState.{name} = {value!r}" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 2
    assert getattr(settings, name) == before


def test_a_wrong_setting_does_not_stand_in_the_way_of_the_next(bare_shell: Shell) -> None:
    """IPython says what was wrong, and goes on with what was right."""
    bare_shell.run("%config StreamState.rows = 0")
    bare_shell.run("%config StreamState.refresh = 1")
    assert bare_shell.run("%config StreamState.rows") == 20
    assert bare_shell.run("%config StreamState.refresh") == 1.0


def test_every_setting_is_explained(bare_shell: Shell) -> None:
    """Where IPython lists them."""
    bare_shell.run("%config StreamState")
    for name in ("store", "rows", "refresh", "every", "tracebacks"):
        assert f"StreamState.{name}=" in bare_shell.said


def test_views_are_told_how_often_to_look(bare_shell: Shell) -> None:
    """Those of this process, also the ones that no magic makes."""
    settings = pytest.importorskip("streamstate.widgets.settings")
    bare_shell.run("%config StreamState.refresh = 3")
    assert settings.refresh() == 3
    bare_shell.run("%config StreamState.refresh = 0.5")
    assert settings.refresh() == 0.5
