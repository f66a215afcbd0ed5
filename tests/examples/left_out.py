"""Examples that the tests do not run yet, each with what they need."""

from __future__ import annotations

from collections.abc import Mapping

_SPARK = "a Spark session"
PAGES: Mapping[str, str] = {
    "README.md": _SPARK,
    "docs/guides/changing_code.md": _SPARK,
    "docs/guides/checking_changes.md": _SPARK,
    "docs/guides/determinism.md": _SPARK,
    "docs/guides/editing_state.md": _SPARK,
    "docs/guides/production.md": _SPARK,
    "docs/guides/promoting.md": _SPARK,
    "docs/guides/recording_input.md": "a socket",
    "docs/guides/recovery.md": _SPARK,
    "docs/guides/rescale.md": _SPARK,
    "docs/guides/results.md": _SPARK,
    "docs/guides/shared_variables.md": _SPARK,
    "docs/guides/sql.md": _SPARK,
    "docs/guides/time_travel.md": _SPARK,
    "docs/guides/watching.md": _SPARK,
    "docs/guides/wrong_number.md": _SPARK,
    "docs/start/install.md": _SPARK,
    "docs/start/quickstart.md": _SPARK,
}
DOCSTRINGS: Mapping[str, str] = {
    "streamstate.state_inspect.history.History.describe": _SPARK,
    "streamstate.state_inspect.history.History.inputs": _SPARK,
    "streamstate.state_inspect.history.History.late": _SPARK,
    "streamstate.state_inspect.history.History.late_counts": _SPARK,
    "streamstate.state_inspect.history.History.why": _SPARK,
    "streamstate.state_inspect.snapshot.Snapshot.restore": _SPARK,
    "streamstate.widgets.debugger.model.Debugger": _SPARK,
    "streamstate.widgets.debugger.model.Debugger.wait": _SPARK,
    "streamstate.widgets.late_rows.LateRowsView": _SPARK,
    "streamstate.snapshots.capture.recording.record.record": "a socket",
    "streamstate.snapshots.spark.session.session": _SPARK,
    "streamstate.snapshots.spark.state_comparison.state_differences": _SPARK,
}
