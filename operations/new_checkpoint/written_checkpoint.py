"""A checkpoint that was made from rows of state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamstate.operations.checkpoint import Checkpoint
from streamstate.operations.new_checkpoint.proposed_mapping import FEW_ROWS
from streamstate.operations.report_html import cell, report
from streamstate.snapshots.calls.html import Html, head, table, tag
from streamstate.state_inspect.cell_text import Cell


@dataclass(frozen=True)
class WrittenCheckpoint(Checkpoint):
    """A checkpoint that was made from rows; it can be passed wherever a checkpoint's path can.

    Attributes:
        epoch: the epoch whose state it has; its query runs the one after it next.
        rows: the number of rows of each state table.
        seconds: how long it took, reading back included.
        rows_before: after :meth:`Checkpoint.migrate`, the number of rows of each old state table; None if more than
            10,000, which are not counted.
        compared: whether every row that Spark reads was compared with the row that was meant; False if the query itself
            made the state from history.
        started: the name of the query that was started from it, as by ``%stream migrate``; None if none was.
    """

    path: str
    epoch: int
    rows: Mapping[str, int] = field(hash=False)
    seconds: float = field(compare=False)
    rows_before: Mapping[str, int | None] = field(default_factory=dict, compare=False)
    compared: bool = True
    started: str | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        rows = ", ".join(f"{table}: {count:,} rows" for table, count in self.rows.items())
        return f"{self.path}: epoch {self.epoch} ({rows}), made and read back in {self.seconds:.1f} s"

    def _repr_html_(self) -> str:
        title = f"{self.path}: the state of epoch {self.epoch}"
        verdict = "Read back by Spark: no row differs" if self.compared else "Made by the query itself from its history"
        call = f"ss.start(build_query(), name, store, checkpoint={self.path!r})"
        after = ("Next: ", tag("code", call)) if self.started is None else ("Started: ", tag("strong", self.started))
        return report(
            tag("p", tag("strong", "New checkpoint"), f" {title}"),
            self._tables(),
            tag("p", f"✓ {verdict}; {self.seconds:.1f} s in all."),
            tag("p", after),
        )

    def _tables(self) -> Html:
        both = {"rows before": self.rows_before, "rows": self.rows}
        columns = {title: counts for title, counts in both.items() if counts}
        names = dict.fromkeys(name for counts in columns.values() for name in counts)
        rows = ([cell(name), *(_number(counts, name) for counts in columns.values())] for name in names)
        return table(["state table", *(head(title, "number") for title in columns)], rows)


def _number(counts: Mapping[str, int | None], table: str) -> Html:
    if table not in counts:
        return cell("")
    count = counts[table]
    return cell(Cell(f"> {FEW_ROWS:,}" if count is None else f"{count:,}", "number"))
