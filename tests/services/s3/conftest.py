"""A bucket in an S3-compatible server, and Spark's settings to access it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from capturing.buckets import Bucket, served_bucket


@pytest.fixture(scope="session")
def bucket() -> Iterator[Bucket]:
    """An empty bucket in a new server."""
    with served_bucket() as made:
        yield made


@pytest.fixture(scope="session")
def service_settings(bucket: Bucket) -> dict[str, str]:
    """Hadoop's settings for the server."""
    return bucket.hadoop_settings()
