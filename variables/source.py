"""The source without rows whose offset names the versions that an epoch is bound to.

Spark asks it for its latest offset between the commit of an epoch and the planning of the next: there the committed
epochs' contributions are merged, and the next epoch is bound to the newest versions.
"""

from __future__ import annotations

import base64
import functools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from streamstate.snapshots.bindings import FORMAT, Binding, Version
from streamstate.snapshots.checkpoint import Checkpoint
from streamstate.variables.contributions import stage_group, take_in
from streamstate.variables.declaration import LATEST, Declaration
from streamstate.variables.in_tasks import log_of
from streamstate.variables.transports.addresses import transport_at
from streamstate.variables.transports.transport import BINDINGS
from streamstate.variables.version_log import VersionLog

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CHECKPOINT, BRANCH, TRANSPORT, SERVED, DECLARED = "checkpoint", "branch", "transport", "served", "declared"
"""The options: the query's checkpoint, a fork's branch, the transport, who reads a remote checkpoint, the variables."""


def declared_option(declarations: Sequence[Declaration]) -> str:
    """Declarations with their functions, as the text of an option."""
    for made in declarations:
        made.merging  # noqa: B018 (sent along)
    pickled: bytes = cloudpickle.dumps(list(declarations))  # type: ignore[no-untyped-call]
    return base64.b64encode(pickled).decode()


def declared_in(option: str) -> list[Declaration]:
    """The declarations in the text of an option."""
    found: list[Declaration] = pickle.loads(base64.b64decode(option))  # noqa: S301 (the driver has made it)
    return found


class SharedSource(DataSource):
    """Spark's ``spark.readStream.format("streamstate_shared")``."""

    @classmethod
    def name(cls) -> str:
        """The name of the source in Spark."""
        return FORMAT

    def streamReader(self, schema: StructType) -> SharedReader:  # noqa: N802 (Spark's)
        """What binds epochs to versions."""
        declarations = declared_in(self.options[DECLARED])
        options = {name: self.options[name] for name in (CHECKPOINT, BRANCH, TRANSPORT, SERVED)}
        return SharedReader(declarations, options)


class SharedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Binds epochs to versions, and merges what committed epochs have contributed."""

    def __init__(self, declarations: Sequence[Declaration], options: Mapping[str, str]) -> None:
        self._declarations = declarations
        self._options = options

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing: versions that come meanwhile count too."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """What a new query is bound to: the newest versions."""
        return self._bound({}, -1).offset()

    def latestOffset(self, start: dict[str, Any], limit: object) -> dict[str, Any]:  # noqa: N802
        """What the next epoch is bound to."""
        served = self._options[SERVED]
        committed = newest_committed(served, self._options[CHECKPOINT])
        return self._bound(Binding.of_offset(start).versions, committed).offset()

    def _bound(self, start: Mapping[str, Version | None], committed: int) -> Binding:
        versions: dict[str, Version | None] = {}
        for declaration in self._declarations:
            versions[declaration.name] = self._version(declaration, start.get(declaration.name), committed)
        return Binding(versions, self._options[TRANSPORT], self._declarations[0].store)

    def _version(self, declaration: Declaration, start: Version | None, committed: int) -> Version | None:
        """Which version of a variable comes next; None if the variable is only contributed to."""
        due = (committed + 1) % declaration.every == 0 or start is None
        branch = self._options[BRANCH]
        log = log_of(declaration, self._options[TRANSPORT], branch)
        if due and committed >= 0:
            take_in_branch(log, self._query, committed, start)
        if declaration.consistency == LATEST:
            return Version(None)
        if not declaration.is_bound:
            return None
        if start is not None and start.number is not None and not due:
            return start
        head = log.head()
        if branch and head < 0:
            return start
        if head < 0:
            raise log.gone(0)
        if start is not None and start.branch == branch and start.number is not None and head < start.number:
            raise log.gone(start.number)
        return Version(head, branch)

    @functools.cached_property
    def _query(self) -> str:
        served, path = self._options[SERVED], self._options[CHECKPOINT]
        if not served:
            return Checkpoint(path).query_id
        return (transport_at(served).get(BINDINGS, f"id/{path}") or b"").decode()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """None: it has no rows."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """No rows."""
        return iter(())


def take_in_branch(log: VersionLog, query: str, committed: int, start: Version | None) -> None:
    """Merge what a query's epochs contributed: in a fork into its own branch, which begins at what it is bound to."""
    if log.branch and log.head() < 0:
        if not log.transport.names(stage_group(log.declaration, query)):
            return
        begin_branch(log, start)
    take_in(log, query, committed)


def begin_branch(log: VersionLog, start: Version | None) -> None:
    """Begin a fork's own versions of a variable with the one that it is bound to, or with the newest."""
    origin = log_of(log.declaration, log.transport.address, start.branch if start is not None else "")
    number = start.number if start is not None and start.number is not None else origin.head()
    state = origin.state(number)
    log.begin(dict(state) if isinstance(state, dict) else state, number=number, by="fork")


def newest_committed(served: str, checkpoint: str) -> int:
    """The newest epoch that a checkpoint has committed; −1 if there is none."""
    if served:
        return int((transport_at(served).get(BINDINGS, f"committed/{checkpoint}") or b"-1").decode())
    return max(Checkpoint(checkpoint).committed(), default=-1)
