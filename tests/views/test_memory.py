"""A watched view gives memory back to the system now and then, where the system has a way to."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from streamstate.widgets.live import memory

_GLIBC = hasattr(ctypes.CDLL(None), "malloc_trim") if sys.platform == "linux" else False

_FREED = """
import ctypes, pathlib
from streamstate.widgets.live.memory import give_back
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096
blocks = [libc.malloc(16_000) for _ in range(4_000)]
for block in blocks:
    ctypes.memset(block, 1, 16_000)
for block in blocks[:-1]:  # the last keeps the heap's end where it is
    libc.free(block)
before = resident()
assert give_back()
print(before - resident())
"""


def test_it_is_asked_for_at_most_once_in_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many views there are, and however often they draw."""
    asked: list[int] = []
    now = 100.0
    monkeypatch.setattr(memory, "_trim", lambda: asked.append)
    monkeypatch.setattr(memory, "_given_back", 0.0)
    monkeypatch.setattr("time.monotonic", lambda: now)
    assert memory.give_back()
    assert not memory.give_back()
    now = 110.5
    assert memory.give_back()
    assert asked == [0, 0]


def test_where_there_is_no_way_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems' libraries have no such call."""
    monkeypatch.setattr(memory, "_trim", lambda: None)
    assert not memory.give_back()


@pytest.mark.skipif(not _GLIBC, reason="the C library has no malloc_trim")
def test_what_is_free_leaves_the_process() -> None:
    """Sixty megabytes that were freed below a block that is still in use."""
    ran = subprocess.run([sys.executable, "-c", _FREED], capture_output=True, text=True, check=True)
    assert int(ran.stdout.split()[-1]) > 50_000_000


def test_deltalakes_allocator_is_told_before_deltalake_is_loaded() -> None:
    """It reads what it is told once; what the user said goes before."""
    code = """
import os, sys
import streamstate.snapshots
assert "deltalake" not in sys.modules
print(os.environ["_RJEM_MALLOC_CONF"])
import streamstate.snapshots.registry
assert "deltalake" in sys.modules
"""
    command = [sys.executable, "-c", code]
    chosen = {**os.environ, "_RJEM_MALLOC_CONF": "narenas:4"}
    plain = {name: value for name, value in chosen.items() if name != "_RJEM_MALLOC_CONF"}
    said = [
        subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout for env in (plain, chosen)
    ]
    assert "dirty_decay_ms:0" in said[0]
    assert said[1] == "narenas:4\n"
