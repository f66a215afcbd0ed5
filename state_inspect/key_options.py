"""Errors of calls that take key columns beside options: ``history.why(12, carrer="UA")``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from streamstate.errors import UnknownColumnError

_P = ParamSpec("_P")
_R = TypeVar("_R")


def lists_options(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let the error about an unknown key column list the options too: the name may be a misspelt option."""
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(call).parameters.values()
    options = [parameter.name for parameter in parameters if parameter.kind in kinds and parameter.name != "self"]

    @wraps(call)
    def listing(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with options_listed(options, [name for name in kwargs if name not in options]):
            return call(*args, **kwargs)

    return listing


@contextmanager
def options_listed(options: Iterable[str], names: Iterable[str]) -> Iterator[None]:
    """Let the error about an unknown key column, one of the ``names``, list the options too."""
    __tracebackhide__ = True
    try:
        yield
    except UnknownColumnError as error:
        if not any(name in f"{error}" for name in names):
            raise
        # After the columns, which the second line lists; an example of a key, ready to copy, stays at the end.
        lines = str(error).split("\n")
        lines[min(1, len(lines) - 1)] += f" Options: {', '.join(options)}."
        raise UnknownColumnError("\n".join(lines)) from None
