"""A checkpoint's files, listed and read by the server of a Spark Connect session."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, TypeVar

from streamstate.errors import CaptureError, SparkConnectError, first_line
from streamstate.snapshots.checkpoint.server_copy import ServerFile
from streamstate.snapshots.spark.connect_server import answered, require_server, server_address
from streamstate.snapshots.store.names import is_number

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")

# Spark lists no folders whose names begin with an underscore, but for _metadata, unless they are given.
_EVERYTHING = "{metadata,offsets,commits,sources,state,state/*/_stateSchema,state/*/*/_stateSchema}"
_PIECE = 4 * 2**20
"""The size of the pieces in which contents travel; a message of Spark Connect holds 128 MiB."""
_BATCH = 64 * 2**20
"""The most bytes that one job brings, and so that this process holds in memory; the most of one file, too."""
_FILES_A_JOB = 500
_LONGEST_LOOK, _LONGEST_JOB = 30.0, 600.0
"""Seconds to wait for the list of commits, and for a job."""
_GLOB, _ESCAPED = re.compile(r"([\[\]{}*?\\,])"), r"\\\1"
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:(//[^/]*)?")


class ConnectFiles:
    """The files of one checkpoint, as :class:`~streamstate.snapshots.checkpoint.server_copy.ServerCheckpoint` has them.

    Args:
        spark: the Spark Connect session.
        root: the checkpoint's path or URI, as the server reads it.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self.root = root.rstrip("/")
        self.server = server_address(spark)

    def query_id(self) -> str | None:
        """Return the id of the query that owns the checkpoint; None if there is none."""
        content = self._ask(lambda: [bytes(row[0]) for row in self._files("metadata").select("content").collect()])
        try:
            return str(json.loads(content[0])["id"]) if content else None
        except (ValueError, KeyError, TypeError) as error:
            raise CaptureError(f"{self.root}/metadata on the server {self.server} has no id of a query.") from error

    def commits(self) -> frozenset[str] | None:
        """Return the files of the commit log; None if there is no checkpoint."""
        # Spark lists them while it analyzes the frame; no job runs.
        paths = self._ask(lambda: self._files("{metadata,commits}").inputFiles(), _LONGEST_LOOK)
        if paths is None:
            return None
        names = (path.rpartition("/")[2] for path in paths)
        return frozenset(f"commits/{name}" for name in names if is_number(name))

    def listing(self) -> list[ServerFile]:
        """Return all files that make up the checkpoint."""
        columns = ("path", "length", "unix_millis(modificationTime)", "_metadata.file_path")
        rows = self._ask(lambda: self._files(_EVERYTHING).selectExpr(*columns).collect())  # no content is read
        return [ServerFile(self._name(path), size, modified, uri) for path, size, modified, uri in rows or ()]

    def read(self, files: Collection[ServerFile]) -> Iterator[tuple[str, int, bytes]]:
        """Return the contents of files in pieces, in jobs of bounded size.

        Raises:
            CaptureError: the server cannot read them, or a file is too large to be read through it.
        """
        from pyspark.sql.functions import col

        for file in files:
            self._check_size(file)
        for batch in _batches(files):
            names = {file.uri: file.name for file in batch}
            whole = self._files(_EVERYTHING).where(col("_metadata.file_path").isin([*names]))
            pieces = whole.selectExpr("_metadata.file_path AS uri", f"explode({_pieces()}) AS piece")
            for uri, at, content in self._ask(pieces.select("uri", "piece.*").collect) or ():
                yield names[uri], at, bytes(content)

    def _check_size(self, file: ServerFile) -> None:
        if file.size > _BATCH:
            raise CaptureError(
                f"{self.root}/{file.name} has {file.size / 2**20:,.0f} MiB. Through the server {self.server}, files of"
                f" at most {_BATCH // 2**20} MiB are read: Spark needs several times a file's size in memory.\n"
                "Capture on the server's machine, or start the query with a checkpoint that this machine reaches too."
            )

    def _files(self, names: str) -> DataFrame:
        """Return the frame of some of the checkpoint's files, given by a glob; Spark lists them now."""
        reader = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        # A file that Spark purges between the listing and the reading is left out; a damaged one is an error.
        reader = reader.option("ignoreMissingFiles", "true").option("ignoreCorruptFiles", "false")
        return reader.load(f"{_GLOB.sub(_ESCAPED, self.root)}/{names}")

    def _name(self, path: str) -> str:
        """Return the path of a file in the checkpoint, from its path on the server."""
        return _without_scheme(path).removeprefix(f"{_without_scheme(self.root)}/")

    def _ask(self, question: Callable[[], T], longest: float = _LONGEST_JOB) -> T | None:
        """Return the server's answer; None if it has no such files."""
        from pyspark.errors import AnalysisException, PySparkException

        try:
            require_server(self._spark)
            return answered(question, self._spark, longest=longest)
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error):
                return None
            raise CaptureError(self._unread(error)) from error
        except SparkConnectError as error:  # it may answer later
            raise CaptureError(str(error)) from error
        except PySparkException as error:
            if "INVALID_HANDLE" in str(error) or "NO_ACTIVE_SESSION" in str(error):
                raise SparkConnectError(
                    f"The Spark Connect server {self.server} does not know this session any more.\n"
                    "Connect again, and start again what used the session."
                ) from error
            raise CaptureError(self._unread(error)) from error

    def _unread(self, error: Exception) -> str:
        return f"The server {self.server} cannot read the checkpoint {self.root}: {first_line(error)}"


def _pieces() -> str:
    """Return the expression of a file's pieces: an array, so that no row repeats the whole file."""
    piece = f"substring(content, CAST(at AS INT) + 1, {_PIECE})"
    offsets = f"sequence(0L, greatest(length - 1, 0L), {_PIECE}L)"
    return f"transform({offsets}, at -> named_struct('at', at, 'content', {piece}))"


def _without_scheme(path: str) -> str:
    """Return a path without the scheme and the host of its URI, which Spark adds to some."""
    return _SCHEME.sub("", path, count=1)


def _batches(files: Collection[ServerFile]) -> Iterator[list[ServerFile]]:
    """Return files in groups of bounded size, commits last."""
    batch: list[ServerFile] = []
    size = 0
    for file in sorted(files, key=lambda file: file.is_commit):
        if batch and (size + file.size > _BATCH or len(batch) == _FILES_A_JOB):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size
    if batch:
        yield batch
