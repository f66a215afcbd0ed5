"""The load view: what a query has to do, epoch by epoch, whether it keeps up, and where that leads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from streamstate.errors import InvalidArgumentError
from streamstate.state_inspect import Forecast, History, Load
from streamstate.widgets.charts_and_words import KIND, ChartsAndWords
from streamstate.widgets.load_charts import LoadCharts, Path
from streamstate.widgets.model import NoSelection, ViewModel
from streamstate.widgets.view import View

NEWEST = 2_000
"""The newest epochs that are shown."""
_AHEAD = 0.15
"""The share of the shown epochs by which a forecast is drawn beyond them."""
_POINTS = 6


class LoadModel(ViewModel[NoSelection]):
    """Draws the newest epochs of one query."""

    kind = KIND

    def __init__(self, history: History, state: str | int | None, backlog: int | None) -> None:
        self.history = history
        self.name = history.name
        self._limits = (state, backlog)

    def newest(self) -> object:
        """Return the newest epochs."""
        entries = self.history.recorded.entries()
        return (len(entries), entries[-1].epoch, entries.generation) if entries else None

    def view(self, selection: NoSelection) -> ChartsAndWords:
        """Return the load in words and plots."""
        load = self.history.load(last=NEWEST)
        words = load.sentences()
        if not len(load):
            return ChartsAndWords(self.name, f"Load of {self.name}", words)
        state, backlog = self._limits
        grows = _doubles(load) if state is None else load.forecast(state=state)
        waits = None if backlog is None else load.forecast(backlog=backlog)
        words += [str(found) for found in (grows, waits) if found is not None]
        charts = LoadCharts(self.name, load.to_pandas(), load.phases(), _path(load, grows), _path(load, waits))
        return ChartsAndWords(self.name, f"Load of {self.name}", words, [*charts.all()], unknown=load.unknown)


class LoadView(View[NoSelection]):
    """Shows the load of a query's newest 2,000 epochs, with the time by which its state reaches a limit.

    The plots have rows that arrive and are processed, the time of each phase, the backlog, the latency, the state, the
    slowest task and what was shed, as far as they are known; sentences say what is not. New epochs appear as they are
    captured. In a saved notebook and in exported HTML the view is still pictures.

    Args:
        history: the query's history.
        state: a limit for the state, as of :meth:`Load.forecast`; by default twice its size.
        backlog: a limit for the rows that wait.

    Raises:
        InvalidArgumentError: a limit is invalid.

    Example:
        >>> LoadView(store["delays"])
        delays: Epoch 61 ...
    """

    def __init__(self, history: History, *, state: str | int | None = None, backlog: int | None = None) -> None:
        super().__init__(LoadModel(history, state, backlog), NoSelection())


def _doubles(load: Load) -> Forecast | None:
    """Return the forecast of when the state has twice its size; None if that is not known."""
    newest = load.to_pandas().iloc[-1]
    size, rows = newest["state_bytes"], newest["state_rows"]
    try:
        if isinstance(size, (int, np.integer)) and size > 0:
            return load.forecast(state=f"{2 * size}B")
        return load.forecast(state=2 * int(rows)) if isinstance(rows, (int, np.integer)) and rows > 0 else None
    except InvalidArgumentError:  # too few epochs
        return None


def _path(load: Load, forecast: Forecast | None) -> Path:
    """Return the levels on the way to the limit, up to some epochs after the newest."""
    if forecast is None or forecast.reached is None or forecast.reached == forecast.at:
        return Path(limit=_near(forecast))
    frame = load.to_pandas()
    began = frame["began_at"].tail(50)
    pace = (began.iloc[-1] - began.iloc[0]).total_seconds() / max(len(began) - 1, 1)
    furthest = forecast.epoch + max(len(frame) * _AHEAD, 3)
    points = [(float(forecast.epoch), forecast.level)]
    for level, seconds in _levels(load, forecast):
        epoch = forecast.epoch + seconds / pace if pace > 0 else furthest
        if epoch >= furthest:
            share = (furthest - points[-1][0]) / (epoch - points[-1][0])
            points.append((furthest, points[-1][1] + share * (level - points[-1][1])))
            break
        points.append((epoch, level))
    return Path(points, _near(forecast))


def _levels(load: Load, forecast: Forecast) -> Iterator[tuple[float, float]]:
    """Yield levels up to the limit, and the seconds until each is reached."""
    for level in np.linspace(forecast.level, forecast.limit, _POINTS + 1)[1:]:
        limit = max(int(level), 1)
        if forecast.what == "backlog rows":
            found = load.forecast(backlog=limit)
        else:
            found = load.forecast(state=limit if forecast.what == "state rows" else f"{limit}B")
        if found.reached is not None:
            yield float(limit), (found.reached - forecast.at).total_seconds()


def _near(forecast: Forecast | None) -> float | None:
    """Return the limit, if it is not so far above the levels that they would look flat."""
    return None if forecast is None or forecast.limit > 2.5 * max(forecast.level, 1) else float(forecast.limit)
