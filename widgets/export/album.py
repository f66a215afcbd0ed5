"""The drawings of a saved file, and the actions that lead from one to another.

A page cannot run a view model, so that the file holds the model's answers. A selection is encoded as a number for each
of its fields, and an action as the fields that it changes: choosing epoch 12 is the same change everywhere, so that a
hundred epochs in ten sort orders do not need a million entries. Values that drawings share are stored once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Generic

from streamstate.state_inspect.cell_text import canonical
from streamstate.widgets.chart import is_plot, still
from streamstate.widgets.model import Drawing, S, ViewModel

_ENTRY = 24
"""About the bytes of a drawing besides its values: its number, and the numbers of its fields."""
_SAFE = str.maketrans({"<": "\\u003c", "\u2028": "\\u2028", "\u2029": "\\u2029"})

Tokens = tuple[int, ...]
Patch = Mapping[int, int]


class AlbumFull(Exception):  # noqa: N818 (a signal, not an error)
    """The next drawing does not fit."""


def encoded(value: Any) -> str:
    r"""``value`` as JSON for a script element: nothing in it ends the element or the line.

    Example:
        >>> encoded("</script>")
        '"\\u003c/script>"'
    """
    try:
        text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:  # a plot may contain NaN, which JSON lacks
        text = json.dumps(_finite(value), separators=(",", ":"), ensure_ascii=False)
    return text.translate(_SAFE)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Album(Generic[S]):
    """Collects drawings of a model up to a size of ``room`` bytes.

    Unless the page can draw ``plots``, each is a still picture.
    """

    def __init__(self, model: ViewModel[S], room: int, *, plots: bool) -> None:
        self.size = 0
        self.room = room
        self._model = model
        self._plots = plots
        self._values: dict[str, int] = {}
        self._tokens: dict[Any, int] = {}
        self._entries: dict[Tokens, dict[str, int]] = {}
        self._local: dict[Tokens, dict[str, Patch]] = {}
        self._global: dict[str, Patch] = {}
        self._drawn: dict[Tokens, Drawing] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def tokens(self, selection: S) -> Tokens:
        """Return a selection as numbers: one for each distinct value of each field."""
        return tuple(map(self._token, _values(selection)))

    def _token(self, value: Any) -> int:
        return self._tokens.setdefault(_identity(value), len(self._tokens))

    def add(self, selection: S) -> Drawing:
        """Add a drawing, and the selections that its likely actions lead to; raises AlbumFull if it does not fit."""
        name = self.tokens(selection)
        drawing = self._drawn.get(name)
        if drawing is None:
            self._drawn[name] = drawing = self._model.drawing(selection)
        if name in self._entries:
            return drawing
        message = dict(drawing.message) if self._plots else _stilled(drawing.message)
        texts = {field: encoded(value) for field, value in message.items()}
        local = dict(self._patches(selection, drawing))
        cost = sum(len(text.encode()) + 1 for text in set(texts.values()) if text not in self._values)
        cost += _ENTRY + 4 * len(name) + sum(len(field) + 9 for field in texts) + len(encoded(local).encode())
        if self.size + cost > self.room:
            raise AlbumFull
        self.size += cost
        self._entries[name] = {field: self._values.setdefault(text, len(self._values)) for field, text in texts.items()}
        self._local[name] = local
        return drawing

    def clear(self) -> None:
        """Start again; finished drawings are kept."""
        self.size = 0
        for held in (self._values, self._entries, self._local, self._global):
            held.clear()

    def _patches(self, selection: S, drawing: Drawing) -> Iterator[tuple[str, Patch]]:
        for action, value in self._model.saved_actions(selection, drawing):
            after = self._model.acted(selection, action, value, drawing.kept)
            yield _name(action, value), self._patch(selection, after)

    def everywhere(self, action: str, value: Any, befores: Sequence[S]) -> None:
        """Add an action that sets the same fields in every drawing.

        ``befores`` are different selections, so that every field that it sets changes in one of them.
        """
        sets: dict[int, int] = {}
        for before in befores:
            sets |= self._patch(before, self._model.acted(before, action, value, None))
        self._global[_name(action, value)] = sets
        self.size += len(encoded({_name(action, value): sets}))

    def overlay(self, field: str, value: Any) -> None:
        """Show another value of a field in every drawing that has the field."""
        number = self._values.setdefault(encoded(value), len(self._values))
        for entry in self._entries.values():
            if field in entry:
                entry[field] = number

    def text(self, first: S) -> str:
        """Everything as JSON, without values that are not used."""
        used = sorted({number for entry in self._entries.values() for number in entry.values()})
        place = {number: at for at, number in enumerate(used)}
        texts = list(self._values)
        held = {name: self._held(name) for name in self._entries}
        entries = {
            ",".join(map(str, name)): {
                "fields": {field: place[number] for field, number in entry.items()},
                "actions": held[name],
            }
            for name, entry in self._entries.items()
        }
        rest = encoded({"first": self.tokens(first), "entries": entries, "everywhere": self._global})
        return f'{rest[:-1]},"values":[{",".join(texts[number] for number in used)}]}}'

    def _held(self, name: Tokens) -> dict[str, Patch]:
        """Return the actions of a drawing that lead to another drawing of the album."""
        patches = (
            (action, patch, tuple(patch.get(at, old) for at, old in enumerate(name)))
            for action, patch in self._local[name].items()
        )
        return {action: patch for action, patch, after in patches if after in self._entries}

    def _patch(self, before: S, after: S) -> Patch:
        pairs = enumerate(zip(_values(before), _values(after), strict=True))
        tokens = {at: (self._token(old), self._token(new)) for at, (old, new) in pairs if old is not new}
        return {at: new for at, (old, new) in tokens.items() if old != new}


def _values(selection: Any) -> list[Any]:
    return [getattr(selection, field.name) for field in fields(selection)]


def _identity(value: Any) -> Any:
    """Return a hashable value that is equal for equal values of a selection; True differs from 1."""
    found = canonical(value)
    try:
        hash(found)
    except TypeError:
        return repr(found)
    return type(found).__name__, found


def _name(action: str, value: Any) -> str:
    """Return an action as the page writes it: its name, and its value as from JavaScript's ``JSON.stringify``."""
    return f"{action} {json.dumps(value, separators=(',', ':'), ensure_ascii=False)}"


def _stilled(value: Any) -> Any:
    """Return a message with each plot replaced by a picture."""
    if is_plot(value):
        return {"label": value["label"], "svg": still(value)}
    if isinstance(value, Mapping):
        return {name: _stilled(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_stilled(item) for item in value]
    return value
