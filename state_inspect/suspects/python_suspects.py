"""Reads of Python functions besides their arguments: clocks, random numbers, files, the environment, globals.

The bytecode is read, never run. Names are resolved to the objects they refer to, so that ``from time import time as
now`` is found; the user's own functions and classes that are called are searched too.
"""

from __future__ import annotations

import dis
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamstate.state_inspect.suspects.suspect import Suspect, SuspectKind

_RANDOM = ("random.", "uuid.uuid1", "uuid.uuid4", "secrets.", "numpy.random.", "os.urandom")
_CLOCKS = """
    time.time time.monotonic time.perf_counter time.localtime time.gmtime time.ctime datetime.datetime.now
    datetime.datetime.utcnow datetime.datetime.today datetime.date.today pandas.Timestamp.now pandas.Timestamp.utcnow
    pandas.Timestamp.today
"""
_READS_OUTSIDE = """
    os.environ os.getenv os.getpid os.listdir os.scandir open io.open glob.glob requests. httpx. urllib.request.
    http.client. socket. sqlite3. subprocess.
"""
_WHY = {
    SuspectKind.RANDOM: (
        "it returns another value in every run",
        "derive the value from the row, such as a hash of its key",
    ),
    SuspectKind.CLOCK: (
        "it reads the clock of the machine, which is later in a replay",
        "use current_timestamp(), which a replay repeats, or a time from the row",
    ),
    SuspectKind.OUTSIDE: (
        "what it reads is not part of the query's input, and may have changed since",
        "join with a table of a fixed version, or pass the value in when the query is built",
    ),
}
_MUTABLE = (list, dict, set, bytearray)
_MUTATORS = """
    append add update extend pop popitem insert remove setdefault clear discard
"""
_MAX_DEPTH = 6
_LIBRARY = str(Path(dis.__file__).parent)


def suspects_in(function: Any, name: str) -> list[Suspect]:
    """Return what a function, and the user's own code that it calls, reads besides its arguments.

    ``name`` says what the function is part of, such as ``the function of transformWithState``.
    """
    return list(dict.fromkeys(_CodeWalk(name).reach(function, _MAX_DEPTH)))


@dataclass
class _CodeWalk:
    """One walk through the code that a function reaches."""

    name: str
    _seen: set[int] = field(default_factory=set)
    _kept: list[Any] = field(default_factory=list)

    def reach(self, value: Any, depth: int) -> Iterator[Suspect]:
        if depth < 0 or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._kept.append(value)  # ids are unique only while their objects are alive
        if isinstance(value, types.MethodType):
            yield from self.reach(value.__self__, depth)
            yield from self.reach(value.__func__, depth)
        elif isinstance(value, types.FunctionType):
            yield from self._function(value, depth)
        elif isinstance(value, type):
            for own in filter(_is_users, value.__mro__):
                for member in vars(own).values():
                    yield from self.reach(getattr(member, "__func__", member), depth - 1)
        elif hasattr(value, "__dict__") and not isinstance(value, types.ModuleType):
            yield from self._object(value, depth)

    def _object(self, value: Any, depth: int) -> Iterator[Suspect]:
        yield from self.reach(type(value), depth - 1)
        module = type(value).__module__
        # PySpark's own objects may hold the user's function or processor.
        if _is_users(type(value)) or (module.startswith("pyspark.sql") and "processor" in module):
            for member in list(vars(value).values()):
                if callable(member) or _is_users(type(member)):
                    yield from self.reach(member, depth - 1)

    def _function(self, function: types.FunctionType, depth: int) -> Iterator[Suspect]:
        cells = dict(zip(function.__code__.co_freevars, _cell_values(function), strict=True))
        if _is_users(function):
            yield from self._code(function.__code__, {**function.__globals__, **cells}, depth)
        for held in cells.values():
            if callable(held) or hasattr(held, "__dict__"):
                yield from self.reach(held, depth - 1)

    def _code(self, code: types.CodeType, names: Mapping[str, Any], depth: int) -> Iterator[Suspect]:
        for dotted, line, value in _references(code, names):
            if (kind := _kind(dotted)) is not None:
                why, instead = _WHY[kind]
                yield Suspect(dotted, self._where(code, line), why, instead, kind)
            elif isinstance(value, types.FunctionType) or (isinstance(value, type) and _is_users(value)):
                yield from self.reach(value, depth - 1)
        for name, line in _changed(code, names):
            yield Suspect(
                f"global {name}",
                self._where(code, line),
                "it is kept between calls outside the state, and is lost when the process ends",
                "keep it in the query's state",
                SuspectKind.OUTSIDE,
            )
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                yield from self._code(const, names, depth)

    def _where(self, code: types.CodeType, line: int | None) -> str:
        file = code.co_filename.rsplit("/", 1)[-1]
        at = f"line {line} of {file}" if not file.startswith("<") else f"line {line}"
        return f"{self.name}, {code.co_qualname.replace('<locals>.', '')} ({at})"


def _references(code: types.CodeType, names: Mapping[str, Any]) -> Iterator[tuple[str, int | None, Any]]:
    """Yield the full dotted name of everything that is not an argument, with its line and the object."""
    local: dict[str, str] = {}
    dotted, value, line, imported = "", None, None, ""
    for instruction in dis.get_instructions(code):
        kind = instruction.opname
        if kind in ("LOAD_ATTR", "LOAD_METHOD") and dotted:
            dotted, value = _attribute(dotted, value, str(instruction.argval))
            continue
        if dotted:
            yield dotted, line, value
        dotted, value, line = "", None, _line(instruction)
        if kind in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
            value = names.get(str(instruction.argval))
            dotted = _full_name(value) or str(instruction.argval)
        elif kind == "IMPORT_NAME":
            imported = str(instruction.argval)
        elif kind == "IMPORT_FROM":
            dotted = f"{imported}.{instruction.argval}"
        if kind.startswith("STORE_FAST") and imported:
            local[str(instruction.argval)] = imported
            imported = ""
        elif kind.startswith("LOAD_FAST") and str(instruction.argval) in local:
            dotted = local[str(instruction.argval)]
    if dotted:
        yield dotted, line, value


def _changed(code: types.CodeType, names: Mapping[str, Any]) -> Iterator[tuple[str, int | None]]:
    """Globals and closed-over containers that the code changes, with the line where each first appears."""
    instructions = list(dis.get_instructions(code))
    stores = any(instruction.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") for instruction in instructions)
    found: dict[str, int | None] = {}
    for instruction, after in zip(instructions, [*instructions[1:], None], strict=True):
        name, loaded = str(instruction.argval), instruction.opname in ("LOAD_GLOBAL", "LOAD_DEREF")
        container = loaded and isinstance(names.get(name), _MUTABLE)
        called = after is not None and after.argval in _MUTATORS.split()
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (container and (stores or called)):
            found.setdefault(name, _line(instruction))
    yield from found.items()


def _line(instruction: dis.Instruction) -> int | None:
    return instruction.positions.lineno if instruction.positions else None


def _attribute(dotted: str, value: Any, name: str) -> tuple[str, Any]:
    """Return the full name and the value of an object's attribute."""
    found = inspect.getattr_static(value, name, None) if value is not None else None
    if isinstance(value, types.ModuleType) and isinstance(found, (type, types.ModuleType)):
        return _full_name(found) or f"{dotted}.{name}", found
    return f"{dotted}.{name}", found


def _full_name(value: Any) -> str | None:
    """Return the full name of a module, a class or a function in its own module."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, types.MethodType | types.BuiltinMethodType) and isinstance(
        getattr(value, "__self__", None), type
    ):
        return f"{_full_name(value.__self__)}.{value.__name__}"
    own = getattr(value, "__self__", None)
    if own is not None and type(own).__module__ == "random":
        return f"random.{value.__name__}"
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    shown = {"builtins": "", "_io": "", "pandas._libs.tslibs.timestamps": "pandas."}.get(module, f"{module}.")
    return f"{shown}{name}"


def _kind(dotted: str) -> SuspectKind | None:
    kinds = (
        (SuspectKind.RANDOM, _RANDOM),
        (SuspectKind.CLOCK, _CLOCKS.split()),
        (SuspectKind.OUTSIDE, _READS_OUTSIDE.split()),
    )
    for kind, known in kinds:
        if any(dotted.startswith(name) if name.endswith(".") else _is_or_in(dotted, name) for name in known):
            return kind
    return None


def _is_or_in(dotted: str, name: str) -> bool:
    return dotted in (name, f"{name}_ns") or dotted.startswith(f"{name}.")


def _cell_values(function: types.FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # the cell is still empty
            found.append(None)
    return found


def _is_users(value: Any) -> bool:
    """Return whether a function or class is the user's own rather than a library's."""
    module = str(getattr(value, "__module__", "") or "")
    root = module.split(".", 1)[0]
    if root in sys.stdlib_module_names and root != "__main__":
        return False
    code = getattr(value, "__code__", None)
    if code is not None and code.co_filename.startswith(_LIBRARY):  # such as methods that @dataclass adds
        return False
    file = code.co_filename if code else getattr(sys.modules.get(module), "__file__", None) or ""
    return root not in ("builtins", "pyspark", "py4j") and "site-packages" not in file and "dist-packages" not in file
