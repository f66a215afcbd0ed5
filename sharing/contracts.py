"""The contracts of a store: publish a query's state, change the terms, revoke them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownColumnError, UnknownContractError, choices
from streamstate.sharing.contract import (
    ACTIVE,
    REVOKED,
    Contract,
    ContractRow,
    GrantedTable,
    Terms,
    contracts_of,
)
from streamstate.sharing.granted_view import table_named
from streamstate.sharing.kept import KeptByVersion
from streamstate.snapshots.calls.checks import duration, positive_duration, time_span, whole_number
from streamstate.snapshots.store.layout import TIME, Layout
from streamstate.snapshots.store.names import is_name
from streamstate.snapshots.store.numbered_table import NumberedTable
from streamstate.state_inspect.history import History
from streamstate.state_inspect.results.results import RESULT, results_shown
from streamstate.state_inspect.snapshot import Snapshot

_ROWS = pa.schema(
    [
        ("number", pa.int64()),
        ("name", pa.string()),
        ("to", pa.string()),
        ("kind", pa.string()),
        ("terms", pa.string()),
        ("at", TIME),
    ]
)


class Contracts(NumberedTable[ContractRow]):
    """The contracts of one store, as rows of a Delta table."""

    def __init__(self, layout: Layout) -> None:
        description = "streamstate: what the store grants to whom"
        super().__init__(layout.sharing("contracts"), _ROWS, "contracts", description)
        self._layout = layout
        self._contracts = KeptByVersion[list[Contract]]()

    def all(self) -> list[Contract]:
        """Return all contracts in the order in which they were made, those that have ended too."""
        rows = self.rows()
        return list(self._contracts.of(rows, lambda: list(contracts_of(rows, self._layout).values())))

    def of(self, name: str, to: str | None = None) -> Contract:
        """Return a contract by its name and, if several recipients have one of that name, its recipient.

        Raises:
            UnknownContractError: there is none, or there are several.
        """
        known = self.all()
        found = [contract for contract in known if contract.name == name and to in (None, contract.to)]
        if len(found) == 1:
            return found[0]
        names = [f"{contract.name} with {contract.to}" for contract in (found or known)]
        why = "There is no contract" if not found else "Several contracts are called"
        raise UnknownContractError(f"{why} {name}{f' with {to}' if to else ''}.\nContracts: {choices(names)}.")

    def granted_to(self, recipient: str) -> list[Contract]:
        """Return the contracts of a recipient that are in force now."""
        return [contract for contract in self.all() if contract.to == recipient and contract.state == ACTIVE]

    def offer(self, name: str, to: str, terms: Terms) -> Contract:
        """Put terms into force at once: those of a new contract, or others than it had so far."""
        return self._changed(name, to, lambda _known: ContractRow(name, to, "offer", terms.to_json()))

    def suggest(self, name: str, to: str, terms: Terms) -> Contract:
        """Note the terms that the recipient suggests instead; they are in force once they are accepted."""

        def made(known: Contract | None) -> ContractRow:
            _check_open(known, name, to)
            return ContractRow(name, to, "suggest", terms.to_json())

        return self._changed(name, to, made)

    def accept(self, name: str, to: str) -> Contract:
        """Put the suggested terms into force.

        Raises:
            InvalidArgumentError: nothing is suggested.
        """

        def made(known: Contract | None) -> ContractRow:
            suggested = _check_open(known, name, to).suggested
            if suggested is None:
                raise InvalidArgumentError(f"{to} suggests no other terms for {name}.")
            return ContractRow(name, to, "accept", suggested.to_json())

        return self._changed(name, to, made)

    def revoke(self, name: str, to: str | None = None) -> Contract:
        """End a contract at once; what was read stays with the recipient.

        Raises:
            UnknownContractError: there is none of that name, or there are several.
        """
        to = self.of(name, to).to

        def made(known: Contract | None) -> ContractRow | None:
            return None if known is None or known.state == REVOKED else ContractRow(name, to, "revoke")

        return self._changed(name, to, made)

    def _changed(self, name: str, to: str, made: Callable[[Contract | None], ContractRow | None]) -> Contract:
        self.append(lambda rows: made(contracts_of(rows).get((to, name))))
        return contracts_of(self.known, self._layout)[to, name]

    def _row_of(self, values: dict[str, Any]) -> ContractRow:
        return ContractRow(**values)

    def _values_of(self, row: ContractRow) -> Mapping[str, Any]:
        return asdict(row)


def _check_open(known: Contract | None, name: str, to: str) -> Contract:
    if known is None or known.state == REVOKED:
        raise UnknownContractError(f"There is no contract {name} with {to} in force.")
    return known


def publish(
    history: History,
    to: str,
    *,
    name: str | None = None,
    tables: Sequence[str] | str | None = None,
    columns: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    where: Mapping[str, str] | str | None = None,
    result: bool | None = None,
    since: int | None = None,
    until: datetime | timedelta | str | None = None,
    freshness: float | str | timedelta | None = None,
    keep: float | str | timedelta | None = None,
    price: float | None = None,
) -> Contract:
    """Grant a query's state to a recipient; see :meth:`streamstate.reports.History.publish`."""
    for what, text in (("to", to), ("name", history.name if name is None else name)):
        if not is_name(text):
            raise InvalidArgumentError(
                f"Invalid {what}={text!r}: expected letters, digits, '-' and '_', as in 'partner'."
            )
    snapshot = history.live()
    names = _chosen(history, snapshot, tables, result=result)
    granted = tuple(_granted(snapshot, name, _of(columns, name, names), _of(where, name, names)) for name in names)
    if since is not None:
        whole_number(since, "since", least=0)
    if price is not None and price < 0:
        raise InvalidArgumentError(f"Invalid price={price!r}: expected the price of a million rows, at least 0.")
    terms = Terms(
        history.name,
        granted,
        since=0 if since is None else since,
        until=_until(until),
        freshness=None if freshness is None else time_span(freshness, "freshness"),
        keep=None if keep is None else time_span(keep, "keep"),
        price=price,
    )
    return Contracts(history.recorded.layout).offer(name or history.name, to, terms)


def _chosen(
    history: History, snapshot: Snapshot, tables: Sequence[str] | str | None, *, result: bool | None
) -> list[str]:
    """Return the tables to grant: those that are named, and the result unless there is none or it is not wanted."""
    names = [tables] if isinstance(tables, str) else list(tables or ())
    has_result = RESULT in results_shown(history.recorded)
    if result and not has_result:
        raise InvalidArgumentError(
            f"{history.name} has no result: its plan is not known, or gives none.\n"
            f"Grant its tables: {', '.join(snapshot.tables())}."
        )
    if result or (result is None and not names and has_result):
        names.append(RESULT)
    names = names or snapshot.tables()
    for name in names:
        table_named(snapshot, name)
    return list(dict.fromkeys(names))


def _of(given: Any, name: str, names: Sequence[str]) -> Any:
    """Return what an argument says of a table: all that it says, if there is one table only."""
    if isinstance(given, Mapping):
        if unknown := [key for key in given if key not in names]:
            raise InvalidArgumentError(f"{choices(unknown)} is not granted. Granted tables: {', '.join(names)}.")
        return given.get(name)
    if given is not None and len(names) > 1:
        raise InvalidArgumentError(
            f"{len(names)} tables are granted ({', '.join(names)}): say for which, such as {{{names[0]!r}: …}}."
        )
    return given


def _granted(snapshot: Snapshot, name: str, columns: Sequence[str] | None, where: str | None) -> GrantedTable:
    table = table_named(snapshot, name)
    schema = table.schema
    chosen = schema.names if columns is None else [columns] if isinstance(columns, str) else list(columns)
    for column in chosen:
        if column not in schema.names:
            raise UnknownColumnError.among("column", column, schema.names, where=f"in {name}")
    if not chosen:
        raise InvalidArgumentError(f"No column of {name} is granted. Columns: {', '.join(schema.names)}.")
    if where is not None:
        table.count(where=where)  # raises if it is no condition on the table's columns
    return GrantedTable(name, tuple(column for column in schema.names if column in chosen), where)


def _until(until: datetime | timedelta | str | None) -> datetime | None:
    if isinstance(until, str):
        span = duration(until)
        if span is None:
            try:
                until = datetime.fromisoformat(until)
            except ValueError as error:
                raise InvalidArgumentError(
                    f"Invalid until={until!r}: expected a time with its zone, or a span such as 30d."
                ) from error
        else:
            until = span
    if isinstance(until, timedelta):
        return datetime.now(UTC) + positive_duration(until, f"until={until!r}")
    if until is not None and until.tzinfo is None:
        raise InvalidArgumentError(f"Invalid until={until!r}: it has no time zone. Pass an aware datetime.")
    return until
