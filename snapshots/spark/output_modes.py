"""Which output modes Spark accepts for a streaming query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamstate.errors import InvalidArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MODES = ("update", "append", "complete")


def known_mode(mode: str) -> str:
    """The mode, if it is one."""
    if mode not in MODES:
        raise InvalidArgumentError(f"Invalid mode {mode!r}: expected {', '.join(MODES[:-1])} or {MODES[-1]}.")
    return mode


def mode_refusals(frame: DataFrame) -> dict[str, str]:
    """Why Spark refuses each mode for a query; empty for a mode that it accepts."""
    return {mode: _refusal(frame, mode) for mode in MODES}


def _refusal(frame: DataFrame, mode: str) -> str:
    from pyspark.errors import AnalysisException

    jvm: Any = frame.sparkSession._jvm
    output_mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), output_mode)
    except AnalysisException as error:
        return first_line(error)
    return ""


def first_line(error: BaseException) -> str:
    """The first line of a Spark error, without SQLSTATE, plan and stack trace."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.partition(" SQLSTATE:")[0].rstrip(";")
