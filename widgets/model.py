"""What a view shows, apart from where it is shown: a view model builds drawings from a selection.

One model serves every place that a view can be in: a notebook's output, a served page, a saved file, a line of text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

__all__ = ["Drawing", "Focus", "S", "ViewModel"]

S = TypeVar("S")
"""The selection: a frozen dataclass that says everything a person chose, and nothing else."""


@dataclass(frozen=True)
class Drawing:
    """What is seen for one selection.

    Attributes:
        message: what a page needs to draw it, in JSON types.
        kept: what an action may refer to by number and the page need not hold, such as the keys of the rows.
        unfinished: whether something slower is still missing, which :meth:`ViewModel.drawing` has.
    """

    message: Mapping[str, Any]
    kept: Any = None
    unfinished: bool = False


@dataclass(frozen=True)
class Focus:
    """What a person looks at, in the terms that all views share; None where a view says nothing of it.

    Attributes:
        epoch: one epoch; with ``live`` the newest, whichever that is.
        between: two epochs, the earlier first.
        table: a state table.
        key: one key: its columns and their values.
        live: whether the newest epoch is followed.
        query: a query of a store, where a view shows several.
    """

    epoch: int | None = None
    between: tuple[int, int] | None = None
    table: str | None = None
    key: Mapping[str, Any] | None = field(default=None, hash=False)
    live: bool = False
    query: str | None = None


class ViewModel(ABC, Generic[S]):
    """Builds the drawings of one view. Any thread may call it, also several at once: it locks itself.

    Attributes:
        kind: the view's JavaScript module, ``front/<kind>.js``, which exports ``render``.
        name: what it shows, for the names of threads and files: a query's name, or a store's.
    """

    kind: ClassVar[str]
    name: str

    @abstractmethod
    def newest(self) -> object:
        """Something that is equal as long as there is nothing new to draw; looked at often, so it must be quick."""

    @abstractmethod
    def drawing(self, selection: S) -> Drawing:
        """What ``selection`` shows now."""

    def quick(self, selection: S) -> Drawing:
        """The drawing without what takes long, so that a page shows the rest at once; by default the whole."""
        return self.drawing(selection)

    @abstractmethod
    def acted(self, selection: S, action: str, value: Any, kept: Any) -> S:
        """The selection after one action of a person; what cannot be meant changes nothing.

        Args:
            selection: what was chosen before.
            action: what was done, such as ``"sort"``.
            value: what the page sent with it, in JSON types: not to be trusted.
            kept: :attr:`Drawing.kept` of the drawing that the person saw; None where it is no longer known.
        """

    @abstractmethod
    def text(self, drawing: Drawing) -> str:
        """A drawing in one line, for a terminal."""

    @abstractmethod
    def html(self, drawing: Drawing) -> str:
        """A drawing for any browser, without scripts; every text in it is escaped, plots are still pictures."""

    def played(self, selection: S) -> S:
        """The selection one step on, for a view that plays; the same object where there is nothing to play."""
        return selection

    def paused(self, selection: S) -> S:
        """The selection without playing: nobody looks any more."""
        return selection

    def playing(self, selection: S) -> bool:
        """Whether :meth:`played` has something to do."""
        return False

    def focus(self, selection: S) -> Focus:
        """What the person looks at, for views that are linked with this one."""
        return Focus()

    def focused(self, selection: S, focus: Focus) -> S:
        """The selection that looks at what another view looks at; what this view has no use for changes nothing."""
        return selection

    def epochs(self) -> Sequence[int]:
        """The epochs that can be looked at, ascending; none for a view that is not of one query."""
        history = getattr(self, "history", None)
        return () if history is None else history.captured()

    def saved_actions(self, selection: S, drawing: Drawing) -> Iterable[tuple[str, Any]]:
        """What a person is likely to do at a drawing, besides choosing an epoch, the likeliest first.

        A saved file answers as many of them as fit into it.

        Args:
            selection: what is shown.
            drawing: how it is shown.

        Returns:
            Actions with their values, as :meth:`acted` gets them.
        """
        return ()

    def release(self) -> None:
        """Let go of what is kept between drawings: nobody looks any more."""
