"""The standby of a query that this process runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.launch.claiming import claim
from streamstate.launch.launch import Launch
from streamstate.operations.availability.standby import Standby, StandbyTask
from streamstate.operations.drill.task import pickled
from streamstate.snapshots.store.layout import Layout

if TYPE_CHECKING:
    from streamstate.snapshots.calls.checks import BuildQuery
    from streamstate.snapshots.capture.pass_plan import Every


def stand_by(
    launch: Launch,
    query_id: str,
    build_query: BuildQuery,
    *,
    layout: Layout,
    every: Every,
    lease: float,
    replaces: bool = False,
) -> Standby:
    """Start a standby of a query that runs here, as :meth:`streamstate.Running.standby`.

    With ``replaces``, it is to own the query after this process, by a planned handover.
    """
    code, sink = pickled(build_query), launch.sink
    function = None if sink.function is None else pickled(sink.function)
    claim(launch, layout, every, lease, lambda _line: None)
    launch.fence.guard(launch.classic_session, query_id)
    return Standby(
        StandbyTask(
            name=launch.name,
            store=layout.root,
            checkpoint=launch.checkpoint,
            build_query=code,
            storage_options=layout.options,
            sink=function or sink.text,
            sink_options=dict(sink.options) or None,
            term=launch.fence.token if replaces else None,
        )
    )
