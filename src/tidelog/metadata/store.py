"""The metadata store's interface: a tree of small nodes with versions, as ZooKeeper has it.

Everything a cluster agrees on (brokers, topics, configs, producer-id blocks) is a node at one of the paths
of ``znodes``. ``embedded`` is the implementation without any other process, ``zookeeper`` the one for
clusters; the semantics are ZooKeeper's:

- a node has data and a version that starts at 0 and grows by one with every ``set``;
- ``version=-1`` matches any version, another one must match or nothing changes (:class:`BadVersion`);
- a parent must exist (:class:`NoNode`), a node with children cannot go (:class:`NotEmpty`), an ephemeral
  node has no children (:class:`NoChildrenForEphemerals`) and goes with its owner;
- a sequential node gets a ten-digit number at the end of its name, which its parent gives no other node
  that lives at the same time or later, except after a restart those of ephemeral ones;
- ``multi`` does everything or nothing;
- ZooKeeper takes a megabyte at once (:class:`TooLargeError`), unless its servers are told otherwise.

A write has happened, durably, when its coroutine returns. How changes are heard of differs: the only user
of a :class:`LocalStore` hears of every write before it returns; users of a :class:`SharedStore` watch
single nodes, and learn what becomes of their session. The contract suite
``tests/contract/test_metadata_store.py`` runs on every implementation.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tidelog.errors import TidelogError

ANY_VERSION = -1


class StoreError(TidelogError):
    """A store operation that did not happen; ``path`` is the node it was about."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.op_index: int | None = None
        """Which operation of a ``multi`` was refused."""


class NoNode(StoreError):
    """The node, or the parent of one to create, is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} does not exist")


class NodeExists(StoreError):
    """A node to create is there already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} exists already")


class BadVersion(StoreError):
    """Somebody else changed the node since its version was read."""

    def __init__(self, path: str, expected: int, actual: int | None = None) -> None:
        found = f"at version {actual}, not" if actual is not None else "no longer at version"
        super().__init__(path, f"metadata node {path} is {found} {expected}")


class NotEmpty(StoreError):
    """A node to delete has children."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} has children")


class NoChildrenForEphemerals(StoreError):
    """An ephemeral node was to get a child."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"metadata node {path} is ephemeral and cannot have children")


class TooLargeError(StoreError):
    """More than the store takes at once."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(
            path,
            f"{size} bytes are more than ZooKeeper takes at once ({path[:100]}): make what is to be kept "
            "smaller, or set jute.maxbuffer on its servers and restart this broker",
        )


class StoreClosed(StoreError):
    """The store was closed, or its disk failed, so that it takes no more writes."""


class SessionExpired(StoreError):
    """The session ended while the operation was under way: it may or may not have happened."""

    def __init__(self, path: str) -> None:
        super().__init__(path, f"the session expired while metadata node {path} was being read or written")


class Create(NamedTuple):
    """``multi``: create a node; the result is its path, with the number of a sequential one."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """``multi``: replace a node's data; the result is its new version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """``multi``: remove a node; the result is None."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """``multi``: go on only if the node exists, at this version; the result is None."""

    path: str
    version: int = ANY_VERSION


Op = Create | Set | Delete | Check
Result = str | int | None


class ChangeKind(enum.Enum):
    """What happened to a node."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


class Change(NamedTuple):
    """One node that is not what it was."""

    kind: ChangeKind
    path: str


Watcher = Callable[[Sequence[Change]], None]


class MetadataStore(Protocol):
    """A tree of nodes, see the module's docstring."""

    async def get(self, path: str) -> tuple[bytes, int]:
        """A node's data and version; raises :class:`NoNode`."""

    async def exists(self, path: str) -> bool:
        """Whether the node is there."""

    async def children(self, path: str) -> list[str]:
        """The names, not paths, of a node's children, sorted; raises :class:`NoNode`."""

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a node and return its path; raises :class:`NodeExists` or :class:`NoNode`."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace a node's data and return its new version; raises :class:`NoNode` or :class:`BadVersion`."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node; raises :class:`NoNode`, :class:`BadVersion` or :class:`NotEmpty`."""

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        """Do all operations or none; raises what the first refused one would, with its ``op_index``."""

    async def close(self) -> None:
        """Let go of ephemeral nodes and resources."""


class LocalStore(MetadataStore, Protocol):
    """A store with one user."""

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        """Call ``watcher`` with the changes of every write from now on; returns how to stop it."""


class NodeStat(NamedTuple):
    """What is known of a node besides its data."""

    version: int
    created_zxid: int
    """The transaction that created it; of a broker's registration it is the broker's epoch."""
    owner: int
    """The session that an ephemeral node belongs to; 0 for others."""


class SessionState(enum.Enum):
    """What has become of the session with a shared store."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No server answers; the session, and its ephemeral nodes, may or may not live on."""
    EXPIRED = "expired"
    """The session is over and its ephemeral nodes are gone; a new one follows, told by CONNECTED."""


class SharedStore(MetadataStore, Protocol):
    """A store that others read and write too."""

    @property
    def session_id(self) -> int:
        """The present session, whose ephemeral nodes this store's are."""

    async def stat(self, path: str) -> NodeStat | None:
        """What is known of a node; None if there is none."""

    async def get_with_stat(self, path: str) -> tuple[bytes, NodeStat]:
        """A node's data together with what is known of it; raises :class:`NoNode`."""

    async def sync(self, path: str) -> None:
        """Reads that begin after this see everything that anybody had written before it."""

    def watch_node(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after the node was created, changed or deleted; returns how to stop it.

        It is called once at the beginning too, and after the connection was away. Several changes may be
        told as one. A read that begins after the call sees what it was about.
        """

    def watch_children(self, path: str, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call ``on_change`` after a child of the node came or went; otherwise like :meth:`watch_node`."""

    def on_session(self, listener: Callable[[SessionState], None]) -> Callable[[], None]:
        """Tell ``listener`` of every change of the session from now on; returns how to stop it."""


def check_path(path: str) -> None:
    """Raise ``ValueError`` unless ``path`` is absolute and normal."""
    if path == "/":
        return
    if not path.startswith("/") or path.endswith("/") or "//" in path or "\0" in path:
        raise ValueError(f"{path!r} is not a metadata path: it must look like /brokers/ids")


def parent_of(path: str) -> str:
    """The path of a node's parent."""
    return path[: path.rindex("/")] or "/"


async def ensure_path(store: MetadataStore, path: str) -> None:
    """Create an empty node and its missing ancestors; nothing happens to those that exist."""
    if await store.exists(path):
        return
    parent = parent_of(path)
    if parent != "/":
        await ensure_path(store, parent)
    try:
        await store.create(path)
    except NodeExists:
        return


async def put(store: MetadataStore, path: str, data: bytes) -> None:
    """Set a node's data, creating the node and its ancestors where they are missing."""
    try:
        await store.set(path, data)
    except NoNode:
        await ensure_path(store, parent_of(path))
        await store.create(path, data)
