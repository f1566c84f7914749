"""Syncing a partition's log before its high watermark moves on: topics with ``flush.messages``.

The sync runs in a thread. What is appended meanwhile waits for the next one, which covers all of it (a group
commit). While one is under way ``Partition.flushing`` is set, and nothing behind the recovery point that the
log had when it began (``Partition.synced_offset``) is committed or acknowledged, so that nobody reads or gets
acknowledged what a power failure may take back, and what is acknowledged can be read.

A disk that fails ends the partition. A sync that could not begin, because the process may not open any more
files, is made again after a pause; until then everybody waits as for any sync.

Owned by ``replication/partition``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from tidelog.errors import LogDirOfflineError
from tidelog.ids import TopicPartition
from tidelog.storage.disk import leaves_directory
from tidelog.storage.log.log import Log

_PAUSE_S: Final = 1.0

logger = logging.getLogger(__name__)


class SyncedPartition(Protocol):
    """What a sync needs of the partition whose log it is."""

    topic_partition: TopicPartition
    log: Log
    flushing: bool
    synced_offset: int
    closed: bool

    def synced(self) -> None:
        """More of the log is safe on disk."""

    def close(self, *, offline: bool = False) -> None:
        """Nobody need wait for the partition any longer."""


class LogSync:
    """The syncs of one partition's log."""

    __slots__ = ("_loop", "_on_offline", "_partition")

    def __init__(
        self,
        partition: SyncedPartition,
        loop: asyncio.AbstractEventLoop,
        on_offline: Callable[[LogDirOfflineError], None],
    ) -> None:
        self._partition = partition
        self._loop = loop
        self._on_offline = on_offline

    def begin(self) -> None:
        """Sync the log in a thread; while that is under way, it is the next one that syncs the rest."""
        partition = self._partition
        if partition.flushing or partition.closed:
            return
        partition.flushing = True
        log = partition.log
        partition.synced_offset = log.files.recovery_point
        end_offset = log.log_end_offset
        flush = self._loop.run_in_executor(None, log.files.flush_up_to, end_offset)
        flush.add_done_callback(partial(self._done, log, end_offset))

    def _done(self, log: Log, end_offset: int, flush: asyncio.Future[None]) -> None:
        partition = self._partition
        if partition.closed or flush.cancelled():
            return
        error = flush.exception()
        short = log is partition.log and log.files.recovery_point < min(end_offset, log.log_end_offset)
        if short and error is None and not log.directory.exists():
            error = FileNotFoundError(f"its directory {log.directory} is gone")
        if error is not None and leaves_directory(error):
            self._on_offline(self._failure(error))
            self._loop.call_later(_PAUSE_S, self._begin_again)
            return
        if error is not None:
            # Nobody knows what the disk has of these records: those who wait for them are told by the end
            # of the partition, and `flushing` stays, so that none of them passes for synced.
            self._on_offline(self._failure(error))
            if not partition.closed:
                partition.close(offline=True)
            return
        partition.flushing = False
        if partition.log.files.unflushed_messages >= partition.log.config.flush_messages:
            self.begin()
        partition.synced()

    def _begin_again(self) -> None:
        if not self._partition.closed:
            self._partition.flushing = False
            self.begin()

    def _failure(self, error: BaseException) -> LogDirOfflineError:
        if isinstance(error, LogDirOfflineError):
            return error
        logger.error("Unexpected error in syncing %s", self._partition.topic_partition, exc_info=error)
        directory = self._partition.log.directory
        return LogDirOfflineError(f"syncing {directory} failed: {error}", str(directory.parent))
