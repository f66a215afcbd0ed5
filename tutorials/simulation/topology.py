"""Which tasks a dataflow has, the channels between them, and the way of each record."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise


@dataclass(frozen=True)
class Topology:
    """Tasks and channels. Each record of a source takes a way that depends on nothing but its name.

    Args:
        tasks: the names of the tasks.
        channels: the channels, as indices of the task that sends and of the one that receives.
        inputs: how many records each task reads from outside; sources come first, and have no channel that leads in.
        hops: channels that a record passes at most, so that it comes to rest if the channels form a circle.
    """

    tasks: tuple[str, ...]
    channels: tuple[tuple[int, int], ...]
    inputs: tuple[int, ...]
    hops: int = 8

    @cached_property
    def ins(self) -> tuple[tuple[int, ...], ...]:
        """The channels that lead into each task."""
        return tuple(
            tuple(c for c, (_, target) in enumerate(self.channels) if target == task) for task in range(len(self.tasks))
        )

    @cached_property
    def outs(self) -> tuple[tuple[int, ...], ...]:
        """The channels that lead out of each task."""
        return tuple(
            tuple(c for c, (source, _) in enumerate(self.channels) if source == task) for task in range(len(self.tasks))
        )

    @cached_property
    def records(self) -> tuple[tuple[str, ...], ...]:
        """The names of the records that each task reads from outside."""
        return tuple(
            tuple(f"{name.lower()}{number}" for number in range(1, count + 1))
            for name, count in zip(self.tasks, self.inputs, strict=True)
        )

    @cached_property
    def ways(self) -> dict[str, tuple[int, ...]]:
        """The channels that each record passes, in order."""
        return {
            record: tuple(self._way(source, number))
            for source, records in enumerate(self.records)
            for number, record in enumerate(records)
        }

    def _way(self, task: int, number: int) -> Iterator[int]:
        for hop in range(self.hops):
            outs = self.outs[task]
            if not outs:
                return
            channel = outs[(number + hop) % len(outs)]
            yield channel
            task = self.channels[channel][1]

    @property
    def sources(self) -> tuple[int, ...]:
        """The tasks that read from outside."""
        return tuple(task for task, count in enumerate(self.inputs) if count)

    @property
    def sinks(self) -> tuple[int, ...]:
        """The tasks that send nothing on."""
        return tuple(task for task, outs in enumerate(self.outs) if not outs)

    def channel_name(self, channel: int) -> str:
        """Return a channel's name, such as ``A→C``."""
        source, target = self.channels[channel]
        return f"{self.tasks[source]}→{self.tasks[target]}"

    @classmethod
    def chain(cls, records: int, length: int = 2) -> Topology:
        """Return one source and tasks that follow each other."""
        channels = tuple((task, task + 1) for task in range(length - 1))
        return cls(tuple(string.ascii_uppercase[:length]), channels, (records, *(0,) * (length - 1)))

    @classmethod
    def merge(cls, first: int = 2, second: int = 2) -> Topology:
        """Return two sources, A and B, that send to one task, C."""
        return cls(("A", "B", "C"), ((0, 2), (1, 2)), (first, second, 0))

    @classmethod
    def random(cls, seed: int, *, circles: bool = False) -> Topology:
        """Return one to three sources and one to three layers of tasks behind them.

        Args:
            seed: the same seed gives the same topology.
            circles: add one or two channels that lead back.
        """
        chance = random.Random(seed)  # noqa: S311 (reproducible, not secret)
        layers: list[list[int]] = []
        count = 0
        for _ in range(chance.randint(2, 4)):
            size = chance.randint(1, 3)
            layers.append(list(range(count, count + size)))
            count += size
        channels: dict[tuple[int, int], None] = {}
        for above, below in pairwise(layers):
            for target in below:
                channels |= dict.fromkeys(
                    (source, target) for source in chance.sample(above, chance.randint(1, len(above)))
                )
            for source in above:
                channels[source, chance.choice(below)] = None
        inner = [task for layer in layers[1:] for task in layer]
        if circles:
            for _ in range(chance.randint(1, 2)):
                if len(inner) > 1:
                    source, target = sorted(chance.sample(inner, 2), reverse=True)
                    channels[source, target] = None
        inputs = tuple(chance.randint(2, 4) if task in layers[0] else 0 for task in range(count))
        return cls(tuple(string.ascii_uppercase[:count]), tuple(sorted(channels)), inputs, 6 if circles else 8)
