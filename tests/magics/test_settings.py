"""``%config StreamState``: defaults of the magics, validated on assignment."""

from __future__ import annotations

from typing import Any

import pytest
from notebook_shell import Shell, bare_shell  # noqa: F401 (a fixture)
from traitlets import TraitError


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows", 5), ("refresh", 2), ("refresh", 0.2), ("every", 10), ("every", "10s"), ("tracebacks", True)],
)
def test_a_setting_keeps_its_value(bare_shell: Shell, name: str, value: Any) -> None:
    """Numbers, durations and flags can be set."""
    bare_shell.run(f"%config StreamState.{name} = {value!r}")
    assert bare_shell.run(f"%config StreamState.{name}") == value


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("rows", 0, "should not be less than 1"),
        ("rows", "many", "expected an int"),
        ("refresh", 0.1, "should not be less than 0.2"),
        ("refresh", 7200, "should not be greater than 3600"),
        ("refresh", "fast", "expected a float"),
        ("refresh", float("nan"), "from 0.2 to 3600"),
        ("every", "often", "or a duration"),
        ("every", 0, "1 or more|at least 1"),
        ("tracebacks", 3, "expected a boolean"),
        ("plain_memory", "no", "expected a boolean"),
        ("store", "", "a directory or a URI"),
        ("store", 3, "expected a unicode string"),
    ],
)
def test_an_invalid_setting_is_refused(bare_shell: Shell, name: str, value: object, reason: str) -> None:
    """The error names the setting and the expected value. The setting is unchanged."""
    settings = bare_shell.notebook.settings
    before = getattr(settings, name)
    with pytest.raises(TraitError, match=reason) as raised:
        setattr(settings, name, value)
    assert name in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 2
    assert getattr(settings, name) == before


def test_an_invalid_setting_does_not_block_the_next_one(bare_shell: Shell) -> None:
    """IPython reports the error and keeps the previous value."""
    bare_shell.run("%config StreamState.rows = 0")
    bare_shell.run("%config StreamState.refresh = 1")
    assert bare_shell.run("%config StreamState.rows") == 20
    assert bare_shell.run("%config StreamState.refresh") == 1.0


def test_every_setting_is_explained(bare_shell: Shell) -> None:
    """All settings are in the list that IPython prints."""
    bare_shell.run("%config StreamState")
    for name in ("store", "rows", "refresh", "every", "tracebacks", "plain_memory"):
        assert f"StreamState.{name}=" in bare_shell.printed


def test_refresh_applies_to_all_views(bare_shell: Shell) -> None:
    """This includes views that are created without a magic."""
    settings = pytest.importorskip("streamstate.widgets.live.loop")
    bare_shell.run("%config StreamState.refresh = 3")
    assert settings.refresh() == 3
    bare_shell.run("%config StreamState.refresh = 0.5")
    assert settings.refresh() == 0.5
