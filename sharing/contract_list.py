"""Contracts as a table for people: what is granted to whom, what is suggested instead, and what was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from streamstate.operations.report_html import report
from streamstate.sharing.contract import Contract, GrantedTable, Terms
from streamstate.sharing.metering import Reading, readings
from streamstate.sharing.suggestion import PartialTerms
from streamstate.snapshots.calls.html import Html, head, table, tag, td
from streamstate.snapshots.store.layout import Layout
from streamstate.state_inspect.cell_text import span_text, timestamp

_LIMITS = {
    "since": "from epoch {}",
    "keep": "each epoch for {}",
    "until": "until {}",
    "freshness": "visible within {}",
    "price": "{:g} for a million rows",
}
"""The terms beside the tables, in words."""


class ContractList(list[Contract]):
    """The contracts of a store: a list that a notebook shows as a table, with what was read by each.

    Args:
        contracts: the contracts.
        layout: the store; None: what was read is not known.
    """

    def __init__(self, contracts: Iterable[Contract], layout: Layout | None = None) -> None:
        super().__init__(contracts)
        self._layout = layout

    def of_query(self, query: str) -> ContractList:
        """Return the contracts of one query."""
        return ContractList((contract for contract in self if contract.terms.query == query), self._layout)

    def readings(self) -> Mapping[tuple[str, str], Reading]:
        """Return what was read by now, by recipient and contract."""
        return {} if self._layout is None else readings(self._layout, by=("recipient", "contract"))

    def _repr_html_(self) -> str:
        if not self:
            return tag("p", "Nothing is granted to others.")
        found = self.readings()
        names = ["contract", "recipient", "state", "granted", "terms", "suggested"]
        numbers = ["rows read", "epochs", "newest", "last read", "cost"]
        heads = [*map(head, names), *(head(name, "number") for name in numbers)]
        rows = (_row(contract, found.get((contract.to, contract.name), Reading())) for contract in self)
        return report(table(heads, rows))


def _row(contract: Contract, read: Reading) -> Iterator[Html]:
    yield tag("th", contract.name, scope="row")
    yield td(contract.to)
    yield td(f"{contract.state}, version {contract.version}")
    yield lines_cell(map(granted_text, contract.terms.tables))
    yield lines_cell(limit_texts(contract.terms))
    yield lines_cell(suggested_texts(contract))
    newest = "–" if read.newest is None else f"{read.newest:,}"
    last = "–" if read.at is None else timestamp(read.at.replace(microsecond=0))
    for text in (f"{read.rows:,}", f"{read.epochs:,}", newest, last, f"{read.cost:,.2f}"):
        yield td(text, "number")


def lines_cell(texts: Iterable[str]) -> Html:
    """Return a table cell with a text a line."""
    return td([tag("div", text) for text in texts], "words")


def granted_text(granted: GrantedTable) -> str:
    """Return what is granted of a table.

    Example:
        >>> granted_text(GrantedTable("op0", ("carrier", "max"), "max > 60"))
        'op0 (carrier, max where max > 60)'
    """
    where = f" where {granted.where}" if granted.where else ""
    return f"{granted.name} ({', '.join(granted.columns)}{where})"


def limit_texts(terms: Terms | PartialTerms) -> list[str]:
    """Return the terms beside the tables, in words; those that limit nothing are left out."""
    return [_limit(name, value) for name in _LIMITS if (value := getattr(terms, name))]


def _limit(name: str, value: Any) -> str:
    if name in ("keep", "freshness"):
        value = span_text(timedelta(seconds=value))
    return _LIMITS[name].format(timestamp(value.replace(microsecond=0)) if name == "until" else value)


def suggested_texts(contract: Contract) -> list[str]:
    """Return the changes that an open suggestion would make; empty if there is none."""
    suggestion = contract.suggestion
    if suggestion is None or not suggestion.is_open:
        return []
    return change_texts(suggestion.terms, contract)


def change_texts(terms: PartialTerms, contract: Contract | None = None) -> list[str]:
    """Return suggested terms in words, compared with those in force if the contract is given.

    Example:
        >>> change_texts(PartialTerms(columns={"op0": ("carrier", "max")}, freshness=10.0))
        ['op0: carrier, max', 'visible within 10s']
    """
    granted = {} if contract is None else {table.name: table for table in contract.terms.tables}
    texts = [f"only the tables {', '.join(terms.tables)}"] if terms.tables else []
    for name, columns in (terms.columns or {}).items():
        known = granted[name].columns if name in granted else ()
        added = [f"+ {column}" if contract is not None and column not in known else column for column in columns]
        texts.append(f"{name}: {', '.join([*added, *(f'− {column}' for column in known if column not in columns)])}")
    for name, where in (terms.where or {}).items():
        now = granted[name].where if name in granted else None
        texts.append(f"{name} where {where}{f' (now: {now})' if now else ''}")
    for name in _LIMITS:
        if (value := getattr(terms, name)) is not None:
            now = None if contract is None else getattr(contract.terms, name)
            texts.append(f"{_limit(name, value)}{f' (now {_limit(name, now)})' if now else ''}")
    return texts
