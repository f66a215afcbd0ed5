"""A checkpoint's files in an object store, read without Java through obstore.

deltalake's own client would do, but it holds Python's lock while it waits, so that files cannot be read at once.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import IO, TYPE_CHECKING, Any, TypeVar

from streamstate.errors import CaptureError, require_extra
from streamstate.snapshots.checkpoint.filesystem import quoted_uri
from streamstate.snapshots.checkpoint.local_files import already_exists, decode_text, whole_lines
from streamstate.snapshots.checkpoint.read_ahead import ReadAheadFiles
from streamstate.snapshots.store.delta.object_store import PATIENCE, REACHING, plain

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss"})
# deltalake takes these among its other options, with or without the provider's prefix.
_OF_CLIENT = frozenset({"allow_http", "allow_invalid_certificates", "connect_timeout", "proxy_url", "timeout"})
_PREFIXES = ("aws_", "azure_", "google_")
_AT_ONCE = 16
_COMMITS, _OFFSETS = "/commits", "/offsets/"

_T = TypeVar("_T")
_U = TypeVar("_U")


def in_object_store(uri: str) -> bool:
    """Return whether :class:`ObjectFiles` can read a URI."""
    return uri.partition("://")[0].lower() in _SCHEMES


class ObjectFiles(ReadAheadFiles):
    """The files below a URI, as :class:`~streamstate.snapshots.checkpoint.filesystem.ReadableFiles` declares them.

    Args:
        uri: a checkpoint's location, such as ``s3a://bucket/checkpoints/delays``.
        options: deltalake's ``storage_options``; the rest comes from the environment.

    Raises:
        MissingDependencyError: obstore is not installed.
        CaptureError: an option or the URI is invalid. The methods raise it if the store cannot be reached, or refuses.
    """

    def __init__(self, uri: str, options: Mapping[str, str] | None = None) -> None:
        require_extra("sidecar")
        super().__init__()
        self._root = uri
        self._times: dict[str, dict[str, datetime]] = {}
        with self._errors():
            self._store = _store(uri, options or {})

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none if there is nothing below it."""
        return [*self.entries(path)]

    def _entries(self, path: str) -> dict[str, bool]:
        import obstore

        with self._errors():
            found = obstore.list_with_delimiter(self._store, self._key(path))
        if path.endswith(_COMMITS):
            self._times[path] = {
                f"{path}/{entry['path'].rpartition('/')[2]}": entry["last_modified"] for entry in found["objects"]
            }
        paths = dict.fromkeys(found["common_prefixes"], True)
        paths |= {entry["path"]: False for entry in found["objects"]}
        return {path.rstrip("/").rpartition("/")[2]: folder for path, folder in paths.items()}

    def text(self, path: str) -> str | None:
        """Return a file's text; None if it does not exist."""
        content = self.content(path)
        return None if content is None else decode_text(content, path)

    def _content(self, path: str) -> bytes | None:
        import obstore

        with self._errors(), contextlib.suppress(FileNotFoundError):
            found = obstore.get(self._store, self._key(path))
            if _OFFSETS in path:
                self._times.setdefault(path.rpartition("/")[0], {})[path] = found.meta["last_modified"]
            return bytes(found.bytes())
        return None

    def open(self, path: str) -> IO[bytes]:
        """Return a file's bytes, all of them in memory."""
        content = self.content(path)
        if content is None:
            raise FileNotFoundError(path)
        return io.BytesIO(content)

    def tail(self, path: str, size: int) -> str | None:
        """Return the whole lines among a text file's last ``size`` bytes; None if it does not exist."""
        content = self.content(path)  # a smaller request would need the size, which is another request
        if content is None:
            return None
        start = max(len(content) - size, 0)
        return whole_lines(content[start:], start, path)

    def modified(self, path: str) -> datetime | None:
        """Return the time at which a file was last written; None if it does not exist.

        For a commit it is that of the last listing, which is read anew for each capture, and for a plan that was read
        since then that of its content.
        """
        import obstore

        if (listed := self._times.get(path.rpartition("/")[0], {}).get(path)) is not None:
            return listed
        with self._errors(), contextlib.suppress(FileNotFoundError):
            return obstore.head(self._store, self._key(path))["last_modified"]
        return None

    def size(self, path: str) -> int:
        """Return a file's size in bytes."""
        import obstore

        with self._errors():
            return int(obstore.head(self._store, self._key(path))["size"])

    def volume(self, path: str) -> int | None:
        """Return the size of everything in a folder, in bytes."""
        import obstore

        with self._errors():
            return sum(entry["size"] for page in obstore.list(self._store, self._key(path)) for entry in page)

    def put(self, path: str, text: str, *, replace: bool) -> None:
        """Write a small file.

        Raises:
            FileExistsError: it exists and is not to be replaced; also if another process writes it at the same moment.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            with self._errors():
                obstore.put(self._store, self._key(path), text.encode(), mode="overwrite" if replace else "create")
        except CaptureError as error:
            if isinstance(error.__cause__, AlreadyExistsError):
                raise already_exists(path) from error
            raise

    def each(self, read: Callable[[_T], _U], items: Iterable[_T]) -> Iterator[_U]:
        """Apply ``read`` to each item, in order; several run at once."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield from pool.map(read, items)

    def _key(self, path: str) -> str:
        return path.removeprefix(self._root).strip("/")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError:
            raise
        except (BaseError, OSError, ValueError) as error:
            reason = str(error).partition("\n\nDebug source")[0]
            raise CaptureError(f"{self._root} cannot be read: {plain(Exception(reason))}\n{REACHING}") from error


def _store(uri: str, options: Mapping[str, str]) -> ObjectStore:
    """Obstore's client for a URI; options that only tables have are left out."""
    client: dict[str, Any] = {name: value for name, value in PATIENCE.items() if name in _OF_CLIENT}
    config: dict[str, Any] = {}
    for name, value in options.items():
        short = name.lower()
        for prefix in _PREFIXES:
            short = short.removeprefix(prefix)
        if short in _OF_CLIENT:
            client[short] = value
        elif _takes(uri, name, value):
            config[name] = value
    retries = {
        "max_retries": int(PATIENCE["max_retries"]),
        "retry_timeout": timedelta(seconds=int(PATIENCE["retry_timeout"].rstrip("s"))),
    }
    return _opened(uri, config=config, client_options=client, retry_config=retries)


def _takes(uri: str, name: str, value: str) -> bool:
    from obstore.exceptions import UnknownConfigurationKeyError

    try:
        _opened(uri, config={name: value})
    except UnknownConfigurationKeyError:
        return False
    except Exception:  # noqa: BLE001 (it is known; what it lacks are the others)
        return True
    return True


def _opened(uri: str, **options: Any) -> ObjectStore:
    from obstore.store import from_url

    return from_url(quoted_uri(uri), **options)
