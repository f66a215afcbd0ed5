"""Reads why keys of a query changed, for one view: each change once, where its input can be read."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamstate.errors import StreamStateError
from streamstate.snapshots.store.query_plans.plan_table import LivePlan, live_plan
from streamstate.state_inspect.temporal_index.query_interrupts import QueryStopped, interruptible
from streamstate.state_inspect.values import canonical, key_text
from streamstate.widgets.why.panel import WhyPanel, panel_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streamstate.state_inspect import History

_KEPT = 8
"""Answers that are kept, the newest ones."""
_SERVED = (
    "A served page shows what the store holds. The owner of a query sees the input rows behind a change:"
    " streamstate serve STORE --code MODULE:FUNCTION, or history.why(epoch, key) in a notebook."
)


class WhyReader:
    """Explanations of the changes of one query's keys. Thread-safe."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._served = False
        self._lock = threading.Lock()
        self._found: dict[Any, WhyPanel] = {}

    def serve(self) -> None:
        """Refuse from now on: viewers of a served page see no input, and run nothing on Spark."""
        self._served = True

    def why_not(self) -> str:
        """Return the reason why the input cannot be read here, and what to do; empty if it can."""
        if self._served:
            return _SERVED
        name = self._history.name
        return "" if self._planned() else (
            "The input rows behind a change can be shown where the query's plan is known: start the query in this"
            f' process, or describe it with streamstate.open_store(store)["{name}"].describe(build_query).'
        )  # fmt: skip

    def panel(self, table: str, key: Mapping[str, Any], epoch: int, *, whole: bool) -> WhyPanel:
        """Return the answer; without ``whole``, one that is still to be read is ``busy``."""
        at = (table, canonical(key), epoch)
        with self._lock:
            known = self._found.get(at)
        if known is not None:
            return known
        if not whole:
            return WhyPanel(key_text(key), epoch, busy=True)
        read = self._read(table, key, epoch)
        with self._lock:
            self._found[at] = read
            for old in list(self._found)[:-_KEPT]:
                del self._found[old]
        return read

    def again(self) -> None:
        """Try again what failed, because a person asks again."""
        with self._lock:
            self._found = {at: panel for at, panel in self._found.items() if not panel.problem}

    def _planned(self) -> LivePlan | None:
        return live_plan(self._history.recorded.layout, self._history.name, None)

    def _read(self, table: str, key: Mapping[str, Any], epoch: int) -> WhyPanel:
        blank = WhyPanel(key_text(key), epoch)
        planned = self._planned()
        if planned is None or self._served:
            return replace(blank, problem=self.why_not())
        try:
            with _jobs(planned.spark):
                return panel_of(self._history.why(epoch, table=table, key=dict(key)), key)
        except StreamStateError as problem:
            return replace(blank, problem=str(problem))
        except QueryStopped:
            raise
        except Exception as problem:  # noqa: BLE001 (the panel shows it; the view would try again twice a second)
            line = str(problem).strip().partition("\n")[0] or type(problem).__name__
            return replace(blank, problem=f"Spark could not read the input again: {line}")


class _TaggedJobs:
    """Jobs of Spark with a tag."""

    def __init__(self, spark: SparkSession) -> None:
        self.context = spark.sparkContext
        self.tag = f"streamstate-why-{uuid.uuid4().hex}"

    def interrupt(self) -> None:
        """Cancel those that run now."""
        self.context.cancelJobsWithTag(self.tag)


@contextlib.contextmanager
def _jobs(spark: SparkSession) -> Iterator[None]:
    """Jobs of Spark that this thread starts in the block end when a newer request overtakes the drawing."""
    jobs = _TaggedJobs(spark)
    jobs.context.addJobTag(jobs.tag)
    try:
        with interruptible(jobs, Exception):  # which error depends on where Spark was
            yield
    finally:
        jobs.context.removeJobTag(jobs.tag)
