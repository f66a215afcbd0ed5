"""The capture of one query without a session, beside Spark Connect or before Spark runs."""

from __future__ import annotations

from dataclasses import dataclass

from streamstate.errors import SparkConnectError, first_line
from streamstate.snapshots.capture.epoch_commit import Capturer, CaptureReport


@dataclass
class ConnectCapturer(Capturer):
    """A capturer without a session. Beside Spark Connect, the worker process makes the passes once Spark has to read.

    A pass that refuses Spark Connect has committed nothing, so the worker can make it again.
    """

    in_worker: bool = False
    """True if the worker makes the passes: Spark has had to read, or the caller gave a session to read with."""
    _kept: Capturer | None = None
    """The capturer in the worker."""
    _reason: str = ""
    """The reason for which Spark has to read."""

    def run(self, *, upto: int | None = None) -> CaptureReport:
        """Run one pass, as :meth:`Capturer.run` does.

        Raises:
            SparkConnectError: Spark has to read, and the worker does not start, or ends twice.
        """
        if not self.in_worker:
            try:
                return super().run(upto=upto)
            except SparkConnectError as refused:
                self.in_worker, self._reason = True, f"{first_line(refused)}\n"
        try:
            return self._run_in_worker(upto)
        finally:
            self.manifest.refresh()

    def make_ready(self) -> None:
        """Prepare for the next pass, as :meth:`Capturer.make_ready` does, unless the worker makes it."""
        if not self.in_worker:
            super().make_ready()

    def tidy(self) -> None:
        """Tidy, as :meth:`Capturer.tidy` does, where the passes are made."""
        if self._kept is None:
            super().tidy()
        else:
            self._kept.tidy()

    @property
    def keyframe_due(self) -> bool:
        """True if :meth:`tidy` has a keyframe to write."""
        return super().keyframe_due if self._kept is None else self._kept.keyframe_due

    def _run_in_worker(self, upto: int | None) -> CaptureReport:
        if self._kept is not None:
            try:
                return self._kept.run(upto=upto)
            except SparkConnectError:
                pass  # the worker has ended, and another one can go on
        self._kept = self._made()
        return self._kept.run(upto=upto)

    def _made(self) -> Capturer:
        """Return a capturer of the worker."""
        from streamstate.snapshots.spark.worker.client import call_in_worker

        place = (self.checkpoint.path, self.layout.root, self.name, None)
        settings = {"verify": self.verify, "storage_options": self.layout.options}
        try:
            made: Capturer = call_in_worker("streamstate.snapshots.capture.capture", "capturer_for", place, settings)
        except SparkConnectError as error:
            raise SparkConnectError(f"{self._reason}{error}") from error
        return made
