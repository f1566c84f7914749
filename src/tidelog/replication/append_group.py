"""Produce requests that arrived together, written together: one write per partition.

Requests stage their batches in the group; ``commit`` writes each partition once. Between the first ``stage`` and the
``commit`` nothing else may run: the batches are views of the receive buffer. A partition whose write fails takes its log directory offline and
is in ``failed`` until the next group, for the requests that had staged batches in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidelog.errors import LogDirOfflineError
from tidelog.replication.partition import Partition
from tidelog.storage.log_append import AppendInfo

logger = logging.getLogger(__name__)


class AppendGroup:
    """The partitions that have staged batches."""

    __slots__ = ("_on_offline", "_partitions", "failed")

    def __init__(self, on_offline: Callable[[LogDirOfflineError], None]) -> None:
        self.failed: set[Partition] = set()
        self._partitions: dict[Partition, None] = {}
        self._on_offline = on_offline

    def stage(self, partition: Partition, records: memoryview, required_acks: int) -> AppendInfo:
        """Check and number a batch that the next commit writes."""
        if not self._partitions:
            self.failed.clear()
        try:
            info = partition.stage(records, required_acks)
        except LogDirOfflineError as error:
            # What the partition had staged before is lost as well.
            self._fail(partition, error)
            raise
        self._partitions[partition] = None
        return info

    def commit(self) -> None:
        """Write everything staged."""
        if not self._partitions:
            return
        for partition in self._partitions:
            try:
                partition.write_staged()
            except LogDirOfflineError as error:
                self._fail(partition, error)
            except Exception:
                logger.exception("Writing records to %s met a bug", partition.topic_partition)
                self.failed.add(partition)
        self._partitions.clear()

    def _fail(self, partition: Partition, error: LogDirOfflineError) -> None:
        self.failed.add(partition)
        self._on_offline(error)
