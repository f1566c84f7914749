"""AlterPartition, as the leaders on this broker ask for it: what comes in while a request is under way goes
into the next.

Answers are told partition by partition. A replica that may not come into sync ends a request, and all is as
it was. After a refusal that says that the controller knows more (a stale epoch or version) nobody knows what
is in sync there, so the leader counts with both sets until it is told, as in Kafka. Everything else passes
(no controller, a broker epoch that is not known yet): the request waits and goes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable

from tidelog.broker.cluster.controller_link import ControllerLink
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, listed
from tidelog.replication.in_sync import LedPartition
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)

logger = logging.getLogger(__name__)

_RETRY_S = 0.05
_REFUSED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_OUTDATED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)
_EPOCHS_SINCE = 3


class _Asked:
    __slots__ = ("isr", "leader_epoch", "partition", "partition_epoch")

    def __init__(self, partition: LedPartition, isr: tuple[int, ...]) -> None:
        self.partition = partition
        self.isr = isr
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch


class IsrSender:
    """Satisfies ``IsrRequests``."""

    def __init__(
        self, broker_id: int, broker_epoch: Callable[[], int], link: Callable[[], ControllerLink]
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._link = link
        self._waiting: dict[TopicPartition, _Asked] = {}
        self._task: asyncio.Task[None] | None = None

    def submit(self, partition: LedPartition, isr: tuple[int, ...]) -> None:
        self._waiting[partition.topic_partition] = _Asked(partition, isr)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        # A turn of the loop, so that what many partitions want at the same time becomes one request.
        await asyncio.sleep(0)
        while self._waiting:
            asked, self._waiting = self._waiting, {}
            again = await self._ask(asked)
            for name, each in again.items():
                self._waiting.setdefault(name, each)
            if again:
                await asyncio.sleep(_RETRY_S)

    async def _ask(self, asked: dict[TopicPartition, _Asked]) -> dict[TopicPartition, _Asked]:
        """Ask for all; gives those that must be asked for again."""
        current = {name: each for name, each in asked.items() if self._is_current(each)}
        if not current:
            return {}
        try:
            response = await self._link().request(
                lambda version: self._request(current, version), AlterPartitionResponse
            )
        except KafkaError as error:
            logger.info("In-sync replicas cannot be changed now: %s", error)
            return current
        if response.error_code != ErrorCode.NONE:
            logger.info("In-sync replicas cannot be changed now: %s", ErrorCode(response.error_code).name)
            return current
        return self._take(current, response)

    def _is_current(self, asked: _Asked) -> bool:
        partition = asked.partition
        return partition.is_leader and partition.leader_epoch == asked.leader_epoch and not partition.closed

    def _request(self, asked: dict[TopicPartition, _Asked], version: int) -> AlterPartitionRequest:
        epoch = self._broker_epoch()
        topics: dict[bytes, AlterPartitionRequestTopicData] = {}
        for name, each in asked.items():
            topic = topics.setdefault(
                each.partition.topic_id, AlterPartitionRequestTopicData(topic_id=each.partition.topic_id)
            )
            wanted = AlterPartitionRequestPartitionData(
                partition_index=name.partition,
                leader_epoch=each.leader_epoch,
                partition_epoch=each.partition_epoch,
            )
            if version >= _EPOCHS_SINCE:
                wanted.new_isr_with_epochs = [
                    BrokerState(broker_id=broker, broker_epoch=each_epoch)
                    for broker, each_epoch in each.partition.broker_epochs(each.isr, epoch).items()
                ]
            else:
                wanted.new_isr = list(each.isr)
            topic.partitions.append(wanted)
        return AlterPartitionRequest(
            broker_id=self._broker_id, broker_epoch=epoch, topics=list(topics.values())
        )

    def _take(
        self, asked: dict[TopicPartition, _Asked], response: AlterPartitionResponse
    ) -> dict[TopicPartition, _Asked]:
        answers = {
            (topic.topic_id, each.partition_index): each
            for topic in response.topics
            for each in topic.partitions
        }
        again: dict[TopicPartition, _Asked] = {}
        changed: defaultdict[tuple[int, ...], list[TopicPartition]] = defaultdict(list)
        for name, each in asked.items():
            before = each.partition.isr
            answer = answers.get((each.partition.topic_id, name.partition))
            if answer is None or answer.error_code not in (ErrorCode.NONE, *_REFUSED, *_OUTDATED):
                again[name] = each
            else:
                self._settle(each, answer)
                if each.partition.isr != before:
                    changed[tuple(each.partition.isr)].append(name)
        for isr, names in changed.items():
            logger.info("Replicas %s are in sync now in %s", list(isr), listed(names))
        return again

    def _settle(self, asked: _Asked, answer: AlterPartitionResponsePartitionData) -> None:
        partition = asked.partition
        if answer.error_code == ErrorCode.NONE:
            partition.isr_changed(answer.leader_epoch, tuple(answer.isr), answer.partition_epoch)
        else:
            logger.info(
                "The in-sync replicas of %s stay: %s",
                partition.topic_partition,
                ErrorCode(answer.error_code).name,
            )
            if answer.error_code in _REFUSED:
                partition.isr_refused(asked.leader_epoch)
