"""Terms that a recipient suggests for a contract, and what became of them.

A suggestion changes nothing: the store puts it into force, or refuses it. It comes from outside, so it is checked for
its form only: checking it against the query's tables would tell the recipient which columns there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any, TypeGuard

from streamstate.errors import InvalidArgumentError, InvalidSQLError, UnknownColumnError, first_line
from streamstate.state_inspect.sql.condition_policy import checked_condition

STATES = OPEN, ACCEPTED, REFUSED, COUNTERED = "open", "accepted", "refused", "countered"
_LONGEST_NAME = 200
_LONGEST_SPAN = 100 * 365.25 * 86_400
_HIGHEST_PRICE = 1e15
_LAST_EPOCH = 2**62


@dataclass(frozen=True)
class PartialTerms:
    """Some terms of a contract: those that a recipient suggests, or is shown. Nothing is said of what is None.

    Attributes:
        tables: the tables; None: those that are granted, and those that ``columns`` and ``where`` name.
        columns: the granted columns, by table.
        where: the conditions on the granted rows, by table.
        since: the first epoch that is granted.
        until: when the contract ends.
        freshness: the seconds after an epoch's commit within which it is to be visible.
        keep: for how many seconds after its commit an epoch is granted.
        price: the price of a million rows.
    """

    tables: tuple[str, ...] | None = None
    columns: Mapping[str, tuple[str, ...]] | None = field(default=None, hash=False)
    where: Mapping[str, str] | None = field(default=None, hash=False)
    since: int | None = None
    until: datetime | None = None
    freshness: float | None = None
    keep: float | None = None
    price: float | None = None

    def to_json(self) -> str:
        """Return the terms as JSON."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) is not None}
        return json.dumps(found | ({} if self.until is None else {"until": self.until.isoformat()}))

    @classmethod
    def from_json(cls, text: str) -> PartialTerms:
        """Return the terms that :meth:`to_json` wrote, which were checked then."""
        found: dict[str, Any] = json.loads(text)
        made: dict[str, Callable[[Any], Any]] = {
            "tables": tuple,
            "columns": _as_tuples,
            "until": datetime.fromisoformat,
        }
        return cls(**{name: made[name](value) if name in made else value for name, value in found.items()})


@dataclass(frozen=True)
class Suggestion:
    """Other terms that a recipient suggested.

    Attributes:
        terms: the terms.
        state: ``open``; ``accepted`` or ``refused`` by the store; ``countered``: the store has put others into force.
        number: the number of its row in the table of contracts.
        replaced: how many open ones it has replaced.
        at: when it was made.
    """

    terms: PartialTerms
    state: str = OPEN
    number: int = -1
    replaced: int = 0
    at: datetime | None = field(default=None, compare=False)

    @property
    def is_open(self) -> bool:
        """True if the store has not answered it."""
        return self.state == OPEN


def partial_terms(asked: object) -> PartialTerms:
    """Return the terms of a request, as JSON has them.

    Raises:
        InvalidArgumentError: they have another form, or there is none. The message says nothing but what was asked.

    Example:
        >>> partial_terms({"columns": {"op0": ["max"]}, "freshness": 10}).freshness
        10.0
    """
    given = {name: value for name, value in asked.items() if value is not None} if isinstance(asked, dict) else {}
    if not given or not given.keys() <= _READ.keys():
        raise InvalidArgumentError(f"Invalid terms: expected an object with one or more of {', '.join(_READ)}.")
    return PartialTerms(**{name: _READ[name](value, name) for name, value in given.items()})


def _as_tuples(columns: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {table: tuple(names) for table, names in columns.items()}


def _refused(name: str, expected: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"Invalid {name}: expected {expected}.")


def _is_text(value: object) -> bool:
    """Check that a value is a name that can be shown anywhere: no line ends, no codes that a terminal obeys."""
    return isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME and value.isprintable()


def _names(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not value or not all(map(_is_text, value)):
        raise _refused(name, f"a list of names, each of at most {_LONGEST_NAME} characters")
    return tuple(dict.fromkeys(value))


def _by_table(value: object, name: str, read: Callable[[object, str], Any]) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not value or not all(map(_is_text, value)):
        raise _refused(name, "an object by table")
    return {table: read(inner, name) for table, inner in value.items()}


def _columns(value: object, name: str) -> dict[str, tuple[str, ...]]:
    return _by_table(value, name, _names)


def _conditions(value: object, name: str) -> dict[str, str]:
    return _by_table(value, name, _condition)


def _condition(value: object, name: str) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise _refused(name, "conditions in one line, by table")
    try:
        checked_condition(value, ["value"], "the table")
    except UnknownColumnError:
        pass  # whoever accepts it knows the columns
    except InvalidSQLError as error:
        raise InvalidArgumentError(f"Invalid {name}: {first_line(error)}") from error
    return value


def _epoch(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _LAST_EPOCH:
        raise _refused(name, "an epoch")
    return value


def _moment(value: object, name: str) -> datetime:
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
        if found is not None and found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise _refused(name, "a time with its zone, as ISO 8601")


def _seconds(value: object, name: str) -> float:
    if not _is_number(value) or not 0 < value <= _LONGEST_SPAN:
        raise _refused(name, "seconds above zero, at most a hundred years")
    return float(value)


def _price(value: object, name: str) -> float:
    if not _is_number(value) or not 0 <= value <= _HIGHEST_PRICE:
        raise _refused(name, f"a price from 0 to {_HIGHEST_PRICE:g}")
    return float(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_READ: Mapping[str, Callable[[object, str], Any]] = {
    "tables": _names,
    "columns": _columns,
    "where": _conditions,
    "since": _epoch,
    "until": _moment,
    "freshness": _seconds,
    "keep": _seconds,
    "price": _price,
}
