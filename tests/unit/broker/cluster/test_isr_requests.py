"""AlterPartition from the leaders' side: gathered, asked again, and what answers do to a partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.rigs.clock import ManualClock

from tidelog.broker.cluster import isr_requests
from tidelog.broker.cluster.controller_link import ControllerLink
from tidelog.broker.cluster.isr_requests import IsrSender
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.metadata.image import PartitionImage
from tidelog.replication.partition import Partition
from tidelog.replication.replication_context import ReplicationContext
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig
from tidelog.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)

ME, BROKER_EPOCH, VERSION = 1, 50, 3
Answer = AlterPartitionResponse | KafkaError


class Controller:
    """Answers each request with the next of its answers; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[AlterPartitionRequest] = []
        self.answers: list[Callable[[AlterPartitionRequest], Answer]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def request(self, message: Callable[[int], Any], response_type: type[Any]) -> Any:
        request = message(VERSION)
        self.asked.append(request)
        await self.gate.wait()
        answer = self.answers.pop(0)(request)
        if isinstance(answer, KafkaError):
            raise answer
        return answer


def granted(request: AlterPartitionRequest) -> Answer:
    """As it was asked for."""
    return answered(request, ErrorCode.NONE)


def answered(request: AlterPartitionRequest, code: ErrorCode) -> Answer:
    return AlterPartitionResponse(
        topics=[
            AlterPartitionResponseTopicData(
                topic_id=topic.topic_id,
                partitions=[
                    AlterPartitionResponsePartitionData(
                        partition_index=each.partition_index,
                        error_code=code,
                        leader_id=ME,
                        leader_epoch=each.leader_epoch,
                        isr=[state.broker_id for state in each.new_isr_with_epochs],
                        partition_epoch=each.partition_epoch + 1,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class Scene:
    def __init__(self, directory: Path) -> None:
        self.controller = Controller()
        self.sender = IsrSender(ME, lambda: BROKER_EPOCH, lambda: cast(ControllerLink, self.controller))
        self.clock = ManualClock()
        context = ReplicationContext(self.clock, self.sender, lambda: (1, 2, 3), 10_000)
        topic_id = random_uuid()
        self.partitions: list[Partition] = []
        for index in range(2):
            name = TopicPartition("t", index)
            log = Log.open(LogContext(directory / str(name), LogConfig(), self.clock), clean_shutdown=True)
            loop = asyncio.get_running_loop()
            partition = Partition(name, topic_id, log, ME, loop, lambda error: None, context)
            partition.apply(
                PartitionImage(replicas=(1, 2, 3), leader=ME, leader_epoch=4, isr=(1, 2, 3), state_version=7)
            )
            self.partitions.append(partition)

    async def settled(self) -> None:
        """Let the sender do what it can without the controller."""
        for _ in range(100):
            await asyncio.sleep(0)

    def shrink(self) -> None:
        """Both partitions want broker 3 out."""
        for partition in self.partitions:
            partition._propose((1, 2))


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Callable[[Scene], Awaitable[None]]], None]:
    monkeypatch.setattr(isr_requests, "_RETRY_S", 0)

    def _run(test: Callable[[Scene], Awaitable[None]]) -> None:
        async def main() -> None:
            scene = Scene(tmp_path)
            await test(scene)
            await scene.sender.close()
            for partition in scene.partitions:
                partition.log.close()

        asyncio.run(main())

    return _run


Run = Callable[[Callable[[Scene], Awaitable[None]]], None]


def test_what_many_partitions_want_at_once_is_one_request(run: Run) -> None:
    async def test(scene: Scene) -> None:
        scene.controller.answers = [granted]
        scene.shrink()
        await scene.settled()
        (request,) = scene.controller.asked
        assert (request.broker_id, request.broker_epoch) == (ME, BROKER_EPOCH)
        (topic,) = request.topics
        assert [each.partition_index for each in topic.partitions] == [0, 1]
        asked = topic.partitions[0]
        assert (asked.leader_epoch, asked.partition_epoch) == (4, 7)
        # Of a follower that has not fetched yet nobody knows the epoch.
        assert [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs] == [
            (1, 50),
            (2, -1),
        ]
        assert [partition.isr for partition in scene.partitions] == [(1, 2), (1, 2)]
        assert [partition.partition_epoch for partition in scene.partitions] == [8, 8]

    run(test)


def test_a_change_of_many_partitions_is_one_line(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def test(scene: Scene) -> None:
        scene.controller.answers = [granted]
        scene.shrink()
        await scene.settled()

    with caplog.at_level(logging.INFO, "tidelog"):
        run(test)
    lines = [each.getMessage() for each in caplog.records if "in sync" in each.getMessage()]
    assert lines == ["Replicas [1, 2] are in sync now in 2 partitions (t-0, t-1)"]


def test_what_comes_in_meanwhile_goes_with_the_next_request(run: Run) -> None:
    async def test(scene: Scene) -> None:
        scene.controller.answers = [granted, granted]
        scene.controller.gate.clear()
        scene.partitions[0]._propose((1, 2))
        await scene.settled()
        scene.partitions[1]._propose((1, 3))
        await scene.settled()
        assert len(scene.controller.asked) == 1
        scene.controller.gate.set()
        await scene.settled()
        assert len(scene.controller.asked) == 2
        assert [partition.isr for partition in scene.partitions] == [(1, 2), (1, 3)]

    run(test)


@pytest.mark.parametrize(
    "passing",
    [
        lambda request: KafkaError(ErrorCode.REQUEST_TIMED_OUT),
        lambda request: AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
        lambda request: answered(request, ErrorCode.NOT_CONTROLLER),
        lambda request: answered(request, ErrorCode.UNKNOWN_SERVER_ERROR),
        lambda request: AlterPartitionResponse(),
    ],
)
def test_trouble_that_passes_is_asked_about_again(
    run: Run, passing: Callable[[AlterPartitionRequest], Answer]
) -> None:
    async def test(scene: Scene) -> None:
        scene.controller.answers = [passing, passing, granted]
        scene.shrink()
        await scene.settled()
        assert len(scene.controller.asked) == 3
        assert [partition.isr for partition in scene.partitions] == [(1, 2), (1, 2)]

    run(test)


def test_a_replica_that_may_not_come_in_ends_the_request(run: Run) -> None:
    async def test(scene: Scene) -> None:
        scene.controller.answers = [lambda request: answered(request, ErrorCode.INELIGIBLE_REPLICA)]
        scene.shrink()
        await scene.settled()
        assert len(scene.controller.asked) == 1
        assert [partition.isr for partition in scene.partitions] == [(1, 2, 3), (1, 2, 3)]
        assert all(partition._in_sync.proposed is None for partition in scene.partitions)

    run(test)


@pytest.mark.parametrize(
    "code",
    [ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
)
def test_who_is_told_that_the_controller_knows_more_counts_with_both_sets_until_it_hears(
    run: Run, code: ErrorCode
) -> None:
    async def test(scene: Scene) -> None:
        scene.controller.answers = [lambda request: answered(request, code)]
        scene.shrink()
        await scene.settled()
        partition = scene.partitions[0]
        assert len(scene.controller.asked) == 1
        assert set(partition._in_sync.maximal) == {1, 2, 3}
        assert partition._in_sync.proposed == (1, 2)
        partition.apply(
            PartitionImage(replicas=(1, 2, 3), leader=ME, leader_epoch=5, isr=(1, 3), state_version=9)
        )
        assert partition._in_sync.proposed is None
        assert partition.isr == (1, 3)

    run(test)


def test_a_leader_that_leads_no_more_asks_for_nothing(run: Run) -> None:
    async def test(scene: Scene) -> None:
        scene.shrink()
        for partition in scene.partitions:
            partition.apply(
                PartitionImage(replicas=(1, 2, 3), leader=2, leader_epoch=5, isr=(2,), state_version=9)
            )
        await scene.settled()
        assert scene.controller.asked == []

    run(test)
