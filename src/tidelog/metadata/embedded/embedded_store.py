"""The metadata store of a broker on its own: a tree in memory, a journal and a snapshot on disk.

Files, plain ones in the root of the first log directory, where Kafka's own tools pass them over:

``tidelog-metadata.journal``
    8 bytes ``TIDEJRN1``, then records: payload length (u32 BE), CRC32C of the payload (u32 BE), payload.
    A payload is a msgpack array ``[number, effects]``: transactions are numbered from 1 without gaps.
``tidelog-metadata.snapshot``
    8 bytes ``TIDESNP1``, CRC32C (u32 BE) of the rest, then a msgpack array ``[number, root node]``: the
    tree after that transaction.

A write is appended to the journal and synced, then applied in memory, then watchers hear of it, then its
coroutine returns; one ``multi`` is one record and one sync. When the journal outgrows its limit a new
snapshot is written beside the old one, synced and renamed over it, and the journal is cut back.

What a crash leaves: at most one incomplete record at the journal's end, which was never acknowledged and
is cut off with one log line; or a snapshot newer than the journal's first records, which are then skipped
by number; or a ``.tmp`` file, which is ignored. A record that is damaged while later ones are whole is not
a crash's doing: opening refuses, because acknowledged writes would be lost.

Ephemeral nodes live in memory only, so they go with the process that made them.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from tidelog.checksum import crc32c
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import StorageError
from tidelog.metadata.embedded.node_tree import Effect, Node, NodeTree
from tidelog.metadata.store import (
    ANY_VERSION,
    Change,
    ChangeKind,
    Create,
    Delete,
    NoNode,
    Op,
    Result,
    Set,
    StoreClosed,
    Watcher,
)

logger = logging.getLogger(__name__)

JOURNAL_NAME = "tidelog-metadata.journal"
SNAPSHOT_NAME = "tidelog-metadata.snapshot"
JOURNAL_LIMIT_BYTES = 4 * 1024 * 1024

_JOURNAL_MAGIC = b"TIDEJRN1"
_SNAPSHOT_MAGIC = b"TIDESNP1"
_RECORD_HEADER = 8

_encoder = msgspec.msgpack.Encoder()
_transaction_decoder = msgspec.msgpack.Decoder(tuple[int, list[Effect]])
_snapshot_decoder = msgspec.msgpack.Decoder(tuple[int, Node])


class EmbeddedStore:
    """A :class:`~tidelog.metadata.store.LocalStore` in one directory, owned by one process."""

    def __init__(
        self,
        directory: Path,
        *,
        journal_limit_bytes: int = JOURNAL_LIMIT_BYTES,
        sync: Callable[[int], None] = os.fsync,
    ) -> None:
        """Open or create the store; raises :class:`StorageError` if its files cannot be used.

        ``sync`` brings a file's bytes, or a directory's names, to the disk: fdatasync may leave out names.
        """
        self._directory = directory
        self._journal_limit_bytes = journal_limit_bytes
        self._sync = sync
        self._watchers: list[Watcher] = []
        self._writing = asyncio.Lock()
        self._refusal: str | None = None
        self._journal = _open_journal(directory / JOURNAL_NAME)
        try:
            self._number, root = _read_snapshot(directory / SNAPSHOT_NAME)
            self._tree = NodeTree(root)
            self._journal_bytes = self._replay_journal()
        except BaseException:
            os.close(self._journal)
            raise

    async def get(self, path: str) -> tuple[bytes, int]:
        node = self._node(path)
        return node.data, node.version

    async def exists(self, path: str) -> bool:
        return self._tree.find(path) is not None

    async def children(self, path: str) -> list[str]:
        return sorted(self._node(path).children)

    async def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        [created] = await self.multi([Create(path, data, ephemeral, sequential)])
        assert isinstance(created, str)
        return created

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        [new_version] = await self.multi([Set(path, data, version)])
        assert isinstance(new_version, int)
        return new_version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])

    async def multi(self, ops: Sequence[Op]) -> list[Result]:
        # A caller that is cancelled half way must not leave the journal ahead of the tree.
        return await asyncio.shield(asyncio.ensure_future(self._commit(ops)))

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    async def close(self) -> None:
        """Drop ephemeral nodes and release the files; later writes raise :class:`StoreClosed`."""
        async with self._writing:
            if self._journal >= 0:
                self._tree.apply([Effect(path, None) for path in self._tree.ephemeral_paths()])
                os.close(self._journal)
                self._journal = -1
                self._refusal = self._refusal or "it is closed"

    def _node(self, path: str) -> Node:
        node = self._tree.find(path)
        if node is None:
            raise NoNode(path)
        return node

    async def _commit(self, ops: Sequence[Op]) -> list[Result]:
        async with self._writing:
            if self._refusal is not None:
                raise StoreClosed(
                    ops[0].path if ops else "/", f"the metadata store takes no more writes: {self._refusal}"
                )
            effects, results = self._tree.plan(ops)
            lasting = [effect for effect in effects if not effect.ephemeral]
            if lasting:
                await self._append(lasting)
            self._tree.apply(effects)
            if self._journal_bytes > self._journal_limit_bytes:
                await self._rotate()
        self._notify(effects)
        return results

    async def _append(self, effects: list[Effect]) -> None:
        record = _frame(_encoder.encode((self._number + 1, effects)))
        loop = asyncio.get_running_loop()
        try:
            _write_all(self._journal, record, self._journal_bytes)
        except OSError as error:
            self._take_back(error)
            raise StorageError(self._io_sentence(error)) from error
        try:
            await loop.run_in_executor(None, self._sync, self._journal)
        except OSError as error:
            # After a failed sync nobody knows what the disk holds; only a restart can find out.
            self._refusal = f"{self._directory / JOURNAL_NAME} could not be synced ({error.strerror})"
            raise StorageError(self._io_sentence(error)) from error
        self._number += 1
        self._journal_bytes += len(record)

    def _take_back(self, error: OSError) -> None:
        try:
            os.ftruncate(self._journal, self._journal_bytes)
        except OSError:
            self._refusal = f"{self._directory / JOURNAL_NAME} could not be written ({error.strerror})"

    def _io_sentence(self, error: OSError) -> str:
        return (
            f"{self._directory / JOURNAL_NAME} cannot be written ({error.strerror}): nothing was changed; "
            "free or repair the disk"
        )

    async def _rotate(self) -> None:
        """Write a snapshot and start the journal afresh; if that fails the old pair goes on serving."""
        image = self._encode_snapshot()
        loop = asyncio.get_running_loop()
        try:
            path = self._directory / SNAPSHOT_NAME
            await loop.run_in_executor(None, _write_atomically, path, image, self._sync)
            os.ftruncate(self._journal, len(_JOURNAL_MAGIC))
            await loop.run_in_executor(None, self._sync, self._journal)
        except OSError as error:
            logger.error("%s cannot be written: %s", self._directory / SNAPSHOT_NAME, error.strerror)
            self._journal_limit_bytes *= 2
            self._journal_bytes = os.fstat(self._journal).st_size
        else:
            self._journal_bytes = len(_JOURNAL_MAGIC)

    def _encode_snapshot(self) -> bytes:
        """The tree without its ephemeral nodes, as the file holds it."""
        absent = [(path, self._tree.find(path)) for path in self._tree.ephemeral_paths()]
        self._tree.apply([Effect(path, None) for path, _ in absent])
        payload = _encoder.encode((self._number, self._tree.root))
        for path, node in absent:
            parent = self._tree.find(path[: path.rindex("/")] or "/")
            assert parent is not None
            assert node is not None
            parent.children[path[path.rindex("/") + 1 :]] = node
        return _SNAPSHOT_MAGIC + crc32c(payload).to_bytes(4, "big") + payload

    def _notify(self, effects: Sequence[Effect]) -> None:
        if not effects:
            return
        changes = [Change(_kind(effect), effect.path) for effect in effects]
        for watcher in tuple(self._watchers):
            try:
                watcher(changes)
            except Exception:
                # The write has happened: its caller must not be told otherwise.
                logger.exception("A watcher of the metadata store failed on %s", changes)

    def _replay_journal(self) -> int:
        """Apply the journal's whole records, cut a torn one off, and return where the next one goes."""
        path = self._directory / JOURNAL_NAME
        raw = memoryview(_read_all(self._journal))
        if bytes(raw[: len(_JOURNAL_MAGIC)]) != _JOURNAL_MAGIC:
            if len(raw) > len(_JOURNAL_MAGIC) or not _JOURNAL_MAGIC.startswith(bytes(raw)):
                raise StorageError(
                    f"{path} is not a metadata journal: move it away, or restore it from a backup"
                )
            _write_all(self._journal, _JOURNAL_MAGIC, 0)
            self._sync(self._journal)
            _sync_directory(self._directory, self._sync)
            return len(_JOURNAL_MAGIC)
        position = len(_JOURNAL_MAGIC)
        while position < len(raw):
            payload = _record_at(raw, position)
            if payload is None:
                self._cut_torn_tail(raw, position)
                break
            self._replay(payload, position)
            position += _RECORD_HEADER + len(payload)
        return position

    def _replay(self, payload: memoryview, position: int) -> None:
        path = self._directory / JOURNAL_NAME
        try:
            number, effects = _transaction_decoder.decode(payload)
        except DECODE_ERRORS as error:
            raise StorageError(
                f"{path} holds at byte {position} what this version cannot read: {error}"
            ) from error
        if number <= self._number:
            return
        if number != self._number + 1:
            raise StorageError(
                f"{path} goes from transaction {self._number} to {number} at byte {position}: "
                f"restore it and {SNAPSHOT_NAME} from the same backup"
            )
        self._tree.apply(effects)
        self._number = number

    def _cut_torn_tail(self, raw: memoryview, position: int) -> None:
        path = self._directory / JOURNAL_NAME
        if any(
            _record_at(raw, later) is not None for later in range(position + 1, len(raw) - _RECORD_HEADER)
        ):
            raise StorageError(
                f"{path} is damaged at byte {position} and whole after it: a crash cannot do that; "
                "restore it from a backup"
            )
        os.ftruncate(self._journal, position)
        self._sync(self._journal)
        logger.warning(
            "%s: cut off %d bytes of an unfinished write at byte %d", path, len(raw) - position, position
        )


def _kind(effect: Effect) -> ChangeKind:
    if effect.data is None:
        return ChangeKind.DELETED
    return ChangeKind.CREATED if effect.order >= 0 else ChangeKind.CHANGED


def _frame(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + crc32c(payload).to_bytes(4, "big") + payload


def _record_at(raw: memoryview, position: int) -> memoryview | None:
    """The payload of the whole, undamaged record at ``position``, or None."""
    size = int.from_bytes(raw[position : position + 4], "big")
    start = position + _RECORD_HEADER
    payload = raw[start : start + size]
    if size == 0 or len(payload) != size:
        return None
    return payload if crc32c(payload) == int.from_bytes(raw[position + 4 : start], "big") else None


def _open_journal(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        journal = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(
            f"{path} cannot be opened: {error.strerror}; check the directory's owner"
        ) from error
    try:
        fcntl.flock(journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(journal)
        raise StorageError(
            f"{path} is in use by another broker: stop it, or use another log directory"
        ) from error
    return journal


def _write_all(fd: int, content: bytes, position: int) -> None:
    remaining = memoryview(content)
    while remaining:
        written = os.pwrite(fd, remaining, position)
        position += written
        remaining = remaining[written:]


def _read_all(fd: int) -> bytes:
    size = os.fstat(fd).st_size
    parts: list[bytes] = []
    position = 0
    while position < size:
        part = os.pread(fd, size - position, position)
        if not part:
            break
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def _read_snapshot(path: Path) -> tuple[int, Node | None]:
    """The snapshot's transaction number and tree, or nothing if there is none."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return 0, None
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error
    payload = memoryview(raw)[12:]
    if raw[:8] != _SNAPSHOT_MAGIC or crc32c(payload) != int.from_bytes(raw[8:12], "big"):
        raise StorageError(f"{path} is damaged: restore it and {JOURNAL_NAME} from the same backup")
    try:
        return _snapshot_decoder.decode(payload)
    except DECODE_ERRORS as error:
        raise StorageError(f"{path} holds what this version cannot read: {error}") from error


def _write_atomically(path: Path, content: bytes, sync: Callable[[int], None]) -> None:
    """Replace a file so that a crash leaves the old or the new one, whole."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        sync(file.fileno())
    temporary.replace(path)
    _sync_directory(path.parent, sync)


def _sync_directory(path: Path, sync: Callable[[int], None]) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        sync(directory)
    finally:
        os.close(directory)
