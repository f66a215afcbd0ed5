"""Objects that stay in the worker process, and their stand-ins in the client."""

from __future__ import annotations

import importlib
import inspect
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from types import FunctionType
from typing import Any, Protocol

_OWN = "_streamstate_kept"
# What the interpreter asks of an object itself; all other special methods of a class are called in the worker.
_NOT_FORWARDED = {
    "__new__", "__init__", "__init_subclass__", "__class_getitem__", "__getattribute__", "__getattr__", "__setattr__",
    "__delattr__", "__hash__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__del__",
    "__post_init__", "__subclasshook__", "__dir__", "__sizeof__", "__getnewargs__",
}  # fmt: skip


class KeptObjects:
    """The objects that a worker keeps for its client, each until every one of its stand-ins is gone."""

    def __init__(self) -> None:
        self._objects: dict[int, tuple[Any, int]] = {}
        self._lock = threading.Lock()

    @property
    def empty(self) -> bool:
        """True if nothing is kept."""
        return not self._objects

    def keep(self, value: Any) -> int:
        """Keep an object once more; return its number."""
        with self._lock:
            kept = self._objects.get(id(value), (value, 0))
            self._objects[id(value)] = (value, kept[1] + 1)
            return id(value)

    def get(self, number: int) -> Any:
        """Return a kept object."""
        return self._objects[number][0]

    def release(self, numbers: Iterable[int]) -> None:
        """Keep objects once less."""
        for number in numbers:
            with self._lock:
                value, count = self._objects.pop(number)
                if count > 1:
                    self._objects[number] = (value, count - 1)
            del value  # outside the lock: it may clean up after itself


class Caller(Protocol):
    """The client's side of a worker process, as its stand-ins use it."""

    def call_kept(self, number: int, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a method of a kept object."""

    def read_kept(self, number: int, name: str) -> Any:
        """Return an attribute of a kept object."""

    def release(self, number: int) -> None:
        """Note that a stand-in is gone."""


class StandIns:
    """The stand-ins of one worker's objects: at most one for each object."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._known: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def of(self, number: int, module: str, name: str) -> Any:
        """Return the stand-in of an object that the worker has just sent."""
        known = self._known.get(number)
        if known is not None:
            self._caller.release(number)  # it was counted once more
            return known
        made: Any = object.__new__(_class_of(module, name))
        object.__setattr__(made, _OWN, (number, self._caller))
        weakref.finalize(made, self._caller.release, number).atexit = False
        self._known[number] = made
        return made


def kept_number(value: object, caller: Caller) -> int | None:
    """Return the number of a stand-in of a worker's object; None for anything else."""
    try:
        number, owner = object.__getattribute__(value, _OWN)
    except (AttributeError, TypeError):
        return None
    return int(number) if owner is caller else None


class _StandIn:
    """Everything that is asked of the object is asked in the worker process."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        found = inspect.getattr_static(type(self), name, None)
        if isinstance(found, FunctionType):
            return wraps(found)(lambda *args, **kwargs: _call(self, name, *args, **kwargs))
        number, caller = object.__getattribute__(self, _OWN)
        return caller.read_kept(number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _call(self, "__setattr__", name, value)

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot pickle a {type(self).__name__} of the worker process")

    __hash__ = object.__hash__


def _call(stand_in: Any, method: str, /, *args: Any, **kwargs: Any) -> Any:
    number, caller = object.__getattribute__(stand_in, _OWN)
    return caller.call_kept(number, method, args, kwargs)


def _special(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _call(self, name, *args, **kwargs)

    method.__name__ = name
    return method


_classes: dict[tuple[str, str], type] = {}


def _class_of(module: str, name: str) -> type:
    """Return the class of the stand-ins for objects of a class: a subclass of it, with its methods and docstrings."""
    if (module, name) not in _classes:
        base: type = getattr(importlib.import_module(module), name)
        special = {
            key: _special(key)
            for owner in base.__mro__
            if owner is not object
            for key, value in vars(owner).items()
            if key.startswith("__") and key not in _NOT_FORWARDED and isinstance(value, FunctionType)
        }
        namespace = {**special, "__doc__": base.__doc__, "__module__": module, "__hash__": object.__hash__}
        _classes[module, name] = type(name, (_StandIn, base), namespace)
    return _classes[module, name]
