"""The source without rows whose offset names the versions that an epoch is bound to.

Spark asks it for its latest offset between the commit of an epoch and the planning of the next: there the committed
epochs' contributions are merged, and the next epoch is bound to the newest versions. If a policy's controller works on
the query, the binding waits a moment for its decision on the epoch that was committed.
"""

from __future__ import annotations

import base64
import functools
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from streamstate.snapshots.checkpoint.bindings import FORMAT, Binding, Version, binding_in_log
from streamstate.snapshots.checkpoint.checkpoint_files import CheckpointFiles
from streamstate.snapshots.checkpoint.local_files import LocalFiles
from streamstate.snapshots.spark.pyspark_classes import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    SupportsTriggerAvailableNow,
)
from streamstate.variables.contributions import stage_group, take_in
from streamstate.variables.decided_epochs import DecidedEpochs
from streamstate.variables.declaration import LATEST, Declaration
from streamstate.variables.in_tasks import log_of
from streamstate.variables.transports.addresses import transport_at
from streamstate.variables.transports.transport import BINDINGS
from streamstate.variables.version_log import VersionLog

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

CHECKPOINT, BRANCHES, PARENT = "checkpoint", "branches", "parent"
"""Options: the query's checkpoint; each variable's branch; of a fork, the epoch and checkpoint that it comes from."""
TRANSPORT, SERVED, DECLARED = "transport", "served", "declared"
"""Options: the transport, who reads a remote checkpoint, and the variables."""


def declared_option(declarations: Sequence[Declaration]) -> str:
    """Declarations with their functions, as the text of an option."""
    for made in declarations:
        made.merging  # noqa: B018 (sent along)
    pickled: bytes = cloudpickle.dumps(list(declarations))  # type: ignore[no-untyped-call]
    return base64.b64encode(pickled).decode()


def declared_in(option: str) -> list[Declaration]:
    """Return the declarations in the text of an option."""
    found: list[Declaration] = pickle.loads(base64.b64decode(option))  # noqa: S301 (the driver has made it)
    return found


class SharedSource(DataSource):
    """Spark's ``spark.readStream.format("streamstate_shared")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the source in Spark."""
        return FORMAT

    def streamReader(self, schema: StructType) -> SharedReader:  # noqa: N802 (Spark's)
        """Return the reader that binds epochs to versions."""
        declarations = declared_in(self.options[DECLARED])
        options = {name: self.options[name] for name in (CHECKPOINT, BRANCHES, PARENT, TRANSPORT, SERVED)}
        return SharedReader(declarations, options)


class SharedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Binds epochs to versions, and merges what committed epochs have contributed."""

    def __init__(self, declarations: Sequence[Declaration], options: Mapping[str, str]) -> None:
        self._declarations = declarations
        self._options = options

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Nothing: versions that come meanwhile count too."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Bind a new query to the newest versions."""
        return self._bound({}, -1).offset()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: object = None) -> dict[str, Any]:  # noqa: N802
        """Bind the next epoch."""
        served = self._options[SERVED]
        committed = newest_committed(served, self._options[CHECKPOINT])
        self._decided.wait_for(committed)
        before = self._binding_of(committed) if start is None else Binding.of_offset(start)
        return self._bound({} if before is None else before.versions, committed).offset()

    def _binding_of(self, epoch: int) -> Binding | None:
        """Return the binding of a committed epoch; before Spark 4.2, Spark does not say where the next one starts."""
        text = offset_log(self._options[SERVED], self._options[CHECKPOINT], epoch)
        return None if text is None else binding_in_log(text)

    def _bound(self, start: Mapping[str, Version | None], committed: int) -> Binding:
        versions: dict[str, Version | None] = {}
        for declaration in self._declarations:
            versions[declaration.name] = self._version(declaration, start.get(declaration.name), committed)
        return Binding(versions, self._options[TRANSPORT], self._declarations[0].store)

    def _version(self, declaration: Declaration, start: Version | None, committed: int) -> Version | None:
        """Return the next version of a variable; None if the variable is only contributed to."""
        due = (committed + 1) % declaration.every == 0 or start is None
        branch = json.loads(self._options[BRANCHES])[declaration.name]
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
            return self._of_the_original(log, committed, start)
        if head < 0:
            raise log.gone(0)
        if start is not None and start.branch == branch and start.number is not None and head < start.number:
            raise log.gone(start.number)
        return Version(head, branch)

    def _of_the_original(self, log: VersionLog, committed: int, start: Version | None) -> Version | None:
        """Return the version for a fork's first own epoch: that of the original's next epoch, or the newest."""
        epoch, _, path = self._options[PARENT].partition("/")
        if start is None or not path or int(epoch) != committed:
            return start
        text = offset_log(self._options[SERVED], path, committed + 1)
        if text is None:
            return Version(log_of(log.declaration, self._options[TRANSPORT], start.branch).head(), start.branch)
        binding = binding_in_log(text)
        return start if binding is None else binding.versions.get(log.name) or start

    @functools.cached_property
    def _query(self) -> str:
        served, path = self._options[SERVED], self._options[CHECKPOINT]
        if not served:
            return CheckpointFiles(path).query_id
        return (transport_at(served).get(BINDINGS, f"id/{path}") or b"").decode()

    @functools.cached_property
    def _decided(self) -> DecidedEpochs:
        return DecidedEpochs(transport_at(self._options[TRANSPORT]), self._query)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """None: it has no rows."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """No rows."""
        return iter(())


def take_in_branch(log: VersionLog, query: str, committed: int, start: Version | None) -> None:
    """Merge what a query's epochs contributed: in a fork into its own branch, onto the version that it was bound to."""
    if log.branch:
        if not log.transport.names(stage_group(log.declaration.key, query)):
            return
        if log.head() < 0:
            begin_branch(log, start)
        elif start is not None and start.branch != log.branch:  # it was stepped, and bound to what the original was
            _, state = _origin(log, start)
            if log.state(log.head()) != state:
                log.set(state, "fork", None)
    take_in(log, query, committed)


def begin_branch(log: VersionLog, start: Version | None) -> None:
    """Begin a fork's own versions of a variable with the one that it is bound to, or with the newest."""
    number, state = _origin(log, start)
    log.begin(state, number=number, by="fork")


def _origin(log: VersionLog, start: Version | None) -> tuple[int, Any]:
    """Return the number and the state of the version of another branch that a fork is bound to, or of the newest."""
    origin = log_of(log.declaration, log.transport.address, start.branch if start is not None else "")
    number = start.number if start is not None and start.number is not None else origin.head()
    state = origin.state(number)
    return number, dict(state) if isinstance(state, dict) else state


def offset_log(served: str, checkpoint: str, epoch: int) -> str | None:
    """Return an epoch's offset log; None if there is none."""
    if served:
        data = transport_at(served).get(BINDINGS, f"{epoch}/{checkpoint}")
    else:
        data = LocalFiles().content(f"{checkpoint}/offsets/{epoch}")
    return None if data is None else data.decode()


def newest_committed(served: str, checkpoint: str) -> int:
    """Return the newest epoch that a checkpoint has committed; −1 if there is none."""
    if served:
        return int((transport_at(served).get(BINDINGS, f"committed/{checkpoint}") or b"-1").decode())
    return max(CheckpointFiles(checkpoint).committed(), default=-1)
