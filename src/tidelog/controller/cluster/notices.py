"""Notices that brokers leave for the controller as sequential nodes: of log directories, of in-sync replicas.

The controller reads all that are there, acts, and removes exactly those that it has read. Called by ``term``.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.controller.cluster.context import ControllerContext
from tidelog.controller.cluster.leadership_nodes import controller_write
from tidelog.metadata.store import Delete, NoNode, SharedStore


async def read_notices(store: SharedStore, parent: str, names: Iterable[str]) -> list[tuple[str, bytes]]:
    """The paths and contents of notices; one that is gone has been acted on."""
    found: list[tuple[str, bytes]] = []
    for name in names:
        path = f"{parent}/{name}"
        try:
            found.append((path, (await store.get(path))[0]))
        except NoNode:
            continue
    return found


async def delete_notices(
    store: SharedStore, context: ControllerContext, parent: str, names: Iterable[str]
) -> None:
    """Remove notices, as the controller that ``context`` belongs to."""
    for name in names:
        try:
            await controller_write(store, context, [Delete(f"{parent}/{name}")])
        except NoNode:
            continue
