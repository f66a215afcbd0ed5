"""A contract: what of a query's state a store grants to whom, until when, and how fresh.

These are the content contracts of Medusa (Cetintemel et al., "The Aurora and Medusa Projects", 2003).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from streamstate.snapshots.store.layout import Layout

ACTIVE, REVOKED, EXPIRED = "active", "revoked", "expired"


@dataclass(frozen=True)
class GrantedTable:
    """The part of a state table or a result that a contract grants.

    Attributes:
        name: the table, such as ``op0`` or ``result``.
        columns: the granted columns in the order of the table.
        where: a condition on the table's rows, which may use any of its columns; None: all rows.
    """

    name: str
    columns: tuple[str, ...]
    where: str | None = None


@dataclass(frozen=True)
class Terms:
    """The terms of a contract.

    Attributes:
        query: the query.
        tables: what is granted of each table.
        since: the first epoch that is granted.
        until: when the contract ends; None: it does not.
        freshness: the seconds after an epoch's commit within which it is to be visible; None: nothing is promised.
        keep: for how many seconds after its commit an epoch is granted; None: as long as the store has it.
        price: the price of a million rows, in the parties' own unit; None: it costs nothing.
    """

    query: str
    tables: tuple[GrantedTable, ...]
    since: int = 0
    until: datetime | None = None
    freshness: float | None = None
    keep: float | None = None
    price: float | None = None

    def grant(self, table: GrantedTable) -> str:
        """Return the name of what a table's readers see: contracts that grant the same have the same."""
        text = json.dumps([self.query, table.name, table.columns, table.where])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def to_json(self) -> str:
        """Return the terms as JSON."""
        found = asdict(self) | {"until": None if self.until is None else self.until.isoformat()}
        return json.dumps(found)

    @classmethod
    def from_json(cls, text: str) -> Terms:
        """Return the terms that :meth:`to_json` wrote."""
        found: dict[str, Any] = json.loads(text)
        tables = tuple(GrantedTable(**{**table, "columns": tuple(table["columns"])}) for table in found["tables"])
        until = None if found["until"] is None else datetime.fromisoformat(found["until"])
        return cls(**{**found, "tables": tables, "until": until})


@dataclass(frozen=True)
class ContractRow:
    """A row of the table of contracts.

    Attributes:
        name: the contract, which is also the name of the share.
        to: the recipient.
        kind: ``offer``: the store offers these terms, which are in force at once; ``suggest``: the recipient suggests
            others; ``accept``: the store accepts the newest suggestion; ``revoke``: the contract ends.
        terms: the terms of an offer, a suggestion or what was accepted, as JSON.
        number: the row's number, from 0 on.
        at: when it was written.
    """

    name: str
    to: str
    kind: str
    terms: str | None = None
    number: int = -1
    at: datetime | None = None


@dataclass(frozen=True)
class Contract:
    """A contract as of its newest version.

    Attributes:
        name: the contract, which is also the name of the share.
        to: the recipient.
        version: how often its terms were changed, from 1 on.
        terms: the terms in force.
        suggested: the terms that the recipient suggests instead; None: none are open.
        revoked_at: when it was revoked; None: it was not.
        at: when its terms came into force.
    """

    name: str
    to: str
    version: int
    terms: Terms
    suggested: Terms | None = None
    revoked_at: datetime | None = None
    at: datetime | None = field(default=None, compare=False)
    layout: Layout | None = field(default=None, compare=False, repr=False)

    def revoke(self) -> Contract:
        """End the contract at once, with all links in hand; what was read stays with the recipient.

        Example:
            >>> store["delays"].publish("partner").revoke().state
            'revoked'
        """
        from streamstate.sharing.contracts import Contracts

        return Contracts(self._layout).revoke(self.name, self.to)

    def accept(self) -> Contract:
        """Put the terms that the recipient suggests into force.

        Raises:
            InvalidArgumentError: it suggests none.
        """
        from streamstate.sharing.contracts import Contracts

        return Contracts(self._layout).accept(self.name, self.to)

    def profile(
        self,
        endpoint: str,
        path: str | Path | None = None,
        *,
        lasts: str | timedelta = "90d",
        overlap: str | timedelta | None = None,
    ) -> dict[str, Any]:
        """Issue a token to the recipient, and return the profile that opens all its shares. The token is shown once.

        Args:
            endpoint: the URL of the server, as its recipient reaches it.
            path: a file to write the profile to, which only you can read; it must not exist.
            lasts: how long the token is valid.
            overlap: how long earlier tokens of the recipient stay valid; by default as long as they are.

        Raises:
            InvalidArgumentError: an argument is invalid, or the file exists.
        """
        from streamstate.sharing.recipients import issue_profile

        return issue_profile(self._layout, self.to, endpoint, path, lasts=lasts, overlap=overlap)

    @property
    def _layout(self) -> Layout:
        assert self.layout is not None, "a contract of a store knows it"
        return self.layout

    @property
    def state(self) -> str:
        """``active``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return REVOKED
        return EXPIRED if self.terms.until is not None and datetime.now(UTC) >= self.terms.until else ACTIVE

    def __repr__(self) -> str:
        tables = ", ".join(
            f"{table.name} ({', '.join(table.columns)}{f' where {table.where}' if table.where else ''})"
            for table in self.terms.tables
        )
        more = [f"from epoch {self.terms.since}" if self.terms.since else ""]
        more += [f"until {self.terms.until:%Y-%m-%d %H:%M %Z}" if self.terms.until else ""]
        more += [f"suggested: {self.suggested.to_json()}" if self.suggested else ""]
        ends = "".join(f", {text}" for text in more if text)
        return f"<Contract {self.name} with {self.to}, {self.state}, version {self.version}: {tables}{ends}>"


def contracts_of(rows: Sequence[ContractRow], layout: Layout | None = None) -> dict[tuple[str, str], Contract]:
    """Return the contracts that rows describe, by recipient and name, in the order of their first rows."""
    found: dict[tuple[str, str], Contract] = {}
    for row in rows:
        key, terms = (row.to, row.name), None if row.terms is None else Terms.from_json(row.terms)
        known = found.get(key)
        if row.kind in ("offer", "accept") and terms is not None:
            version = 1 if known is None else known.version + 1
            found[key] = Contract(row.name, row.to, version, terms, at=row.at, layout=layout)
        elif known is not None and row.kind == "suggest":
            found[key] = replace(known, suggested=terms)
        elif known is not None and row.kind == "revoke":
            found[key] = replace(known, suggested=None, revoked_at=row.at)
    return found
