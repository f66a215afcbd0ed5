"""Prometheus metrics of a background capture."""

from __future__ import annotations

import bisect
import contextlib
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from streamstate.errors import InvalidArgumentError, require_extra
from streamstate.snapshots.capture.epoch_commit import CaptureReport

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


class CaptureMetrics(Collector):
    """The metrics of one capture: the results of its passes, and its lag at each scrape.

    Pass :meth:`observe` to :meth:`streamstate.Checkpoint.follow` as ``on_pass``, and the capture that it returns to
    :meth:`attach`. Register it with a registry of your own, or serve it with :meth:`served`.

    Example:
        >>> metrics = CaptureMetrics()
        >>> capture = ss.Checkpoint("checkpoints/delays").follow("store", on_pass=metrics.observe)
        >>> metrics.attach(capture)
        >>> with metrics.served(0) as port:
        ...     capture.stop()
    """

    def __init__(self) -> None:
        self._capture: Capture | None = None
        self._lock = threading.Lock()
        self._counted = dict.fromkeys(("epochs", "rows", "gaps", "errors"), 0)
        self._passes = [0] * len(_BUCKETS)
        self._seconds = 0.0

    def observe(self, outcome: CaptureReport | Exception) -> None:
        """Count what a pass did."""
        with self._lock:
            if not isinstance(outcome, CaptureReport):
                self._counted["errors"] += 1
                return
            self._counted["epochs"] += len(outcome.epochs)
            self._counted["rows"] += outcome.rows
            self._counted["gaps"] += len(outcome.gaps)
            self._passes[bisect.bisect_left(_BUCKETS, outcome.seconds)] += 1
            self._seconds += outcome.seconds

    def attach(self, capture: Capture) -> None:
        """Name the capture; until then there are no metrics."""
        self._capture = capture

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
        if self._capture is not None:
            yield from self._counts(self._capture.name)
            yield from self._position(self._capture)

    def _counts(self, query: str) -> Iterator[Metric]:
        with self._lock:
            counted, passes, seconds = dict(self._counted), [*self._passes], self._seconds
        for name, text, number in (
            ("captured_epochs", "Epochs captured.", counted["epochs"]),
            ("change_rows", "Rows written to the changelogs, keyframes included.", counted["rows"]),
            ("gap_epochs", "Epochs that Spark purged before they could be captured.", counted["gaps"]),
            ("capture_errors", "Passes that failed; the capture tries again.", counted["errors"]),
        ):
            counter = CounterMetricFamily(f"streamstate_{name}", text, labels=_QUERY)
            counter.add_metric([query], number)
            yield counter
        histogram = HistogramMetricFamily("streamstate_capture_seconds", "Duration of passes.", labels=_QUERY)
        bounds = ["+Inf" if math.isinf(bound) else str(bound) for bound in _BUCKETS]
        below = [sum(passes[: at + 1]) for at in range(len(passes))]
        histogram.add_metric([query], list(zip(bounds, below, strict=True)), seconds)
        yield histogram

    def _position(self, capture: Capture) -> Iterator[Metric]:
        status = capture.status
        try:
            lag = capture.lag()
        except Exception:  # noqa: BLE001 (the checkpoint is out of reach, in any file system's words)
            waiting = behind = math.nan
        else:
            waiting, behind = lag.epochs, lag.seconds
        committed_at = status.committed_at.timestamp() if status.committed_at else None
        for name, text, number in (
            ("lag_epochs", "Committed epochs that are not captured yet.", waiting),
            ("lag_seconds", "Time since the oldest of them was committed.", behind),
            ("last_captured_epoch", "The newest captured epoch.", status.epoch),
            ("last_captured_commit_timestamp_seconds", "When that epoch was committed.", committed_at),
            ("freshness_seconds", "Time from that epoch's commit until it could be queried.", status.freshness),
            ("failing", "1 while the last pass has failed.", int(status.error is not None)),
        ):
            gauge = GaugeMetricFamily(f"streamstate_{name}", text, labels=_QUERY)
            if number is not None:
                gauge.add_metric([capture.name], number)
            yield gauge
