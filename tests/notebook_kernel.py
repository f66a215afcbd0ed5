"""A real kernel in a process of its own, in which tests run cells, interrupt them and ask for completions."""

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

_LIMIT = 120.0


@dataclass
class Ran:
    """What a cell did: every message that it sent, and the answer."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    reply: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> str:
        """The class of the error; empty where there was none."""
        return str(self.reply.get("ename", ""))

    @property
    def printed(self) -> str:
        """What it wrote, and what stands in its output for good."""
        return "".join(one["content"]["text"] for one in self.of("stream"))

    @property
    def traceback(self) -> str:
        """What is shown of its error."""
        return "\n".join("\n".join(one["content"]["traceback"]) for one in self.of("error"))

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The messages of a kind."""
        return [one for one in self.messages if one["header"]["msg_type"] == kind]

    def outputs(self) -> list[dict[str, Any]]:
        """The data that is displayed at the end, updates applied, as a saved notebook keeps it."""
        shown: dict[Any, dict[str, Any]] = {}
        for at, one in enumerate(self.messages):
            if one["header"]["msg_type"] in ("display_data", "update_display_data", "execute_result"):
                name = one["content"].get("transient", {}).get("display_id", at)
                shown[name] = one["content"]["data"]
        return list(shown.values())


class Kernel:
    """A kernel with the extension loaded."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self.manager = manager
        self.client = client

    def run(self, code: str, *, when: Callable[[dict[str, Any]], bool] | None = None) -> Ran:
        """Run a cell to its end; once a message fits ``when``, the kernel is interrupted."""
        request = self.client.execute(code)
        ran = Ran()
        for message in self._messages():
            if message["parent_header"].get("msg_id") != request:
                continue
            ran.messages.append(message)
            if when is not None and when(message):
                self.manager.interrupt_kernel()
                when = None
            if message["header"]["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
        while ran.reply == {}:
            reply = self.client.get_shell_msg(timeout=_LIMIT)
            if reply["parent_header"].get("msg_id") == request:
                ran.reply = reply["content"]
        return ran

    def works(self, code: str) -> Ran:
        """Run a cell that is right."""
        ran = self.run(code)
        assert ran.reply["status"] == "ok", f"{ran.traceback}\n{ran.printed}"
        return ran

    def value(self, expression: str) -> str:
        """An expression's value as text."""
        return self.works(f"print({expression}, end='')").printed

    def completions(self, cell: str) -> list[str]:
        """What Tab offers at the ``|``."""
        before, _, after = cell.partition("|")
        self.client.complete(before + after, len(before))
        return list(self.client.get_shell_msg(timeout=_LIMIT)["content"]["matches"])

    def inspected(self, name: str) -> str:
        """What the notebook shows of a name in its help."""
        self.client.inspect(name)
        return str(self.client.get_shell_msg(timeout=_LIMIT)["content"]["data"].get("text/plain", ""))

    def unasked(self) -> list[dict[str, Any]]:
        """The messages that have come without a cell running, but for the kernel's own."""
        found: list[dict[str, Any]] = []
        while True:
            try:
                message = self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                return [one for one in found if one["header"]["msg_type"] != "status"]
            found.append(message)

    def _messages(self) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + _LIMIT
        while time.monotonic() < end:
            yield self.client.get_iopub_msg(timeout=_LIMIT)
        raise TimeoutError(f"a cell did not end within {_LIMIT} s")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel of the module, in an empty folder."""
    folder: Path = tmp_path_factory.mktemp("kernel")
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(folder), env={**os.environ, "IPYTHONDIR": str(folder / ".ipython")})
    client = manager.blocking_client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=_LIMIT)
        found = Kernel(manager, client)
        found.works("%load_ext streamstate")
        yield found
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
