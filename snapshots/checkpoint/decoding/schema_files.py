"""Spark's state schema files: the types of a store's keys and values.

Versions 1 and 2 describe one pair of types, version 3 one for each column family, with the encoding of its keys. Java's
``DataOutputStream`` writes them: integers are big-endian, and strings are modified UTF-8 after two bytes of length.
"""

from __future__ import annotations

import json
import struct
import sys
from dataclasses import dataclass, field
from typing import Any

from streamstate.errors import UntrustedCheckpointError
from streamstate.snapshots.checkpoint.decoding.failures import DamagedChangelogError, UnsupportedChangelogError

DEFAULT_FAMILY = "default"


@dataclass(frozen=True)
class FamilySchema:
    """The types of a column family, or of a store that has only one."""

    key: dict[str, Any]
    """The struct type of the key, as Spark writes it in JSON."""
    value: dict[str, Any]
    """The struct type of the value."""
    encoder: dict[str, Any] = field(default_factory=dict)
    """Spark's ``KeyStateEncoderSpec``; empty before version 3."""
    evolved: bool = False
    """True if it has replaced another schema; only values encoded with Avro can survive that."""


def has_columns(kind: dict[str, Any]) -> bool:
    """Return whether a struct type has a field that is not void: the key of a global aggregate or a limit has none."""
    return any(field["type"] not in ("void", "null") for field in kind["fields"])


def family_schemas(content: bytes, path: str) -> dict[str, FamilySchema]:
    """Return the schemas in a file, by the name of their column family.

    Raises:
        UnsupportedChangelogError: the file has another version.
        DamagedChangelogError: the file is not one that Spark wrote.
        UntrustedCheckpointError: it names code that a reader would load.
    """
    source = _Input(content)
    try:
        version = source.text()
        if version in {"v1", "v2"}:
            pieces = version == "v2"
            return {DEFAULT_FAMILY: FamilySchema(source.struct(pieces=pieces), source.struct(pieces=pieces))}
        if version == "v3":
            return _column_families(source)
    except _UnknownTypeError as error:
        raise UntrustedCheckpointError.file(path, str(error)) from None
    except (struct.error, ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamagedChangelogError(f"The state schema {path} is damaged: {error}.") from error
    raise UnsupportedChangelogError(f"The state schema {path} has the unknown version {version!r}.")


def _column_families(source: _Input) -> dict[str, FamilySchema]:
    """Version 3, in which a number precedes each type."""
    found = {}
    for _family in range(source.number(">i")):
        name = source.text()
        key_number, key = source.number(">h"), source.struct()
        value_number, value = source.number(">h"), source.struct()
        encoder = source.json()
        source.json()  # the type of a map's keys, which the key's type has too
        found[name] = FamilySchema(key, value, dict(encoder), evolved=key_number != 0 or value_number != 0)
    return found


class _Input:
    """A reader of Java's ``DataInputStream`` format."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        return _decoded(self._bytes())

    def json(self, *, pieces: bool = True) -> Any:
        """Return a JSON text, preceded by the number of its pieces if it may have several."""
        count = self.number(">i") if pieces else 1
        return json.loads(_decoded(b"".join(self._bytes() for _piece in range(count))), object_pairs_hook=_known)

    def struct(self, *, pieces: bool = True) -> dict[str, Any]:
        kind = self.json(pieces=pieces)
        if kind["type"] != "struct" or not all({"name", "type"} <= {*member} for member in kind["fields"]):
            raise ValueError("it has a type that is not a struct")
        return dict(kind)

    def _bytes(self) -> bytes:
        size = self.number(">H")
        start, self._at = self._at, self._at + size
        if self._at > len(self._content):
            raise ValueError("it ends within a string")
        return self._content[start : self._at]


class _UnknownTypeError(Exception):
    """A user-defined type whose class is not loaded."""


def _known(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object of a schema.

    For a user-defined type, Spark makes an instance of a Java class, and PySpark imports a module or unpickles a class:
    all of them are named in the file. So the type has to be one that this process has imported.
    """
    found = dict(pairs)
    if len(found) < len(pairs):  # another parser might take another of them
        raise ValueError("an object has a field twice")
    if found.get("type") == "udt" and not _is_loaded(found):
        named = found.get("pyClass") or found.get("class")
        raise _UnknownTypeError(f"has the user-defined type {named!r:.200}, which this process has not imported")
    return found


def _is_loaded(kind: dict[str, Any]) -> bool:
    module, _, name = str(kind.get("pyClass")).rpartition(".")
    loaded: Any = getattr(sys.modules.get(module), name, None)
    udt = getattr(sys.modules.get("pyspark.sql.types"), "UserDefinedType", None)
    if udt is None or not (isinstance(loaded, type) and issubclass(loaded, udt)):
        return False
    java: Any = loaded
    return kind.get("class") in (None, java.scalaUDT() or None)


def _decoded(content: bytes) -> str:
    """Modified UTF-8, which has NUL in two bytes, and characters beyond 16 bits as two surrogates."""
    text = content.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return text.encode("utf-16", "surrogatepass").decode("utf-16")
