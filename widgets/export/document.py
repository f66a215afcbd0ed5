"""The file: the page's code, its data, and notes on what it leaves out."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.calls.html import joined, paragraphs, tag
from streamstate.state_inspect.cell_text import timestamp
from streamstate.widgets.chart import is_plot
from streamstate.widgets.export.album import encoded
from streamstate.widgets.front import bundle, resource, style
from streamstate.widgets.model import Drawing, ViewModel
from streamstate.widgets.still import place

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><link rel="icon" href="data:,"><style>
:root {{ color-scheme: light dark; }}
body {{ font: 13px/1.5 system-ui, sans-serif; margin: 8px; background: Canvas; color: CanvasText; }}
main {{ max-width: 1400px; margin: 0 auto; }}
h1 {{ font-size: 15px; margin: 4px 2px; }}
small, footer {{ color: color-mix(in srgb, CanvasText 72%, Canvas); font-weight: normal; font-size: 12px; }}
footer {{ margin: 8px 4px; }}
.note {{ min-height: 1.5em; margin: 4px; }}
summary {{ cursor: pointer; }}
</style></head><body><main>
<h1>{name} <small>saved {moment}</small></h1>
{still}
<p class="note" role="status"></p>
<footer>{saved}<details><summary>This file is a saved copy. It leaves out</summary><ul>{notes}</ul></details></footer>
</main>
<script type="application/json" id="data">{data}</script>
<script type="application/json" id="library">{library}</script>
<script type="module">{script}</script>
</body></html>
"""


class SavedDocument:
    """The file without its drawings.

    It shows ``drawing`` if scripts do not run; ``library``, which draws plots, is empty if there are none, or no room.
    """

    def __init__(self, model: ViewModel[Any], drawing: Drawing, library: str) -> None:
        self.draws_plots = bool(library)
        self._library = encoded(library)
        self._name = model.name
        self._still = place(model.name, model.html(drawing))
        self._style = style(model.kind)
        self._script = bundle(model.kind) + resource("saved_host.js")

    @property
    def size(self) -> int:
        """Bytes of all but the drawings and the notes."""
        parts = (_PAGE, self._library, self._name * 2, self._still, encoded(self._style), self._script)
        return sum(len(part.encode()) for part in parts)

    def html(
        self, album: str, epochs: Mapping[str, Any], notes: Sequence[str], moment: dt.datetime, saved: str = ""
    ) -> str:
        """Return the whole file.

        Args:
            album: the drawings, as JSON.
            epochs: the epochs: the ``action`` that chooses one, their ``order``, and those that are ``held``, in words.
            notes: the notes on what is missing.
            moment: when it was saved.
            saved: which epochs were saved, in a sentence.
        """
        data = f'{{"style":{encoded(self._style)},"epochs":{encoded(epochs)},"album":{album}}}'
        return _PAGE.format(
            title=escape(f"{self._name} · streamstate"),
            name=escape(self._name),
            moment=escape(timestamp(moment.replace(microsecond=0))),
            still=self._still,
            saved=paragraphs([saved]),
            notes=joined(tag("li", note) for note in notes),
            data=data,
            library=self._library,
            script=self._script,
        )


def has_plot(message: Any) -> bool:
    """Check if a message contains a plot."""
    if isinstance(message, Mapping):
        return is_plot(message) or any(map(has_plot, message.values()))
    return isinstance(message, list | tuple) and any(map(has_plot, message))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def write(target: Path, text: str) -> int:
    """Write a file atomically, and return its size: on an error, an existing file stays as it is."""
    content = text.encode()
    try:
        staged = target.with_name(f".{target.name}-{secrets.token_hex(8)}")
        try:
            mode = target.stat().st_mode & 0o777 if target.exists() else None
            with open(staged, "xb", opener=_private if mode is not None else None) as file:
                file.write(content)
            if mode is not None:
                staged.chmod(mode)  # a file that only its owner reads stays one
            staged.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                staged.unlink()
            raise
    except OSError as error:
        raise InvalidArgumentError(f"Cannot write {target}: {error}\nChoose another path.") from error
    return len(content)
