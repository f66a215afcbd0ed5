"""Errors of calls that take key columns beside options: ``history.why(12, carrer="UA")``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
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
        try:
            return call(*args, **kwargs)
        except UnknownColumnError as error:
            if not any(name in f"{error}" for name in kwargs if name not in options):
                raise
            # An example of a key, ready to copy, stays at the end.
            problem, example, key = str(error).partition("\nFor example: ")
            raise UnknownColumnError(f"{problem}\nOptions: {', '.join(options)}.{example}{key}") from None

    return listing
