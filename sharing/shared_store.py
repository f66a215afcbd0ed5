"""What others share, as a store: a copy on this machine that follows the server."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from streamstate.errors import InvalidArgumentError, ShareError, UnknownContractError, choices
from streamstate.sharing.agreed_terms import AgreedTerms
from streamstate.sharing.contracts import limits_of
from streamstate.sharing.following import Following, Freshness
from streamstate.sharing.granted_view import CHANGE_TYPE
from streamstate.sharing.profile import Profile, ShareClient
from streamstate.sharing.replica import CopiedTable, EpochChanges, Replica
from streamstate.sharing.suggestion import partial_terms
from streamstate.sharing.table_changes import TableChanges, common_epochs, terms_of
from streamstate.snapshots.calls.progress_callback import report_progress
from streamstate.snapshots.checkpoint.server_copy import cache_folder
from streamstate.snapshots.store.entries import Entry
from streamstate.snapshots.store.layout import Layout
from streamstate.snapshots.store.names import is_base_name, is_name
from streamstate.snapshots.store.registry import make_store
from streamstate.state_inspect.results.results import RESULT
from streamstate.state_inspect.store import Store

ROWS = "rows"
"""The name of the table that has the rows of a result."""


class SharedStore(Store):
    """The copy of what a profile opens; :func:`open_share` returns it."""

    def __init__(self, profile: Profile, folder: Path) -> None:
        self.profile = profile
        """The endpoint and token."""
        self._client = ShareClient(profile)
        layout = Layout.at(folder)
        make_store(layout)
        super().__init__(folder)
        self._replicas: dict[str, Replica] = {}
        self._asked: dict[str, datetime] = {}
        self._promised: dict[str, float | None] = {}
        self._errors: dict[str, str] = {}
        self._lock = threading.RLock()

    def refresh(self) -> list[Freshness]:
        """Copy the epochs that are new, of every share.

        If the terms of a contract have changed, the next epoch is copied whole, and earlier epochs stay as they were
        granted. The copy of a contract that was revoked or has ended stays, and its freshness says so.

        Returns:
            The freshness of each query.

        Raises:
            ShareError: the server cannot be reached, or refuses; or a share has lost a column, or has another key, and
                has to be copied to another cache. What was copied stays, and the other shares are copied.
        """
        with self._lock:
            shares, failed = [item["name"] for item in self._client.items("shares")], list[ShareError]()
            for share in shares:
                try:
                    self._refresh_share(share)
                except ShareError as error:  # the others are copied all the same
                    failed.append(error)
            self._note_ended({self._source(share) for share in shares})
            if failed:
                raise failed[0]
            return self.freshness()

    def freshness(self) -> list[Freshness]:
        """Return how old the copy of each query is, without asking the server."""
        found = []
        for name in self.queries():
            newest = self[name].recorded.entries().newest
            epoch, at = (None, None) if newest is None else (newest.epoch, newest.committed_at)
            promised, error = self._promised.get(name), self._errors.get(name)
            found.append(Freshness(name, epoch, at, self._asked.get(name), promised, error))
        return found

    def follow(self, every: timedelta | float = 1.0, *, late: Callable[[Freshness], None] | None = None) -> Following:
        """Copy new epochs in the background.

        Args:
            every: the seconds between two questions to the server.
            late: called when a query's newest epoch is older than the contract promises, once until it is fresh again.
        """
        return Following(self, every, late)

    def terms(self, name: str | None = None) -> AgreedTerms:
        """Ask the server for the terms of a share, and what became of the newest suggestion.

        Args:
            name: the query's name here, or the share's; it may be left out if there is one share only.

        Raises:
            UnknownContractError: there is no such share any more.
            InvalidArgumentError: there are several shares, and none is named.
            ShareError: the server cannot be reached, or refuses.

        Example:
            >>> from streamstate.sharing import serve
            >>> contract = store["delays"].publish("partner", columns=["carrier", "max_delay"], freshness="5m")
            >>> with serve("store", port=0) as server:
            ...     theirs = ss.open_share(contract.profile(server.url), cache="reading")
            ...     theirs.terms().terms.freshness
            300.0
        """
        return AgreedTerms.from_json(self._client.terms(self._share_of(name)))

    def suggest(
        self,
        name: str | None = None,
        *,
        tables: Sequence[str] | None = None,
        columns: Mapping[str, Sequence[str]] | Sequence[str] | None = None,
        where: Mapping[str, str] | str | None = None,
        since: int | None = None,
        until: datetime | timedelta | str | None = None,
        freshness: float | str | timedelta | None = None,
        keep: float | str | timedelta | None = None,
        price: float | None = None,
    ) -> AgreedTerms:
        """Suggest other terms to whoever shares, who accepts or refuses them. Until then those in force stay.

        What is left out stays as it is. A suggestion may ask for more than is granted: whether there are such columns,
        the answer does not tell. It takes the place of an open one.

        Args:
            name: as for :meth:`terms`.
            tables: the tables to grant; by default those that are granted, and those that the next two name.
            columns: the columns to grant; of several tables, by table.
            where: a condition on the granted rows; of several tables, by table.
            since: the first epoch to grant.
            until: when the contract is to end: a time with its zone, or a span such as ``"30d"``.
            freshness: the seconds after its commit within which an epoch is to be visible, or ``"5m"``.
            keep: for how long after its commit an epoch is to be granted, such as ``"30d"``.
            price: the price of a million rows.

        Returns:
            The terms in force, with the suggestion.

        Raises:
            InvalidArgumentError: an argument is invalid, or none is given.
            UnknownContractError: there is no such share any more.
            ShareError: the server cannot be reached or refuses, such as when ten suggestions are not answered yet.

        Example:
            >>> from streamstate.sharing import serve
            >>> contract = store["delays"].publish("partner", columns=["carrier", "max_delay"])
            >>> with serve("store", port=0) as server:
            ...     theirs = ss.open_share(contract.profile(server.url), cache="suggesting")
            ...     theirs.suggest("delays", columns=["carrier", "origin", "max_delay"], price=2).suggestion.state
            'open'
        """
        share = self._share_of(name)
        names = [item["name"] for item in self._client.items("shares", share, "all-tables")]
        ended, fresh, kept = limits_of(until, freshness, keep)
        asked = {
            "tables": None if tables is None else [_shared_name(table, names) for table in tables],
            "columns": _by_table(columns, names, "columns"),
            "where": _by_table(where, names, "where"),
            "since": since,
            "until": None if ended is None else ended.isoformat(),
            "freshness": fresh,
            "keep": kept,
            "price": price,
        }
        return AgreedTerms.from_json(self._client.terms(share, partial_terms(asked).to_json()))

    def _share_of(self, name: str | None) -> str:
        """Return the share of a query here; shares that have no copy yet go by their own names."""
        shares = [str(item["name"]) for item in self._client.items("shares")]
        if name is None and len(shares) != 1:
            raise InvalidArgumentError(f"{len(shares)} shares are open: name one.\nShares: {choices(shares)}.")
        prefix = f"{self.profile.endpoint}#"
        sources = {branch.name: branch.query_id for branch in self._lineage.branches()}
        share = shares[0] if name is None else sources.get(name, name).removeprefix(prefix)
        if share not in shares:
            raise UnknownContractError(f"{name} is not shared, or no longer.\nShares: {choices(shares)}.")
        return share

    def _refresh_share(self, share: str) -> None:
        items = self._client.items("shares", share, "all-tables")
        if not items:
            return
        query, tables = items[0]["schema"], [item["name"] for item in items]
        _check_names(share, query, tables)
        name = self._name(share, query)
        replica = self._replicas[name]
        try:
            while self._copy(share, query, tables, name, replica):
                pass
        except ShareError as error:
            self._errors[name] = str(error)
            raise
        self._errors.pop(name, None)
        self._asked[name] = datetime.now(UTC)

    def _name(self, share: str, query: str) -> str:
        """Return the name of a share's query here: its own, unless another share's query has it."""
        source = self._source(share)
        taken = {name: replica.source for name, replica in self._replicas.items()}
        known = {branch.name: branch.query_id for branch in self._lineage.branches()}
        name = query if {**known, **taken}.get(query, source) == source else share
        if name not in self._replicas:
            self._replicas[name] = Replica(self.layout, name, source)
        return name

    def _source(self, share: str) -> str:
        return f"{self.profile.endpoint}#{share}"

    def _note_ended(self, sources: set[str]) -> None:
        """Note as an error of each query that its share is none of those that the server has now."""
        for branch in self._lineage.branches():
            if branch.query_id not in sources:
                self._errors[branch.name] = (
                    f"{branch.name} is not shared any more: its contract was revoked or has ended."
                )

    def _copy(self, share: str, query: str, tables: list[str], name: str, replica: Replica) -> bool:
        """Copy some epochs; False if there are no more."""
        newest = replica.newest
        answers = self._answers(share, query, tables, newest)
        epochs, terms = common_epochs(answers), terms_of(answers)
        before = epochs[0].before if epochs else None
        if newest is not None and before is not None and (before, terms) != (newest.epoch, newest.run_id):
            # The changes are not from the state that the copy has.
            answers = self._answers(share, query, tables, newest, whole=True)
            epochs, terms = common_epochs(answers), terms_of(answers)
        self._promised[name] = answers[tables[0]].freshness
        if not epochs:
            return False
        changes = [EpochChanges(epoch.number, epoch.at, {}) for epoch in epochs]
        for table, answer in answers.items():
            for change in changes:
                if (url := answer.links.get(change.epoch)) is not None:
                    report_progress(f"copying epoch {change.epoch} of {name}")
                    read = pq.read_table(pa.BufferReader(self._client.file(url)))
                    typed = answer.schema.append(pa.field(CHANGE_TYPE, pa.string()))
                    change.tables[_own_name(table)] = read.select(typed.names).cast(typed)
        copied = {_own_name(table): CopiedTable(answer.schema, answer.keys) for table, answer in answers.items()}
        replica.append(changes, copied, terms, whole=epochs[0].before is None)
        return True

    def _answers(
        self, share: str, query: str, tables: list[str], newest: Entry | None, *, whole: bool = False
    ) -> dict[str, TableChanges]:
        """Ask for the changes of each table since the copy's newest epoch; all rows of the first epoch if ``whole``."""
        asked: dict[str, object] = {"startingVersion": 0 if newest is None else newest.epoch + 1}
        asked |= {"whole": 1} if whole else {}
        parts = "shares", share, "schemas", query, "tables"
        return {table: TableChanges.of(self._client.lines(*parts, table, "changes", **asked)) for table in tables}


def _check_names(share: object, query: object, tables: list[object]) -> None:
    """Raise if a server's names cannot name folders of the copy."""
    fine = is_name(share) and is_name(query)
    if not fine or not all(is_base_name(table) and not table.startswith(("_", ".")) for table in tables):
        raise ShareError(f"The server names a share {share!r} of {query!r} with tables {tables!r}: these are no names.")


def _own_name(table: str) -> str:
    """Return the name of a shared table here: rows of a result are plain rows, since their query is elsewhere."""
    state, _, last = table.rpartition(".")
    return "_".join(filter(None, (state, ROWS))) if last == RESULT else table


def _shared_name(table: str, names: Sequence[str]) -> str:
    """Return a table's name where it is shared, given that or its name here.

    Example:
        >>> _shared_name("rows", ["op0", "result"]), _shared_name("op0", ["op0", "result"])
        ('result', 'op0')
    """
    return next((name for name in names if _own_name(name) == table), table)


def _by_table(given: Any, names: Sequence[str], argument: str) -> dict[str, Any] | None:
    """Return what an argument says of each table; of a table alone, it need not name it."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        return {_shared_name(table, names): value for table, value in given.items()}
    if len(names) != 1:
        raise InvalidArgumentError(
            f"{len(names)} tables are shared: pass {argument}= as a mapping by table.\nTables: {choices(names)}."
        )
    return {names[0]: given}


def open_share(
    profile: str | Path | Mapping[str, Any], *, cache: str | Path | None = None, refresh: bool = True
) -> SharedStore:
    """Open what others share, as a store like any other: histories, SQL, differences, views.

    The granted epochs are copied to this machine, and read there. Without the server, what was copied can be read;
    :meth:`SharedStore.freshness` says how old it is.

    Args:
        profile: the profile of whoever shares: a file, or what it has.
        cache: a folder for the copy; by default one of this endpoint and token in the user's cache.
        refresh: ask the server for new epochs first. If it cannot be reached and there is a copy, that is opened.

    Raises:
        InvalidArgumentError: the profile is none.
        ShareError: the server refuses, or cannot be reached and there is no copy.

    Example:
        >>> from streamstate.sharing import serve
        >>> contract = store["delays"].publish("partner", where="origin = 'JFK'")
        >>> with serve("store", port=0) as server:
        ...     theirs = ss.open_share(contract.profile(server.url), cache="theirs")
        >>> theirs["delays"].at(12).table().head()
    """
    found = Profile.read(profile)
    store = SharedStore(found, _cache(found) if cache is None else Path(cache))
    if refresh:
        try:
            store.refresh()
        except ShareError as error:
            is_away = error.status is None and isinstance(error.__cause__, OSError)
            if not is_away or not any(fresh.epoch is not None for fresh in store.freshness()):
                raise
    return store


def _cache(profile: Profile) -> Path:
    """Return the folder of a profile's copy: that of the endpoint and recipient, as long as the token stays."""
    name = hashlib.sha256(f"{profile.endpoint}\n{profile.token}".encode()).hexdigest()[:32]
    return cache_folder("shares") / name
