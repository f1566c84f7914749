"""Nodes of users, clients and IP addresses of which nothing is kept any more: they go, as in Kafka.

Otherwise everybody who ever had a quota would stay in the metadata for good. What has children stays, and so
does a user's node that has credentials.
"""

from __future__ import annotations

from tidelog.metadata.store import BadVersion, MetadataStore, NoNode, NotEmpty, parent_of
from tidelog.metadata.znodes import znodes


async def drop_empty(store: MetadataStore, path: str) -> bool:
    """Delete a node whose last entry is removed, and what it leaves empty above; False if it has children."""
    try:
        await store.delete(path)
    except NotEmpty:
        return False
    await drop_empty_above(store, path)
    return True


async def drop_empty_above(store: MetadataStore, path: str) -> None:
    """Delete what a node that is gone leaves empty above."""
    clients = parent_of(path)
    if clients.endswith("/clients") and clients != znodes.CLIENT_CONFIGS:
        await _drop_user(store, clients)


async def _drop_user(store: MetadataStore, clients: str) -> None:
    """A user has one client less: with the last one their parent goes, and the user if nothing is kept."""
    user = parent_of(clients)
    try:
        await store.delete(clients)
        raw, version = await store.get(user)
        if not znodes.decode_config(user, raw):
            await store.delete(user, version)
    except (NotEmpty, NoNode, BadVersion):
        # Somebody else is there, or was quicker.
        return
