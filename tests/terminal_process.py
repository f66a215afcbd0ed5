"""A command in a process of its own, whose standard error is a terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_LIMIT = 300.0


class TerminalProcess:
    """A running command, what its terminal has shown so far, and how long it took to end."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._terminal, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 100))
        self._process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs
        )
        os.close(theirs)
        self._seen, self._over, self._more = b"", False, threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def shown(self) -> str:
        """Everything that the terminal has shown."""
        return self._seen.decode(errors="replace")

    def wait_for(self, text: str) -> None:
        """Wait until the terminal has shown a text."""
        with self._more:
            self._more.wait_for(lambda: text in self.shown or self._over, _LIMIT)
        assert text in self.shown, f"{text!r} was not shown: {self.shown}"

    def interrupt(self) -> float:
        """Send SIGINT, and return the seconds until the process has ended."""
        began = time.monotonic()
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_LIMIT)
        return time.monotonic() - began

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; returns the exit status, standard output, and the lines that stay on the terminal."""
        output = self._process.communicate(timeout=_LIMIT)[0].decode()
        self._reader.join(_LIMIT)
        lines = [line.rpartition("\r")[2] for line in self.shown.replace("\r\n", "\n").split("\n")]
        return self._process.returncode, output, "\n".join(line for line in lines if line.strip())

    def _read(self) -> None:
        # Reading raises OSError once the other end is closed.
        with contextlib.suppress(OSError):
            while part := os.read(self._terminal, 4096):
                with self._more:
                    self._seen += part
                    self._more.notify_all()
        with self._more:
            self._over = True
            self._more.notify_all()
        os.close(self._terminal)

    def close(self) -> None:
        """Kill what still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextlib.contextmanager
def in_terminal(folder: Path, *arguments: str | Path) -> Iterator[TerminalProcess]:
    """Run ``streamstate`` with arguments in a folder."""
    process = TerminalProcess([sys.executable, "-m", "streamstate", *map(str, arguments)], folder)
    try:
        yield process
    finally:
        process.close()
