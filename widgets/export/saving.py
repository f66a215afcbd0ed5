"""Saving a view: chooses what fits into the file's budget, and writes the file in one step."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from streamstate.errors import InvalidArgumentError, StreamStateError, UnknownEpochError, worded
from streamstate.snapshots.calls.epoch_range import epoch_list
from streamstate.snapshots.calls.progress_callback import ProgressCallback, silent
from streamstate.snapshots.store.consistent_read import consistent_read
from streamstate.widgets.export.album import Album, AlbumFull
from streamstate.widgets.export.document import SavedDocument, has_plot, write
from streamstate.widgets.front import plot_library
from streamstate.widgets.model import Drawing, S, ViewModel
from streamstate.widgets.number_text import amount, described, ranges

BUDGET = 2_000_000
"""The default for the largest size of a file, in bytes."""


@dataclass(frozen=True)
class SaveReport:
    """The report of :meth:`View.save <streamstate.widgets.View.save>`.

    Attributes:
        path: the file.
        size: its size in bytes.
        budget: the largest size that was allowed.
        epochs: the epochs that it holds, ascending; empty for a view without epochs.
        drawings: how many different drawings it can show.
        left_out: what it does not hold and why, a sentence each. The file contains the same notes.

    Example:
        >>> print(SaveReport(Path("delays.html"), 81_224, 2_000_000, (0, 1, 2), 40))
        delays.html: 81,224 of 2,000,000 bytes · 3 epochs · 40 drawings
    """

    path: Path
    size: int
    budget: int
    epochs: Sequence[int] = ()
    drawings: int = 1
    left_out: Sequence[str] = field(default=())

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.size:,} of {self.budget:,} bytes"]
        parts += [amount(len(self.epochs), "epoch")] if self.epochs else []
        parts.append(amount(self.drawings, "drawing"))
        return "\n".join([" · ".join(parts), *self.left_out])


POSITIONS = 100
"""The most epochs in a file; drawing one takes some ten milliseconds."""
MORE = 100
"""The most drawings besides those of the epochs."""
_FOR_EPOCHS = 0.7
"""The share of the space for epochs if not all of them fit; the rest is for pages, sort orders and keys."""
_FEWEST = 3
"""The epochs that are tried at least: the first, the last and the selected one."""
_NOTES = 4_000
"""Bytes reserved for the notes in the file."""
_ONLY_DRAWN = "Filters, following, and combinations of choices: a file shows only what was drawn when it was saved."


def save(
    model: ViewModel[S],
    selection: S,
    path: str | Path,
    epochs: Sequence[int] | str | None = None,
    budget: int = BUDGET,
    *,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> SaveReport:
    """Write a view as one HTML file; see :meth:`streamstate.widgets.View.save`."""
    target = Path(path)
    if target.exists() and not overwrite:
        replace = worded("pass overwrite=True", line="add --overwrite")
        raise InvalidArgumentError(f"{target} already exists.\nChoose another path, or {replace}.")
    if not target.parent.is_dir():
        raise InvalidArgumentError(f"The directory {target.parent} does not exist.\nCreate it, or choose another path.")
    return _Saving(model, selection, target, budget, progress or silent).run(epochs)


class _Saving(Generic[S]):
    """A file while it is being written."""

    def __init__(
        self, model: ViewModel[S], selection: S, target: Path, budget: int, progress: ProgressCallback
    ) -> None:
        self._model = model
        self._target = target
        self._budget = budget
        self._progress = progress
        self._first = model.paused(selection)
        self._left_out: list[str] = []
        self._drawn: list[int] = []

    @consistent_read()
    def run(self, requested: Sequence[int] | str | None) -> SaveReport:
        """Choose the epochs, draw them, and write the file."""
        captured = self._model.epochs()
        epochs = self._checked(requested, captured)
        selected = self._selected()
        if epochs and selected not in epochs:
            selected = epochs[-1]
            self._first = self._at(selected)
        drawing = self._model.drawing(self._first)
        document = SavedDocument(self._model, drawing, self._library(drawing.message))
        room = self._budget - document.size - _NOTES
        album = Album(self._model, room, plots=document.draws_plots or not has_plot(drawing.message))
        try:
            album.add(self._first)
        except AlbumFull:
            least = document.size + _NOTES + len(str(drawing.message)) * 2
            raise InvalidArgumentError(
                f"Invalid budget={self._budget:,}: expected at least about {least:,} bytes for this view."
            ) from None
        if epochs:
            self._draw_epochs(album, positions(epochs, POSITIONS, selected, self._model.events()), selected)
        self._draw_more(album)
        return self._written(album, document, captured, epochs)

    def _checked(self, requested: Sequence[int] | str | None, captured: Sequence[int]) -> Sequence[int]:
        if requested is None:
            return captured
        chosen, known = epoch_list(requested, captured), set(captured)
        if missing := [epoch for epoch in chosen if epoch not in known]:
            raise UnknownEpochError(f"Epochs {missing} were not captured.\nCaptured epochs: {described(captured)}.")
        return chosen

    def _selected(self) -> int | None:
        """Return the epoch that the view shows; of two, the later."""
        focus = self._model.focus(self._first)
        return focus.between[1] if focus.between and focus.epoch is None else focus.epoch

    def _at(self, epoch: int) -> S:
        return self._model.acted(self._first, self._model.epoch_action, epoch, None)

    def _library(self, message: Any) -> str:
        """Return the plot library, if there are plots and it takes at most half of the budget."""
        if not has_plot(message):
            return ""
        library = plot_library()
        if len(library) <= self._budget / 2:
            return library
        self._left_out.append(
            f"Live plots: their library takes {len(library):,} bytes, too much for the budget of {self._budget:,}. "
            "Plots are still pictures."
        )
        return ""

    def _draw_epochs(self, album: Album[S], epochs: Sequence[int], selected: int | None) -> None:
        """Draw the epochs, or as many of them as fit, evenly spaced."""
        if len(epochs) == 1 or self._at(epochs[0]) == self._at(epochs[-1]):
            self._drawn = list(epochs[-1:])
            return
        count = self._fitting(album, epochs)
        while not self._drawn_all(album, chosen := positions(epochs, count, selected)):
            count = max(_FEWEST, len(chosen) * 4 // 5)
        befores = [self._first, *(self._at(epoch) for epoch in (*self._drawn[:1], *self._drawn[-1:]))]
        for epoch in self._drawn:
            album.everywhere(self._model.epoch_action, epoch, befores)

    def _drawn_all(self, album: Album[S], epochs: Sequence[int]) -> bool:
        """Draw some epochs, newest first; if they do not fit, and could be fewer, the album is as before."""
        self._drawn = []
        for at, epoch in enumerate(reversed(epochs)):
            self._progress(f"drawing epoch {epoch}", at / len(epochs))
            try:
                album.add(self._at(epoch))
            except AlbumFull:
                if len(epochs) > _FEWEST:
                    album.clear()
                    album.add(self._first)
                    return False
            except StreamStateError as problem:  # dropped meanwhile
                note = f"Epoch {epoch}: {problem}"
                self._left_out += [note] if note not in self._left_out else []
            else:
                self._drawn.append(epoch)
        self._drawn.sort()
        return True

    def _fitting(self, album: Album[S], epochs: Sequence[int]) -> int:
        """Estimate from a few epochs how many will fit."""
        before, tried = album.size, list(dict.fromkeys([epochs[-1], epochs[len(epochs) // 2], epochs[0]]))
        for epoch in tried:
            with contextlib.suppress(AlbumFull, StreamStateError):
                album.add(self._at(epoch))
        cost = max(1.0, (album.size - before) / len(tried)) + 100  # plus the actions that lead there
        room = album.room - album.size
        return len(epochs) if cost * len(epochs) <= room else max(_FEWEST, int(room * _FOR_EPOCHS / cost))

    def _draw_more(self, album: Album[S]) -> None:
        """Draw likely actions: all of those at the first drawing, then the likeliest at all epochs."""
        epochs = [self._at(epoch) for epoch in reversed(self._drawn)]
        starts = [self._first, *(selection for selection in epochs if selection != self._first)]
        steps: list[tuple[S, Drawing, str, Any]] = []
        for start in starts:
            drawing = album.add(start)
            steps += [(start, drawing, *offer) for offer in self._model.saved_actions(start, drawing)]
        kinds = list(dict.fromkeys(action for *_, action, _ in steps))
        # Within an action, epoch by epoch, so that what the drawings of an epoch share is read once.
        steps.sort(key=lambda step: (step[0] != self._first, kinds.index(step[2])))
        for done, (start, drawing, action, value) in enumerate(steps[:MORE]):
            self._progress("drawing pages, orders and histories", done / min(len(steps), MORE))
            try:
                with contextlib.suppress(StreamStateError):  # a dropped epoch, which is noted already
                    album.add(self._model.acted(start, action, value, drawing.kept))
            except AlbumFull:
                self._lacks(len(steps) - done, len(steps), f"the budget of {self._budget:,} bytes is used up")
                return
        if len(steps) > MORE:
            self._lacks(
                len(steps) - MORE, len(steps), f"a file holds at most {MORE:,} of them, so that saving is quick"
            )

    def _lacks(self, count: int, total: int, why: str) -> None:
        self._left_out.append(f"{count:,} of {total:,} pages, orders and histories: {why}.")

    def _written(
        self, album: Album[S], document: SavedDocument, captured: Sequence[int], epochs: Sequence[int]
    ) -> SaveReport:
        self._left_out[:0] = self._epochs_left_out(captured, epochs)
        if self._drawn:
            album.overlay("captured", ranges(self._drawn))
        notes = [*self._left_out, _ONLY_DRAWN]
        saved = f"Saved: {len(self._drawn):,} of {amount(len(captured), 'epoch')}." if self._drawn else ""
        chosen = {
            "action": self._model.epoch_action,
            "order": self._drawn if len(self._drawn) > 1 else [],
            "held": described(self._drawn),
        }
        moment = dt.datetime.now(dt.UTC).astimezone()
        size = write(self._target, document.html(album.text(self._first), chosen, notes, moment, saved))
        self._progress("done", 1.0)
        return SaveReport(self._target, size, self._budget, tuple(self._drawn), len(album), tuple(notes))

    def _epochs_left_out(self, captured: Sequence[int], epochs: Sequence[int]) -> Iterator[str]:
        if not self._drawn:
            return
        if len(epochs) < len(captured):
            yield f"{len(captured) - len(epochs):,} of {len(captured):,} epochs: not requested."
        if len(self._drawn) < len(epochs):
            most = min(POSITIONS, len(epochs))
            why = (
                f"a file holds at most {POSITIONS} of them"
                if len(self._drawn) >= most
                else f"no more fit into {self._budget:,} bytes"
            )
            yield (
                f"{len(epochs) - len(self._drawn):,} of {len(epochs):,} epochs: {why}, evenly spaced, with those at"
                " gaps, restarts and forks."
            )


def evenly(numbers: Sequence[int], count: int) -> list[int]:
    """Return some of the ascending numbers, evenly spaced, including the first and the last.

    Example:
        >>> evenly(range(10), 4)
        [0, 3, 6, 9]
    """
    if count >= len(numbers):
        return list(numbers)
    step = (len(numbers) - 1) / max(1, count - 1)
    return sorted({numbers[round(at * step)] for at in range(count)})


def positions(epochs: Sequence[int], count: int, selected: int | None, events: Sequence[int] = ()) -> list[int]:
    """At most ``count`` of the ascending epochs: the first, the last, the selected one, events, and others between.

    At most half of them are events.

    Example:
        >>> positions(range(100), 6, selected=70, events=[41, 42])
        [0, 41, 42, 50, 70, 99]
    """
    if count >= len(epochs):
        return list(epochs)
    known = set(epochs)
    kept = {epochs[0], epochs[-1], *evenly([epoch for epoch in events if epoch in known], count // 2)}
    if selected in known:
        kept.add(selected)
    others = [epoch for epoch in epochs if epoch not in kept]
    more = max(0, count - len(kept))
    return sorted(kept | {others[int((at + 0.5) * len(others) / more)] for at in range(more)})
