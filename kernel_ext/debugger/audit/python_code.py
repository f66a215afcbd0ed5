"""What Python functions read beside their arguments: clocks, random numbers, files, the environment, globals.

The bytecode is read, never run. A name is resolved to the object it stands for, so that ``from time import time as
now`` is found, and functions and classes of the user's own that are called are looked into as well.
"""

from __future__ import annotations

import dis
import inspect
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamstate.debugger.audit.suspects import Kind, Suspect

__all__ = ["suspects_in"]

_RANDOM = ("random.", "uuid.uuid1", "uuid.uuid4", "secrets.", "numpy.random.", "os.urandom")
_CLOCK = (
    "time.time",
    "time.monotonic",
    "time.perf_counter",
    "time.localtime",
    "time.gmtime",
    "time.ctime",
    "datetime.datetime.now",
    "datetime.datetime.utcnow",
    "datetime.datetime.today",
    "datetime.date.today",
    "pandas.Timestamp.now",
    "pandas.Timestamp.utcnow",
    "pandas.Timestamp.today",
)
_OUTSIDE = (
    "os.environ",
    "os.getenv",
    "os.getpid",
    "os.listdir",
    "os.scandir",
    "open",
    "io.open",
    "glob.glob",
    "requests.",
    "httpx.",
    "urllib.request.",
    "http.client.",
    "socket.",
    "sqlite3.",
    "subprocess.",
)
_WHY = {
    Kind.RANDOM: ("it draws another value in every run", "derive the value from the row, such as a hash of its key"),
    Kind.CLOCK: (
        "it reads the clock of the machine, which is later in a replay",
        "use current_timestamp(), which a replay repeats, or a time in the row",
    ),
    Kind.OUTSIDE: (
        "what it reads is not part of the query's input, and may have changed since",
        "join with a table whose version is fixed, or hand the value over when the query is built",
    ),
}
_MUTABLE = (list, dict, set, bytearray)
_MUTATORS = {
    "append",
    "add",
    "update",
    "extend",
    "pop",
    "popitem",
    "insert",
    "remove",
    "setdefault",
    "clear",
    "discard",
}
_DEPTH = 6
_LIBRARY = str(Path(dis.__file__).parent)


def suspects_in(function: Any, name: str) -> list[Suspect]:
    """What a function, and whatever of the user's own it reaches, reads beside its arguments.

    Args:
        function: a function, a method, a class or an object with methods.
        name: what it is part of, such as ``the function of transformWithState``.

    Example:
        >>> import time
        >>> [one.what for one in suspects_in(lambda row: row + time.time(), "u")]
        ['time.time']
    """
    return list(dict.fromkeys(_Walk(name).reach(function, _DEPTH)))


@dataclass
class _Walk:
    """One look through what is reached from a function."""

    name: str
    _seen: set[int] = field(default_factory=set)
    _kept: list[Any] = field(default_factory=list)

    def reach(self, value: Any, depth: int) -> Iterator[Suspect]:
        if depth < 0 or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._kept.append(value)  # an id is good for as long as its object is there
        if isinstance(value, types.MethodType):
            yield from self.reach(value.__self__, depth)
            yield from self.reach(value.__func__, depth)
        elif isinstance(value, types.FunctionType):
            yield from self._function(value, depth)
        elif isinstance(value, type):
            for own in filter(_users, value.__mro__):
                for one in vars(own).values():
                    yield from self.reach(getattr(one, "__func__", one), depth - 1)
        elif hasattr(value, "__dict__") and not isinstance(value, types.ModuleType):
            yield from self._object(value, depth)

    def _object(self, value: Any, depth: int) -> Iterator[Suspect]:
        yield from self.reach(type(value), depth - 1)
        if _users(type(value)) or _wraps(value):
            for one in list(vars(value).values()):
                if callable(one) or _users(type(one)):
                    yield from self.reach(one, depth - 1)

    def _function(self, function: types.FunctionType, depth: int) -> Iterator[Suspect]:
        cells = dict(zip(function.__code__.co_freevars, _contents(function), strict=True))
        if _users(function):
            yield from self._code(function.__code__, {**function.__globals__, **cells}, cells, depth)
        for one in cells.values():
            if callable(one) or hasattr(one, "__dict__"):
                yield from self.reach(one, depth - 1)

    def _code(
        self, code: types.CodeType, names: dict[str, Any], cells: dict[str, Any], depth: int
    ) -> Iterator[Suspect]:
        reading = _Reading(code, names)
        for dotted, line, value in reading.references():
            if (kind := _kind(dotted)) is not None:
                why, instead = _WHY[kind]
                yield Suspect(dotted, self._where(code, line), why, instead, kind)
            elif isinstance(value, types.FunctionType) or (isinstance(value, type) and _users(value)):
                yield from self.reach(value, depth - 1)
        for name, line in reading.changed():
            yield Suspect(
                f"global {name}",
                self._where(code, line),
                "it is remembered from call to call outside the state, and a process begins without it",
                "keep it in the query's state",
                Kind.OUTSIDE,
            )
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                yield from self._code(const, names, cells, depth)

    def _where(self, code: types.CodeType, line: int | None) -> str:
        file = code.co_filename.rsplit("/", 1)[-1]
        at = f"line {line} of {file}" if not file.startswith("<") else f"line {line}"
        return f"{self.name}, {code.co_qualname.replace('<locals>.', '')} ({at})"


@dataclass
class _Reading:
    """One code object."""

    code: types.CodeType
    names: dict[str, Any]

    def references(self) -> Iterator[tuple[str, int | None, Any]]:
        """Dotted names of what is not an argument, as their modules call it, with the line and the object."""
        local: dict[str, str] = {}
        dotted, value, line, imported = "", None, None, ""
        for one in dis.get_instructions(self.code):
            kind = one.opname
            if kind in ("LOAD_ATTR", "LOAD_METHOD") and dotted:
                dotted, value = _member(dotted, value, str(one.argval))
                continue
            if dotted:
                yield dotted, line, value
            dotted, value, line = "", None, one.positions.lineno if one.positions else None
            if kind in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
                dotted, value = self._named(str(one.argval))
            elif kind == "IMPORT_NAME":
                imported = str(one.argval)
            elif kind == "IMPORT_FROM":
                dotted = f"{imported}.{one.argval}"
            if kind.startswith("STORE_FAST") and imported:
                local[str(one.argval)] = imported
                imported = ""
            elif kind.startswith("LOAD_FAST") and str(one.argval) in local:
                dotted = local[str(one.argval)]
        if dotted:
            yield dotted, line, value

    def _named(self, name: str) -> tuple[str, Any]:
        if name in self.names:
            value = self.names[name]
            return _called(value) or name, value
        return name, None

    def changed(self) -> Iterator[tuple[str, int | None]]:
        """Globals and closed-over containers that the code changes, each where it is first named."""
        steps = list(dis.get_instructions(self.code))
        stores = any(one.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") for one in steps)
        found: dict[str, int | None] = {}
        for one, after in zip(steps, [*steps[1:], None], strict=True):
            name, held = str(one.argval), one.opname in ("LOAD_GLOBAL", "LOAD_DEREF")
            container = held and isinstance(self.names.get(name), _MUTABLE)
            called = after is not None and after.argval in _MUTATORS
            if one.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (container and (stores or called)):
                found.setdefault(name, one.positions.lineno if one.positions else None)
        yield from found.items()


def _member(dotted: str, value: Any, name: str) -> tuple[str, Any]:
    """What an attribute of something is called, and is."""
    found = inspect.getattr_static(value, name, None) if value is not None else None
    if isinstance(value, types.ModuleType) and isinstance(found, (type, types.ModuleType)):
        return _called(found) or f"{dotted}.{name}", found
    return f"{dotted}.{name}", found


def _called(value: Any) -> str | None:
    """What its own module calls a module, a class or a function."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.MethodType | types.BuiltinMethodType) and isinstance(
        getattr(value, "__self__", None), type
    ):
        return f"{_called(value.__self__)}.{value.__name__}"
    own = getattr(value, "__self__", None)
    if own is not None and type(own).__module__ == "random":
        return f"random.{value.__name__}"
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    shown = {"builtins": "", "_io": "", "pandas._libs.tslibs.timestamps": "pandas."}.get(module, f"{module}.")
    return f"{shown}{name}"


def _kind(dotted: str) -> Kind | None:
    for kind, known in ((Kind.RANDOM, _RANDOM), (Kind.CLOCK, _CLOCK), (Kind.OUTSIDE, _OUTSIDE)):
        if any(dotted.startswith(one) if one.endswith(".") else _is_or_in(dotted, one) for one in known):
            return kind
    return None


def _is_or_in(dotted: str, name: str) -> bool:
    return dotted in (name, f"{name}_ns") or dotted.startswith(f"{name}.")


def _contents(function: types.FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not filled yet
            found.append(None)
    return found


def _wraps(value: Any) -> bool:
    """Whether an object of PySpark's holds a function of the user's."""
    return type(value).__module__.startswith("pyspark.sql") and "processor" in type(value).__module__


def _users(value: Any) -> bool:
    """Whether a function or class is the user's own, not a library's."""
    module = str(getattr(value, "__module__", "") or "")
    root = module.split(".", 1)[0]
    if root in sys.stdlib_module_names and root != "__main__":
        return False
    code = getattr(value, "__code__", None)
    if code is not None and code.co_filename.startswith(_LIBRARY):  # such as what @dataclass adds to a class
        return False
    file = code.co_filename if code else getattr(sys.modules.get(module), "__file__", None) or ""
    return root not in ("builtins", "pyspark", "py4j") and "site-packages" not in file and "dist-packages" not in file
