"""A history beside another: the fingerprints of its states, and where two of them part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pandas as pd

from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.state_inspect.branches.ancestry import stretches
from streamstate.state_inspect.branches.comparison import Comparison
from streamstate.state_inspect.branches.fingerprints import Fingerprint, fingerprint_frame, fingerprints_of
from streamstate.state_inspect.branches.timelines import timelines
from streamstate.state_inspect.recorded import Recorded
from streamstate.state_inspect.snapshot import Snapshot, choose_table


class BranchesOverTime(Recorded):
    """The part of a history that tells whether it is the same as another."""

    def fingerprints(
        self, tables: str | Sequence[str] | None = None, epochs: Iterable[int] | None = None
    ) -> pd.DataFrame:
        """A number for each state: equal wherever the rows are equal, whoever computed it and in whatever partitions.

        Columns: ``epoch``, ``table``, ``rows``, ``fingerprint`` (32 hexadecimal digits): the sum modulo 2¹²⁸ of a hash
        of each row. How a row is written for its hash is in docs/guides/branches.md. One look at all versions of the
        rows tells all epochs.

        Args:
            tables: state tables; by default all of them.
            epochs: captured epochs, such as ``range(40, 50)``; by default all of the query's own. A fork's may begin
                before its first own one, as :meth:`at` does.

        Raises:
            UnknownEpochError, UnknownTableError, InvalidArgumentError: where an argument cannot be meant.

        Example:
            >>> history.fingerprints(epochs=[12])  # doctest: +SKIP
               epoch table   rows                       fingerprint
            0     12   op0  1,022  9f0c5b2e6d8a41738c1e0a7b54d2f963
        """
        wanted = self.captured() if epochs is None else epochs_of(epochs)
        snapshots = [self.at(epoch) for epoch in wanted]
        names = list(dict.fromkeys(name for one in snapshots for name in one.tables()))
        given = [tables] if isinstance(tables, str) else tables
        chosen = names if given is None else [choose_table(name, self.tables() or names, self.name) for name in given]
        return fingerprint_frame(one for table in chosen for one in _told(snapshots, table))

    def compare(
        self,
        other: Recorded,
        epochs: Iterable[int] | None = None,
        tables: str | Sequence[str] | None = None,
    ) -> Comparison:
        """Compare this query's states with another's, epoch by epoch: a fork, a replay, or the query in another store.

        Args:
            other: the other's history.
            epochs: those to compare, such as ``range(40, 50)``; by default all that both have, for forks from the one
                after which they parted.
            tables: state tables; by default all that both have.

        Raises:
            UnknownEpochError: where they have no epoch in common, or lack one that is named.
            UnknownTableError: where they have no table in common, or lack one that is named.
            InvalidArgumentError: where an argument cannot be meant, or the keys of a table are not the same in both.

        Example:
            >>> store["delays"].compare(store["what_if"])  # doctest: +SKIP
            <Comparison of delays with what_if: epochs 40 to 52, table op0>
            First different: epoch 43, op0, carrier='UA': count 812 here, 811 there.
            10 of 13 epochs differ.
        """
        wanted = None if epochs is None else epochs_of(epochs)
        given = [tables] if isinstance(tables, str) else tables
        return Comparison(timelines(self, other, wanted, given))


def epochs_of(epochs: Iterable[int]) -> list[int]:
    """Epochs as they are given, ascending and once each.

    Raises:
        InvalidArgumentError: where there are none, or one is no number.
    """
    if isinstance(epochs, (int, str)):
        raise InvalidArgumentError(f"epochs={epochs!r} cannot be meant: give several, such as range(40, 50) or [40].")
    found = sorted({*epochs})
    if not found or any(isinstance(one, bool) or not isinstance(one, int) for one in found):
        raise InvalidArgumentError("epochs= takes whole numbers, at least one, such as range(40, 50) or [40, 45].")
    return found


def _told(snapshots: Sequence[Snapshot], table: str) -> Iterator[tuple[int, str, Fingerprint]]:
    having = [(one.epoch, one.history) for one in snapshots if table in one.tables()]
    for history, epochs in stretches(having):
        for epoch, one in fingerprints_of(history, table, epochs).items():
            yield epoch, table, one
