"""Versions and contributions without Spark: logs at new addresses, and what tasks of a query would stage."""

from __future__ import annotations

from typing import Any

from streamstate.variables.contributions import RETRIED, Staged, stage_group
from streamstate.variables.declaration import Declaration
from streamstate.variables.transports.addresses import transport_at
from streamstate.variables.version_bytes import encoded_contribution
from streamstate.variables.version_log import VersionLog

QUERY = "11111111-2222-3333-4444-555555555555"


def declared(type_: str, merge: Any = "last", init: Any = None) -> Declaration:
    """A declaration of a variable ``v``."""
    return Declaration.checked("v", type_, init=init, merge=merge, access="read-mostly", consistency="epoch")


def begun(address: str, declaration: Declaration) -> VersionLog:
    """The log of a variable that has its first version."""
    log = opened(address, declaration)
    log.begin(declaration.first_state)
    return log


def opened(address: str, declaration: Declaration) -> VersionLog:
    """The log of a variable as another process sees it, which has read nothing yet."""
    return VersionLog(transport_at(address), declaration)


def stage(log: VersionLog, made: Staged, *added: tuple[Any, ...], query: str = QUERY) -> None:
    """Stage what one task has added, or, for ``RETRIED``, that it is not the first attempt."""
    merging, collected = log.declaration.merging, None
    for given in added:
        collected = merging.collected(collected, log.name, *given)
    data = b"" if made.operator == RETRIED else encoded_contribution(merging.finished(collected), log.declaration)
    log.transport.put(stage_group(log.declaration.key, query), made.name, data)
