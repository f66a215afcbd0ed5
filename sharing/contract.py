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

from streamstate.sharing.suggestion import ACCEPTED, COUNTERED, REFUSED, PartialTerms, Suggestion
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
            others; ``accept`` and ``refuse``: the store's answer to the newest suggestion; ``revoke``: the contract
            ends.
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
        suggestion: the newest terms that the recipient suggested instead, answered or not; None: it suggested none.
        revoked_at: when it was revoked; None: it was not.
        at: when its terms came into force.
    """

    name: str
    to: str
    version: int
    terms: Terms
    suggestion: Suggestion | None = None
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
        """Put the terms that the recipient suggests into force, after checking them as :meth:`History.publish` does.

        Only what this object shows is accepted: if the recipient has suggested something else since, nothing is.

        Raises:
            InvalidArgumentError: it suggests none, or others than these.
            UnknownNameError: it suggests a table or column that does not exist.
            InvalidSQLError: it suggests an invalid condition.
            UnknownContractError: the contract was revoked.

        Example:
            >>> from streamstate.sharing import serve
            >>> contract = store["delays"].publish("partner", columns=["carrier", "max_delay"])
            >>> with serve("store", port=0) as server:
            ...     theirs = ss.open_share(contract.profile(server.url), cache="theirs")
            ...     asked = theirs.suggest("delays", freshness="10s")
            >>> [contract] = store.contracts()
            >>> contract.accept().terms.freshness
            10.0
        """
        from streamstate.sharing.contracts import Contracts

        return Contracts(self._layout).accept(self)

    def refuse(self) -> Contract:
        """Refuse the terms that the recipient suggests; those in force stay.

        Raises:
            InvalidArgumentError: it suggests none, or others than this object shows.
            UnknownContractError: the contract was revoked.
        """
        from streamstate.sharing.contracts import Contracts

        return Contracts(self._layout).refuse(self)

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
        from streamstate.sharing.contract_list import granted_text, suggested_texts

        tables = ", ".join(map(granted_text, self.terms.tables))
        more = [f"from epoch {self.terms.since}" if self.terms.since else ""]
        more += [f"until {self.terms.until:%Y-%m-%d %H:%M %Z}" if self.terms.until else ""]
        more += [f"suggested: {'; '.join(suggested_texts(self))}" if suggested_texts(self) else ""]
        ends = "".join(f", {text}" for text in more if text)
        return f"<Contract {self.name} with {self.to}, {self.state}, version {self.version}: {tables}{ends}>"

    def _repr_html_(self) -> str:
        from streamstate.sharing.contract_list import ContractList

        return ContractList([self], self.layout)._repr_html_()


def contracts_of(rows: Sequence[ContractRow], layout: Layout | None = None) -> dict[tuple[str, str], Contract]:
    """Return the contracts that rows describe, by recipient and name, in the order of their first rows."""
    found: dict[tuple[str, str], Contract] = {}
    for row in rows:
        key = row.to, row.name
        known = found.get(key)
        if row.kind in ("offer", "accept") and row.terms is not None:
            version = 1 if known is None else known.version + 1
            suggestion = _answered(known, ACCEPTED if row.kind == "accept" else COUNTERED)
            terms = Terms.from_json(row.terms)
            found[key] = Contract(row.name, row.to, version, terms, suggestion, at=row.at, layout=layout)
        elif known is not None and row.kind == "suggest" and row.terms is not None:
            before = known.suggestion
            replaced = before.replaced + 1 if before is not None and before.is_open else 0
            asked = PartialTerms.from_json(row.terms)
            found[key] = replace(known, suggestion=Suggestion(asked, number=row.number, replaced=replaced, at=row.at))
        elif known is not None and row.kind == "refuse":
            found[key] = replace(known, suggestion=_answered(known, REFUSED))
        elif known is not None and row.kind == "revoke":
            found[key] = replace(known, suggestion=_answered(known, REFUSED), revoked_at=row.at)
    return found


def _answered(known: Contract | None, state: str) -> Suggestion | None:
    """Return a contract's suggestion, with the answer if it is open."""
    found = None if known is None else known.suggestion
    return found if found is None or not found.is_open else replace(found, state=state)
