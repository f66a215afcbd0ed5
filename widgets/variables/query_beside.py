"""The query beside a shared variable: a history, or a query that was started here and may have no epoch yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from streamstate.errors import InvalidArgumentError, UnknownQueryError
from streamstate.state_inspect import History, open_store

if TYPE_CHECKING:
    from streamstate.state_inspect import Store


class Started(Protocol):
    """A query that was started here, as :class:`streamstate.Running`.

    Attributes:
        name: its name in the store.
        store: the store's path.
    """

    name: str
    store: str


Query: TypeAlias = "History | Started"


class FollowedQuery:
    """A query's history, as soon as there is one.

    Args:
        query: the query.

    Raises:
        InvalidArgumentError: it is no query.
    """

    def __init__(self, query: Query) -> None:
        self._history = query if isinstance(query, History) else None
        self._store: Store | None = None
        if self._history is None and not isinstance(getattr(query, "store", None), str):
            raise InvalidArgumentError(
                f"Invalid query={query!r}: expected a query's history, store['delays'], or what ss.start returned."
            )
        self.name = query.name
        self._path = "" if isinstance(query, History) else query.store

    def history(self) -> History | None:
        """Its history; None if it has not been captured yet."""
        if self._history is None:
            self._store = self._store or open_store(self._path)
            try:
                self._history = self._store[self.name]
            except UnknownQueryError:
                return None
        return self._history
