"""Conditions on state over time: when one held first, when it held, and being told when it holds again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from streamstate.state_inspect.conditions.watch import Watch, WatchEvent
from streamstate.state_inspect.conditions.when import Condition, first_epoch, spans, spans_per_key
from streamstate.state_inspect.recorded import Recorded
from streamstate.state_inspect.snapshot import choose_table

if TYPE_CHECKING:
    from collections.abc import Callable


class ConditionsOverTime(Recorded):
    """The part of a history that finds epochs by what state was."""

    def first(self, predicate: str, /, *, table: str | None = None, **key: Any) -> int | None:
        """The first captured epoch at which some row, or a key's, met a condition; None where none ever did.

        Args:
            predicate: an SQL condition on a row's columns, as after WHERE.
            table: may be left out where there is one table.
            **key: values for key columns, to ask about their rows alone.

        Raises:
            InvalidSQLError: where the condition does not parse, or is about more than one row.
            UnknownTableError, UnknownColumnError, InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> history.first("sum / count > 60", carrier="UA")  # doctest: +SKIP
            17
        """
        return first_epoch(self._condition(predicate, table, key), self.index, self._manifest.entries)

    def when(self, predicate: str, /, *, table: str | None = None, per_key: bool = False, **key: Any) -> pd.DataFrame:
        """The spans of epochs in which some row, or each key, met a condition.

        Columns: ``held_from``; ``held_until``, the epoch at which it held no more, missing where it still holds;
        ``committed_at``, when ``held_from`` was committed; ``keys``, the most rows that met it at once. A gap ends a
        span, because what held in it is not known: ``held_until`` is then the first epoch of the gap.

        Args:
            predicate: an SQL condition on a row's columns, as after WHERE.
            table: may be left out where there is one table.
            per_key: spans of each key: the key columns first, and no ``keys``.
            **key: values for key columns, to ask about their rows alone.

        Raises:
            InvalidSQLError: where the condition does not parse, or is about more than one row.
            UnknownTableError, UnknownColumnError, InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> history.when("count > 100", per_key=True)  # doctest: +SKIP
        """
        condition = self._condition(predicate, table, key)
        found = spans_per_key if per_key else spans
        return found(condition, self.index, self._manifest.entries)

    def watch(
        self,
        predicate: str,
        callback: Callable[[WatchEvent], object],
        /,
        *,
        table: str | None = None,
        every: float = 1.0,
        **key: Any,
    ) -> Watch:
        """Call back for each new epoch in which rows begin to meet a condition, from the live epoch on.

        A thread looks at the store; it needs no Spark, and ends with :meth:`Watch.stop`, with the ``with`` block, or at
        the first error, which the handle then holds.

        Args:
            predicate: an SQL condition on a row's columns, as after WHERE.
            callback: takes a :class:`WatchEvent`; runs in the thread.
            table: may be left out where there is one table.
            every: seconds between looks.
            **key: values for key columns, to watch their rows alone.

        Raises:
            InvalidSQLError, UnknownTableError, UnknownColumnError, UnknownEpochError, InvalidArgumentError: as
                :meth:`when` and :meth:`live`.

        Example:
            >>> with history.watch("count > 100", lambda event: seen.append(event.epoch)):  # doctest: +SKIP
            ...     run_the_query()
        """
        self.live()
        chosen = choose_table(table, self.tables(), self.name)
        return Watch(self, predicate, callback, table=chosen, every=every, key=key)

    def _condition(self, predicate: str, table: str | None, key: dict[str, Any]) -> Condition:
        self.live()
        chosen = choose_table(table, self.tables(), self.name)
        return Condition(predicate, chosen, self.interval_table(chosen, -1), key)
