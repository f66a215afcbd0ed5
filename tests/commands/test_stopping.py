"""The signals that end a service."""

from __future__ import annotations

import signal
import threading

from streamstate.command_line.stopping import Stopping


def test_a_signal_that_does_not_wake_the_main_thread_is_noticed() -> None:
    """Another thread receives it, so the main thread stays blocked; the same happens if it comes just before that."""
    with Stopping[int]() as stopping:
        stopping.outcomes.put(3)
        assert stopping.next_outcome() == 3
        threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM)).start()
        assert stopping.next_outcome() is None
        assert stopping.asked
