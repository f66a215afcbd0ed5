"""The embedded transport: files in a folder, which are there whole or not at all."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import urllib.parse
from pathlib import Path

from streamstate.errors import VariableError
from streamstate.variables.transports.transport import MAX_BYTES, check_group, unreachable

_numbers = itertools.count()


class FilesTransport:
    """A folder with a folder for each group. Links and renames make a file appear whole.

    Args:
        folder: where it is; created when something is written. It may be reached by a link.
    """

    def __init__(self, folder: Path) -> None:
        self.address = str(folder)
        self._folders: dict[str, str] = {}

    def add(self, group: str, name: str, data: bytes) -> bool:
        """Add a file; False if there is one of the name."""
        return self._write(group, name, data, replace=False)

    def put(self, group: str, name: str, data: bytes) -> None:
        """Write a file, or replace it."""
        self._write(group, name, data, replace=True)

    def _write(self, group: str, name: str, data: bytes, *, replace: bool) -> bool:
        path = self._path(group, name)
        # Names that begin with a dot are not listed.
        draft = f"{os.path.dirname(path)}/.{os.getpid()}-{threading.get_ident()}-{next(_numbers)}"  # noqa: PTH120 (a Path takes as long as the write)
        try:
            try:
                _write_bytes(draft, data)
            except FileNotFoundError:
                self._make(group)
                _write_bytes(draft, data)
            if replace:
                os.replace(draft, path)  # noqa: PTH105 (likewise)
                return True
            try:
                os.link(draft, path)
            except FileExistsError:
                return False
            finally:
                os.unlink(draft)  # noqa: PTH108 (likewise)
        except OSError as error:
            raise unreachable(self.address, error) from error
        return True

    def _make(self, group: str) -> None:
        Path(self._folder_of(group)).mkdir(parents=True, exist_ok=True)

    def get(self, group: str, name: str) -> bytes | None:
        """Return a file's bytes."""
        try:
            with open(self._path(group, name), "rb", buffering=0, opener=_plainly) as file:
                data = file.read(MAX_BYTES + 1)
            if len(data) > MAX_BYTES:
                raise OSError(f"{name} has more than {MAX_BYTES:,} bytes")
            return data
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreachable(self.address, error) from error

    def get_all(self, group: str, names: list[str]) -> list[bytes]:
        """Return the bytes of some files."""
        return [data for name in names if (data := self.get(group, name)) is not None]

    def names(self, group: str) -> list[str]:
        """Return the files of a group."""
        try:
            found = os.listdir(self._folder_of(group))  # noqa: PTH208 (likewise)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreachable(self.address, error) from error
        return [urllib.parse.unquote(name) for name in found if not name.startswith(".")]

    def remove(self, group: str, names: list[str]) -> None:
        """Remove files."""
        for name in names:
            try:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._path(group, name))  # noqa: PTH108 (likewise)
            except OSError as error:
                raise unreachable(self.address, error) from error

    def _path(self, group: str, name: str) -> str:
        # No name leads out of its group, and none begins with a dot.
        quoted = urllib.parse.quote(name, safe="")
        return f"{self._folder_of(group)}/{'%2E' + quoted[1:] if quoted.startswith('.') else quoted}"

    def _folder_of(self, group: str) -> str:
        """Return a group's folder, which a link in a copied store must not lead elsewhere."""
        folder = self._folders.get(group)
        if folder is None:
            folder = f"{self.address}/{check_group(group)}"
            if Path(folder).resolve() != Path(self.address).resolve() / group:
                raise VariableError(
                    f"{group} in {self.address} is a link, which could lead out of it.\n"
                    "Copy what it leads to in its place, if you trust who made it."
                )
            self._folders[group] = folder
        return folder


def _plainly(path: str, flags: int) -> int:
    """Open a file, but follow no link, and wait for no pipe, that a copied store may have in its place."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _write_bytes(path: str, data: bytes) -> None:
    with open(path, "wb", buffering=0) as file:  # noqa: PTH123 (as above)
        file.write(data)
