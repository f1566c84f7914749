"""What brokers and tools leave for the controller in ZooKeeper.

Notices are sequential nodes: of log directories, of in-sync replicas. The controller reads all that are
there, acts, and removes exactly those that it has read. Requests are single nodes. What cannot be read is
removed too, with a line in the log, as nobody could ever act on it; it keeps no controller from its office,
nor from what else is asked. Called by ``controller_term`` and ``reassignment``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from tidelog.controller.cluster.context import ControllerContext
from tidelog.controller.cluster.leadership_nodes import controller_write
from tidelog.errors import StorageError
from tidelog.metadata.store import BadVersion, Delete, NoNode, SharedStore

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def read_notices(
    store: SharedStore, parent: str, names: Iterable[str], decode: Callable[[str, bytes], T]
) -> list[T]:
    """What notices say; one that is gone has been acted on."""
    found: list[T] = []
    for name in names:
        path = f"{parent}/{name}"
        try:
            found.append(decode(path, (await store.get(path))[0]))
        except NoNode:
            continue
        except StorageError as error:
            logger.error("A notice to the controller is passed over: %s", error)
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


async def read_request(
    store: SharedStore, context: ControllerContext, path: str, decode: Callable[[bytes], T]
) -> T | None:
    """What a tool asks for through a node; None if it asks for nothing, or for what cannot be read."""
    try:
        raw, version = await store.get(path)
        return decode(raw)
    except NoNode:
        return None
    except StorageError as error:
        logger.error("A request to the controller is removed: %s", error)
    try:
        await controller_write(store, context, [Delete(path, version)])
    except (NoNode, BadVersion):
        logger.debug("Somebody else has removed or rewritten %s", path)
    return None
