"""The same on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from capturing.test_standalone import Cluster, cluster  # noqa: F401 (a fixture)

from services.s3.conftest import MASTER


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    """The other tests of this folder pass with a master and two workers, each in a separate process."""
    tests = [sys.executable, "-m", "pytest", "--quiet", "--tb=short", "-p", "no:cacheprovider", "-m", "not exhaustive"]
    command = [*tests, f"--basetemp={tmp_path / 'tests'}", str(Path(__file__).parent)]
    environment = os.environ | {MASTER: cluster.url, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-8000:]
