"""Stores in object stores from a notebook: how to reach them is said once and is written down nowhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capturing.test_object_store import Bucket, bucket  # noqa: F401 (a fixture)
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from synthetic import write

from streamstate.snapshots.errors import InvalidArgumentError, StoreError

STORE = "s3://bucket/magics"


@pytest.fixture
def remote(bare_shell: Shell, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> tuple[Shell, str]:
    """A shell, and a line's options that reach a store with the query ``q`` in a bucket."""
    for name, value in bucket.options.items():
        monkeypatch.setenv(name, value)
    location: Any = STORE
    write(location, [{"a": epoch} for epoch in range(3)])
    for name in bucket.options:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bare_shell.names["secret"] = bucket.options["AWS_SECRET_ACCESS_KEY"]
    given = {**bucket.options, "AWS_SECRET_ACCESS_KEY": "{secret}"}
    return bare_shell, " ".join(f"--storage-option {name}={value}" for name, value in given.items())


def test_options_are_said_once(remote: tuple[Shell, str]) -> None:
    """The next lines reach the store as well, whichever magic they are of."""
    shell, options = remote
    assert shell.run(f"%state q --store {STORE} {options} --at 1")["value"].tolist() == [1]
    assert shell.run("%state q --at 2")["value"].tolist() == [2]
    assert shell.run("%%statesql\nSELECT value FROM q VERSION AS OF 0")["value"].tolist() == [0]
    assert shell.run("%snapshots q")["epoch"].tolist() == [0, 1, 2]
    assert next(iter(shell.run("%snapshots q keep --last 1 --dry-run")))["stay"] == 1
    assert shell.completions("%state q --at |")[:2] == ["2", "1"]


def test_a_secret_is_written_down_nowhere(remote: tuple[Shell, str]) -> None:
    """Not in the settings, not in what is shown, not in errors."""
    shell, options = remote
    shell.run(f"%state q --store {STORE} {options} --at 1")
    shell.run("%config StreamState")
    assert "secret" not in shell.said.replace("secrets", "")
    shell.names["secret"] = "hushhush"
    message = shell.fails(f"%state q {options} --storage-option hushhush", InvalidArgumentError)
    assert "hushhush" not in message + shell.said
    message = shell.fails("%state q --storage-option A=hushhush --where 'x", InvalidArgumentError)
    assert "hushhush" not in message + shell.said
    message = shell.fails("%state q --storage-opton A=hushhush", InvalidArgumentError)
    assert "hushhush" not in message + shell.said


def test_wrong_options_are_the_stores_error(remote: tuple[Shell, str]) -> None:
    """And the next line may say them again."""
    shell, options = remote
    wrong = options.replace("AWS_ACCESS_KEY_ID=streamstate", "AWS_ACCESS_KEY_ID=nobody")
    shell.fails(f"%state q --store {STORE} {wrong} --at 1", StoreError)
    assert "Traceback" not in shell.said
    assert shell.run(f"%state q --store {STORE} {options} --at 1")["value"].tolist() == [1]


def test_completing_reaches_for_no_network(bare_shell: Shell) -> None:
    """A store that was not opened yet completes nothing, at once."""
    assert "0" not in bare_shell.completions("%state q --store s3://nowhere/at/all --at |")


def test_a_query_is_captured_into_a_bucket(shell: Shell, counted: tuple[Path, Path], bucket: Bucket) -> None:
    """Attached and waited for in one line; a restart reaches the store as before."""
    options = " ".join(f"--storage-option {name}={value}" for name, value in bucket.options.items())
    shell.run(f"%stream attach {counted[0]} --name theirs --store s3://bucket/attached {options} --wait -o handle")
    assert "captured up to epoch 4" in shell.said
    assert shell.names["handle"].status().epoch == 4
    assert len(shell.run("%state theirs --at 2 --where \"k = 'k1'\"")) == 1
    assert shell.run("%stream restart theirs").wait(timeout=120) == 4
    shell.run("%stream stop theirs")
