"""Prometheus metrics of a background capture."""

from __future__ import annotations

import bisect
import contextlib
import copy
import itertools
import math
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamstate.errors import InvalidArgumentError, require_extra
from streamstate.snapshots.capture.epoch_commit import CaptureReport
from streamstate.snapshots.capture.fleet import Fleet
from streamstate.snapshots.store.names import is_name

require_extra("sidecar")  # otherwise the next import fails, and does not say what to install

from prometheus_client import CollectorRegistry, start_http_server  # noqa: E402
from prometheus_client.core import (  # noqa: E402
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector  # noqa: E402

if TYPE_CHECKING:
    from streamstate.snapshots.capture.follow import Capture

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, math.inf)
_QUERY = ("query",)
_MOST = 1_000
"""The queries of a fleet that have metrics of their own."""
_OTHERS, _ALL = "(others)", ""
_GAUGES = {
    "lag_epochs": "Committed epochs that are not captured yet.",
    "lag_seconds": "Time since the oldest of them was committed.",
    "last_captured_epoch": "The newest captured epoch.",
    "last_captured_commit_timestamp_seconds": "When that epoch was committed.",
    "freshness_seconds": "Time from that epoch's commit until it could be queried.",
    "failing": "1 while the last pass has failed.",
    "state_rows": "Rows of all state tables at the newest captured epoch, if they are counted.",
    "state_changes": "Rows of state that the newest captured epoch changed.",
    "watermark_timestamp_seconds": "The watermark of the newest captured epoch.",
}
"""The values of a query, in the order of :func:`_position`."""


@dataclass
class _Counted:
    """Totals over the passes of a query, or of several."""

    epochs: int = 0
    rows: int = 0
    gaps: int = 0
    errors: int = 0
    passes: list[int] = field(default_factory=lambda: [0] * len(_BUCKETS))
    seconds: float = 0.0

    def add(self, outcome: CaptureReport | Exception) -> None:
        if not isinstance(outcome, CaptureReport):
            self.errors += 1
            return
        self.epochs += len(outcome.epochs)
        self.rows += outcome.rows
        self.gaps += len(outcome.gaps)
        self.passes[bisect.bisect_left(_BUCKETS, outcome.seconds)] += 1
        self.seconds += outcome.seconds


class CaptureMetrics(Collector):
    """The metrics of one capture or of a fleet: the results of passes, and the lag at each scrape.

    Pass :meth:`observe` to :meth:`streamstate.Checkpoint.follow` as ``on_pass``, and the capture that it returns to
    :meth:`attach`; of a fleet, pass :meth:`observe_query` and attach the fleet. Register it with a registry of your
    own, or serve it with :meth:`served`.

    The label ``query`` has the query's name. Of a fleet, at most 1,000 queries have metrics of their own; those that
    come later are counted together as ``(others)``. The durations of a fleet's passes are one histogram.

    Example:
        >>> metrics = CaptureMetrics()
        >>> capture = ss.Checkpoint("checkpoints/delays").follow("store", on_pass=metrics.observe)
        >>> metrics.attach(capture)
        >>> with metrics.served(0) as port:
        ...     capture.stop()
    """

    def __init__(self) -> None:
        self._attached: Capture | Fleet | None = None
        self._lock = threading.Lock()
        self._counted = dict[str, _Counted]()

    def observe(self, outcome: CaptureReport | Exception) -> None:
        """Count what a pass of the only query did."""
        self.observe_query(_ALL, outcome)

    def observe_query(self, query: str, outcome: CaptureReport | Exception) -> None:
        """Count what a pass of a query did; errors of checkpoints that cannot be captured count as ``(others)``."""
        with self._lock:
            known = query in self._counted
            name = query if known or (len(self._counted) < _MOST and _is_query(query)) else _OTHERS
            self._counted.setdefault(name, _Counted()).add(outcome)

    def attach(self, attached: Capture | Fleet) -> None:
        """Name the capture or the fleet; until then there are no metrics."""
        self._attached = attached

    @contextlib.contextmanager
    def served(self, port: int, host: str = "127.0.0.1") -> Iterator[int]:
        """Serve the metrics over HTTP in the background until the end of the ``with`` block, which gets the port.

        Args:
            port: the port; 0 chooses a free one.
            host: the address to listen on; by default only this machine can reach it.

        Raises:
            InvalidArgumentError: nothing can listen there.
        """
        registry = CollectorRegistry()  # the global one may hold other libraries' metrics
        registry.register(self)
        try:
            server, thread = start_http_server(port, host, registry)
        except (OSError, OverflowError) as error:
            raise InvalidArgumentError(
                f"Metrics cannot be served at {host}:{port}: {error}.\nChoose another port; 0 chooses a free one."
            ) from error
        try:
            yield int(server.server_port)
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics now; a registry calls this."""
        attached = self._attached
        if attached is None:
            return
        with self._lock:
            counted = copy.deepcopy(self._counted)
        if not isinstance(attached, Fleet):
            yield from self._counts({attached.name: counted.get(_ALL, _Counted())}, together=False)
            yield from self._positions([attached])
            return
        # Those with a pass, and as many of the others as there is room for: their counters are 0 from the start.
        shown = sorted(attached.captures, key=lambda capture: capture.name not in counted)[:_MOST]
        yield from self._counts({capture.name: _Counted() for capture in shown} | counted, together=True)
        yield from self._of_fleet(attached)
        yield from self._positions(shown)

    def _counts(self, counted: Mapping[str, _Counted], *, together: bool) -> Iterator[Metric]:
        for name, text, attribute in (
            ("captured_epochs", "Epochs captured.", "epochs"),
            ("change_rows", "Rows written to the changelogs, keyframes included.", "rows"),
            ("gap_epochs", "Epochs that Spark purged before they could be captured.", "gaps"),
            ("capture_errors", "Passes that failed; the capture tries again.", "errors"),
        ):
            counter = CounterMetricFamily(f"streamstate_{name}", text, labels=_QUERY)
            for query, numbers in counted.items():
                counter.add_metric([query], getattr(numbers, attribute))
            yield counter
        histogram = HistogramMetricFamily("streamstate_capture_seconds", "Duration of passes.", labels=_QUERY)
        bounds = ["+Inf" if math.isinf(bound) else str(bound) for bound in _BUCKETS]
        queries = {_ALL: [*counted.values()]} if together else {query: [one] for query, one in counted.items()}
        for query, several in queries.items():
            passes = [sum(one.passes[at] for one in several) for at in range(len(_BUCKETS))]
            buckets = zip(bounds, itertools.accumulate(passes), strict=True)
            histogram.add_metric([query], [*buckets], sum(one.seconds for one in several))
        yield histogram

    def _of_fleet(self, fleet: Fleet) -> Iterator[Metric]:
        states = GaugeMetricFamily("streamstate_queries", "Queries by the state of their capture.", labels=["state"])
        counts = Counter(status.state for status in fleet.status.values())
        for state in ("waiting", "running", "stopped", "failed"):
            states.add_metric([state], counts[state])
        yield states
        text = "Checkpoints that cannot be captured."
        yield GaugeMetricFamily("streamstate_failing_checkpoints", text, value=len(fleet.failed))

    def _positions(self, captures: Sequence[Capture]) -> Iterator[Metric]:
        gauges = [GaugeMetricFamily(f"streamstate_{name}", text, labels=_QUERY) for name, text in _GAUGES.items()]
        for capture in captures:
            for gauge, number in zip(gauges, _position(capture), strict=True):
                if number is not None:
                    gauge.add_metric([capture.name], number)
        yield from gauges


def _is_query(name: str) -> bool:
    """Return whether a pass was that of a query, and not of a checkpoint that cannot be captured."""
    return name == _ALL or is_name(name)


def _position(capture: Capture) -> tuple[float | None, ...]:
    """Return the values of a capture's gauges; None for those that it does not have yet."""
    status = capture.status
    try:
        lag = capture.lag()
    except Exception:  # noqa: BLE001 (the checkpoint is out of reach, in any file system's words)
        waiting = behind = math.nan
    else:
        waiting, behind = lag.epochs, lag.seconds
    return (
        waiting,
        behind,
        status.epoch,
        status.committed_at.timestamp() if status.committed_at else None,
        status.freshness,
        int(status.error is not None),
        status.rows,
        status.changes,
        status.watermark.timestamp() if status.watermark else None,
    )
