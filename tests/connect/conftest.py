"""Processes of users of Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from recorded.unpacked import CURRENT, unpacked


def outcome(program: str, *arguments: object, timeout: float = 500) -> Any:
    """The last line that a program of this folder prints, as JSON."""
    tests = Path(__file__).parent.parent
    command = [sys.executable, str(Path(__file__).with_name(program)), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(tests), "SPARK_CONNECT_AUTHENTICATE_TOKEN": "token"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def recorded_query(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the recorded query, with its checkpoint and its input."""
    return unpacked(CURRENT, tmp_path_factory.mktemp("recorded")) / "counted"
