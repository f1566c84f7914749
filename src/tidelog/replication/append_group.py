"""Produce requests that arrived together, written together: one write per partition.

Requests stage batches in partitions and put those into ``staged``; ``commit`` writes each of them once.
Between the first batch and the ``commit`` nothing else may run: the batches are views of the receive
buffer. A partition whose write fails is in ``failed`` until the next group is committed, for the requests
that had staged batches in it; an error of the disk also takes its log directory offline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from tidelog.errors import KafkaError, LogDirOfflineError, StorageError
from tidelog.replication.partition import Partition

logger = logging.getLogger(__name__)


class AppendGroup:
    """The partitions that have staged batches."""

    __slots__ = ("_lost", "_on_offline", "failed", "staged")

    def __init__(self, on_offline: Callable[[LogDirOfflineError], None]) -> None:
        self.staged: dict[Partition, None] = {}
        """Whoever has staged a batch in a partition puts it here."""
        self.failed: set[Partition] = set()
        """The partitions of the last group that could not be written."""
        self._lost: set[Partition] = set()
        self._on_offline = on_offline

    def commit(self) -> None:
        """Write everything staged."""
        if not self.staged:
            return
        if self.failed or self._lost:
            self.failed, self._lost = self._lost, set()
        for partition in self.staged:
            try:
                partition.write_staged()
            except LogDirOfflineError as error:
                self.failed.add(partition)
                self._on_offline(error)
            except (KafkaError, StorageError) as error:
                # An index is being rebuilt, or cannot be; clients try again.
                logger.warning("Records of %s are not written: %s", partition.topic_partition, error)
                self.failed.add(partition)
            except Exception:
                logger.exception("Unexpected error in writing records to %s", partition.topic_partition)
                self.failed.add(partition)
        written = list(self.staged)
        self.staged.clear()
        # When all is written: a follower's fetch is of several partitions, and one answer takes all of them.
        for partition in written:
            partition.tell_of_written()

    def lose(self, partition: Partition, error: LogDirOfflineError) -> None:
        """The disk has failed while a batch was staged; what the partition had staged before is lost too."""
        self._lost.add(partition)
        self._on_offline(error)
