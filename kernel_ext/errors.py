"""The errors of streamstate, in one tree.

Import them from here: ``from streamstate.errors import UnknownEpochError``. A message names the fault, lists what would
be right, and hints at the next step. Each error is also a fitting builtin exception, so code that does not know
streamstate can catch it.

StreamStateError
├── UnknownNameError (LookupError): no such name or epoch
│   ├── UnknownQueryError
│   ├── UnknownTableError
│   ├── NoResultError
│   ├── UnknownColumnError
│   ├── UnknownEpochError
│   ├── UnknownCutError
│   ├── UnknownVariableError
│   └── UnknownContractError
├── InvalidArgumentError (ValueError): an argument with an invalid value
│   ├── InvalidNameError
│   ├── NaiveTimestampError
│   └── InvalidSQLError
├── StoreError (RuntimeError): the store cannot be used
│   ├── IndexFullError
│   ├── NotAStoreError (also FileNotFoundError)
│   ├── DamagedStoreError
│   ├── NewerStoreError
│   ├── EpochDroppedError
│   ├── OvertakenError
│   ├── UntrustedStoreError
│   ├── NotAnExportError
│   └── NameTakenError
├── CheckpointError (RuntimeError): the checkpoint cannot be used
│   ├── NotACheckpointError (also FileNotFoundError)
│   ├── DamagedCheckpointError
│   ├── CheckpointReplacedError
│   ├── NewerCheckpointError (also NotImplementedError)
│   ├── NoStateError
│   ├── EpochGoneError (also LookupError)
│   ├── NotReplayableError
│   ├── UntrustedCheckpointError
│   └── UnsupportedStateError (also NotImplementedError)
├── ForkError (RuntimeError): a fork cannot be created there, or differs from its original
├── RescaleError (RuntimeError): a state could not be repartitioned; the checkpoint is unchanged
├── StateWriteError (RuntimeError): a checkpoint could not be made from rows; nothing was written
├── PromotionError (RuntimeError): a fork cannot take a query's place, or give it back; nothing was changed
├── CaptureError (RuntimeError): a capture failed
├── DiskFullError (OSError): there is no space left on a disk
├── VariableError (RuntimeError): a shared variable cannot be used
│   ├── VariableConflictError
│   └── TransportError (also ConnectionError)
├── ShareError (RuntimeError): what others share cannot be read
├── WaitTimeoutError (TimeoutError): a wait took longer than its timeout
├── TimeLimitError (TimeoutError): an SQL query exceeded its time limit
├── QueryError (RuntimeError): a streaming query cannot be started or found
│   └── NotOwnerError
├── SessionError (RuntimeError): Spark cannot be started with these settings
│   └── SparkConnectError
├── SparkVersionError (NotImplementedError): this version of Spark lacks what the call needs
├── JavaNotFoundError (RuntimeError): no Java that Spark can use
└── MissingDependencyError (ImportError): a package of an extra is not installed
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeAlias

from streamstate.extras import Extra, install_command, missing_packages

__all__ = [
    "CaptureError",
    "CheckpointError",
    "CheckpointReplacedError",
    "DamagedCheckpointError",
    "DamagedStoreError",
    "DiskFullError",
    "EpochDroppedError",
    "EpochGoneError",
    "ForkError",
    "IndexFullError",
    "InvalidArgumentError",
    "InvalidNameError",
    "InvalidSQLError",
    "JavaNotFoundError",
    "MissingDependencyError",
    "NaiveTimestampError",
    "NameTakenError",
    "NewerCheckpointError",
    "NewerStoreError",
    "NoResultError",
    "NoStateError",
    "NotACheckpointError",
    "NotAStoreError",
    "NotAnExportError",
    "NotOwnerError",
    "NotReplayableError",
    "OvertakenError",
    "PromotionError",
    "QueryError",
    "RescaleError",
    "SessionError",
    "ShareError",
    "SparkConnectError",
    "SparkVersionError",
    "StateWriteError",
    "StoreError",
    "StreamStateError",
    "TimeLimitError",
    "TransportError",
    "UnknownColumnError",
    "UnknownContractError",
    "UnknownCutError",
    "UnknownEpochError",
    "UnknownNameError",
    "UnknownQueryError",
    "UnknownTableError",
    "UnknownVariableError",
    "UnsupportedStateError",
    "UntrustedCheckpointError",
    "UntrustedStoreError",
    "VariableConflictError",
    "VariableError",
    "WaitTimeoutError",
]

Surface: TypeAlias = Literal["python", "magic", "command"]
"""What a person has typed into: Python, a magic's line, or a terminal."""

_LISTED = 12
_STORING_FAILED = re.compile(r"\[CANNOT_(?:WRITE|LOAD)_STATE_STORE\b")

_surface: Surface = "python"


@contextmanager
def wording(surface: Surface) -> Iterator[None]:
    """Let :func:`worded` in the block be in the words of a magic or of a command."""
    global _surface  # noqa: PLW0603 (a thread that works for the block advises in the same words)
    before, _surface = _surface, surface
    try:
        yield
    finally:
        _surface = before


def worded(python: str, *, line: str | None = None, magic: str | None = None, command: str | None = None) -> str:
    """Return the next step in the words of the interface in use: Python, a magic, or a terminal.

    Args:
        python: in Python, and wherever there are no other words.
        line: at a magic and in a terminal.
        magic: at a magic, if that differs.
        command: in a terminal, if that differs.

    Example:
        >>> worded("Pass table=….", line="Add --table NAME.")
        'Pass table=….'
        >>> with wording("command"):
        ...     worded("Pass table=….", line="Add --table NAME.")
        'Add --table NAME.'
    """
    words = {"python": (python,), "magic": (magic, line), "command": (command, line)}[_surface]
    return next((text for text in words if text is not None), python)


def first_line(error: BaseException | str) -> str:
    """Return the first line of an error's message, without Spark's SQLSTATE; the name of its class if it is empty.

    Where the message hides what happened, it is the innermost cause instead (:func:`hidden_cause`). Of an error of
    Kafka's source, the reason for it follows, which is some lines further down.
    """
    text = error if isinstance(error, str) else hidden_cause(error) or str(error)
    lines = [line.strip().partition(" SQLSTATE:")[0] for line in text.splitlines() if line.strip()]
    first = lines[0].rstrip(";") if lines else type(error).__name__
    reason = next((line for line in lines[1:] if line.startswith("Reason: ")), None)
    return first if reason is None else f"{first}. {reason}"


def hidden_cause(error: BaseException) -> str | None:
    """Return the innermost cause of an error of Java's that only says what was called, or that state was not stored.

    None for any other error, whose own message says more than its causes.
    """
    if not hasattr(error, "java_exception") and not _STORING_FAILED.search(str(error)):
        return None
    return java_cause(error)


def java_cause(error: BaseException) -> str | None:
    """Return the class and the message of an error's innermost cause in Java; None if it is not Java's."""
    java: Any = getattr(error, "java_exception", None)
    wrapped: Any = error
    while java is None and wrapped is not None:
        java, wrapped = getattr(wrapped, "_origin", None), getattr(wrapped, "_cause", None)
    if java is None:
        return None
    with suppress(Exception):  # the process of Java may be gone
        while (cause := java.getCause()) is not None:
            java = cause
        return f"{java.getClass().getSimpleName()}: {java.getMessage()}"
    return None


def choices(names: Iterable[str]) -> str:
    """Names as a readable list, shortened if it is long."""
    listed = list(names)
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return ", ".join(listed[:_LISTED]) + more if listed else "none"


class StreamStateError(Exception):
    """Base class of all errors that streamstate raises."""

    def __str__(self) -> str:
        """The message itself; ``LookupError`` would quote it."""
        return str(self.args[0]) if self.args else ""

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython prints instead of a traceback; the cell still fails."""
        return [f"{type(self).__name__}: {self}"]


class UnknownNameError(StreamStateError, LookupError):
    """A name or number does not exist."""

    @classmethod
    def among(cls, kind: str, name: object, known: Iterable[str], *, where: str = "") -> UnknownNameError:
        """The error for ``name``, with the known names and the closest spelling."""
        listed = list(known)
        place = f" {where}" if where else ""
        near = difflib.get_close_matches(str(name), listed, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        return cls(f"There is no {kind} {str(name)!r}{place}.{hint}\n{kind.capitalize()} names: {choices(listed)}.")


class UnknownQueryError(UnknownNameError):
    """The store has no query of that name."""


class UnknownTableError(UnknownNameError):
    """The query has no state table of that name."""


class NoResultError(UnknownNameError):
    """The query's result is not known at an epoch, or cannot be computed from its state; the message says why."""


class UnknownColumnError(UnknownNameError):
    """The state table has no column of that name."""

    def with_options(self, options: Iterable[str]) -> UnknownColumnError:
        """Return the error for a word that may be a misspelt option: they are listed after the columns."""
        lines = str(self).split("\n")
        lines[min(1, len(lines) - 1)] += f" Options: {', '.join(options)}."
        return UnknownColumnError("\n".join(lines))


class UnknownEpochError(UnknownNameError):
    """The epoch was not captured; the message names the nearest captured ones."""


class UnknownCutError(UnknownNameError):
    """No epochs of some queries reflect the same input; the message names the nearest that do."""


class UnknownVariableError(UnknownNameError):
    """The store has no shared variable of that name."""


class UnknownContractError(UnknownNameError):
    """The store has no such contract in force."""


class InvalidArgumentError(StreamStateError, ValueError):
    """An argument has an invalid value."""


class InvalidNameError(InvalidArgumentError):
    """A query name that is not valid as a folder and as an SQL relation."""


class NaiveTimestampError(InvalidArgumentError):
    """A timestamp without a time zone."""


class InvalidSQLError(InvalidArgumentError):
    """SQL that does not parse, or that does more than read."""


class StoreError(StreamStateError, RuntimeError):
    """The store cannot be used."""


class IndexFullError(StoreError):
    """There is no memory, or no space for temporary files, left for the index of a store."""


class NotAStoreError(StoreError, FileNotFoundError):
    """The path holds no store."""


class NewerStoreError(StoreError):
    """The store was written by a newer version of streamstate."""


class DamagedStoreError(StoreError):
    """A file of the store is missing, or its contents have changed since it was written."""

    @classmethod
    def file(cls, path: str, why: str) -> DamagedStoreError:
        """For one file."""
        return cls(
            f"The store is damaged: {path}: {why}.\n"
            "Restore the file from a backup, or move the query's folder away and capture the checkpoint again."
        )

    @staticmethod
    def unreadable(path: str, error: OSError) -> StoreError:
        """For a file that could not be read; only a missing file means damage."""
        why = str(error.strerror or error)
        if isinstance(error, FileNotFoundError):
            return DamagedStoreError.file(path, why)
        return StoreError(f"{path} cannot be read: {why}.\nIt need not be damaged; try again.")


class EpochDroppedError(StoreError):
    """Retention dropped an epoch that was still in use, after its grace period."""


class OvertakenError(StoreError):
    """Retention changed the store during a read; reading again gives the right answer."""

    @classmethod
    def by_retention(cls, what: str) -> OvertakenError:
        """For one table."""
        return cls(f"Retention dropped epochs while {what} was being read.\nRead it again.")


class UntrustedStoreError(StoreError):
    """The store refers to something outside itself; nothing there was read, written or deleted."""

    @classmethod
    def path(cls, place: object, path: object) -> UntrustedStoreError:
        """For a data file in a table's log."""
        return cls(
            f"The log of {place} refers to the file {path!r}, which does not belong to this table.\n"
            "streamstate never writes such a path: do not use this store unless you trust its source."
        )

    @classmethod
    def link(cls, path: object) -> UntrustedStoreError:
        """For a symbolic link in a store."""
        return cls(
            f"{path} is a link that leads out of the store.\n"
            "Replace the link with its target, or do not use this store unless you trust its source."
        )

    @classmethod
    def name(cls, place: object, kind: str, name: object) -> UntrustedStoreError:
        """For a query or a state table."""
        return cls(
            f"{place} contains the {kind} name {name!r}, which is not valid as a folder of the store.\n"
            "streamstate never writes such a name: do not use this store unless you trust its source."
        )


class NotAnExportError(StoreError):
    """The target of an export already holds something else."""


class NameTakenError(StoreError):
    """The name already belongs to another query."""


class CheckpointError(StreamStateError, RuntimeError):
    """The checkpoint cannot be used."""


class NotACheckpointError(CheckpointError, FileNotFoundError):
    """The path holds no checkpoint of a streaming query."""


class DamagedCheckpointError(CheckpointError):
    """A file of the checkpoint is missing, torn or altered; the message names it, and says what to do."""

    path: str = ""
    """The file."""
    why: str = ""
    """What is wrong with it, as the end of a sentence: ``is missing``."""
    advice: str = ""
    """What to do."""

    @classmethod
    def file(cls, path: str, why: str, advice: str = "Restore the file from a backup.") -> DamagedCheckpointError:
        """For one file."""
        error = cls(f"The checkpoint is damaged: {path} {why}.\n{advice}")
        error.path, error.why, error.advice = path, why, advice
        return error


class NoStateError(CheckpointError):
    """The query keeps no state."""


class CheckpointReplacedError(CheckpointError):
    """The checkpoint that was followed has been replaced by another query's."""


class NewerCheckpointError(CheckpointError, NotImplementedError):
    """A file of the checkpoint has a version that this version of streamstate does not know."""

    @classmethod
    def file(cls, path: str, version: str, known: Iterable[str]) -> NewerCheckpointError:
        """For one file of a checkpoint."""
        return cls(
            f"Unknown version {version!r} of {path}: expected one of {choices(known)}.\n"
            "A newer Spark wrote it. Upgrade streamstate; captured epochs are not affected."
        )


class UnsupportedStateError(CheckpointError, NotImplementedError):
    """The query's state is of a kind that is not supported; the message says what to change."""


class UntrustedCheckpointError(CheckpointError):
    """The checkpoint refers to something outside itself; nothing there was read or written."""

    @classmethod
    def file(cls, path: str, why: str) -> UntrustedCheckpointError:
        """For one file of a checkpoint."""
        return cls(f"{path} {why}.\nSpark never writes such a checkpoint: do not use it unless you trust its source.")


class EpochGoneError(CheckpointError, LookupError):
    """The checkpoint does not hold the epoch: Spark purged it, or never committed it."""


class NotReplayableError(CheckpointError):
    """The input of an epoch can no longer be read; the message says what is missing."""


class ForkError(StreamStateError, RuntimeError):
    """A fork cannot be created there, or differs from its original."""


class RescaleError(StreamStateError, RuntimeError):
    """A state could not be repartitioned; the checkpoint is unchanged."""

    @classmethod
    def rolled_back(cls, checkpoint: str, partitions: int, error: BaseException) -> RescaleError:
        """For a failure while repartitioning or verifying."""
        return cls(
            f"The state of {checkpoint} could not be repartitioned: {first_line(error)}\n"
            f"The checkpoint is unchanged, with {partitions} partitions; the query can continue from it."
        )

    @classmethod
    def differs(cls, checkpoint: str, partitions: int, differences: Iterable[object]) -> RescaleError:
        """For a state that differs after repartitioning."""
        lines = "\n".join(str(difference) for difference in differences)
        return cls(
            f"The state of {checkpoint} was different after repartitioning:\n{lines}\n"
            f"The change was rolled back: the checkpoint has {partitions} partitions as before, and the query can"
            " continue from it."
        )


class DiskFullError(StreamStateError, OSError):
    """There is no space left on a disk, or none for this user."""


class StateWriteError(StreamStateError, RuntimeError):
    """A checkpoint could not be made from rows of state; nothing was written, and originals are unchanged."""

    @classmethod
    def target_exists(cls, path: str) -> StateWriteError:
        """For a path that is taken."""
        return cls(
            f"{path} already exists, and a new checkpoint never replaces anything.\n"
            "Choose a folder that does not exist yet, or delete this one first."
        )

    @classmethod
    def differs(cls, differences: Iterable[object]) -> StateWriteError:
        """For a state that Spark reads back differently."""
        lines = "\n".join(str(difference) for difference in differences)
        return cls(f"The state that Spark reads back differs from what was to be written:\n{lines}\nIt was deleted.")

    @classmethod
    def lacks_table(cls, table: str, given: Iterable[str]) -> StateWriteError:
        """For a state table without rows."""
        return cls(
            f"There are no rows for the state table {table}.\n"
            f"Given: {choices(given)}. Pass an empty frame if it is to be empty."
        )

    @classmethod
    def other_columns(cls, table: str, given: Iterable[str], columns: Iterable[str]) -> StateWriteError:
        """For a frame without the columns of its state table."""
        return cls(
            f"The rows for {table} have the columns {choices(given)}.\n"
            f"The state table has {choices(columns)}: pass exactly these."
        )


class PromotionError(StreamStateError, RuntimeError):
    """A fork cannot take a query's place, or give it back; nothing was changed."""


class CaptureError(StreamStateError, RuntimeError):
    """A capture failed, or cannot do what was requested."""


class VariableError(StreamStateError, RuntimeError):
    """A shared variable cannot be used: it is not bound, its version is gone, or it is used in the wrong place."""


class VariableConflictError(VariableError):
    """Another has set or declared a shared variable otherwise."""


class TransportError(VariableError, ConnectionError):
    """The place that holds shared variables while queries run cannot be reached."""


class ShareError(StreamStateError, RuntimeError):
    """A share cannot be read: its server cannot be reached, or refuses."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The server's HTTP status; None if it has not answered."""


class WaitTimeoutError(StreamStateError, TimeoutError):
    """A wait took longer than its timeout; the work continues."""


class TimeLimitError(StreamStateError, TimeoutError):
    """An SQL query exceeded its time limit and was stopped."""


class QueryError(StreamStateError, RuntimeError):
    """A streaming query cannot be started or found."""


class NotOwnerError(QueryError):
    """Another process holds the lease on a query, so this one must not run it."""

    @classmethod
    def lost(cls, why: str) -> NotOwnerError:
        """Return the error of a process that had the lease."""
        return cls(
            f"This process no longer owns the query: {why}.\n"
            "Another process may run it now. Nothing is lost; before you start the query here, stop it there."
        )

    @classmethod
    def of_another(cls, name: str, holder: str, term: int) -> NotOwnerError:
        """Return the error of a start while another process has the lease."""
        return cls(
            f"{name} is owned by {holder}, which holds term {term} of its lease.\n"
            "Stop it there first, then start it here: it continues after its last epoch."
        )


class SessionError(StreamStateError, RuntimeError):
    """Spark cannot be started, or used, with these settings."""


class SparkConnectError(SessionError):
    """Spark Connect cannot serve the call: it needs a classic session, or the server does not answer."""

    @classmethod
    def needs_classic(cls) -> SparkConnectError:
        """For calls that need the JVM of the query itself."""
        return cls(
            "This call needs a classic Spark session in the process that runs the query, and this process uses Spark"
            " Connect.\n"
            "Make it, and start the query, in a process without SPARK_REMOTE, where streamstate.session() starts Spark."
        )

    @classmethod
    def without_session(cls) -> SparkConnectError:
        """For a process that is set up for Spark Connect and has not connected yet."""
        return cls(
            "This process uses Spark Connect, and has no session yet.\n"
            "Connect first: spark = SparkSession.builder.remote('sc://HOST:15002').getOrCreate()."
        )

    @classmethod
    def no_answer(cls, server: str) -> SparkConnectError:
        """For a server that has gone away, or cannot be reached."""
        return cls(
            f"The Spark Connect server {server} does not answer.\n"
            "Start it again, then connect and start its queries again. Meanwhile, stores can be read, and checkpoints"
            " captured by their paths."
        )


class SparkVersionError(StreamStateError, NotImplementedError):
    """This version of Spark lacks what the call needs."""

    @classmethod
    def needs(cls, what: str, since: str, here: str, advice: str) -> SparkVersionError:
        """For a capability that Spark has since a version."""
        return cls(f"{what} needs Spark {since} or later; this is Spark {here}.\n{advice}")

    @classmethod
    def lacks(cls, interface: str, here: str) -> SparkVersionError:
        """For a private interface of Spark that is not as it was in the versions that are known."""
        return cls(
            f"Spark {here} has no {interface}, which this call needs.\n"
            "Use one of the versions of Spark in the documentation's table of compatibility. If yours is there, or is"
            " newer than those, please report this message."
        )


class JavaNotFoundError(StreamStateError, RuntimeError):
    """Spark needs Java 17 or 21 and none was found."""


class MissingDependencyError(StreamStateError, ImportError):
    """A package that an extra installs is missing, or jars that Maven fetches; the message says how to install them."""

    @classmethod
    def of_extra(cls, extra: str, packages: Iterable[str]) -> MissingDependencyError:
        """For the missing packages of an extra."""
        missing = list(packages)
        verb = "is" if len(missing) == 1 else "are"
        return cls(f"{' and '.join(missing)} {verb} not installed.\nInstall with: {install_command(extra)}")


def require_extra(extra: Extra) -> None:
    """Check that the packages of an extra are installed; nothing is imported.

    Raises:
        MissingDependencyError: one of them is missing.
    """
    if missing := missing_packages(extra):
        raise MissingDependencyError.of_extra(extra, missing) from None
