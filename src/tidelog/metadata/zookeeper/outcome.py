"""Did a write happen whose answer was lost? Its traces in the tree tell.

A write that is sent again after the connection broke may be refused because the first one had arrived: the
node exists, the version has moved on. :func:`outcome_of` looks at every node that the write was to change;
if all of them are as the write leaves them, it has happened, and these are its results. Nobody else can
have left exactly that: versions are compared with the one that was asked for, and ephemeral nodes with the
session. A sequential node has no name to look for: the others that were to be written with it tell, and its
path stays unknown; of one alone nothing is known.

``metadata.zookeeper`` is the only user.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.metadata.store import (
    ANY_VERSION,
    Create,
    Delete,
    NoNode,
    Op,
    Result,
    Set,
    SharedStore,
)


async def outcome_of(store: SharedStore, ops: Sequence[Op]) -> list[Result] | None:
    """The results of ``ops`` if they have been carried out, None if they have not, or not all of them."""
    if not any(isinstance(op, Set | Delete) or (isinstance(op, Create) and not op.sequential) for op in ops):
        return None
    results: list[Result] = []
    for op in ops:
        match op:
            case Create() if op.sequential:
                results.append(None)
            case Create() if not await _created(store, op):
                return None
            case Create():
                results.append(op.path)
            case Set():
                version = await _version_set(store, op)
                if version is None:
                    return None
                results.append(version)
            case Delete():
                if await store.exists(op.path):
                    return None
                results.append(None)
            case _:
                # What was to be checked may have changed since.
                results.append(None)
    return results


async def _created(store: SharedStore, op: Create) -> bool:
    try:
        data, stat = await store.get_with_stat(op.path)
    except NoNode:
        return False
    owner = store.session_id if op.ephemeral else 0
    return data == op.data and stat.owner == owner


async def _version_set(store: SharedStore, op: Set) -> int | None:
    try:
        data, stat = await store.get_with_stat(op.path)
    except NoNode:
        return None
    if data != op.data or (op.version != ANY_VERSION and stat.version != op.version + 1):
        return None
    return stat.version
