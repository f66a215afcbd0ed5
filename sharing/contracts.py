"""The contracts of a store: publish a query's state, change the terms, revoke them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownColumnError, UnknownContractError, choices, worded
from streamstate.sharing.contract import (
    ACTIVE,
    REVOKED,
    Contract,
    ContractRow,
    GrantedTable,
    Terms,
    contracts_of,
)
from streamstate.sharing.kept import KeptByVersion
from streamstate.sharing.suggestion import PartialTerms, Suggestion
from streamstate.snapshots.calls.checks import duration, positive_duration, time_span, whole_number
from streamstate.snapshots.store.layout import TIME, Layout
from streamstate.snapshots.store.names import is_name
from streamstate.snapshots.store.numbered_table import NumberedTable
from streamstate.state_inspect.history import History
from streamstate.state_inspect.results.results import RESULT, results_shown
from streamstate.state_inspect.snapshot import Snapshot
from streamstate.state_inspect.store import Store

MOST_OPEN = 10
"""Suggestions that a recipient can make for a contract before one is answered: each is a row of the store."""
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

    def suggest(self, name: str, to: str, terms: PartialTerms) -> Contract:
        """Note the terms that the recipient suggests instead; they are in force once they are accepted.

        Raises:
            UnknownContractError: there is no such contract in force.
            InvalidArgumentError: so many are open already that no more are noted.
        """

        def made(known: Contract | None) -> ContractRow | None:
            last = _in_force(known, name, to).suggestion
            if last is not None and last.is_open:
                if last.terms == terms:
                    return None
                if last.replaced + 1 >= MOST_OPEN:
                    raise InvalidArgumentError(f"{MOST_OPEN} suggestions are not answered yet.")
            return ContractRow(name, to, "suggest", terms.to_json())

        return self._changed(name, to, made)

    def accept(self, seen: Contract) -> Contract:
        """Put the suggested terms into force, if they are those that were seen; see :meth:`Contract.accept`."""
        key = seen.to, seen.name
        suggested = _seen(contracts_of(self.rows()).get(key), seen).terms
        history = Store(self._layout.root, self._layout.options)[seen.terms.query]
        return self._answer(seen, "accept", terms_of(history, **_overlaid(seen.terms, suggested)).to_json())

    def refuse(self, seen: Contract) -> Contract:
        """Refuse the suggested terms, if they are those that were seen; see :meth:`Contract.refuse`."""
        return self._answer(seen, "refuse")

    def _answer(self, seen: Contract, kind: str, terms: str | None = None) -> Contract:
        def made(known: Contract | None) -> ContractRow:
            _seen(known, seen)
            return ContractRow(seen.name, seen.to, kind, terms)

        return self._changed(seen.name, seen.to, made)

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


def _in_force(known: Contract | None, name: str, to: str) -> Contract:
    if known is None or known.state == REVOKED:
        raise UnknownContractError(f"There is no contract {name} with {to} in force.")
    return known


def _seen(known: Contract | None, seen: Contract) -> Suggestion:
    """Return the open suggestion of a contract; raise if it is not the one that was seen."""
    found = _in_force(known, seen.name, seen.to).suggestion
    if found is None or not found.is_open:
        raise InvalidArgumentError(f"{seen.to} suggests no other terms for {seen.name}.")
    if seen.suggestion is None or seen.suggestion.number != found.number:
        again = worded("Read store.contracts() again.", command="Look at the contract again: streamstate share show.")
        raise InvalidArgumentError(f"{seen.to} suggests other terms for {seen.name} than you have seen.\n{again}")
    return found


def _overlaid(terms: Terms, suggested: PartialTerms) -> dict[str, Any]:
    """Return the arguments of :func:`terms_of` for terms of which a part is replaced."""
    columns, where = suggested.columns or {}, suggested.where or {}
    granted = {table.name: table for table in terms.tables}
    names = suggested.tables or tuple(dict.fromkeys([*granted, *columns, *where]))
    kept = [granted[name] for name in names if name in granted]
    others = ("since", "until", "freshness", "keep", "price")
    return {
        "tables": names,
        "columns": {table.name: table.columns for table in kept} | dict(columns),
        "where": {table.name: table.where for table in kept} | dict(where),
        **{name: getattr(terms if getattr(suggested, name) is None else suggested, name) for name in others},
    }


def publish(history: History, to: str, *, name: str | None = None, **terms: Any) -> Contract:
    """Grant a query's state to a recipient; see :meth:`streamstate.reports.History.publish`."""
    for what, text in (("to", to), ("name", history.name if name is None else name)):
        if not is_name(text):
            raise InvalidArgumentError(
                f"Invalid {what}={text!r}: expected letters, digits, '-' and '_', as in 'partner'."
            )
    return Contracts(history.recorded.layout).offer(name or history.name, to, terms_of(history, **terms))


def terms_of(
    history: History,
    *,
    tables: Sequence[str] | str | None = None,
    columns: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
    where: Mapping[str, str | None] | str | None = None,
    result: bool | None = None,
    since: int | None = None,
    until: datetime | timedelta | str | None = None,
    freshness: float | str | timedelta | None = None,
    keep: float | str | timedelta | None = None,
    price: float | None = None,
) -> Terms:
    """Return terms that fit a query's tables; see :meth:`streamstate.reports.History.publish`."""
    snapshot = history.live()
    names = _chosen(history, snapshot, tables, result=result)
    granted = tuple(_granted(snapshot, name, _of(columns, name, names), _of(where, name, names)) for name in names)
    if since is not None:
        whole_number(since, "since", least=0)
    if price is not None and price < 0:
        raise InvalidArgumentError(f"Invalid price={price!r}: expected the price of a million rows, at least 0.")
    ended, fresh, kept = limits_of(until, freshness, keep)
    return Terms(
        history.name,
        granted,
        since=0 if since is None else since,
        until=ended,
        freshness=fresh,
        keep=kept,
        price=price,
    )


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
        snapshot.table(name)
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
    table = snapshot.table(name)
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


def limits_of(
    until: datetime | timedelta | str | None,
    freshness: float | str | timedelta | None,
    keep: float | str | timedelta | None,
) -> tuple[datetime | None, float | None, float | None]:
    """Return the end of a contract, and the seconds of its freshness and for which it grants an epoch.

    Raises:
        InvalidArgumentError: one of them is invalid.
    """
    fresh = None if freshness is None else time_span(freshness, "freshness")
    return _until(until), fresh, None if keep is None else time_span(keep, "keep")


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
