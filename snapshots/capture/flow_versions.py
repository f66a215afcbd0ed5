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
    """The versions of a flow, from the oldest one on. A full refresh of the flow starts the next one.

    Args:
        folder: the folder of the flow, which holds its versions.
        files: its file system.
        capturer_of: makes the capturer of a checkpoint, given its path and the query's name.
        name: the name of the first version; by default it is made from the path. Those of later ones end in ``_v1``, …
    """

    def __init__(
        self,
        folder: str,
        files: ReadableFiles,
        capturer_of: Callable[[str, str | None], Capturer],
        name: str | None = None,
    ) -> None:
        self._folder = folder
        self._files = files
        self._capturer_of = capturer_of
        self._name = name
        self._version = -1

    def first(self) -> Capturer:
        """Return the capturer of the oldest version that can be captured.

        Raises:
            CheckpointError: there is none; the reason is that of the newest one.
        """
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
        version = next((number for number in versions_in(self._files, self._folder) if number > self._version), None)
        if version is None or self._files.content(f"{self._folder}/{version}/metadata") is None:
            return None
        name = self._name if self._name is None or not version else f"{self._name}_v{version}"
        capturer = self._capturer_of(f"{self._folder}/{version}", name)
        self._version = version
        return capturer


def is_flow(files: ReadableFiles, path: str) -> bool:
    """Return whether a path is the folder of a pipeline's flow, which holds its versions."""
    return flow_version(f"{path}/0") is not None and bool(versions_in(files, path))
