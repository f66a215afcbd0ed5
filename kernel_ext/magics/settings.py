"""``%config StreamState``: what the magics do where a line does not say."""

from __future__ import annotations

from traitlets import Bool, Int, Unicode
from traitlets.config import Configurable

__all__ = ["StreamState"]


class StreamState(Configurable):
    """Settings of the streamstate magics; IPython names them after this class."""

    # Not a folder called "streamstate": Python would take it for the package where that is installed in editable form.
    store = Unicode(
        "streamstate-data/store", help="The store that magics write and read; --store on any of them changes it."
    ).tag(config=True)
    rows = Int(20, min=1, help="How many rows of a state table %state shows; with -o it returns them all.").tag(
        config=True
    )
    tracebacks = Bool(default_value=False, help="Show where in the code an error was raised.").tag(config=True)
