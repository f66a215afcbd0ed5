"""``streamstate standby``: stand by for a query that runs elsewhere, and take it over when its owner fails."""

from __future__ import annotations

import argparse
import signal
import time

from streamstate.command_line.arguments import add_checkpoint, add_store_option, storage_options
from streamstate.command_line.command import FAILED, FINE, Command
from streamstate.command_line.user_code import add_code_alone, loaded
from streamstate.errors import UnknownQueryError

_POLL_SECONDS = 0.2


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_checkpoint(parser)
    add_store_option(parser, required=True)
    add_code_alone(parser, required=True)


def _run(given: argparse.Namespace) -> int:
    from streamstate.operations.availability.standby import ENDED, Standby, StandbyTask
    from streamstate.operations.drill.task import pickled
    from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
    from streamstate.snapshots.checkpoint.filesystem import location
    from streamstate.snapshots.store.layout import Layout
    from streamstate.snapshots.store.registry import name_of

    layout, path = Layout.at(given.store, storage_options(given)), location(given.checkpoint)
    name = name_of(layout, CheckpointFiles(path).query_id)
    if name is None:
        raise UnknownQueryError(
            f"{layout.root} does not have the query of {path}.\nPass the store that it is captured into."
        )
    code = pickled(loaded(*given.code))
    standby = Standby(StandbyTask(name, layout.root, path, code, layout.options))
    signal.signal(signal.SIGTERM, lambda *_: standby.process.terminate())
    shown = ""
    try:
        while standby.process.poll() is None:
            if (line := str(standby.status())) != shown:
                print(line, flush=True)
                shown = line
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        standby.stop()
    status = standby.status()
    if str(status) != shown:
        print(status, flush=True)
    return FINE if status.state == ENDED else FAILED


STANDBY = Command(
    "standby",
    "stand by for a query, and take it over when its owner fails",
    "Keep a warm process that takes a query over when the process that runs it fails or is cut off. The query must "
    "hold a lease: start it with streamstate.start(..., lease=6). The standby forks its checkpoint and runs an epoch "
    "of the fork, so that a takeover is quick, and repeats that as the query goes on.\n\n"
    "It ends when the query is stopped on purpose. After a takeover it runs the query, until it is stopped by SIGTERM.",
    "streamstate standby checkpoints/delays --code jobs.delays:build --store store",
    _arguments,
    _run,
    ("Running.standby",),
)
