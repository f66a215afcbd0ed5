"""Importing the library does not change memory settings; the extension makes a kernel return freed memory."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from streamstate.snapshots.capture import allocator_settings as memory

_GLIBC = hasattr(ctypes.CDLL(None), "malloc_trim") if sys.platform == "linux" else False

_FREED = """
import ctypes, pathlib
from streamstate.snapshots.capture.allocator_settings import give_back
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096
blocks = [libc.malloc(16_000) for _ in range(4_000)]
for block in blocks:
    ctypes.memset(block, 1, 16_000)
for block in blocks[:-1]:  # the last one keeps the heap from shrinking at its end
    libc.free(block)
before = resident()
assert give_back()
print(before - resident())
"""


def test_memory_is_trimmed_at_most_once_in_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regardless of how many views there are and how often they draw."""
    trims: list[int] = []
    now = 100.0
    monkeypatch.setattr(memory, "_trim", lambda: trims.append)
    monkeypatch.setattr(memory, "_given_back", 0.0)
    monkeypatch.setattr("time.monotonic", lambda: now)
    assert memory.give_back()
    assert not memory.give_back()
    now = 110.5
    assert memory.give_back()
    assert trims == [0, 0]


def test_without_glibc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other C libraries do not have ``malloc_trim``."""
    monkeypatch.setattr(memory, "_trim", lambda: None)
    assert not memory.give_back()


@pytest.mark.skipif(not _GLIBC, reason="the C library has no malloc_trim")
def test_free_memory_is_returned_to_the_system() -> None:
    """Sixty megabytes freed below a block that is still in use."""
    ran = subprocess.run([sys.executable, "-c", _FREED], capture_output=True, text=True, check=True)
    assert int(ran.stdout.split()[-1]) > 50_000_000


_IMPORTED = """
import os
before = dict(os.environ)
import pyarrow as pa
pool = pa.default_memory_pool().backend_name
import streamstate, streamstate.state_inspect, streamstate.widgets, streamstate.extension, streamstate.command_line
for module in (streamstate, streamstate.state_inspect, streamstate.widgets):
    for name in module.__all__:
        getattr(module, name)
try:
    streamstate.open_store("missing")
except streamstate.StreamStateError:
    pass
assert {name: os.environ.get(name) for name in before} == before
print(sorted(set(os.environ) - set(before)), pool == pa.default_memory_pool().backend_name)
"""

_LOADED = """
import os, sys
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
shell = InteractiveShell.instance(config=Config({config}))
was_loaded = "deltalake" in sys.modules or "pyarrow" in sys.modules
shell.run_line_magic("load_ext", "streamstate")
import pyarrow as pa
print(was_loaded, os.environ.get("_RJEM_MALLOC_CONF"), pa.default_memory_pool().backend_name)
shell.run_line_magic("config", "StreamState.plain_memory = False")
print(os.environ.get("_RJEM_MALLOC_CONF"), pa.default_memory_pool().backend_name)
shell.run_line_magic("config", "StreamState.plain_memory = True")
shell.run_line_magic("unload_ext", "streamstate")
print(os.environ.get("_RJEM_MALLOC_CONF"), pa.default_memory_pool().backend_name)
"""

_MEMORY_VARIABLES = ("_RJEM_MALLOC_CONF", "MIMALLOC_PURGE_DELAY", "ARROW_DEFAULT_MEMORY_POOL")


def run(code: str, **variables: str) -> list[str]:
    """The lines printed by a new Python process, with only the given memory-related variables set."""
    env = {name: value for name, value in os.environ.items() if name not in _MEMORY_VARIABLES} | variables
    completed = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.splitlines()


@pytest.mark.slow
def test_importing_the_library_changes_neither_environment_nor_allocators() -> None:
    """Neither loading every public name nor opening a store changes them."""
    assert run(_IMPORTED) == ["[] True"]


def test_the_extension_sets_plain_memory_before_deltalake_is_imported() -> None:
    """Its allocator reads the variable once. ``%config`` switches the pool back, and unloading undoes everything."""
    loaded, switched_off, unloaded = run(_LOADED.format(config={}))
    assert loaded == "False narenas:1,dirty_decay_ms:0,muzzy_decay_ms:0 system"
    assert switched_off == unloaded
    assert switched_off.startswith("None ")
    assert not switched_off.endswith("system")


def test_plain_memory_can_be_switched_off_before_loading() -> None:
    """With the setting off, nothing changes."""
    loaded = run(_LOADED.format(config={"StreamState": {"plain_memory": False}}))[0]
    assert loaded.startswith("False None ")
    assert not loaded.endswith("system")


def test_user_settings_are_kept() -> None:
    """Variables that are already set and the pool are left unchanged."""
    lines = run(_LOADED.format(config={}), _RJEM_MALLOC_CONF="narenas:4", ARROW_DEFAULT_MEMORY_POOL="mimalloc")
    assert lines == ["False narenas:4 mimalloc", "narenas:4 mimalloc", "narenas:4 mimalloc"]
