"""Produce requests that are written and not yet answered.

An answer waits for the sync of its records where the topic wants one (``flush.messages``), without a limit
of time, as it would in Kafka, which syncs before it goes on; and with acks=-1 for all in-sync replicas, at
most the request's timeout. A log directory that fails meanwhile is answered with KAFKA_STORAGE_ERROR, a
partition that is gone with NOT_LEADER_OR_FOLLOWER. Requests behind such a one are handled meanwhile, unless
something of it is refused: from then on they wait for its answer (``broker/network/answer``).

Made by ``handlers/produce``; while it waits, a ``Waiter`` of its partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from tidelog.broker.network.answer import NotAnswerable, PromisedAnswer
from tidelog.errors import ErrorCode
from tidelog.replication.partition import ACKS_ALL, Partition
from tidelog.scheduling.deadlines import Deadlines
from tidelog.scheduling.promise import Promise
from tidelog.wire.produce import PartitionAnswer, PartitionResult

logger = logging.getLogger(__name__)


class WrittenBatch(NamedTuple):
    """A batch that is in the log, and where its answer stands."""

    partition: Partition
    end_offset: int
    results: list[PartitionAnswer]
    slot: int


class ProduceWait:
    """The answer to one produce request, on its way."""

    __slots__ = (
        "_acks",
        "_answer",
        "_deadlines",
        "_encode",
        "_late",
        "_refused",
        "_timeout_ms",
        "_waiting",
        "_watched",
    )

    def __init__(self, acks: int, encode: Callable[[], bytes | PromisedAnswer], deadlines: Deadlines) -> None:
        """``encode`` is called for the answer when all results are what they will be."""
        self._acks = acks
        self._encode = encode
        self._deadlines = deadlines
        self._late = False
        self._refused = False
        self._waiting: dict[Partition, list[WrittenBatch]] = {}
        self._watched: dict[Partition, None] = {}
        self._timeout_ms: int | None = None
        self._answer: PromisedAnswer = Promise()

    def add(self, batch: WrittenBatch) -> None:
        """Wait for a batch, too; from now on, though others may be added in later turns of the loop."""
        partition = batch.partition
        if partition in self._waiting:
            self._waiting[partition].append(batch)
        else:
            self._waiting[partition] = [batch]
            self._watched[partition] = None
            partition.watch(self)

    def start(self, timeout_ms: int, *, refused: bool) -> PromisedAnswer:
        """All are known; ``refused`` says that some results are errors already."""
        self._timeout_ms = timeout_ms
        if self._acks == ACKS_ALL:
            self._deadlines.add(self, timeout_ms)
        self._answer.pipelined = not (refused or self._refused)
        # A sync is work, which a broker that stops finishes; other replicas may never come.
        if not any(partition.flushing for partition in self._watched):
            self._answer.only_waits(self._stop)
        if not self._waiting:
            self._finish()
        return self._answer

    def partition_changed(self, partition: Partition) -> None:
        """Look whether the answer is due now.

        At what has changed alone: a request may wait for thousands of partitions, of which each tells.
        """
        self._look((partition,))

    def _look(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            left = [batch for batch in self._waiting.get(partition, ()) if not self._is_settled(batch)]
            if left:
                self._waiting[partition] = left
            else:
                self._waiting.pop(partition, None)
        if not self._waiting and self._timeout_ms is not None:
            self._finish()

    def _is_settled(self, batch: WrittenBatch) -> bool:
        """Whether a batch need not be waited for any longer; notes what is wrong with it."""
        partition, end_offset, results, slot = batch
        synced = partition.is_synced(end_offset)
        if synced and (self._acks != ACKS_ALL or partition.log.high_watermark >= end_offset):
            return True
        result = PartitionResult(*results[slot])
        if partition.offline:
            code = ErrorCode.KAFKA_STORAGE_ERROR
            results[slot] = PartitionResult(result.partition, code, base_offset=-1)
        elif partition.closed or not partition.is_leader:
            results[slot] = result._replace(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif synced and self._late:
            results[slot] = result._replace(error_code=ErrorCode.REQUEST_TIMED_OUT)
        else:
            return False
        self._refused = True
        self._answer.pipelined = False
        return True

    def time_is_up(self) -> None:
        """Answer as it stands, unless a sync is waited for."""
        self._late = True
        self._look(tuple(self._waiting))

    def _finish(self) -> None:
        self._stop()
        try:
            answer = self._encode()
        except Exception:
            # Nobody else is there to notice: without this the client would wait for ever.
            logger.exception("Unexpected error in the answer to a waiting produce request")
            self._answer.fail(NotAnswerable("its produce request could not be answered"))
        else:
            self._answer.follow(answer)

    def _stop(self) -> None:
        """Wait no longer: the answer is due, or its client is gone."""
        if self._timeout_ms is not None:
            self._deadlines.remove(self, self._timeout_ms)
        for partition in self._watched:
            partition.unwatch(self)
