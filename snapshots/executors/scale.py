"""Whether a pass is large: whether the driver fetches its rows, or the executors write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException

from streamstate.snapshots.errors import InvalidArgumentError
from streamstate.snapshots.executors.frames import FrameReader
from streamstate.snapshots.operators import Shape, StateSource

ROWS_IN_DRIVER = "spark.streamstate.rowsInDriver"
"""The Spark setting: a pass over more rows of a table than this is large; 0 makes every pass large."""

_DEFAULT = 2_000_000
# A state file compresses its rows; what is larger than this a row has fewer rows than that.
_LEAST_BYTES_A_ROW = 16
# A table that is captured the large way goes on so until its passes are that much smaller: changing over has the
# live keys looked up in the log again.
_STAYS = 4


@dataclass
class Scale:
    """Estimates the passes of one table."""

    frames: FrameReader
    source: StateSource

    @property
    def rows_in_driver(self) -> int:
        """The setting.

        Raises:
            InvalidArgumentError: where it is no whole number.
        """
        text = self.frames.spark.conf.get(ROWS_IN_DRIVER, str(_DEFAULT))
        try:
            return int(text or _DEFAULT)
        except ValueError:
            raise InvalidArgumentError(
                f"{ROWS_IN_DRIVER}={text!r} cannot be meant: give a whole number of rows, such as {_DEFAULT}."
            ) from None

    def is_large(self, epochs: Sequence[int], rows: int | None, *, whole: bool, was: bool = False) -> bool:
        """Whether a pass is large.

        Args:
            epochs: the epochs of the pass.
            rows: how many rows an epoch is expected to have; None where nothing is known yet.
            whole: whether each epoch's whole state is read.
            was: whether the table's last pass was large.
        """
        limit = self.rows_in_driver
        if not limit:
            return True
        if rows is None:
            return self._first_is_large(epochs, limit, whole=whole)
        return rows * (len(epochs) + whole) * (_STAYS if was else 1) > limit

    def _first_is_large(self, epochs: Sequence[int], limit: int, *, whole: bool) -> bool:
        """Nothing is known yet: small files hold few rows; of others, Spark counts the rows."""
        size = self.frames.bytes(self.source)
        if size is not None and size <= limit * _LEAST_BYTES_A_ROW:
            return False
        if not whole and self.source.shape is not Shape.TIMERS:
            try:
                return self.frames.feed(self.source, epochs[0], epochs[-1]).frame.count() > limit
            except PySparkException:
                pass  # there is no feed, so whole states are read
        return self.frames.state(self.source, epochs[-1]).frame.count() * (len(epochs) + 1) > limit
