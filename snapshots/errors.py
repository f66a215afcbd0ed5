"""The errors a user can meet.

Each says what was wrong, lists what would be right and hints at the next step; each is also the
builtin exception that fits, so that code which knows nothing of streamstate can catch it.

StreamStateError
├── UnknownNameError (LookupError): a name or epoch that does not exist
│   ├── UnknownQueryError
│   ├── UnknownTableError
│   ├── UnknownColumnError
│   ├── UnknownEpochError
│   └── UnknownCutError
├── InvalidArgumentError (ValueError): a value that cannot be meant
│   ├── InvalidNameError
│   ├── NaiveTimestampError
│   └── InvalidSQLError
├── StoreError (RuntimeError): the store cannot be used
│   ├── NotAStoreError (also FileNotFoundError)
│   ├── DamagedStoreError
│   ├── NewerStoreError
│   ├── EpochDroppedError
│   ├── OvertakenError
│   ├── NotAnExportError
│   └── NameTakenError
├── CheckpointError (RuntimeError): the checkpoint cannot be used
│   ├── NotACheckpointError (also FileNotFoundError)
│   ├── CheckpointReplacedError
│   ├── NoStateError
│   ├── EpochGoneError (also LookupError)
│   ├── NotReplayableError
│   └── UnsupportedStateError (also NotImplementedError)
├── ForkError (RuntimeError): a fork that cannot be made where it was asked for, or is not what it was forked from
├── RescaleError (RuntimeError): a state could not be spread anew; it is as it was
├── CaptureError (RuntimeError): a capture failed, or was asked for what it cannot do
├── WaitTimeoutError (TimeoutError): what was waited for did not come in time
├── QueryError (RuntimeError): a streaming query cannot be started or found
├── SessionError (RuntimeError): Spark cannot be started as asked
└── JavaNotFoundError (RuntimeError): Spark needs Java and none that fits was found
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CaptureError",
    "CheckpointError",
    "CheckpointReplacedError",
    "DamagedStoreError",
    "EpochDroppedError",
    "EpochGoneError",
    "ForkError",
    "InvalidArgumentError",
    "InvalidNameError",
    "InvalidSQLError",
    "JavaNotFoundError",
    "NaiveTimestampError",
    "NameTakenError",
    "NewerStoreError",
    "NoStateError",
    "NotACheckpointError",
    "NotAStoreError",
    "NotAnExportError",
    "NotReplayableError",
    "OvertakenError",
    "QueryError",
    "RescaleError",
    "SessionError",
    "StoreError",
    "StreamStateError",
    "UnknownColumnError",
    "UnknownEpochError",
    "UnknownNameError",
    "UnknownQueryError",
    "UnknownTableError",
    "UnsupportedStateError",
    "WaitTimeoutError",
]

_LISTED = 12


def choices(names: Iterable[str]) -> str:
    """Names as a list to read, cut where it grows long."""
    listed = list(names)
    if not listed:
        return "none"
    cut = listed[:_LISTED]
    more = len(listed) - len(cut)
    return ", ".join(cut) + (f" and {more} more" if more else "")


class StreamStateError(Exception):
    """Base of everything streamstate raises on purpose."""

    def __str__(self) -> str:
        """The message itself (``LookupError`` subclasses would quote it)."""
        return str(self.args[0]) if self.args else ""

    def _render_traceback_(self) -> list[str]:
        """What IPython prints instead of a traceback; the cell fails all the same."""
        return [f"{type(self).__name__}: {self}"]


class UnknownNameError(StreamStateError, LookupError):
    """A name or number that does not exist."""

    @classmethod
    def among(cls, kind: str, name: object, known: Iterable[str], *, where: str = "") -> UnknownNameError:
        """The error for ``name``, listing what is known and the nearest spelling."""
        listed = list(known)
        place = f" {where}" if where else ""
        near = difflib.get_close_matches(str(name), listed, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return cls(f"There is no {kind} {str(name)!r}{place}.{hint}\n{kind.capitalize()} names: {choices(listed)}.")


class UnknownQueryError(UnknownNameError):
    """No query of that name is in the store."""


class UnknownTableError(UnknownNameError):
    """The query has no state table of that name."""


class UnknownColumnError(UnknownNameError):
    """The state table has no column of that name."""


class UnknownEpochError(UnknownNameError):
    """The epoch was not captured; the message names the nearest that were."""


class UnknownCutError(UnknownNameError):
    """No epochs of some queries reflect the same input; the message names the nearest that do."""


class InvalidArgumentError(StreamStateError, ValueError):
    """An argument whose value cannot be meant."""


class InvalidNameError(InvalidArgumentError):
    """A query name that cannot be a folder and an SQL relation."""


class NaiveTimestampError(InvalidArgumentError):
    """A timestamp without a time zone."""


class InvalidSQLError(InvalidArgumentError):
    """SQL that does not parse, or does more than read."""


class StoreError(StreamStateError, RuntimeError):
    """A store that cannot be used."""


class NotAStoreError(StoreError, FileNotFoundError):
    """The path holds no store."""


class NewerStoreError(StoreError):
    """The store was written by a newer version of streamstate."""


class DamagedStoreError(StoreError):
    """A file of the store is missing, or its bytes are not those that were written."""

    @classmethod
    def file(cls, path: str, why: str) -> DamagedStoreError:
        """For one file."""
        return cls(
            f"The store is damaged: {path}: {why}.\n"
            "Restore the file from a backup; or move the query's folder away and capture again from its checkpoint."
        )

    @staticmethod
    def unreadable(path: str, error: OSError) -> StoreError:
        """For a file that could not be read: damaged only where it is gone."""
        why = str(error.strerror or error)
        if isinstance(error, FileNotFoundError):
            return DamagedStoreError.file(path, why)
        return StoreError(f"{path} cannot be read: {why}.\nNothing says that it is damaged; try again.")


class EpochDroppedError(StoreError):
    """Retention dropped an epoch that somebody still held, and its grace period is over."""


class OvertakenError(StoreError):
    """Retention changed the store between two reads of one reader; reading again gives the right answer."""

    @classmethod
    def by_retention(cls, what: str) -> OvertakenError:
        """For one table."""
        return cls(f"Retention has dropped epochs while {what} was being read.\nDo it again.")


class NotAnExportError(StoreError):
    """Where an export is to go there is something else."""


class NameTakenError(StoreError):
    """The name belongs to another query already."""


class CheckpointError(StreamStateError, RuntimeError):
    """A checkpoint that cannot be used."""


class NotACheckpointError(CheckpointError, FileNotFoundError):
    """The path holds no checkpoint of a streaming query."""


class NoStateError(CheckpointError):
    """The query keeps no state."""


class CheckpointReplacedError(CheckpointError):
    """Another query's checkpoint has taken the place of the one that was followed."""


class UnsupportedStateError(CheckpointError, NotImplementedError):
    """The query's state holds what no table can keep; the message says what to change."""


class EpochGoneError(CheckpointError, LookupError):
    """The checkpoint does not hold the epoch: Spark purged it, or never committed it."""


class NotReplayableError(CheckpointError):
    """What an epoch read can no longer be read again; the message says what is missing."""


class ForkError(StreamStateError, RuntimeError):
    """A fork that cannot be made where it was asked for, or that is not what it was forked from."""


class RescaleError(StreamStateError, RuntimeError):
    """A state could not be spread over another number of partitions."""

    @classmethod
    def taken_back(cls, checkpoint: str, partitions: int, error: BaseException) -> RescaleError:
        """For one that failed and was taken back."""
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        return cls(
            f"Spark could not spread the state of {checkpoint} anew: {said}\n"
            f"The checkpoint is as it was, with {partitions} partitions; the query can go on from it."
        )

    @classmethod
    def not_the_same(cls, checkpoint: str, partitions: int, differences: Iterable[object]) -> RescaleError:
        """For one after which the state was another."""
        told = "\n".join(str(one) for one in differences)
        return cls(
            f"Spread anew, the state of {checkpoint} was not the same:\n{told}\n"
            f"All of it was taken back: the checkpoint is as it was, with {partitions} partitions, and the query can go"
            " on from it."
        )


class CaptureError(StreamStateError, RuntimeError):
    """A capture failed, or was asked for what it cannot do."""


class WaitTimeoutError(StreamStateError, TimeoutError):
    """What was waited for did not come in time; it goes on."""


class QueryError(StreamStateError, RuntimeError):
    """A streaming query cannot be started or found."""


class SessionError(StreamStateError, RuntimeError):
    """Spark cannot be started, or used, as asked."""


class JavaNotFoundError(StreamStateError, RuntimeError):
    """Spark needs Java 17 or 21 and none was found."""
