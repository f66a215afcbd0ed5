"""Stores in object stores: storage options are given once, and are never displayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from capturing.buckets import Bucket, bucket  # noqa: F401 (a fixture)
from notebook_shell import Shell, bare_shell, shell  # noqa: F401 (fixtures)
from synthetic import write

from streamstate.errors import InvalidArgumentError, StoreError

STORE = "s3://bucket/magics"


@pytest.fixture
def remote(bare_shell: Shell, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> tuple[Shell, str]:
    """A shell, and the options of a line that reads the query ``q`` from a store in a bucket."""
    for name, value in bucket.options.items():
        monkeypatch.setenv(name, value)
    location: Any = STORE
    write(location, [{"a": epoch} for epoch in range(3)])
    for name in bucket.options:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    bare_shell.names["secret"] = bucket.options["AWS_SECRET_ACCESS_KEY"]
    options = {**bucket.options, "AWS_SECRET_ACCESS_KEY": "{secret}"}
    return bare_shell, " ".join(f"--storage-option {name}={value}" for name, value in options.items())


@pytest.mark.slow
def test_options_are_given_once(remote: tuple[Shell, str]) -> None:
    """Later lines of all magics use the same options."""
    shell, options = remote
    assert shell.run(f"%state q at 1 --store {STORE} {options}")["value"].tolist() == [1]
    assert shell.run("%state q at 2")["value"].tolist() == [2]
    assert shell.run("%%statesql\nSELECT value FROM q VERSION AS OF 0")["value"].tolist() == [0]
    assert shell.run("%snapshots q")["epoch"].tolist() == [0, 1, 2]
    assert next(iter(shell.run("%snapshots q retain --last 1 --dry-run")))["kept"] == 1
    assert shell.completions("%state q at |")[:2] == ["2", "1"]


def test_a_secret_is_never_displayed(remote: tuple[Shell, str]) -> None:
    """Settings, output and errors do not contain it."""
    shell, options = remote
    shell.run(f"%state q at 1 --store {STORE} {options}")
    shell.run("%config StreamState")
    assert "secret" not in shell.printed.replace("secrets", "")
    shell.names["secret"] = "hushhush"
    message = shell.fails(f"%state q {options} --storage-option hushhush", InvalidArgumentError)
    assert "hushhush" not in message + shell.printed
    message = shell.fails("%state q at 1 --storage-option A=hushhush --where 'x", InvalidArgumentError)
    assert "hushhush" not in message + shell.printed
    for quoted in ('"A=my hushhush" --where \'x', "A='my hushhush' --where 'x", 'A="my hushhush', "A=my\\ hushhush 'x"):
        message = shell.fails(f"%state q --storage-option {quoted}", InvalidArgumentError)
        assert "hushhush" not in message + shell.printed
    message = shell.fails("%state q --storage-opton A=hushhush", InvalidArgumentError)
    assert "hushhush" not in message + shell.printed


def test_wrong_options_are_store_errors(remote: tuple[Shell, str]) -> None:
    """They are reported without a traceback, and the next line can correct them."""
    shell, options = remote
    wrong = options.replace("AWS_ACCESS_KEY_ID=streamstate", "AWS_ACCESS_KEY_ID=nobody")
    shell.fails(f"%state q at 1 --store {STORE} {wrong}", StoreError)
    assert "Traceback" not in shell.printed
    assert shell.run(f"%state q at 1 --store {STORE} {options}")["value"].tolist() == [1]


def test_completion_uses_no_network(bare_shell: Shell) -> None:
    """A remote store that is not open yet has no completions."""
    assert "0" not in bare_shell.completions("%state q at --store s3://nowhere/at/all |")


@pytest.mark.slow
def test_a_query_is_captured_into_a_bucket(shell: Shell, counted: tuple[Path, Path], bucket: Bucket) -> None:
    """A line can attach a query and wait for it. A restart uses the same options."""
    options = " ".join(f"--storage-option {name}={value}" for name, value in bucket.options.items())
    shell.run(f"%stream attach {counted[0]} --name theirs --store s3://bucket/attached {options} --wait -o handle")
    assert "captured up to epoch 4" in shell.printed
    assert shell.names["handle"].status().epoch == 4
    assert len(shell.run("%state theirs at 2 --where \"k = 'k1'\"")) == 1
    assert shell.run("%stream restart theirs").wait(timeout=300) == 4
    shell.run("%stream stop theirs")
