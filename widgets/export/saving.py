"""Saving a view: chooses what fits into the file's budget, and writes the file in one step."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from streamstate.errors import InvalidArgumentError, StreamStateError, UnknownEpochError
from streamstate.snapshots.epoch_range import epoch_list
from streamstate.snapshots.progress_callback import ProgressCallback, silent
from streamstate.widgets.export.album import Album, AlbumFull
from streamstate.widgets.export.document import SavedDocument, has_plot, write
from streamstate.widgets.front import plot_library
from streamstate.widgets.model import Drawing, Focus, S, ViewModel
from streamstate.widgets.number_text import amount, described, ranges

BUDGET = 5_000_000
"""The default for the largest size of a file, in bytes."""


@dataclass(frozen=True)
class SaveReport:
    """What :meth:`View.save <streamstate.widgets.View.save>` did.

    Attributes:
        path: the file.
        size: its size in bytes.
        budget: the largest size that was allowed.
        epochs: the epochs that it holds, ascending; empty for a view without epochs.
        drawings: how many different drawings it can show.
        left_out: what it does not hold and why, a sentence each. The file contains the same notes.

    Example:
        >>> print(SaveReport(Path("delays.html"), 81_224, 5_000_000, (0, 1, 2), 40))
        delays.html: 81,224 of 5,000,000 bytes · 3 epochs · 40 drawings
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


_FOR_EPOCHS = 0.7
"""The share of the space for epochs if not all of them fit; the rest is for pages, sort orders and keys."""
MORE = 300
"""The most drawings besides those of the epochs; each takes some ten milliseconds."""
_NOTES = 4_000
"""Bytes reserved for the notes in the file."""
_ONLY_DRAWN = "Filters, following, and combinations of choices: a file shows only what was drawn when it was saved."


def save(
    model: ViewModel[S],
    selection: S,
    path: str | Path,
    *,
    epochs: Sequence[int] | str | None = None,
    budget: int = BUDGET,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
) -> SaveReport:
    """Write a view as one HTML file; see :meth:`streamstate.widgets.View.save`."""
    target = Path(path)
    if target.exists() and not overwrite:
        raise InvalidArgumentError(f"{target} already exists.\nChoose another path, or pass overwrite=True.")
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

    def run(self, requested: Sequence[int] | str | None) -> SaveReport:
        """Choose the epochs, draw them, and write the file."""
        captured = self._model.epochs()
        epochs = self._checked(requested, captured)
        if epochs:
            current = self._model.focus(self._first).epoch
            self._first = self._at(current if current in epochs else epochs[-1])
        drawing = self._model.drawing(self._first)
        document = SavedDocument(self._model, drawing, self._library(drawing.message))
        room = self._budget - document.size - _NOTES
        album = Album(self._model, room, plots=bool(document.library) or not has_plot(drawing.message))
        try:
            album.add(self._first)
        except AlbumFull:
            least = document.size + _NOTES + len(str(drawing.message)) * 2
            raise InvalidArgumentError(
                f"Invalid budget={self._budget:,}: expected at least about {least:,} bytes for this view."
            ) from None
        self._draw_epochs(album, epochs)
        self._draw_more(album)
        return self._written(album, document, captured, epochs, chosen=requested is not None)

    def _checked(self, requested: Sequence[int] | str | None, captured: Sequence[int]) -> list[int]:
        if requested is None:
            return list(captured)
        chosen, known = epoch_list(requested, captured), set(captured)
        if missing := [epoch for epoch in chosen if epoch not in known]:
            raise UnknownEpochError(f"Epochs {missing} were not captured.\nCaptured epochs: {described(captured)}.")
        return chosen

    def _at(self, epoch: int) -> S:
        return self._model.paused(self._model.focused(self._first, Focus(epoch=epoch)))

    def _library(self, message: Any) -> str:
        """The plot library, if there are plots and it takes at most half of the budget."""
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

    def _draw_epochs(self, album: Album[S], epochs: Sequence[int]) -> None:
        """Draw all epochs, or as many as fit, evenly spaced."""
        if len(epochs) < 2 or self._at(epochs[0]) == self._at(epochs[-1]):
            self._drawn = [epoch for epoch in epochs if self._at(epoch) == self._first][-1:]
            return
        for at, epoch in enumerate(chosen := self._fitting(album, epochs)):
            self._progress(f"drawing epoch {epoch}", at / len(chosen))
            try:
                if self._draw(album, epoch):
                    self._drawn.append(epoch)
            except AlbumFull:
                break
        self._drawn.sort()
        befores = [self._at(self._drawn[0]), self._at(self._drawn[-1]), self._playing(self._drawn[-1])]
        album.everywhere("play", None, befores)
        for epoch in self._drawn:
            album.everywhere("epoch", epoch, befores)
            album.everywhere("play", epoch, befores)

    def _playing(self, epoch: int) -> S:
        return self._model.acted(self._at(epoch), "play", epoch, None)

    def _fitting(self, album: Album[S], epochs: Sequence[int]) -> list[int]:
        """The epochs to draw, newest first: all, or as many as will fit, estimated from a few of them."""
        before, tried = album.size, list(dict.fromkeys([epochs[-1], epochs[len(epochs) // 2], epochs[0]]))
        for epoch in tried:
            with contextlib.suppress(AlbumFull):
                self._draw(album, epoch)
        cost = max(1.0, (album.size - before) / len(tried)) + 100  # plus the actions that lead there
        room = album.room - album.size
        if cost * len(epochs) <= room:
            return list(epochs)[::-1]
        return evenly(epochs, max(2, int(room * _FOR_EPOCHS / cost)), self._model.focus(self._first).epoch)[::-1]

    def _draw(self, album: Album[S], epoch: int) -> bool:
        """Draw an epoch, paused and playing; one that cannot be read, because it was dropped meanwhile, is noted."""
        try:
            album.add(self._at(epoch))
            album.add(self._playing(epoch))
        except StreamStateError as problem:
            note = f"Epoch {epoch}: {problem}"
            if note not in self._left_out:
                self._left_out.append(note)
            return False
        return True

    def _draw_more(self, album: Album[S]) -> None:
        """Draw likely actions: all of those at the first drawing, then the likeliest at all epochs."""
        starts = [self._at(epoch) for epoch in reversed(self._drawn)] or [self._first]
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
        self, album: Album[S], document: SavedDocument, captured: Sequence[int], epochs: Sequence[int], *, chosen: bool
    ) -> SaveReport:
        self._left_out[:0] = self._epochs_left_out(captured, epochs, chosen=chosen)
        if self._drawn:
            album.overlay("captured", ranges(self._drawn))
        notes = [*self._left_out, _ONLY_DRAWN]
        order = self._drawn if len(self._drawn) > 1 else []
        data = album.text(self._first)
        moment = dt.datetime.now(dt.UTC).astimezone()
        size = write(self._target, document.html(data, order, notes, moment, described(self._drawn)))
        self._progress("done", 1.0)
        return SaveReport(self._target, size, self._budget, tuple(self._drawn), len(album), tuple(notes))

    def _epochs_left_out(self, captured: Sequence[int], epochs: Sequence[int], *, chosen: bool) -> list[str]:
        if not captured or not self._drawn:
            return []
        notes = []
        if chosen and len(epochs) < len(captured):
            notes.append(f"{len(captured) - len(epochs):,} of {len(captured):,} epochs: not requested.")
        if len(self._drawn) < len(epochs):
            notes.append(
                f"{len(epochs) - len(self._drawn):,} of {len(epochs):,} epochs: only the others, evenly spaced, fit "
                f"into {self._budget:,} bytes."
            )
        return notes


def evenly(numbers: Sequence[int], count: int, also: int | None = None) -> list[int]:
    """Some of the ascending numbers, evenly spaced, including the first and the last, and ``also``.

    Example:
        >>> evenly(range(10), 4)
        [0, 3, 6, 9]
    """
    if count >= len(numbers):
        return list(numbers)
    step = (len(numbers) - 1) / max(1, count - 1)
    found = {numbers[round(at * step)] for at in range(count)}
    return sorted(found | ({also} if also in numbers else set()))  # type: ignore[arg-type]
