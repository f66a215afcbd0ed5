"""The output modes that Spark accepts for a streaming query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError, QueryError, first_line
from streamstate.snapshots.spark.plan_building import java_output_mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MODES = ("update", "append", "complete")
_CHECKED = "spark.sql.streaming.unsupportedOperationCheck"


def known_mode(mode: str) -> str:
    """Return the mode; raise if it is not one."""
    if mode not in MODES:
        raise InvalidArgumentError(f"Invalid mode {mode!r}: expected {', '.join(MODES[:-1])} or {MODES[-1]}.")
    return mode


def check_mode(frame: DataFrame, mode: str) -> None:
    """Refuse an output mode that Spark refuses for a query, and a query that it refuses in each."""
    refusals = mode_refusals(frame)
    if not refusals[known_mode(mode)]:
        return
    accepted = [name for name in MODES if not refusals[name]]
    if not accepted:
        raise QueryError(f"Spark cannot run this as a streaming query: {refusals[mode]}")
    also = f" ({' or '.join(accepted[1:])} would work too)" if accepted[1:] else ""
    raise QueryError(f"Spark refuses mode {mode} for this query: {refusals[mode]}\nUse mode {accepted[0]}{also}.")


def output_mode(frame: DataFrame, given: str | None = None, known: str | None = None) -> str:
    """Return the output mode of a query that was started elsewhere.

    Args:
        frame: the query's frame.
        given: the mode that the user names.
        known: the mode of an earlier run.

    Raises:
        QueryError: Spark refuses the given mode, or the query in each.
        InvalidArgumentError: no mode is given, and it matters which of those it is that Spark accepts.
    """
    mode = given or known
    if mode is not None:
        known_mode(mode)
        if str(frame.sparkSession.conf.get(_CHECKED)) != "false":
            check_mode(frame, mode)
        return mode
    refusals = mode_refusals(frame)
    accepted = [name for name in MODES if not refusals[name]]
    if not accepted:
        check_mode(frame, "append")
    # Spark accepts all three for an aggregation by event time. Where it accepts two, they treat state alike.
    if len(accepted) == len(MODES):
        raise InvalidArgumentError(
            "The output mode of this query is not known: a checkpoint does not record it, and Spark accepts each.\n"
            "Pass the mode that the query was started with: update, append or complete."
        )
    return accepted[0]


def mode_refusals(frame: DataFrame) -> dict[str, str]:
    """Return Spark's reason to refuse each mode for a query; empty for a mode that it accepts."""
    return {mode: _refusal(frame, mode) for mode in MODES}


def check_operations(jvm: Any, analyzed: Any, mode: str) -> None:
    """Let Spark check that it can run a plan as a streaming query with an output mode; it raises what it finds."""
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(analyzed, java_output_mode(jvm, mode))


def _refusal(frame: DataFrame, mode: str) -> str:
    from pyspark.errors import AnalysisException

    try:
        check_operations(frame.sparkSession._jvm, frame._jdf.queryExecution().analyzed(), mode)
    except AnalysisException as error:
        return first_line(error)
    return ""
