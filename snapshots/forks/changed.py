"""A fork whose state is not its original's files, but written anew: spread over other partitions, or edited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.snapshots.forks.contents import Contents
from streamstate.snapshots.forks.edited_state import edited_tables
from streamstate.snapshots.forks.edited_table import EditedTable, with_edits
from streamstate.snapshots.forks.edits import Edits, statements
from streamstate.snapshots.forks.rewriting import KEY, Operator, Rewriter
from streamstate.snapshots.forks.spread import over, with_state_ids

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from streamstate.snapshots.forks.transfer import Transfer
    from streamstate.snapshots.same_state import TableDifference

__all__ = ["ChangedState", "check_change"]


def check_change(partitions: int | None, edit: Edits | None) -> None:
    """Raise where a change of a state cannot be meant, as far as that can be told without the state.

    Raises:
        InvalidArgumentError: where the number of partitions is no whole number above zero, or there is no edit.
        InvalidSQLError: where an edit's text is no edit.
    """
    given: object = partitions
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given < 1):
        raise InvalidArgumentError(
            f"partitions={partitions!r}: the number of partitions is a whole number of at least 1, such as 8."
        )
    if edit is not None:
        statements(edit)


@dataclass
class ChangedState:
    """The state of a fork being made, as far as it is written anew.

    Args:
        rewriter: reads the original and writes the fork.
        partitions: over how many partitions the fork's state is spread.
        operators: those whose state is written anew; the files of the others are taken over.
        edited: what edits make of state tables.
    """

    rewriter: Rewriter
    partitions: int
    operators: Sequence[Operator]
    edited: Sequence[EditedTable] = ()
    _ids: Mapping[str, list[list[str]]] = field(default_factory=dict)

    @classmethod
    def planned(cls, rewriter: Rewriter, partitions: int, edit: Edits | None) -> ChangedState:
        """What is written anew where the state is spread over other partitions, or edited.

        Operators without edits keep their files where the number stays, and where they work in one partition however
        many there are.

        Raises:
            UnsupportedStateError: where Spark cannot write the state of an operator.
            InvalidArgumentError: where an edit cannot be meant; see :func:`.edited_tables`.
        """
        edited = [] if edit is None else edited_tables(rewriter, edit, partitions)
        spread = partitions != rewriter.original.partitions(rewriter.epoch)
        named = {one.operator.number for one in edited}
        operators = [one for one in rewriter.operators() if one.number in named or (spread and not one.single)]
        return cls(rewriter, partitions, operators, edited)

    def phases(self, plan: Contents) -> tuple[Contents, Contents]:
        """What has to be there for Spark to write the state, and what may only come after it.

        Spark writes the state of every operator that it finds; so those that keep their files come later.
        """
        rewritten = {str(one.number) for one in self.operators}
        early = [path for path in plan.small if not path.startswith("commits/") and _of(path) in (None, *rewritten)]
        schemas = [path for path in plan.state if _of(path) in rewritten and _is_schema(path)]
        late = [path for path in plan.small if path not in early]
        kept = [path for path in plan.state if _of(path) not in rewritten]
        return replace(plan, state=schemas, small=early), Contents(kept, late, {}, ())

    def write(self, target: str) -> None:
        """Write the state of the operators."""
        if self.operators:
            self._ids = self.rewriter.run(target, list(self.operators), self._change)

    def _change(self, operator: Operator, rows: DataFrame) -> DataFrame:
        edited = [one for one in self.edited if one.operator.number == operator.number]
        if edited:
            return with_edits(rows, edited, self.partitions)
        return rows.coalesce(1) if operator.single else rows.repartition(self.partitions, KEY)

    def differs_as_meant(self, found: Sequence[TableDifference]) -> bool:
        """Whether what tells the fork from its original is what was edited, row by row."""
        meant = {one.source.table: one for one in self.edited if one.removed or one.added}
        return {one.table for one in found} == {*meant} and all(
            (Counter(one.of_one), Counter(one.of_other)) == (meant[one.table].removed, meant[one.table].added)
            and (one.only_one, one.only_other) == (len(one.of_one), len(one.of_other))
            for one in found
        )

    @property
    def edited_rows(self) -> int:
        """How many rows of the state were changed, added or taken away."""
        return sum(one.changed for one in self.edited)

    def text(self, path: str, text: str) -> str:
        """What a small file of the original says in the fork."""
        if path.startswith("commits/") and self._ids:
            return with_state_ids(text, self._ids)
        return over(path, text, self.partitions)

    def written_bytes(self, target: str, transfer: Transfer) -> int:
        """What the state takes up that was written."""
        folders = (f"{target}/state/{one.number}" for one in self.operators)
        return sum(transfer.size(path) for folder in folders for path in _state_below(transfer, folder))


def _of(path: str) -> str | None:
    """Whose a path inside a checkpoint is: an operator's id."""
    parts = path.split("/")
    return parts[1] if parts[0] == "state" else None


def _is_schema(path: str) -> bool:
    return "/_metadata/" in path or "/_stateSchema/" in path


def _state_below(transfer: Transfer, folder: str) -> Iterator[str]:
    """All files below an operator's folder but those with its metadata and schemas."""
    for name in transfer.files.names(folder):
        if name.startswith("_"):
            continue
        if "." in name:
            yield f"{folder}/{name}"
        else:
            yield from _state_below(transfer, f"{folder}/{name}")
