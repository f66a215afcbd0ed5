"""A picture of a state, made of a few primitives that know nothing of what they show.

Coordinates are pixels from the top left corner. An item's name is the same in every picture in which it is the same
thing, so that a player can move it. Tones colour an item; what they mean is also in its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

Tone: TypeAlias = Literal["", "good", "bad", "busy", "mark", "faint"]
Point: TypeAlias = tuple[float, float]

LINE = 20
"""Height of a cell and of a chip."""
_LETTER = 6.2
"""Mean width of a letter of the font in which texts are set."""


class Item(NamedTuple):
    """One element of a picture.

    Args:
        name: the same thing has the same name in every picture.
        kind: what it is (box, cell, chip, bar, arrow, text) and its tone.
        x: its left edge, or where its text begins.
        y: its top edge, or the middle of its text.
        width: of its rectangle; 0 for none.
        height: of its rectangle.
        text: its text, as far as there is room.
        path: a line, in the words of SVG.
        words: what a screen reader says; empty for what adds nothing.
    """

    name: str
    kind: str
    x: float
    y: float
    width: float = 0
    height: float = 0
    text: str = ""
    path: str = ""
    words: str = ""


@dataclass
class Scene:
    """A picture that is put together item by item; later items are in front.

    Example:
        >>> scene = Scene(200)
        >>> scene.box("A", 10, 10, 90, "task A", cells=["seen 3"])
        52
        >>> scene.chip("a1", 150, 30, "a1")
        >>> scene.words
        'task A: seen 3. a1.'
    """

    width: float
    height: float = 0
    items: list[Item] = field(default_factory=list)

    def add(self, item: Item) -> None:
        """Add an item and make room for it. A name that is taken, as of a record that is there twice, is changed."""
        names = {other.name for other in self.items}
        while item.name in names:
            item = item._replace(name=f"{item.name}'")
        self.items.append(item)
        self.height = max(self.height, item.y + item.height + 6)

    def box(
        self,
        name: str,
        x: float,
        y: float,
        width: float,
        title: str,
        *,
        cells: Sequence[str | tuple[str, Tone]] = (),
        tone: Tone = "",
        lines: int | None = None,
    ) -> float:
        """Add a box with a title and cells below each other, and return its height.

        Args:
            name: its name, from which those of its cells are made.
            x: its left edge.
            y: its top edge.
            width: its width.
            title: its title.
            cells: texts, some with a tone.
            tone: the tone of the box.
            lines: room for so many cells; as many as there are, by default.
        """
        pairs: list[tuple[str, str]] = [(cell, "") if isinstance(cell, str) else cell for cell in cells]
        spoken = "; ".join(text for text, _ in pairs)
        words = f"{title}: {spoken}." if spoken else f"{title}."
        height = 26 + (LINE + 3) * (len(cells) if lines is None else lines) + 3
        self.add(Item(name, _kind("box", tone), x, y, width, height, fit(title, width - 12), words=words))
        for number, (text, cell_tone) in enumerate(pairs):
            top = y + 26 + (LINE + 3) * number
            self.cell(f"{name}.{number}", x + 5, top, width - 10, text, tone=cell_tone, spoken=False)
        return height

    def cell(
        self, name: str, x: float, y: float, width: float, text: str, *, tone: str = "", spoken: bool = True
    ) -> None:
        """Add a rectangle with a text."""
        words = f"{text}." if spoken else ""
        self.add(Item(name, _kind("cell", tone), x, y, width, LINE, fit(text, width), words=words))

    def cells(self, name: str, x: float, y: float, width: float, texts: Iterable[tuple[str, Tone]]) -> float:
        """Add cells beside each other, in as many lines as they need, and return the height of these."""
        left, top = x, y
        for number, (text, tone) in enumerate(texts):
            wide = min(width_of(text), width)
            if left > x and left + wide > x + width:
                left, top = x, top + LINE + 4
            self.cell(f"{name}.{number}", left, top, wide, text, tone=tone)
            left += wide + 4
        return top + LINE + 4 - y

    def chip(self, name: str, x: float, y: float, text: str, *, tone: Tone = "", words: str | None = None) -> None:
        """Add a message whose middle is at a point."""
        wide = width_of(text)
        said = f"{text}." if words is None else words
        self.add(Item(name, _kind("chip", tone), x - wide / 2, y - LINE / 2, wide, LINE, text, words=said))

    def arrow(self, name: str, start: Point, end: Point, *, bend: float = 0, tone: Tone = "", words: str = "") -> None:
        """Add an arrow; ``bend`` moves its middle to the right of its way."""
        middle = along(start, end, 0.5, 2 * bend)
        path = f"M{start[0]:g} {start[1]:g}Q{middle[0]:g} {middle[1]:g} {end[0]:g} {end[1]:g}{_head(middle, end)}"
        self.add(Item(name, _kind("arrow", tone), 0, 0, path=path, words=words))

    def text(self, name: str, x: float, y: float, text: str, *, tone: Tone = "") -> None:
        """Add a text that begins at a point."""
        self.add(Item(name, _kind("text", tone), x, y, text=text, words=f"{text}."))

    def bar(self, name: str, x: float, y: float, width: float, text: str, *, share: float, tone: Tone = "") -> None:
        """Add a bar that is filled to a share between 0 and 1, with a text."""
        self.add(Item(f"{name}.frame", "cell", x, y, width, LINE))
        self.add(Item(f"{name}.fill", _kind("bar", tone), x, y, width * min(1, max(0, share)), LINE))
        self.add(Item(name, "text", x + 6, y + LINE / 2, text=text, words=f"{text}."))

    @property
    def words(self) -> str:
        """The picture in words."""
        return " ".join(item.words for item in self.items if item.words)


def along(start: Point, end: Point, share: float, bend: float = 0) -> Point:
    """Return a point on the way from one point to another; ``bend`` moves it to the right of the way."""
    across, down = end[0] - start[0], end[1] - start[1]
    length = (across**2 + down**2) ** 0.5 or 1
    return (
        round(start[0] + across * share - bend * down / length, 1),
        round(start[1] + down * share + bend * across / length, 1),
    )


def _head(start: Point, end: Point) -> str:
    """Return the head of an arrow, as a path."""
    length = ((end[0] - start[0]) ** 2 + (end[1] - start[1]) ** 2) ** 0.5 or 1
    left, right = along(start, end, 1 - 7 / length, 4), along(start, end, 1 - 7 / length, -4)
    return f"M{left[0]:g} {left[1]:g}L{end[0]:g} {end[1]:g}L{right[0]:g} {right[1]:g}"


def on_arrow(start: Point, end: Point, share: float, bend: float = 0) -> Point:
    """Return a point on an arrow."""
    return along(start, end, share, 4 * bend * share * (1 - share))


def width_of(text: str) -> float:
    """Return the width of a cell or chip for a text."""
    return round(len(text) * _LETTER + 10)


def fit(text: str, width: float) -> str:
    """Return a text, shortened to a width."""
    room = int((width - 8) / _LETTER)
    return text if len(text) <= room else text[: max(1, room - 1)].rstrip() + "…"


def _kind(kind: str, tone: str) -> str:
    return f"{kind} {tone}" if tone else kind
