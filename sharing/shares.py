"""What a recipient can ask for: its shares, their tables, and the epochs of each that are granted now."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from streamstate.errors import InvalidArgumentError, UnknownContractError
from streamstate.sharing.contract import ACTIVE, Contract, GrantedTable
from streamstate.sharing.contracts import Contracts
from streamstate.sharing.protocol import AskedError
from streamstate.sharing.suggestion import PartialTerms
from streamstate.state_inspect.history import History

_NOT_THERE = "There is no such share, schema or table."
_NO_VERSION = "This version is not available."


@dataclass(frozen=True)
class SharedTable:
    """A table of a share, with the epochs that are granted now.

    Attributes:
        contract: the contract.
        granted: what it grants of the table.
        epochs: the granted epochs, ascending.
        times: their commits.
    """

    contract: Contract
    granted: GrantedTable
    epochs: Sequence[int]
    times: Sequence[datetime]

    @property
    def name(self) -> str:
        """The table's full name, by which it is known for good."""
        return f"{self.contract.to}/{self.contract.name}.{self.contract.terms.query}.{self.granted.name}"

    @property
    def newest(self) -> int:
        """The newest granted epoch."""
        if not self.epochs:
            raise AskedError(404, _NO_VERSION)
        return self.epochs[-1]

    def at(self, version: int) -> datetime:
        """Return the commit of a granted epoch."""
        return self.times[self._place(version)]

    def before(self, version: int) -> int | None:
        """Return the granted epoch before one; None: there is none."""
        place = self._place(version)
        return self.epochs[place - 1] if place else None

    def at_or_before(self, moment: datetime) -> int:
        """Return the newest epoch that was committed by a moment."""
        place = bisect_right(self.times, moment)
        if not place:
            raise AskedError(400, "No version was committed by this time.")
        return self.epochs[place - 1]

    def at_or_after(self, moment: datetime) -> int:
        """Return the first epoch that was committed at a moment or later."""
        place = bisect_left(self.times, moment)
        if place == len(self.times):
            raise AskedError(400, "No version was committed at this time or later.")
        return self.epochs[place]

    def between(self, first: int, last: int) -> Sequence[int]:
        """Return the granted epochs from one to another; both need not be granted."""
        return self.epochs[bisect_left(self.epochs, first) : bisect_right(self.epochs, last)]

    def _place(self, version: int) -> int:
        place = bisect_left(self.epochs, version)
        if place == len(self.epochs) or self.epochs[place] != version:
            raise AskedError(400, _NO_VERSION)
        return place


class Shares:
    """The shares of a store.

    Args:
        contracts: its contracts.
        history: returns a query's history.
    """

    def __init__(self, contracts: Contracts, history: Callable[[str], History]) -> None:
        self._contracts, self._history = contracts, history

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
            raise AskedError(404, _NOT_THERE)
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
            raise AskedError(404, _NOT_THERE)
        now = datetime.now(UTC)
        times = self._history(contract.terms.query).recorded.entries().commit_times
        there = [(epoch, at) for epoch, at in times.items() if at and contract.terms.granted(epoch, at, now)]
        return SharedTable(contract, granted, [epoch for epoch, _ in there], [at for _, at in there])

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
            raise AskedError(404, _NOT_THERE) from error
        except InvalidArgumentError as error:
            raise AskedError(429, str(error)) from error
