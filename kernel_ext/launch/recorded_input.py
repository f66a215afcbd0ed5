"""A query whose sources do not keep their input for good reads recordings of them, which are part of its store."""

from __future__ import annotations

from dataclasses import replace

from streamstate.errors import QueryError, SparkConnectError
from streamstate.launch.launch import Launch
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.store.layout import Layout


def with_recorded_input(launch: Launch, layout: Layout, *, record_input: bool) -> Launch:
    """Return the launch of a query that was checked, with recordings in place of the sources that may lose their input.

    Raises:
        QueryError: the query has run otherwise before, or a source cannot be recorded.
        SparkConnectError: the input is to be recorded, and a Spark Connect server runs the query.
        InvalidArgumentError: a source has columns that cannot be recorded.
    """
    if launch.on_connect:
        if record_input:
            raise SparkConnectError.needs_classic()
        return launch
    from streamstate.snapshots.capture.recording.record import check_recordable, prepared
    from streamstate.snapshots.capture.recording.recording import pin
    from streamstate.snapshots.capture.recording.sources import (
        distinct_sources,
        frame_of,
        may_expire,
        recordings_of,
        with_sources,
    )

    analyzed = launch.frame._jdf.queryExecution().analyzed()
    for path in recordings_of(analyzed):
        if "/_inputs/" in path:  # another query's, whose retention does not know how far this one has read
            pin(path, -1, layout.options)
    sources = [(at, leaf) for at, leaf in enumerate(distinct_sources(analyzed)) if may_expire(leaf)]
    if sources:
        _check_goes_on(launch, layout, [at for at, _ in sources], record_input=record_input)
    if not sources or not record_input:
        return launch
    found = [(leaf, frame_of(launch.frame, leaf), layout.recording(launch.name, at)) for at, leaf in sources]
    for _, frame, place in found:
        check_recordable(frame, place)
    instead = []
    for number, (leaf, frame, place) in enumerate(found):
        checkpoint = f"{launch.checkpoint}-input-{sources[number][0]}"
        _, rows = prepared(frame, place.uri, checkpoint=checkpoint, storage_options=layout.options)
        instead.append((leaf, rows))
    return replace(launch, frame=with_sources(launch.frame, instead))


def _check_goes_on(launch: Launch, layout: Layout, sources: list[int], *, record_input: bool) -> None:
    """Raise if a query that has run before has other sources than its checkpoint."""
    from streamstate.snapshots.store.delta import open_table

    if not CheckpointFiles(launch.checkpoint, launch.frame.sparkSession).committed():
        return
    recorded = any(open_table(layout.recording(launch.name, at)) is not None for at in sources)
    if recorded and not record_input:
        raise QueryError(
            f"The input of {launch.name} was recorded so far, and its checkpoint holds offsets of that recording.\n"
            "Go on with --record-input (record_input=True), or use another name."
        )
    if record_input and not recorded:
        raise QueryError(
            f"The checkpoint of {launch.name} started without input recording."
            "\nRecord the input from the beginning: use another name, or another checkpoint."
        )
