"""``%config StreamState``: what the magics do where a line does not say."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from traitlets import TraitType, observe
from traitlets.config import Configurable

from streamstate.magics.arguments import count, every
from streamstate.snapshots.errors import InvalidArgumentError

__all__ = ["StreamState"]

_FASTEST = 0.2


class _Checked(TraitType[Any, Any]):
    """A setting whose values are checked with a function, so that a wrong one is told in a line."""

    def __init__(self, default: object, check: Callable[[object], object], help: str) -> None:  # noqa: A002 (traitlets' word)
        super().__init__(default, help=help, config=True)
        self._check = check

    def validate(self, obj: Any, value: Any) -> Any:
        """The value, where it can be meant."""
        try:
            return self._check(value)
        except (argparse.ArgumentTypeError, TypeError, ValueError) as error:
            stays = getattr(obj, str(self.name))
            raise InvalidArgumentError(
                f"StreamState.{self.name} = {value!r} cannot be meant: {error}.\nIt stays {stays!r}."
            ) from None


def _path(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise TypeError("give a folder or a URI, in quotes")
    return given


def _rows(given: object) -> int:
    if isinstance(given, bool):
        raise TypeError("give a whole number from 1 on")
    return count(str(given))


def _truth(given: object) -> bool:
    if not isinstance(given, bool):
        raise TypeError("give True or False")
    return given


def _refresh(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not _FASTEST <= given <= 3600:
        raise ValueError(f"give seconds from {_FASTEST} on, such as 0.5")
    return float(given)


def _every(given: object) -> int | str:
    if isinstance(given, bool):
        raise TypeError("give a number of epochs such as 5, or a span of time such as '10s'")
    return every(str(given))


class StreamState(Configurable):
    """Settings of the streamstate magics; IPython names them after this class."""

    # Not a folder called "streamstate": Python would take it for the package where that is installed in editable form.
    store = _Checked(
        "streamstate-data/store", _path, "The store that magics write and read; --store on any of them changes it."
    )
    rows = _Checked(20, _rows, "How many rows of a state table %state shows; with -o it returns them all.")
    refresh = _Checked(0.5, _refresh, "Seconds between two updates of live views, from 0.2 on.")
    every = _Checked(1, _every, "Where --every is left out: capture once per so many epochs, or per '10s', '2m', …")
    tracebacks = _Checked(False, _truth, "Show where in the code an error was raised.")  # noqa: FBT003 (traitlets' place)

    @observe("refresh")
    def _refresh_changed(self, _change: object) -> None:
        # Views may be made without a magic later on; until somebody changes this, they need not be loaded.
        if find_spec("streamstate.widgets.settings") is not None:
            importlib.import_module("streamstate.widgets.settings").set_refresh(self.refresh)
