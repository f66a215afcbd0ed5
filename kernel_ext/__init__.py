"""Explore the state of Spark streaming queries: live, at any past epoch, between two epochs, per key, and in SQL."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from streamstate.errors import require_extra
from streamstate.lazy_names import lazy_names
from streamstate.snapshots.calls.progress_callback import ProgressCallback, set_progress_display, silent

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from streamstate.errors import StreamStateError as StreamStateError
    from streamstate.launch.starting import start as start
    from streamstate.operations.checkpoint import Checkpoint as Checkpoint
    from streamstate.operations.find_checkpoints import checkpoints as checkpoints
    from streamstate.operations.new_checkpoint.bootstrap import bootstrap as bootstrap
    from streamstate.operations.policies.policy import Policy as Policy
    from streamstate.operations.supervision.restart_policy import BackOff as BackOff
    from streamstate.replay.forks.edits import Edit as Edit
    from streamstate.sharing.shared_frame import shared_frame as shared_frame
    from streamstate.sharing.shared_store import open_share as open_share
    from streamstate.snapshots.capture.recording.record import record as record
    from streamstate.snapshots.capture.recording.record import recorded as recorded
    from streamstate.snapshots.spark.pipeline_code import pipeline_flow as pipeline_flow
    from streamstate.snapshots.spark.session import session as session
    from streamstate.state_inspect.cuts.cut import cut as cut
    from streamstate.state_inspect.joined_store import sql as sql
    from streamstate.state_inspect.store import open_store as open_store
    from streamstate.variables.columns import shared_column as shared_column
    from streamstate.variables.declaring import shared as shared
    from streamstate.variables.shedding.shed import shed as shed

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)


def _display(call: str, interrupted: str) -> AbstractContextManager[ProgressCallback]:
    """Display long calls where IPython runs, with or without the extension; elsewhere nothing is loaded for them."""
    if sys.modules.get("IPython") is None:
        return nullcontext(silent)
    from streamstate.widgets.progress import shown_in_shell

    return shown_in_shell(call, interrupted)


set_progress_display(_display)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics: ``%load_ext streamstate``."""
    require_extra("notebook")
    from streamstate.snapshots.capture.allocator_settings import set_plain_memory

    # First, because deltalake and pyarrow, which the magics import, read their settings when they are loaded.
    set_plain_memory(on=shell.config.get("StreamState", {}).get("plain_memory", True))
    from streamstate.extension import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Stop captures and remove the magics; the Spark session stays: ``%unload_ext streamstate``."""
    from streamstate.extension import unload
    from streamstate.snapshots.capture.allocator_settings import set_plain_memory

    unload(shell)
    set_plain_memory(on=False)
