"""What Spark says when an epoch fails, in plain words."""

from __future__ import annotations

import re

from streamstate.snapshots.errors import NotReplayableError, QueryError, StreamStateError

__all__ = ["plain"]

_SCHEMA = re.compile(
    r"STATE_STORE_\w*SCHEMA\w*|STATE_STORE_VARIABLE_SIZE\w*|STATEFUL_PROCESSOR_\w+|STATE_STORE_INVALID_\w+"
)
_STATE = re.compile(
    r"schema (?:don't|does not|do not) match|SCHEMA_NOT_COMPATIBLE|StateSchemaNotCompatible", re.IGNORECASE
)
_GONE = re.compile(
    r"KAFKA_DATA_LOSS|data loss|OffsetOutOfRange|FAILED_READ_FILE\.FILE_NOT_EXIST|FileNotFoundException", re.IGNORECASE
)
_SOURCES = re.compile(r"number of sources|There are \[\d+\] sources", re.IGNORECASE)
_ELSEWHERE = re.compile(r"Wrong basePath|CONFLICTING_DIRECTORY_STRUCTURES", re.IGNORECASE)
_OPERATORS = re.compile(r"STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA")


def plain(error: BaseException, checkpoint: str, epoch: int) -> StreamStateError:
    """The error for an epoch of a fork that Spark could not run.

    Args:
        error: what Spark raised.
        checkpoint: the fork.
        epoch: the epoch.
    """
    text = str(error)
    stands = f"The fork stands where it stood, at epoch {epoch - 1}."
    if _OPERATORS.search(text):
        return QueryError(
            f"The query has other stateful operators than the ones whose state {checkpoint} holds: {_said(text)}\n"
            f"{stands} Keep the operators in build_query, and change what they compute."
        )
    if _SCHEMA.search(text) or _STATE.search(text):
        return QueryError(
            f"The state of the changed query does not fit the one that {checkpoint} holds: {_said(text)}\n"
            f"{stands} Keep the types of keys and state in build_query, or replay from epoch 0, where there is no state"
            " yet."
        )
    if _GONE.search(text):
        return NotReplayableError(
            f"Input that epoch {epoch} read is gone: {_said(text)}\n{stands} Bring the input back, or fork later."
        )
    if _SOURCES.search(text):
        return QueryError(
            f"The query has other sources than the original: {_said(text)}\n{stands} Keep the sources in build_query,"
            " in their order."
        )
    if _ELSEWHERE.search(text):
        return QueryError(
            f"The query reads files of another folder than the original did: {_said(text)}\n{stands} Keep the folder in"
            " build_query; the files of an epoch are read where the original read them."
        )
    return QueryError(f"Epoch {epoch} failed: {_said(text)}\n{stands} The whole error is this one's cause.")


def _said(text: str) -> str:
    """The line of an error that says what went wrong: of Python code, its last one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "Spark did not say why."
    python = [line for line in lines if re.match(r"[\w.]*(?:Error|Exception|Interrupt)\b", line)]
    inner = [line for line in python if not line.startswith(("org.", "java.", "py4j."))]
    if "Traceback (most recent call last)" in text and inner:
        return inner[-1]
    caused = re.search(r"Caused by: ([^\n]+)", text)
    return _STREAM.sub("", caused[1] if caused else lines[0]).strip()


_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")
