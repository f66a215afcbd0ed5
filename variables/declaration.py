"""Declarations of shared variables: type, merge, access and consistency."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from streamstate.errors import InvalidArgumentError, InvalidNameError, VariableError
from streamstate.variables.declared_types import DeclaredType, declared_type
from streamstate.variables.merge import Merge
from streamstate.variables.named_merges import merge_of
from streamstate.variables.shedding.level import Level, is_level

Access: TypeAlias = Literal["read-mostly", "write-mostly"]
"""The use of a variable by operators. One that is ``write-mostly`` is only contributed to: no epoch waits for it."""

ACCESS = ("read-mostly", "write-mostly")
LATEST = "latest"
_BOUNDED = re.compile(r"bounded\((\d+)\)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_CUSTOM = "custom:"

Function: TypeAlias = Callable[[Any, Any], Any]


def check_variable_name(name: object) -> str:
    """Return the name, if it can name a variable, which is also a folder and an SQL relation.

    Raises:
        InvalidNameError: it cannot.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise InvalidNameError(
        f"Invalid variable name {name!r}.\nA name has 1 to 63 letters, digits or '_' and starts with a letter, such as"
        " limit or model_2."
    )


@dataclass(frozen=True)
class Declaration:
    """The declaration of a variable; two notebooks that use it must declare the same.

    Attributes:
        name: its name.
        type: its type.
        init: its first value.
        merge: the name of its merge, or a function's.
        access: how operators use it.
        consistency: ``epoch``, ``bounded(k)`` or ``latest``.
        function: the merge, if it is the user's own; it is not stored.
        digest: tells one function from others.
        store: where its versions are recorded.
        identity: tells it from others of the name, in other stores or made anew in this one.
    """

    name: str
    type: DeclaredType
    init: Any = None
    merge: str = "last"
    access: Access = "read-mostly"
    consistency: str = "epoch"
    function: Function | None = None
    digest: str | None = None
    store: str = ""
    identity: str = field(default_factory=lambda: uuid.uuid4().hex[:12])

    @property
    def key(self) -> str:
        """The name of its groups in a transport."""
        return f"{self.name}-{self.identity}"

    @classmethod
    def checked(
        cls, name: str, type_: Any, *, init: Any, merge: str | Function, access: str, consistency: Any
    ) -> Declaration:
        """Return a declaration, if it is valid.

        Raises:
            InvalidNameError, InvalidArgumentError: a part of it is not.
        """
        check_variable_name(name)
        if isinstance(type_, str) and type_.strip().lower() == "counter":
            type_, merge, init = "bigint", "sum" if merge == "last" else merge, 0 if init is None else init
        declared = declared_type(type_)
        if access not in ACCESS:
            raise InvalidArgumentError(f"Invalid access {access!r} of {name}: expected {' or '.join(ACCESS)}.")
        found = _BOUNDED.fullmatch(consistency) if isinstance(consistency, str) else None
        if consistency not in ("epoch", LATEST) and (found is None or not int(found[1])):
            raise InvalidArgumentError(
                f"Invalid consistency {consistency!r} of {name}.\nExpected epoch (all tasks of an epoch see one"
                " version), bounded(k) (at most k epochs old), or latest (no version is bound to an epoch)."
            )
        made = merge_of(merge, declared, name)
        function, digest = (merge, _digest(merge)) if callable(merge) else (None, None)
        initial = None if init is None else made.value(made.lifted(name, init)) if _is_plain(made) else init
        declaration = cls(name, declared, initial, made.name, access, consistency, function, digest)  # type: ignore[arg-type]
        declaration.first_state  # noqa: B018 (raises if init is no value of the type)
        return declaration

    @cached_property
    def merging(self) -> Merge:
        """The merge.

        Raises:
            VariableError: it is a function that this process was not given.
        """
        if self.merge.startswith(_CUSTOM) and self.function is None:
            raise VariableError(
                f"{self.name} is merged by the function {self.merge.removeprefix(_CUSTOM)!r}, which is not stored.\n"
                "Declare the variable here too, with the same function: ss.shared(store, name, type, merge=function)."
            )
        if self.function is not None:  # it was tried when it was declared; tasks do not try it again
            return Merge(self.merge, self.type, self.function)
        return merge_of(self.merge, self.type, self.name)

    @property
    def first_state(self) -> Any:
        """The state of version 0."""
        if self.init is None:
            return None
        if self.merge.startswith((_CUSTOM, "append")):
            return self.type.stored(self.init, self.name)
        return self.merging.lifted(self.name, self.init)

    def state_of(self, *value: Any) -> Any:
        """Return the state of a value that is set.

        Raises:
            InvalidArgumentError: it is not of the type, or no level of shedding, which the query could not use.
        """
        if is_level(self.name):
            Level.of(*value)
        if len(value) == 1 and self.merging.state == self.type.arrow:
            return self.type.stored(value[0], self.name)
        return self.merging.lifted(self.name, *value)

    @property
    def every(self) -> int:
        """After how many epochs a query takes in what is new: 1, or the k of ``bounded(k)``."""
        found = _BOUNDED.fullmatch(self.consistency)
        return int(found[1]) if found else 1

    @property
    def is_bound(self) -> bool:
        """True if epochs are bound to versions."""
        return self.access == "read-mostly" and self.consistency != LATEST

    def text(self) -> str:
        """Return the declaration as JSON, without the function."""
        facts = {"name": self.name, "type": self.type.text, "init": _json_value(self.init)}
        as_they_are = ("merge", "access", "consistency", "digest", "identity")
        return json.dumps(facts | {name: getattr(self, name) for name in as_they_are}, default=str)

    @classmethod
    def from_text(cls, text: str, function: Function | None = None, store: str = "") -> Declaration:
        """Return a declaration from JSON; its first value is in version 0, not here.

        Raises:
            VariableError: it is damaged.
        """
        try:
            known = json.loads(text)
            del known["init"]
            known["type"] = declared_type(known["type"])
            made = cls(**known, function=function, store=store)
            check_variable_name(made.name)
            check_variable_name(f"v{made.identity}")  # both are parts of a folder's name
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise VariableError(
                f"A declaration of a shared variable in {store or 'the store'} is damaged: {text[:80]!r}.\n"
                "Restore the store's table _variables/_declarations from a backup."
            ) from error
        return made

    def differences(self, text: str) -> list[str]:
        """Return the differences from a declaration in JSON, one per line."""
        here, there = json.loads(self.text()), json.loads(text)
        del here["identity"]
        # As text: not a number is not equal to itself.
        different = [key for key in here if json.dumps(here[key]) != json.dumps(there.get(key))]
        return [f"{key}: {there.get(key)!r} there, {here[key]!r} here" for key in different]


def _is_plain(merge: Merge) -> bool:
    return type(merge) is Merge


def _json_value(value: Any) -> Any:
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    if isinstance(value, dict):
        return [[str(key), _json_value(item)] for key, item in value.items()]
    return value


def _digest(function: Function) -> str:
    """Return a digest of a function's code, wherever it is defined."""
    code = getattr(function, "__code__", None)
    if code is None:
        return f"{function!r}"
    facts = (code.co_code, repr([c for c in code.co_consts if not hasattr(c, "co_code")]), code.co_names)
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
