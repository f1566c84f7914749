"""A coordinator's log on a partition of this broker: the real side of ``coordinator/log``.

Appends go through the partition like any other's, as the coordinator's own (no sequence numbers asked for),
and need ``min.insync.replicas``. A disk that fails takes its directory offline, and the append is refused
with KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.errors import ErrorCode, KafkaError, LogDirOfflineError
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.storage.log.log import Isolation
from tidelog.storage.producers.producer_state import AppendOrigin


class PartitionLog:
    """Satisfies ``CoordinatorLog``; a ``Waiter`` of its partition."""

    def __init__(self, partition: Partition, on_offline: Callable[[LogDirOfflineError], None]) -> None:
        self.on_committed: Callable[[], None] = lambda: None
        self.partition = partition
        self._on_offline = on_offline
        self._told = -1
        partition.watch(self)

    @property
    def start_offset(self) -> int:
        return self.partition.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.partition.log.log_end_offset

    @property
    def committed_offset(self) -> int:
        return self.partition.log.high_watermark

    @property
    def max_batch_bytes(self) -> int:
        return self.partition.log.config.max_message_bytes

    def append(self, batch: bytes | bytearray) -> int:
        writable = batch if isinstance(batch, bytearray) else bytearray(batch)
        try:
            info = self.partition.append(memoryview(writable), ACKS_ALL, AppendOrigin.COORDINATOR)
        except LogDirOfflineError as error:
            self._on_offline(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return info.first_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        log = self.partition.log
        if offset >= log.log_end_offset:
            return b""
        try:
            return log.read_bytes(offset, max_bytes, isolation=Isolation.LOG_END)
        except LogDirOfflineError as error:
            self._on_offline(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def truncate_before(self, offset: int) -> None:
        self.partition.log.increment_log_start_offset(offset)
        self.partition.changed()

    def close(self) -> None:
        """The coordinator has let go of the partition."""
        self.partition.unwatch(self)

    def partition_changed(self, partition: Partition) -> None:
        """Pass on that the high watermark has moved."""
        committed = partition.log.high_watermark
        if committed != self._told:
            self._told = committed
            self.on_committed()
