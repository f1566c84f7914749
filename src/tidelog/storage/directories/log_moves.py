"""Moving partitions from one log directory of a broker to another (AlterReplicaLogDirs).

A move makes a second log, ``topic-partition.<uuid>-future``, in the target and copies the records there as
a follower would, while the first log goes on serving. When it has caught up, the future log's directory gets
the partition's name, the registry is switched, and the old one waits for deletion: all in one turn of the
loop, so nobody sees both or neither.

A crash before the renames leaves a future log, from which :meth:`LogMoves.resume` goes on; between the two
renames it leaves the partition in both directories, with the same records: loading sets one of them aside
(Kafka does not start until somebody has deleted one). A directory that fails keeps its future logs, of which
nobody can say when it is back what has become of their partitions: only one that is of the same topic as the
log, and agrees with it, is gone on with. That there are no files to be opened just now delays a move.
Owned by ``log_dirs``.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError, StorageError
from tidelog.ids import TopicPartition
from tidelog.records.batch import iter_batches
from tidelog.storage.directories.log_registry import LogRegistry
from tidelog.storage.disk import offline_on_error
from tidelog.storage.files import FUTURE_DIR_SUFFIX, suffixed_directory_name
from tidelog.storage.log.log import Isolation, Log
from tidelog.storage.log_dir.log_dir import LogDir
from tidelog.storage.segment.index_rebuild import IndexesNotReady

_CHUNK_BYTES: Final = 1024 * 1024
# What is appended in one turn of the loop: a batch of its own costs more than its bytes.
_APPENDED_BYTES: Final = 256 * 1024
_APPENDED_BATCHES: Final = 100
# The loop also serves clients: copying may take a part of its time, not all.
_REST_PER_WORK: Final = 2.0
_LOOK_S: Final = 0.5
# Before a move goes on that has found no file to open.
_PAUSE_S: Final = 1.0

logger = logging.getLogger(__name__)


class LogMoves:
    """The moves that are under way."""

    def __init__(self, dirs: LogRegistry, checkpoint_soon: Callable[[LogDir], None]) -> None:
        self._dirs = dirs
        self._checkpoint_soon = checkpoint_soon
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        # As many moves copy at a time as there are directories, as in Kafka; the others wait for their turn.
        self._turns = asyncio.Semaphore(max(len(dirs.paths), 1))

    def begin(self, partition: TopicPartition, target: Path) -> None:
        """Move ``partition`` to the log directory ``target``; raises ``KafkaError``. Needs a running loop."""
        dirs = self._dirs
        if target not in dirs.paths:
            raise KafkaError(
                ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {target} is not found in the config (log.dirs)"
            )
        if target not in dirs.online:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {target} is offline")
        log = dirs.logs.get(partition)
        if log is None:
            if partition in dirs.offline_partitions:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {partition} is offline")
            # As Kafka does: remember the wish for when the partition comes to be, and say that it is not.
            dirs.prefer(partition, target)
            raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"Partition {partition} is not available")
        future = dirs.future_logs.get(partition)
        if future is not None and future.files.log_dir == target:
            return
        self.cancel(partition)
        if log.files.log_dir == target:
            return
        directory = target / suffixed_directory_name(partition, FUTURE_DIR_SUFFIX)
        try:
            future = dirs.open_log(directory, log.config, topic_id=log.topic_id)
            future.truncate_fully_and_start_at(log.log_start_offset)
        except (OSError, LogDirOfflineError) as error:
            # Half-made, the next start would go on with a move that was refused.
            shutil.rmtree(directory, ignore_errors=True)
            dirs.mark_offline(target, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        dirs.future_logs[partition] = future
        self._start(partition)

    def resume(self) -> None:
        """Go on with the moves that the last run of the broker has left."""
        dirs = self._dirs
        for partition, future in list(dirs.future_logs.items()):
            log = dirs.logs.get(partition)
            if log is None:
                if not dirs.offline_dirs:
                    self._set_aside(future)
            elif log.files.log_dir == future.files.log_dir or log.topic_id != future.topic_id:
                # Moved already; or a copy of a deleted topic, kept by a directory that was offline then.
                self.cancel(partition)
            else:
                self._start(partition)

    def _set_aside(self, future: Log) -> None:
        del self._dirs.future_logs[future.topic_partition]
        try:
            self._dirs.set_aside(future, "it is half of a move whose source is gone")
        except LogDirOfflineError as error:
            self._dirs.mark_offline(future.files.log_dir, error)

    def is_moving(self, partition: TopicPartition) -> bool:
        """Whether a move of ``partition`` is under way."""
        return partition in self._tasks

    def cancel(self, partition: TopicPartition) -> None:
        """Give up the move of ``partition``, if there is one, and delete what it has copied."""
        self.interrupt(partition)
        future = self._dirs.future_logs.pop(partition, None)
        if future is not None:
            if future.files.log_dir in self._dirs.online:
                self._dirs.discard(future)
            else:
                future.files.close_handles()

    def interrupt(self, partition: TopicPartition) -> None:
        """Stop the move of ``partition``, whose source is lost, and keep what it has copied."""
        task = self._tasks.pop(partition, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop; the next start goes on where this one was."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, partition: TopicPartition) -> None:
        self._tasks[partition] = asyncio.create_task(self._move(partition))

    async def _move(self, partition: TopicPartition) -> None:
        dirs = self._dirs
        log, future = dirs.logs[partition], dirs.future_logs[partition]
        logger.info("moving %s from %s to %s", partition, log.files.log_dir, future.files.log_dir)
        dirs.cleaner.pause(partition)
        try:
            async with self._turns:
                while not await self._attempt(partition, log, future):
                    logger.info("the move of %s is tried again", partition)
        except Exception:  # the partition stays where it is, and somebody should know why
            logger.exception("moving %s to %s failed", partition, future.files.log_dir)
            self._tasks.pop(partition, None)
            self.cancel(partition)
        finally:
            dirs.cleaner.resume(partition)

    async def _attempt(self, partition: TopicPartition, log: Log, future: Log) -> bool:
        """Copy what is missing, and let the copy take over; False, after a while, if files ran out."""
        try:
            _cut_to_agree(future, log)
            await self._copy(log, future)
            await asyncio.to_thread(future.files.flush)
            while not self._has_all(log, future):
                await self._copy_chunk(log, future)
            self._switch(partition, log, future)
            self._tasks.pop(partition, None)
            return True
        except LogDirOfflineError as error:
            self._dirs.mark_offline(Path(error.log_dir or future.files.log_dir), error)
        except IndexesNotReady as rebuilding:
            await rebuilding.wait()
        # If a directory has gone offline, the move has been cancelled, and ends here.
        await asyncio.sleep(_PAUSE_S)
        return False

    async def _copy(self, log: Log, future: Log) -> None:
        loop = asyncio.get_running_loop()
        while future.log_end_offset < log.log_end_offset:
            started = loop.time()
            copied = await self._copy_chunk(log, future)
            await self._rest(copied, started)

    async def _rest(self, copied: int, started_s: float) -> None:
        """Wait until so much may have been copied since a time."""
        loop = asyncio.get_running_loop()
        while True:
            early_s = started_s + copied / max(self._dirs.options.move_bytes_per_second, 1) - loop.time()
            if early_s <= 0:
                return
            # Looked at again now and then: the rate may be changed meanwhile.
            await asyncio.sleep(min(early_s, _LOOK_S))

    async def _copy_chunk(self, log: Log, future: Log) -> int:
        """Copy a little, read in a thread and appended piece by piece; returns how much."""
        loop = asyncio.get_running_loop()
        if future.log_end_offset < log.log_start_offset:
            future.truncate_fully_and_start_at(log.log_start_offset)
        if future.log_end_offset >= log.log_end_offset:
            # All that was missing has been deleted.
            return 0
        cuts = log.files.truncations
        records = await self._read(log, future.log_end_offset)
        copied = 0
        if log.files.truncations != cuts:
            # Both logs were cut meanwhile, and what was read may be what was cut off.
            return copied
        for piece in _pieces(records):
            started = loop.time()
            future.begin_with_whole_batch(piece)
            if future.append_as_follower(piece) is None:
                break
            copied += len(piece)
            await asyncio.sleep((loop.time() - started) * _REST_PER_WORK)
            if log.files.truncations != cuts:
                break
        if not copied:
            raise StorageError(f"{log.topic_partition} has no records at offset {future.log_end_offset}")
        return copied

    def _has_all(self, log: Log, future: Log) -> bool:
        """Whether nothing is missing, after a little that came last has been copied here and now.

        In one turn of the loop with what follows: otherwise a log that is always written to would never be
        moved.
        """
        while future.log_end_offset < log.log_end_offset:
            if future.log_end_offset < log.log_start_offset:
                return False
            found = log.read(future.log_end_offset, _CHUNK_BYTES, isolation=Isolation.LOG_END)
            if found.length > _APPENDED_BYTES:
                return False
            with offline_on_error(log.directory, "reading"):
                pieces = list(_pieces(log.files.disk.pread(found.fd, found.length, found.position)))
            if len(pieces) != 1:
                return False
            future.begin_with_whole_batch(pieces[0])
            if future.append_as_follower(pieces[0]) is None:
                return False
        return True

    async def _read(self, log: Log, offset: int) -> bytes:
        found = log.read(offset, _CHUNK_BYTES, isolation=Isolation.LOG_END)
        if found.file is None:
            return b""
        with offline_on_error(log.directory, "reading"):
            # The range holds its file open, whatever becomes of the segment meanwhile.
            return await asyncio.to_thread(log.files.disk.pread, found.fd, found.length, found.position)

    def _switch(self, partition: TopicPartition, log: Log, future: Log) -> None:
        dirs = self._dirs
        source, target = dirs.online.get(log.files.log_dir), dirs.online[future.files.log_dir]
        before = future.directory
        future.files.rename(target.path / str(partition))
        dirs.deletion.follow(before, future.directory)
        future.update_config(log.config)
        future.update_high_watermark(log.high_watermark)
        future.increment_log_start_offset(log.log_start_offset, "it was moved")
        del dirs.future_logs[partition]
        dirs.logs[partition] = future
        dirs.cleaner.moved(partition, source, target)
        if dirs.on_moved is not None:
            dirs.on_moved(partition, future)
        dirs.discard(log)
        self._checkpoint_soon(target)
        logger.info("moved %s to %s", partition, target.path)


def _cut_to_agree(future: Log, log: Log) -> None:
    """Leave nothing in a copy that its log does not have.

    The crash of a machine takes from the end of a log what its copy may have; and while the directory of the
    copy was offline the log may have been cut back to where it agrees with its leader's. Where the last batch
    is the same in both, so are all before it.
    """
    future.truncate_to(log.log_end_offset)
    end = future.log_end_offset
    if end <= future.log_start_offset:
        agrees = end == log.log_start_offset
    else:
        agrees = end > log.log_start_offset and _batch_before(future, end) == _batch_before(log, end)
    if not agrees:
        future.truncate_fully_and_start_at(log.log_start_offset)


def _batch_before(log: Log, offset: int) -> bytes:
    return log.read_bytes(offset - 1, 1, isolation=Isolation.LOG_END)


def _pieces(records: bytes) -> Iterator[memoryview]:
    """Whole batches, as many as may be appended in one turn of the loop."""
    view = memoryview(records)
    start = end = count = 0
    for position, header in iter_batches(records):
        if count and (count == _APPENDED_BATCHES or position + header.size_bytes - start > _APPENDED_BYTES):
            yield view[start:end]
            start, count = end, 0
        end = position + header.size_bytes
        count += 1
    if count:
        yield view[start:end]
