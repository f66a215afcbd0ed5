"""The callback through which a long call reports its progress."""

from __future__ import annotations

from typing import Protocol


class ProgressCallback(Protocol):
    """What every ``progress=`` argument takes: a function of a message and a share. It has to return quickly.

    An exception that it raises ends the call, as an interrupt would.

    Example:
        >>> def progress(message: str, share: float | None) -> None:
        ...     print(message if share is None else f"{share:.0%} {message}")
        >>> ss.keep("store", "delays", last=100, progress=progress)  # doctest: +SKIP
    """

    def __call__(self, message: str, share: float | None, /) -> object:
        """Report progress.

        Args:
            message: what is being done, in a few words.
            share: how much of the work is done, from 0 to 1; None if unknown.
        """


def silent(_message: str, _share: float | None, /) -> None:
    """The default callback: reports nothing."""
