"""Objects on their way between the client and its worker process."""

from __future__ import annotations

import io
import pickle
import tempfile
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any

import pyarrow as pa
from pyspark.cloudpickle import CloudPickler

from streamstate.errors import InvalidArgumentError, SparkConnectError
from streamstate.snapshots.calls.progress_callback import ProgressCallback
from streamstate.snapshots.spark.connect import connect_session, uses_connect
from streamstate.snapshots.spark.connect_server import frame_with_rows
from streamstate.snapshots.spark.worker.kept_objects import Caller, KeptObjects, StandIns, kept_number

_SESSION, _PROGRESS, _KEPT = "session", "progress", "kept"


class Progress:
    """Stands in the arguments for the client's progress callback."""


class _CannotTravel(Exception):  # noqa: N818 (it never leaves this module)
    """An object that belongs to a process or to a server."""

    def __init__(self, value: object) -> None:
        super().__init__(value)
        self.value = value


class _ToWorker(CloudPickler):
    def __init__(self, file: io.BytesIO, caller: Caller) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]  # PySpark's copy of cloudpickle has no annotations
        self._caller = caller

    def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
        if isinstance(value, Progress):
            return (_PROGRESS,)
        if (number := kept_number(value, self._caller)) is not None:
            return _KEPT, number
        return (_SESSION,) if _connect_kind(value) == "SparkSession" else None

    def reducer_override(self, value: Any) -> Any:
        kind = _connect_kind(value)
        if kind == "UserDefinedFunction":
            name = value._name  # noqa: SLF001 (there is no public way)
            return _classic_udf, (value.func, value.returnType, name, value.evalType, value.deterministic)
        if kind is not None and not isinstance(value, BaseException):
            raise _CannotTravel(value)
        return super().reducer_override(value)  # type: ignore[no-untyped-call]


def _connect_kind(value: object) -> str | None:
    """Return the name of an instance's class, if it belongs to Spark Connect."""
    kind = type(value)
    if kind is FunctionType:
        return None
    return next((base.__name__ for base in kind.__mro__ if base.__module__.startswith("pyspark.sql.connect.")), None)


def packed_call(call: tuple[Any, ...], caller: Caller) -> bytes:
    """Return a call for the worker.

    Raises:
        InvalidArgumentError: an argument cannot leave this process.
    """
    what, target, name, args, kwargs = call
    if "state" in kwargs:
        kwargs = {**kwargs, "state": _with_rows(kwargs["state"])}
    try:
        return _packed_by(_ToWorker, (what, target, name, args, kwargs), caller)
    except (_CannotTravel, TypeError, pickle.PicklingError, AttributeError) as error:
        raise _not_sent([*args, *kwargs.values()], caller, error) from None


def _packed_by(pickler: Callable[..., Any], value: Any, *arguments: Any) -> bytes:
    buffer = io.BytesIO()
    pickler(buffer, *arguments).dump(value)
    return buffer.getvalue()


def _with_rows(value: Any) -> Any:
    """Return the rows of a batch DataFrame of Spark Connect in its place, or of several by name."""
    if isinstance(value, Mapping):
        return {key: _with_rows(frame) for key, frame in value.items()}
    return _Rows(value.toArrow(), value.schema.json()) if _connect_kind(value) == "DataFrame" else value


def _not_sent(arguments: list[Any], caller: Caller, error: Exception) -> InvalidArgumentError:
    """Return the error about the first thing that cannot travel, by its name in the user's code if it has one."""
    for argument in arguments:
        for owner, name, value in _names_within(argument):
            if not _travels(value, caller) and not isinstance(value, FunctionType):
                of_connect = " of Spark Connect" if _connect_kind(value) else ""
                what = f"an object of the type {type(value).__name__}{of_connect}"
                return InvalidArgumentError(
                    f"{owner} uses {name}, {what}, which cannot be sent to the worker process that runs it.\n"
                    f"Make {name} inside {owner}."
                )
    value = error.value if isinstance(error, _CannotTravel) else None
    what = str(error) if value is None else f"it has an object of the type {type(value).__name__} of Spark Connect"
    return InvalidArgumentError(
        f"An argument cannot be sent to the worker process: {what}.\n"
        "Pass a function that makes what it needs itself, such as build_query, which returns the streaming DataFrame."
    )


def _travels(value: object, caller: Caller) -> bool:
    try:
        _packed_by(_ToWorker, value, caller)
    except (_CannotTravel, TypeError, pickle.PicklingError, AttributeError):
        return False
    return True


def _names_within(value: Any, seen: set[int] | None = None) -> Iterator[tuple[str, str, Any]]:
    """Yield each global and outer name that a function uses, and those of the functions that it uses, with values."""
    seen = set() if seen is None else seen
    if not isinstance(value, FunctionType) or id(value) in seen:
        return
    seen.add(id(value))
    names = {name for code in _codes(value.__code__) for name in code.co_names}
    used = {name: value.__globals__[name] for name in sorted(names) if name in value.__globals__}
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        try:
            used[name] = cell.cell_contents
        except ValueError:  # it is not assigned yet
            continue
    for name, found in used.items():
        yield from _names_within(found, seen)
        yield value.__name__, name, found


def _codes(code: Any) -> Iterator[Any]:
    yield code
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            yield from _codes(constant)


class _Rows:
    """The rows of a batch DataFrame, with Spark's types."""

    def __init__(self, table: pa.Table, schema: str, *, of_input: bool = False) -> None:
        self._table, self._schema, self._of_input = table, schema, of_input

    def __reduce__(self) -> Any:
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, self._table.schema) as writer:
            writer.write_table(self._table)
        return _frame_of, (sink.getvalue(), self._schema, self._of_input)


def _frame_of(stream: bytes, schema: str, of_input: bool) -> Any:  # noqa: FBT001 (called by pickle)
    """Return a DataFrame of this process's session with rows of the other process."""
    import json

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    table = pa.ipc.open_stream(stream).read_all()
    session = connect_session()
    if session is None and uses_connect():
        raise SparkConnectError.without_session()
    session = session or SparkSession.builder.getOrCreate()
    frame: Any = frame_with_rows(session, table, StructType.fromJson(json.loads(schema)))
    if of_input:
        frame.to_arrow = lambda: table
    return frame


def _classic_udf(*arguments: Any) -> Any:
    from pyspark.sql.udf import UserDefinedFunction

    return UserDefinedFunction(*arguments)


class _FromClient(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, kept: KeptObjects, session: Callable[[], Any], progress: ProgressCallback):
        super().__init__(file)
        self._kept, self._session, self._progress = kept, session, progress

    def persistent_load(self, pid: tuple[Any, ...]) -> Any:
        what, *number = pid
        if what == _KEPT:
            return self._kept.get(number[0])
        return self._session() if what == _SESSION else self._progress


def unpacked_call(
    data: bytes, kept: KeptObjects, session: Callable[[], Any], progress: ProgressCallback
) -> tuple[Any, ...]:
    """Return a call from the client; its session becomes the worker's."""
    call: tuple[Any, ...] = _FromClient(io.BytesIO(data), kept, session, progress).load()
    return call


class _ByValue(CloudPickler):
    """Fails for what belongs to this process."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, tempfile.TemporaryDirectory) or _of_java(value):
            raise _CannotTravel(value)
        if isinstance(value, BaseException) and (simpler := _without_java(value)) is not None:
            return simpler
        return super().reducer_override(value)  # type: ignore[no-untyped-call]


def _of_java(value: object) -> bool:
    return any(
        base.__module__.startswith(("py4j.", "pyspark.sql.classic.")) or base.__name__ == "SparkSession"
        for base in type(value).__mro__
        if base.__module__.startswith(("py4j.", "pyspark.sql."))
    ) and not isinstance(value, BaseException)


def _without_java(error: BaseException) -> Any:
    """Return how to make an error of Spark again without its Java object; None for others."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException, PySparkRuntimeError

    if isinstance(error, Py4JError):
        return PySparkRuntimeError, (str(error),)
    if not isinstance(error, PySparkException):
        return None
    public = next(base for base in type(error).__mro__ if base.__module__ == "pyspark.errors.exceptions.base")
    condition = error.getCondition() if hasattr(error, "getCondition") else error.getErrorClass()
    return public, (str(error).removeprefix(f"[{condition}] "), condition)


class _ToClient(_ByValue):
    def __init__(self, file: io.BytesIO, kept: KeptObjects, sent: list[int]) -> None:
        super().__init__(file)  # type: ignore[no-untyped-call]
        self._kept, self._sent = kept, sent

    def persistent_id(self, value: Any) -> tuple[Any, ...] | None:
        kind = type(value)
        if not kind.__module__.startswith("streamstate.") or isinstance(
            value, (BaseException, type, FunctionType, _Rows)
        ):
            return None
        if _is_frame(value) or _can_leave(value):
            return None
        self._sent.append(self._kept.keep(value))
        return _KEPT, self._sent[-1], kind.__module__, kind.__qualname__

    def reducer_override(self, value: Any) -> Any:
        if _is_frame(value):
            from streamstate.snapshots.spark.fetching import to_arrow

            return _Rows(to_arrow(value), value.schema.json(), of_input=hasattr(value, "to_arrow")).__reduce__()
        return super().reducer_override(value)


def _is_frame(value: object) -> bool:
    from pyspark.sql.classic.dataframe import DataFrame

    return isinstance(value, DataFrame)


def _can_leave(value: object) -> bool:
    """Return whether an object is made of values alone; one that also holds what belongs to this process stays."""
    try:
        _packed_by(_ByValue, value)
    except Exception:  # noqa: BLE001 (whatever a class raises when it cannot be pickled)
        return False
    return True


def packed_result(value: Any, kept: KeptObjects) -> bytes:
    """Return a result for the client. What belongs to this process stays here, and is kept for the client."""
    sent: list[int] = []
    try:
        return _packed_by(_ToClient, value, kept, sent)
    except BaseException:
        kept.release(sent)
        raise


class _FromWorker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, stand_ins: StandIns) -> None:
        super().__init__(file)
        self._stand_ins = stand_ins

    def persistent_load(self, pid: tuple[Any, ...]) -> Any:
        _, number, module, name = pid
        return self._stand_ins.of(number, module, name)


def unpacked_result(data: bytes, stand_ins: StandIns) -> Any:
    """Return a result of the worker."""
    return _FromWorker(io.BytesIO(data), stand_ins).load()


def packed_error(error: BaseException) -> bytes:
    """Return an error and its causes for the client. An error that cannot leave the process is sent as its text."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__
    return pickle.dumps([_packed_by(_ByValue, _sendable(each)) for each in chain])


def _sendable(error: BaseException) -> BaseException:
    try:
        pickle.loads(_packed_by(_ByValue, error))  # noqa: S301 (its own)
    except Exception:  # noqa: BLE001 (whatever a class raises when it cannot be pickled, or made again)
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def unpacked_error(data: bytes) -> BaseException:
    """Return an error of the worker with its causes."""
    # Both processes are the user's, and a key keeps others from the connection.
    first, *causes = (pickle.loads(part) for part in pickle.loads(data))  # noqa: S301
    error = first
    for cause in causes:
        error.__cause__ = cause
        error = cause
    found: BaseException = first
    return found
