"""The Panel app of a store: a document for each tab."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import panel as pn

from streamstate.widgets.page.address import Address
from streamstate.widgets.page.model import Catalogue
from streamstate.widgets.page.viewer import Shared, Viewer

if TYPE_CHECKING:
    from streamstate.state_inspect import Store

__all__ = ["app"]

_TEMPLATE = """
{% extends base %}
{% block title %}streamstate{% endblock %}
{% block postamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<style>
  :root { color-scheme: light dark; }
  html, body { background: Canvas; color: CanvasText; height: auto; }
  main { max-width: 1400px; margin: 0 auto; padding: 8px; box-sizing: border-box; min-width: 0; }
</style>
{% endblock %}
{% block contents %}
<main>{{ embed(roots.page) }}</main>
{% endblock %}
"""
"""The frame of the page: nothing of it comes from elsewhere, and the colours are those the viewer prefers."""


def app(store: Store, work: Executor, viewers: set[Any]) -> Callable[[], pn.Template]:
    """What Panel calls for each tab.

    Args:
        store: what is shown; all tabs read it.
        work: opens and closes views.
        viewers: holds the tabs there are.
    """
    shared = Shared(store, Catalogue(store.queries), work)

    def opened() -> pn.Template:
        document = pn.state.curdoc
        assert document is not None
        viewer = Viewer(shared, document, _address())
        viewers.add(viewer)

        def gone(_: Any) -> None:
            viewers.discard(viewer)
            viewer.close()

        document.on_session_destroyed(gone)
        page = pn.Template(_TEMPLATE)
        page.add_panel("page", viewer.layout())
        return page

    return opened


def _address() -> Address:
    """What the tab was opened with."""
    given = {name: values[0].decode() for name, values in pn.state.session_args.items()}
    return Address.read(urlencode(given))
