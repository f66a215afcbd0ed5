"""The epochs that are to be run again, as a person names them."""

from __future__ import annotations

from streamstate.snapshots.errors import InvalidArgumentError

__all__ = ["first_and_last"]


def first_and_last(epochs: range | tuple[int, int]) -> tuple[int, int]:
    """The first and the last of some epochs.

    Args:
        epochs: a range that counts up by one, or the two themselves.

    Raises:
        InvalidArgumentError: where they are none.
    """
    if isinstance(epochs, range) and len(epochs) and epochs.step == 1:
        first, last = epochs[0], epochs[-1]
    elif isinstance(epochs, (tuple, list)) and len(epochs) == 2:
        first, last = epochs
    else:
        first, last = -1, -1
    # A bool is an int to Python, and no epoch to anybody.
    if type(first) is not int or type(last) is not int or not 0 <= first <= last:
        raise InvalidArgumentError(
            f"epochs={epochs!r} cannot be meant.\nGive the first and the last epoch, (40, 60), or a range that counts"
            " up by one, range(40, 61)."
        )
    return first, last
