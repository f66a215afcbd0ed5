"""Copies that an object store makes itself, so that nothing is downloaded."""

from __future__ import annotations

from typing import Any

_LARGEST = 5 * 2**30
"""S3 copies no larger object with one request."""


def copied_by_server(system: Any, source: Any, target_system: Any, target: Any) -> int | None:
    """Have S3 copy an object within a bucket.

    Hadoop's own copy reads the file and writes it again. The server's is below its public interface, since 3.4.

    Args:
        system: Hadoop's file system of the source.
        source: the path of the source, as Hadoop's object.
        target_system: Hadoop's file system of the target.
        target: its path; it is replaced.

    Returns:
        The size in bytes; None if it has to be copied in another way.
    """
    from py4j.protocol import Py4JError, Py4JJavaError

    if source.toUri().getScheme() not in ("s3a", "s3") or not system.getUri().equals(target_system.getUri()):
        return None
    try:
        internals, store, requests = system.getS3AInternals(), system.createStoreContext(), system.getRequestFactory()
        client = internals.getAmazonS3Client("copy")
    except Py4JJavaError:
        raise
    except Py4JError:  # an older Hadoop, or another client of S3
        return None
    described = internals.getObjectMetadata(source)
    size = int(described.contentLength())
    if size > _LARGEST:
        return None
    keys = store.pathToKey(source), store.pathToKey(target)
    client.copyObject(requests.newCopyObjectRequestBuilder(*keys, described).build())
    return size
