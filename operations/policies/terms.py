"""The terms of a load policy: their values, checked and in plain units."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from streamstate.errors import InvalidArgumentError
from streamstate.snapshots.calls.checks import byte_size, time_span, whole_number


@dataclass(frozen=True, kw_only=True)
class PolicyTerms:
    """The terms of a :class:`Policy`, which describes them."""

    latency: float | str | timedelta
    keep: str | None = None
    may_drop: float = 0.0
    weight: str | None = None
    partitions: tuple[int, int] | int | None = None
    state_limit: int | str | None = None
    utility: Sequence[tuple[float, float]] | None = None

    def __post_init__(self) -> None:
        """Check the values, and keep them as seconds, bytes and tuples."""
        kept = {
            "latency": time_span(self.latency, "latency"),
            "may_drop": _share(self.may_drop),
            "partitions": _range(self.partitions),
            "state_limit": _bytes(self.state_limit),
            "utility": _worth(self.utility),
        }
        for name, value in kept.items():
            object.__setattr__(self, name, value)
        for name in ("keep", "weight"):
            text = getattr(self, name)
            if text is not None and (not isinstance(text, str) or not text.strip()):
                raise InvalidArgumentError(f"Invalid {name}={text!r}: expected a text, or None.")
        if self.may_drop == 0 and (unused := [name for name in ("keep", "utility") if getattr(self, name) is not None]):
            raise InvalidArgumentError(
                f"The policy has {' and '.join(unused)} but may_drop=0: without dropping, no row needs protection. Set"
                f" may_drop, or leave {' and '.join(unused)} out."
            )

    @property
    def seconds(self) -> float:
        """The latency in seconds."""
        return cast(float, self.latency)

    @property
    def partition_range(self) -> tuple[int, int] | None:
        """The fewest and the most partitions; None if they are not changed."""
        return cast("tuple[int, int] | None", self.partitions)

    @property
    def size_limit(self) -> int | None:
        """The state's limit in bytes."""
        return cast("int | None", self.state_limit)


def _share(may_drop: object) -> float:
    if isinstance(may_drop, bool) or not isinstance(may_drop, (int, float)) or not 0 <= may_drop < 1:
        raise InvalidArgumentError(
            f"Invalid may_drop={may_drop!r}: expected a share from 0 to below 1, such as 0.2. Some rows must be kept:"
            " they stand for the dropped ones."
        )
    return float(may_drop)


def _range(partitions: object) -> tuple[int, int] | None:
    if partitions is None:
        return None
    pair = partitions if isinstance(partitions, (tuple, list)) else (partitions, partitions)
    if len(pair) != 2:
        raise InvalidArgumentError(
            f"Invalid partitions={partitions!r}: expected the fewest and the most, such as (4, 16), or one number."
        )
    fewest, most = (whole_number(count, "partitions") for count in pair)
    if fewest > most:
        raise InvalidArgumentError(
            f"Invalid partitions={partitions!r}: the fewest come first: did you mean ({most}, {fewest})?"
        )
    return fewest, most


def _bytes(limit: object) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, str) and (size := byte_size(limit)):
        return size
    if isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        return limit
    raise InvalidArgumentError(f"Invalid state_limit={limit!r}: expected bytes, or a size such as '10GB' or '512MiB'.")


def _worth(utility: object) -> tuple[tuple[float, float], ...] | None:
    if utility is None:
        return None
    try:
        pairs = tuple((float(bound), float(worth)) for bound, worth in cast(Iterable[Any], utility))
    except (TypeError, ValueError):
        pairs = ()
    bounds = [bound for bound, _ in pairs]
    if not 1 <= len(pairs) <= 5 or bounds != sorted(set(bounds)) or any(worth < 0 for _, worth in pairs):
        raise InvalidArgumentError(
            f"Invalid utility={utility!r}: expected at most five pairs of a lower bound of the value, ascending, and a"
            " worth of at least 0, such as ((0, 1), (60, 10))."
        )
    return pairs
