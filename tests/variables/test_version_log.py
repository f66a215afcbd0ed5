"""Versions: each number is taken once, of concurrent sets none is lost, and each version can be read for ever."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamstate as ss
from streamstate.errors import VariableConflictError, VariableError
from streamstate.variables.version_log import _WHOLE_EVERY, Overtaken, VersionLog
from variables.conftest import NewAddress
from variables.staging import QUERY, begun, declared, opened

MAP = declared("map<string, bigint>", "sum")
NUMBER = declared("bigint", "sum", 0)

# Adds 1 as often as told, as one notebook of several does, and prints how often another was quicker.
NOTEBOOK = """
import sys
import streamstate as ss
from streamstate.errors import VariableConflictError

number = ss.shared(sys.argv[1], "number", transport=None)
print("ready", flush=True)
sys.stdin.readline()
lost = 0
for _ in range(int(sys.argv[2])):
    while True:
        try:
            number.set(number.get() + 1)
            break
        except VariableConflictError:
            lost += 1
print(lost)
"""


def test_of_concurrent_sets_none_is_lost_and_the_loser_hears_of_it(new_address: NewAddress) -> None:
    """Threads that set what they have read plus one: each success is one version, each failure published nothing."""
    address = new_address()
    begun(address, NUMBER)
    won, lost = [0] * 4, [0] * 4
    start = threading.Barrier(4)

    def add_one(worker: int) -> None:
        log = opened(address, NUMBER)
        start.wait()
        while won[worker] < 25:
            newest = log.entry(log.head())
            try:
                log.set(newest.state + 1, f"worker {worker}", newest.sets)
                won[worker] += 1
            except Overtaken:
                lost[worker] += 1

    threads = [threading.Thread(target=add_one, args=[worker]) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = opened(address, NUMBER)
    assert log.numbers() == list(range(101))
    assert [log.state(number) for number in log.numbers()] == list(range(101))
    by = [log.entry(number).by for number in range(1, 101)]
    assert [by.count(f"worker {worker}") for worker in range(4)] == won == [25] * 4
    assert sum(lost) > 0, "no two conflicted"


@pytest.mark.slow
def test_of_the_sets_of_several_processes_none_is_lost(new_address: NewAddress, tmp_path: Path) -> None:
    """Two notebooks add one 20 times each, and try again after each conflict."""
    number = ss.shared(tmp_path / "store", "number", "bigint", init=0, transport=new_address())
    command = [sys.executable, "-c", NOTEBOOK, str(tmp_path / "store"), "20"]
    notebooks = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for notebook in notebooks:
        assert notebook.stdout is not None
        assert notebook.stdout.readline() == "ready\n"
    for notebook in notebooks:
        assert notebook.stdin is not None
        notebook.stdin.write("go\n")
        notebook.stdin.flush()
    for notebook in notebooks:
        notebook.communicate(timeout=300)
    assert [notebook.returncode for notebook in notebooks] == [0, 0]
    assert number.get() == number.version == 40
    history = number.history()
    assert history["value"].tolist() == history["version"].tolist() == list(range(41))
    assert history["by"][1:].nunique() == 2


def test_a_set_after_another_is_refused_until_the_value_was_read(new_address: NewAddress, tmp_path: Path) -> None:
    """The second notebook's set publishes nothing; what queries merge meanwhile is no conflict."""
    address = new_address()
    ss.shared(tmp_path / "store", "number", "bigint", init=0, merge="sum", transport=address)
    first, second = (ss.shared(tmp_path / "store", "number") for _ in range(2))
    assert first.set(1) == 1
    with pytest.raises(VariableConflictError, match="was set to 1 by another"):
        second.set(2)
    assert second.version == 1
    assert second.get() == 1
    assert first.log.merge(QUERY, 0, 10, 1) is not None
    assert second.set(3) == 3
    assert first.log.value(2) == 11
    assert second.get() == 3


Step = tuple[bool, dict[str, int]]
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(st.booleans(), st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-9, 9), max_size=8)),
    min_size=1,
    max_size=70,
)


def versions(log: VersionLog, steps: list[Step]) -> list[dict[str, int]]:
    """Set or merge each map, and return the value that each version must have, by another computation."""
    expected: list[dict[str, int]] = [{}]
    for epoch, (sets, entries) in enumerate(steps):
        if sets:
            log.set(dict(entries), "", None)
            expected.append(dict(entries))
        else:
            log.merge(QUERY, epoch, dict(entries), 1)
            before = expected[-1]
            expected.append(before | {key: before.get(key, 0) + value for key, value in entries.items()})
    return expected


@settings(max_examples=25, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 9))
def test_a_map_by_changes_equals_the_whole_map_at_every_version(
    new_address: NewAddress, steps: list[Step], seed: int
) -> None:
    """In whatever order a process reads them, and whatever it has read before."""
    address = new_address()
    expected = versions(begun(address, MAP), steps)
    order = Random(seed).sample(range(len(expected)), len(expected))
    reader = opened(address, MAP)
    assert [dict(reader.value(number)) for number in order] == [expected[number] for number in order]
    assert [dict(opened(address, MAP).value(number)) for number in order[:5]] == [expected[n] for n in order[:5]]


def test_a_map_stores_only_what_changed(new_address: NewAddress) -> None:
    """But now and then, so that no reader has to go back far."""
    log = begun(new_address(), MAP)
    log.set({f"key {number}": number for number in range(1000)}, "", None)
    for epoch in range(_WHOLE_EVERY):
        log.merge(QUERY, epoch, {f"key {epoch}": 1}, 1)
    sizes = [len(log.transport.get(log.group, f"{number:010}") or b"") for number in range(2, log.head() + 1)]
    assert sum(size > 2000 for size in sizes) == 1
    assert [log.entry(number).whole for number in range(2, log.head() + 1)].count(True) == 1


def test_a_value_that_was_read_stays_what_it_was(new_address: NewAddress) -> None:
    """Also a map, of which the process reads a later version: two queries in one worker are bound to different ones."""
    address = new_address()
    expected = versions(
        begun(address, MAP), [(True, dict.fromkeys("abcdefgh", 1)), (False, {"a": 1}), (False, {"b": 1})]
    )
    reader = opened(address, MAP)
    values = [reader.value(number) for number in (1, 2, 3, 2, 1)]
    assert [dict(value) for value in values] == [expected[number] for number in (1, 2, 3, 2, 1)]


@settings(max_examples=4, deadline=None)
@given(steps=STEPS, data=st.data())
def test_versions_that_the_transport_forgot_are_read_from_the_store(
    new_address: NewAddress, tmp_path_factory: pytest.TempPathFactory, steps: list[Step], data: st.DataObject
) -> None:
    """Every version of a map, wherever the transport begins."""
    store = tmp_path_factory.mktemp("store") / "store"
    variable = ss.shared(store, "v", "map<string, bigint>", merge="sum", transport=new_address())
    expected = versions(variable.log, steps)
    assert variable.record() == len(steps)
    keep_from = data.draw(st.integers(0, len(steps)))
    # A map's log keeps what the versions that stay build on.
    variable.log.transport.remove(variable.log.group, [f"{number:010}" for number in range(keep_from)])
    reader = ss.shared(store, "v").log
    order = data.draw(st.permutations(range(len(expected))))
    assert [dict(reader.value(number)) for number in order] == [expected[number] for number in order]


def test_a_log_drops_only_what_the_store_has(new_address: NewAddress, tmp_path: Path) -> None:
    """Recording drops old versions from the transport, and every one can still be read."""
    variable = ss.shared(tmp_path / "store", "v", "bigint", init=0, transport=new_address())
    for number in range(1, 301):
        variable.log.set(number, "", None)
    assert variable.record() == 300
    kept = variable.log.numbers()
    assert kept == list(range(kept[0], 301))
    assert 0 < kept[0] < 200
    reader = ss.shared(tmp_path / "store", "v").log
    some = [0, 77, kept[0] - 1, *kept[:3], 300]
    assert [reader.value(number) for number in some] == some


def test_without_transport_and_store_a_version_is_an_error(new_address: NewAddress) -> None:
    """Nothing is read in its place."""
    log = begun(new_address(), NUMBER)
    log.set(1, "", None)
    log.drop(1)
    with pytest.raises(VariableError, match="Version 0 of v is gone"):
        opened(log.transport.address, NUMBER).value(0)


def test_damaged_bytes_are_an_error_that_names_the_version(new_address: NewAddress) -> None:
    """Whatever part of them is lost."""
    address = new_address()
    log = begun(address, NUMBER)
    whole = log.transport.get(log.group, f"{0:010}")
    assert whole is not None
    for length in range(0, len(whole) - 8, 97):
        log.transport.put(log.group, f"{0:010}", whole[:length])
        with pytest.raises(VariableError, match=r"Version 0 of v in .* is damaged"):
            opened(address, NUMBER).value(0)


def test_a_draft_that_a_killed_process_left_is_no_version(tmp_path: Path) -> None:
    """A file appears whole under its name, or not at all."""
    log = begun(str(tmp_path), NUMBER)
    (tmp_path / log.group / f".{os.getpid()}-1-0").write_bytes(b"half of a ver")
    assert opened(str(tmp_path), NUMBER).numbers() == [0]
