"""Saving a view: chooses what the file holds within its budget, and writes it in one step."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic

from streamstate.snapshots.errors import InvalidArgumentError, StreamStateError, UnknownEpochError
from streamstate.widgets.browser.drawing import described, ranges
from streamstate.widgets.export.album import Album, Full
from streamstate.widgets.export.document import Document, has_plot, write
from streamstate.widgets.export.report import BUDGET, SaveReport
from streamstate.widgets.front import plot_library
from streamstate.widgets.model import Drawing, Focus, S, ViewModel

__all__ = ["MORE", "save"]

_FOR_EPOCHS = 0.7
"""The part of the room that epochs may take where not all of them fit; the rest is for pages, orders and keys."""
MORE = 300
"""Drawings besides the epochs' own; each takes some ten milliseconds."""
_NOTES = 4_000
"""Bytes for what the file says of itself."""
_ONLY_DRAWN = (
    "Filters, following, and combinations of what was chosen: a file answers what was drawn when it was saved."
)

Progress = Callable[[int, int], None]


def save(
    model: ViewModel[S],
    selection: S,
    path: str | Path,
    *,
    epochs: Sequence[int] | None = None,
    budget: int = BUDGET,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> SaveReport:
    """Write a view as one HTML file; see :meth:`streamstate.widgets.View.save`."""
    target = Path(path)
    if target.exists() and not overwrite:
        raise InvalidArgumentError(f"{target} exists.\nGive another path, or overwrite=True to replace it.")
    if not target.parent.is_dir():
        raise InvalidArgumentError(f"There is no folder {target.parent}.\nMake it first, or choose another path.")
    return _Saving(model, selection, target, budget, progress or _untold).run(epochs)


def _untold(done: int, total: int) -> None:
    """Nobody asked how far it is."""


class _Saving(Generic[S]):
    """One file on its way."""

    def __init__(self, model: ViewModel[S], selection: S, target: Path, budget: int, progress: Progress) -> None:
        self._model = model
        self._target = target
        self._budget = budget
        self._progress = progress
        self._first = model.paused(selection)
        self._left_out: list[str] = []
        self._drawn: list[int] = []

    def run(self, asked: Sequence[int] | None) -> SaveReport:
        """Choose, draw, write."""
        captured = self._model.epochs()
        wanted = self._asked(asked, captured)
        if wanted:
            current = self._model.focus(self._first).epoch
            self._first = self._at(current if current in wanted else wanted[-1])
        drawing = self._model.drawing(self._first)
        document = Document(self._model, drawing, self._library(drawing.message))
        room = self._budget - document.size - _NOTES
        album = Album(self._model, room, plots=bool(document.library) or not has_plot(drawing.message))
        try:
            album.add(self._first)
        except Full:
            least = document.size + _NOTES + len(str(drawing.message)) * 2
            raise InvalidArgumentError(
                f"A budget of {self._budget:,} bytes is too small: this view takes about {least:,} at least."
            ) from None
        self._draw_epochs(album, wanted)
        self._draw_more(album)
        return self._written(album, document, captured, wanted, chosen=asked is not None)

    def _asked(self, asked: Sequence[int] | None, captured: Sequence[int]) -> list[int]:
        if asked is None:
            return list(captured)
        there = set(captured)
        if missing := [epoch for epoch in asked if epoch not in there]:
            raise UnknownEpochError(f"Epochs {missing} were not captured.\nThere are: {described(captured)}.")
        return sorted(set(asked))

    def _at(self, epoch: int) -> S:
        return self._model.paused(self._model.focused(self._first, Focus(epoch=epoch)))

    def _library(self, message: Any) -> str:
        """The plot library, if there are plots and it leaves half of the budget."""
        if not has_plot(message):
            return ""
        library = plot_library()
        if len(library) <= self._budget / 2:
            return library
        self._left_out.append(
            f"Live plots: their library takes {len(library):,} bytes, which the budget of {self._budget:,} has no "
            "room for. They are still pictures."
        )
        return ""

    def _draw_epochs(self, album: Album[S], wanted: Sequence[int]) -> None:
        """All epochs that were asked for, or as many as fit, evenly chosen."""
        if len(wanted) < 2 or self._at(wanted[0]) == self._at(wanted[-1]):
            self._drawn = [epoch for epoch in wanted if self._at(epoch) == self._first][-1:]
            return
        for at, epoch in enumerate(chosen := self._fitting(album, wanted)):
            self._progress(at, len(chosen))
            try:
                with self._dropped(epoch):
                    album.add(self._at(epoch))
                    album.add(self._playing(epoch))
                    self._drawn.append(epoch)
            except Full:
                break
        self._drawn.sort()
        befores = [self._at(self._drawn[0]), self._at(self._drawn[-1]), self._playing(self._drawn[-1])]
        album.everywhere("play", None, befores)
        for epoch in self._drawn:
            album.everywhere("epoch", epoch, befores)
            album.everywhere("play", epoch, befores)

    def _playing(self, epoch: int) -> S:
        return self._model.acted(self._at(epoch), "play", epoch, None)

    def _fitting(self, album: Album[S], wanted: Sequence[int]) -> list[int]:
        """The epochs to draw, the newest first: all, or what a few of them say will fit."""
        before, tried = album.size, list(dict.fromkeys([wanted[-1], wanted[len(wanted) // 2], wanted[0]]))
        for epoch in tried:
            with contextlib.suppress(Full), self._dropped(epoch):
                album.add(self._at(epoch))
                album.add(self._playing(epoch))
        each = max(1.0, (album.size - before) / len(tried)) + 100  # and the actions that lead there
        room = album.room - album.size
        if each * len(wanted) <= room:
            return list(wanted)[::-1]
        return evenly(wanted, max(2, int(room * _FOR_EPOCHS / each)), self._model.focus(self._first).epoch)[::-1]

    @contextlib.contextmanager
    def _dropped(self, epoch: int) -> Iterator[None]:
        """An epoch that cannot be read, for it was dropped meanwhile, is left out and named."""
        try:
            yield
        except StreamStateError as problem:
            note = f"Epoch {epoch}: {problem}"
            if note not in self._left_out:
                self._left_out.append(note)

    def _draw_more(self, album: Album[S]) -> None:
        """What people are likely to do: all of it where the file opens, elsewhere the likeliest at all epochs first."""
        starts = [self._at(epoch) for epoch in reversed(self._drawn)] or [self._first]
        steps = [step for start in starts for step in self._offers(start, album.add(start))]
        kinds = list(dict.fromkeys(action for *_, action, _ in steps))
        # Within a kind it goes epoch by epoch, so that what the drawings of an epoch share is read once.
        steps.sort(key=lambda step: (step[0] != self._first, kinds.index(step[2])))
        for done, (start, drawing, action, value) in enumerate(steps[:MORE]):
            self._progress(done, min(len(steps), MORE))
            try:
                with contextlib.suppress(StreamStateError):  # an epoch that was dropped: it is named already
                    album.add(self._model.acted(start, action, value, drawing.kept))
            except Full:
                self._lacks(len(steps) - done, len(steps), f"the budget of {self._budget:,} bytes is used up")
                return
        if len(steps) > MORE:
            self._lacks(
                len(steps) - MORE, len(steps), f"a file holds {MORE:,} of them at most, so that saving is quick"
            )

    def _lacks(self, count: int, total: int, why: str) -> None:
        self._left_out.append(f"{count:,} of {total:,} pages, orders and histories: {why}.")

    def _offers(self, start: S, drawing: Drawing) -> list[tuple[S, Drawing, str, Any]]:
        return [(start, drawing, action, value) for action, value in self._model.saved_actions(start, drawing)]

    def _written(
        self, album: Album[S], document: Document, captured: Sequence[int], wanted: Sequence[int], *, chosen: bool
    ) -> SaveReport:
        self._left_out[:0] = self._epochs_left_out(captured, wanted, chosen=chosen)
        if self._drawn:
            album.overlay("captured", ranges(self._drawn))
        notes = [*self._left_out, _ONLY_DRAWN]
        order = self._drawn if len(self._drawn) > 1 else []
        data = album.text(self._first)
        moment = dt.datetime.now(dt.UTC).astimezone()
        size = write(self._target, document.html(data, order, notes, moment, described(self._drawn)))
        self._progress(1, 1)
        return SaveReport(self._target, size, self._budget, tuple(self._drawn), len(album), tuple(notes))

    def _epochs_left_out(self, captured: Sequence[int], wanted: Sequence[int], *, chosen: bool) -> list[str]:
        if not captured or not self._drawn:
            return []
        said = []
        if chosen and len(wanted) < len(captured):
            said.append(f"{len(captured) - len(wanted):,} of {len(captured):,} epochs: they were not asked for.")
        if len(self._drawn) < len(wanted):
            said.append(
                f"{len(wanted) - len(self._drawn):,} of {len(wanted):,} epochs: the others, evenly chosen, are "
                f"what fits into {self._budget:,} bytes."
            )
        return said


def evenly(numbers: Sequence[int], count: int, also: int | None = None) -> list[int]:
    """Some of ascending numbers, evenly spread, the first and the last among them.

    Args:
        numbers: what to choose from.
        count: how many.
        also: one that is to be there in any case.

    Example:
        >>> evenly(range(10), 4)
        [0, 3, 6, 9]
    """
    if count >= len(numbers):
        return list(numbers)
    step = (len(numbers) - 1) / max(1, count - 1)
    found = {numbers[round(at * step)] for at in range(count)}
    return sorted(found | ({also} if also in numbers else set()))  # type: ignore[arg-type]
