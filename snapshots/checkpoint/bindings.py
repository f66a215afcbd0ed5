"""Bindings: which version of each shared variable an epoch saw.

A query that uses shared variables reads a source without rows whose offset names their versions. So Spark's own offset
log binds an epoch to them, and whatever runs the epoch again sees the same versions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "streamstate_shared"
"""The name of the source in Spark, and what its offsets are known by."""
_AT, _STORE = "at", "store"
RUN, EPOCH = "streamstate.shared", "streaming.sql.batchId"
"""The local properties that tell tasks about the run of their query, and their epoch; the second is Spark's."""
AGAIN = -1
"""The number of a run that only reads an epoch's input again."""
SHARED = "shared"
"""The prefix of variables' names in a store and in SQL: ``shared.limit``."""
LEVEL = "_shed"
"""The ending of the name of the variable that holds a query's shedding level."""


def relation_of(name: str) -> str:
    """Return a variable's name in a store and in SQL."""
    return f"{SHARED}.{name}"


@dataclass(frozen=True)
class Version:
    """A version of a variable.

    Attributes:
        number: its number; None: whatever is the newest when it is read.
        branch: the query id of the fork that made it; empty outside forks.
    """

    number: int | None
    branch: str = ""

    def as_json(self) -> int | str:
        """Return it as an offset spells it: ``7``, in a fork ``"<id>:7"``, or ``"latest"``."""
        if self.number is None:
            return "latest"
        return f"{self.branch}:{self.number}" if self.branch else self.number

    @classmethod
    def from_json(cls, value: object) -> Version:
        """Return a version as an offset spells it."""
        if value == "latest":
            return cls(None)
        branch, _, number = str(value).rpartition(":")
        return cls(int(number), branch)


@dataclass(frozen=True)
class Binding:
    """The versions of shared variables that an epoch is bound to.

    Attributes:
        versions: the version that it saw of each variable, by name; None for one that operators only add to.
        at: the address of the transport that holds the versions.
        store: the store that records them.
    """

    versions: Mapping[str, Version | None]
    at: str
    store: str

    def offset(self) -> dict[str, Any]:
        """Return the offset that names them."""
        versions = sorted(self.versions.items())
        spelt = {name: None if version is None else version.as_json() for name, version in versions}
        return {FORMAT: spelt, _AT: self.at, _STORE: self.store}

    @classmethod
    def of_offset(cls, offset: Mapping[str, Any]) -> Binding:
        """Parse an offset."""
        spelt = offset[FORMAT].items()
        versions = {str(name): None if value is None else Version.from_json(value) for name, value in spelt}
        return cls(versions, str(offset[_AT]), str(offset[_STORE]))


def binding_in(offsets: Iterable[str | None]) -> Binding | None:
    """Return the binding among the offsets of an epoch's sources; None if the query has no shared variables."""
    for text in offsets:
        if is_binding(text):
            return Binding.of_offset(json.loads(text or ""))
    return None


def bound_version(offsets: Iterable[str | None], name: str) -> Version | None:
    """Return the version of a variable that is among the offsets of an epoch's sources; None if there is none."""
    found = binding_in(offsets)
    return None if found is None else found.versions.get(name)


def is_binding(offset: str | None) -> bool:
    """Return whether an offset, as JSON, is a binding."""
    return offset is not None and offset.startswith(f'{{"{FORMAT}"')


def binding_in_log(text: str) -> Binding | None:
    """Return the binding in the text of ``offsets/N``, of either version; None if there is none."""
    lines = text.splitlines()[2:]
    return binding_in(line[line.find("{") :] if not line.startswith("{") else line for line in lines)


def binding_in_manifest(offsets: str | None) -> Binding | None:
    """Return the binding in what a manifest says of an epoch's offsets; None if there is none."""
    if offsets is None or FORMAT not in offsets:
        return None
    known = json.loads(offsets)
    offsets_of = known.values() if isinstance(known, dict) else known
    return binding_in(offset if isinstance(offset, str) else json.dumps(offset) for offset in offsets_of)


@contextmanager
def seen_by(spark: SparkSession, epoch: int, binding: Binding | None) -> Iterator[None]:
    """Within the block, Spark's tasks read the versions that an epoch saw; what they contribute is not counted."""
    if binding is None:
        yield
        return
    # Spark may have purged the epoch's offsets, so the binding is sent along; it also tells queries apart.
    bound = json.dumps(binding.offset())
    run = {"checkpoint": "", "query": bound, "number": AGAIN, "transport": binding.at, "bindings": "", "bound": bound}
    context = spark.sparkContext
    properties = {RUN: json.dumps({**run, "variables": sorted(binding.versions)}), EPOCH: str(epoch)}
    before = {name: context.getLocalProperty(name) for name in properties}
    for name, value in properties.items():
        context.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            context.setLocalProperty(name, known)  # type: ignore[arg-type]


def binds(leaf: Any) -> bool:
    """Return whether a leaf of a streaming plan is the source without rows that binds epochs."""
    return str(leaf.getClass().getSimpleName()) == "StreamingRelationV2" and str(leaf.sourceName()) == FORMAT
