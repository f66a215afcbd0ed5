"""Reasons not to decode a changelog file; capture then reads the table with Spark."""

from __future__ import annotations


class ChangelogError(Exception):
    """A changelog cannot be decoded; the text is a sentence that names the file or the setting."""


class UnsupportedChangelogError(ChangelogError):
    """A format, an encoding or a type that the reader does not know."""


class DamagedChangelogError(ChangelogError):
    """The bytes of a file are not those that Spark wrote."""


class MissingChangelogError(ChangelogError):
    """A file of an epoch does not exist: it was purged, lost, or never written.

    Args:
        text: the sentence.
        path: the file; empty if it is not a single one.
    """

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(text)
        self.path = path


class OnlySnapshotError(MissingChangelogError):
    """An epoch has a snapshot of the whole state, and no changelog."""
