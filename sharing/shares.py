"""What a recipient can ask for: its shares, their tables, and the epochs of each that are granted now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from streamstate.errors import InvalidArgumentError, UnknownContractError
from streamstate.sharing.contract import ACTIVE, Contract, GrantedTable, Terms
from streamstate.sharing.contracts import Contracts
from streamstate.sharing.granted_epochs import GrantedEpochs
from streamstate.sharing.protocol import AskedError
from streamstate.sharing.shared_files import SharedFiles
from streamstate.sharing.suggestion import PartialTerms
from streamstate.snapshots.store.entries import Entries
from streamstate.state_inspect.history import History
from streamstate.state_inspect.results.results import may_compute, state_name

NOT_THERE = "There is no such share, schema or table."


@dataclass(frozen=True)
class SharedTable:
    """A table of a share, with the epochs that are granted now.

    Attributes:
        contract: the contract.
        granted: what it grants of the table.
        epochs: the granted epochs.
    """

    contract: Contract
    granted: GrantedTable
    epochs: GrantedEpochs

    @property
    def name(self) -> str:
        """The table's full name, by which it is known for good."""
        return f"{self.contract.to}/{self.contract.name}.{self.contract.terms.query}.{self.granted.name}"


@dataclass(frozen=True)
class ViewColumns:
    """The granted columns of a table, at a query's newest epoch.

    Attributes:
        schema: their names and types.
        keys: the key columns; None if a part of the key is not granted.
    """

    schema: pa.Schema
    keys: list[str] | None


class Shares:
    """The shares of a store.

    Each request looks at the versions of the tables of contracts and recipients and of the query's manifest, so that a
    revoked contract ends at once. What follows from a version is kept until there is a newer one. With n epochs, an
    answer takes binary searches, log n. The first answer after a new epoch, or after one is no longer kept, takes some
    passes over columns of n numbers, without an object for each epoch. Contracts and tokens are parsed once a version,
    and each request looks through them.

    Args:
        contracts: its contracts.
        history: returns a query's history.
        files: the files of its granted views.
    """

    def __init__(self, contracts: Contracts, history: Callable[[str], History], files: SharedFiles) -> None:
        self._contracts, self._history, self._files = contracts, history, files
        # By what is asked, with what they follow from.
        self._epochs: dict[tuple[str, int, float | None], tuple[Entries, GrantedEpochs]] = {}
        self._columns: dict[str, tuple[tuple[object, ...], ViewColumns]] = {}

    def of(self, recipient: str) -> list[Contract]:
        """Return the contracts of a recipient that are in force now, each a share."""
        return self._contracts.granted_to(recipient)

    def share(self, recipient: str, name: str) -> Contract:
        """Return the contract with the name of a share.

        Raises:
            AskedError: the recipient has none.
        """
        found = next((contract for contract in self.of(recipient) if contract.name.lower() == name.lower()), None)
        if found is None:
            raise AskedError(404, NOT_THERE)
        return found

    def table(self, recipient: str, share: str, schema: str, name: str) -> SharedTable:
        """Return a table of a share.

        Raises:
            AskedError: the recipient has none of that name.
        """
        contract = self.share(recipient, share)
        names = {table.name.lower(): table for table in contract.terms.tables}
        granted = names.get(name.lower())
        if granted is None or schema.lower() != contract.terms.query.lower():
            raise AskedError(404, NOT_THERE)
        return SharedTable(contract, granted, self._granted(contract.terms))

    def grants_epoch(self, recipient: str, share: str, grant: str, epoch: int) -> bool:
        """Return whether a contract grants a view to a recipient at an epoch, now."""
        return any(
            contract.name == share and contract.terms.grant(table) == grant and epoch in self._granted(contract.terms)
            for contract in self.of(recipient)
            for table in contract.terms.tables
        )

    def grants(self) -> set[str]:
        """Return the names of all granted views."""
        active = [contract for contract in self._contracts.all() if contract.state == ACTIVE]
        return {contract.terms.grant(table) for contract in active for table in contract.terms.tables}

    def suggest(self, contract: Contract, terms: PartialTerms) -> Contract:
        """Note other terms that a recipient suggests for a share.

        Raises:
            AskedError: the contract has ended, or too many suggestions are not answered.
        """
        try:
            return self._contracts.suggest(contract.name, contract.to, terms)
        except UnknownContractError as error:
            raise AskedError(404, NOT_THERE) from error
        except InvalidArgumentError as error:
            raise AskedError(429, str(error)) from error

    def columns(self, shared: SharedTable) -> ViewColumns:
        """Return the granted columns of a table.

        They are read again if the table's columns or the query's plan have changed: no rows are read for a new epoch.
        """
        terms, granted = shared.contract.terms, shared.granted
        query, grant = self._history(terms.query).recorded, terms.grant(granted)
        epoch = query.live_entry().epoch
        log = query.columns(state_name(query, granted.name))
        facts = (log.schema, log.columns_at(epoch), query.plans.at(epoch), may_compute(query, epoch))
        known = self._columns.get(grant)
        if known is None or known[0] != facts:
            known = facts, ViewColumns(self._files.schema(terms, granted), self._files.keys(terms, granted))
            self._columns[grant] = known
        return known[1]

    def _granted(self, terms: Terms) -> GrantedEpochs:
        entries, now = self._history(terms.query).recorded.entries(), datetime.now(UTC)
        asked = terms.query, terms.since, terms.keep
        known = self._epochs.get(asked)
        if known is None or known[0] is not entries or not known[1].all_granted(now):
            known = entries, GrantedEpochs.of(entries, terms.since, terms.keep, now)
            self._epochs[asked] = known
        return known[1]
