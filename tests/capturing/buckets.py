"""A bucket in an S3-compatible server on localhost, which records its requests."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

KEY = "streamstate"
_SECRET = "secret"


@dataclass(frozen=True)
class Bucket:
    """A bucket of the server, and the storage options to access it."""

    options: dict[str, str]
    uri: str = "s3://bucket"

    def hadoop_settings(self) -> dict[str, str]:
        """Spark's settings to access it as ``s3a://``."""
        settings = {
            "endpoint": self.options["AWS_ENDPOINT_URL"],
            "endpoint.region": self.options["AWS_REGION"],
            "access.key": KEY,
            "secret.key": _SECRET,
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
        }
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}

    def requests(self) -> list[str]:
        """The requests since the last call, such as ``GET bucket/store/_queries/…``."""
        with urllib.request.urlopen(f"{self.options['AWS_ENDPOINT_URL']}/-/requests") as response:
            requests: list[str] = json.load(response)
        return requests

    def fail(self, *faults: tuple[str, int]) -> None:
        """Let requests that match a regular expression fail with a status; without arguments, none fails any more."""
        url, content = f"{self.options['AWS_ENDPOINT_URL']}/-/faults", json.dumps(faults).encode()
        with urllib.request.urlopen(urllib.request.Request(url, method="PUT", data=content)) as response:
            assert response.status == 200


@contextmanager
def served_bucket() -> Iterator[Bucket]:
    """An empty bucket in a new server."""
    command = [sys.executable, str(Path(__file__).with_name("s3_server.py")), KEY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            signed = {"Authorization": f"AWS4-HMAC-SHA256 Credential={KEY}/20260101/us-east-1/s3/aws4_request"}
            with urllib.request.urlopen(urllib.request.Request(f"{url}/bucket", method="PUT", headers=signed)) as reply:
                assert reply.status == 200
            yield Bucket(
                {
                    "AWS_ENDPOINT_URL": url,
                    "AWS_ALLOW_HTTP": "true",
                    "AWS_REGION": "us-east-1",
                    "AWS_ACCESS_KEY_ID": KEY,
                    "AWS_SECRET_ACCESS_KEY": _SECRET,
                }
            )
        finally:
            server.kill()


@pytest.fixture(scope="module")
def bucket() -> Iterator[Bucket]:
    """An empty bucket in a new server."""
    with served_bucket() as made:
        yield made
