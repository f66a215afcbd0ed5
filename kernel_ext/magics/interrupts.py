"""Interrupting what a cell does, and that alone."""

from __future__ import annotations

import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from streamstate.interrupted_calls import spare_other_calls

if TYPE_CHECKING:
    from types import FrameType

    from pyspark.sql import SparkSession

__all__ = ["cancelling", "own_interrupt", "said_briefly"]


class _Handler:
    """Raises KeyboardInterrupt, and remembers that it did: engines turn it into errors of their own."""

    struck = False

    def __call__(self, _signal: int, _frame: FrameType | None) -> None:
        self.struck = True
        raise KeyboardInterrupt


@contextmanager
def own_interrupt() -> Iterator[None]:
    """Make an interrupt end the block with KeyboardInterrupt, and do nothing else.

    PySpark's own handler cancels every job of the session first, which would fail the queries that run beside. And an
    engine that is interrupted may raise what it likes: it is the interrupt all the same.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    spare_other_calls()
    handler = _Handler()
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    except BaseException:
        if handler.struck:
            # Where in the work it struck tells nobody anything.
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, before)


def said_briefly(interrupt: KeyboardInterrupt, line: str) -> KeyboardInterrupt:
    """The interrupt, shown by IPython as one line; the cell fails all the same."""
    shown: dict[str, Any] = interrupt.__dict__
    shown["_render_traceback_"] = lambda: [f"KeyboardInterrupt: {line}"]
    return interrupt


@contextmanager
def cancelling(spark: SparkSession) -> Iterator[None]:
    """Make an interrupt cancel the Spark jobs that the block started, and no others.

    Args:
        spark: the session that runs them.
    """
    tag = f"streamstate-{uuid.uuid4().hex}"
    spark.addTag(tag)
    try:
        with own_interrupt():
            yield
    except KeyboardInterrupt as interrupt:
        spark.interruptTag(tag)
        raise said_briefly(interrupt, "the statement's Spark jobs were cancelled; queries go on.") from None
    finally:
        spark.removeTag(tag)
