"""A real kernel in its own process, in which tests run cells, interrupt them and request completions."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

_LIMIT = 600.0


@dataclass
class CellResult:
    """The result of a cell: the messages that it sent, and the reply."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> str:
        """The name of the error's class; empty if the cell succeeded."""
        return str(self.reply.get("ename", ""))

    @property
    def printed(self) -> str:
        """The printed text."""
        return "".join(message["content"]["text"] for message in self.of("stream"))

    @property
    def traceback(self) -> str:
        """The error as it is displayed."""
        return "\n".join("\n".join(message["content"]["traceback"]) for message in self.of("error"))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The messages of a kind."""
        return [message for message in self.messages if message["header"]["msg_type"] == kind]

    def outputs(self) -> list[dict[str, Any]]:
        """The displayed data after all updates, as in a saved notebook."""
        data: dict[Any, dict[str, Any]] = {}
        for index, message in enumerate(self.messages):
            if message["header"]["msg_type"] in ("display_data", "update_display_data", "execute_result"):
                name = message["content"].get("transient", {}).get("display_id", index)
                data[name] = message["content"]["data"]
        return list(data.values())


class Kernel:
    """A kernel with the extension loaded."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    def run(self, code: str, *, when: Callable[[dict[str, Any]], bool] | None = None) -> CellResult:
        """Run a cell to its end. The first message for which ``when`` is true interrupts the kernel."""
        request = self.client.execute(code)
        result = CellResult()
        for message in self._messages():
            if message["parent_header"].get("msg_id") != request:
                continue
            result.messages.append(message)
            if when is not None and when(message):
                self.manager.interrupt_kernel()
                when = None
            if message["header"]["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
        while result.reply == {}:
            reply = self.client.get_shell_msg(timeout=_LIMIT)
            if reply["parent_header"].get("msg_id") == request:
                result.reply = reply["content"]
        return result

    def works(self, code: str) -> CellResult:
        """Run a cell that must succeed."""
        result = self.run(code)
        assert result.reply["status"] == "ok", f"{result.traceback}\n{result.printed}"
        return result

    def value(self, expression: str) -> str:
        """An expression's value as text."""
        return self.works(f"print({expression}, end='')").printed

    def completions(self, cell: str) -> list[str]:
        """The completions at the ``|``."""
        before, _, after = cell.partition("|")
        self.client.complete(before + after, len(before))
        return list(self.client.get_shell_msg(timeout=_LIMIT)["content"]["matches"])

    def inspected(self, name: str) -> str:
        """The help text of a name."""
        self.client.inspect(name)
        return str(self.client.get_shell_msg(timeout=_LIMIT)["content"]["data"].get("text/plain", ""))

    def unasked(self) -> list[dict[str, Any]]:
        """The messages that were sent while no cell ran, except for the kernel's status."""
        found: list[dict[str, Any]] = []
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                return [message for message in found if message["header"]["msg_type"] != "status"]
            found.append(message)

    def _messages(self) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + _LIMIT
        while time.monotonic() < end:
            yield self.client.get_iopub_msg(timeout=_LIMIT)
        raise TimeoutError(f"a cell did not end within {_LIMIT} s")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel for the module, in an empty directory."""
    folder: Path = tmp_path_factory.mktemp("kernel")
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(folder), env={**os.environ, "IPYTHONDIR": str(folder / ".ipython")})
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=_LIMIT)
        kernel = Kernel(manager, client)
        kernel.works("%load_ext streamstate")
        yield kernel
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
