"""The versions of a pipeline's flow, captured one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamstate.errors import CheckpointError, NotACheckpointError
from streamstate.snapshots.capture.epoch_commit import Capturer
from streamstate.snapshots.checkpoint.default_names import flow_version, versions_in

if TYPE_CHECKING:
    from streamstate.snapshots.checkpoint.filesystem import ReadableFiles


class FlowVersions:
    """The versions of a flow, from the oldest or a given one on. A full refresh of the flow starts the next one.

    Args:
        folder: the folder of the flow, which holds its versions.
        files: its file system.
        capturer_of: makes the capturer of a checkpoint, given its path and the query's name.
        name: the name of the first version; by default it is made from the path. Those of later ones end in ``_v1``, …
        begin: the first version, to start with that; the default is the oldest one that can be captured.
    """

    def __init__(
        self,
        folder: str,
        files: ReadableFiles,
        capturer_of: Callable[[str, str | None], Capturer],
        name: str | None = None,
        *,
        begin: int | None = None,
    ) -> None:
        self._folder = folder
        self._files = files
        self._capturer_of = capturer_of
        self._name = name
        self._begin = begin
        self._version = -1

    def first(self) -> Capturer:
        """Return the capturer of the given version, or of the oldest one that can be captured.

        Raises:
            CheckpointError: there is none; the reason is that of the newest one.
        """
        if self._begin is not None:
            first = self._capturer_of(f"{self._folder}/{self._begin}", self._name)
            self._version = self._begin
            self._name = None if self._name is None else self._name.removesuffix(f"_v{self._begin}")
            return first
        failure: Exception = NotACheckpointError(f"The flow {self._folder} has no version yet. Run its pipeline.")
        while (capturer := self.later()) is not None:
            try:
                if capturer.checkpoint.committed():
                    capturer.register()
            except CheckpointError as error:
                failure = error
            else:
                return capturer
        raise failure

    def later(self) -> Capturer | None:
        """Return the capturer of the next version; None until it has begun."""
        version = next(iter(begun_after(self._files, self._folder, self._version)), None)
        if version is None:
            return None
        name = self._name if self._name is None or not version else f"{self._name}_v{version}"
        capturer = self._capturer_of(f"{self._folder}/{version}", name)
        self._version = version
        return capturer


def begun_after(files: ReadableFiles, folder: str, version: int) -> list[int]:
    """Return the versions of a flow that have begun after a version, ascending."""
    later = [number for number in versions_in(files, folder) if number > version]
    return [number for number in later if files.content(f"{folder}/{number}/metadata") is not None]


def later_versions(files: ReadableFiles, path: str) -> list[str]:
    """Return the checkpoints of the versions of a flow after that of a checkpoint; none of any other query."""
    flow = flow_version(path)
    if flow is None:
        return []
    return [f"{flow.folder}/{number}" for number in begun_after(files, flow.folder, flow.version)]


def is_flow(files: ReadableFiles, path: str) -> bool:
    """Return whether a path is the folder of a pipeline's flow, which holds its versions."""
    return flow_version(f"{path}/0") is not None and bool(versions_in(files, path))
