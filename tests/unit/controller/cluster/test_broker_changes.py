"""Brokers fail, return, restart unseen, lose directories and shut down: who leads afterwards."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.controller.cluster.scene import P0, TOPIC, Scene, run

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.store import Create, Set
from tidelog.metadata.znodes import znode_requests, znodes
from tidelog.metadata.znodes.znodes import BrokerRegistration


async def three(scene: Scene) -> None:
    await scene.add(1, 2, 3)
    await scene.create((2, 3, 1))


def test_a_failed_leader_is_succeeded_by_the_next_in_sync_replica() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        await scene.crash(2)
        assert scene.leader_and_isr() == (3, (3, 1))
        assert scene.state().leader_epoch == 1
        scene.check()

    run(test)


def test_a_replica_that_is_not_in_sync_does_not_lead() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        await scene.alter_isr((2, 1))
        await scene.crash(2)
        assert scene.leader_and_isr() == (1, (1,))
        scene.check()

    run(test)


def test_the_last_in_sync_replica_is_remembered_and_leads_again() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        await scene.crash(2)
        await scene.crash(3)
        assert scene.leader_and_isr() == (1, (1,))
        await scene.add(2, 3)
        # The controller dies too, so its successor must find this out by itself.
        await scene.crash(1)
        assert scene.leader_and_isr() == (-1, (1,))
        scene.check()
        await scene.add(1)
        assert scene.leader_and_isr() == (1, (1,))
        scene.check()

    run(test)


@pytest.mark.parametrize("unclean", [True, False])
def test_only_where_it_is_allowed_does_a_replica_lead_that_is_not_in_sync(unclean: bool) -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((2, 3))
        await scene.alter_isr((2,))
        await scene.crash(2)
        if unclean:
            assert scene.leader_and_isr() == (3, (3,))
            assert scene.state().leader_recovery_state == 1
            # The leader has recovered when it takes others in.
            await scene.add(2)
            await scene.alter_isr((3, 2))
            assert scene.state().leader_recovery_state == 0
        else:
            assert scene.leader_and_isr() == (-1, (2,))
        scene.check()

    run(test, unclean=lambda topic: unclean)


def test_unclean_elections_that_are_allowed_later_are_held_then() -> None:
    allowed: set[str] = set()

    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((2, 3))
        await scene.create((2, 3), topic="other")
        for topic in (TOPIC, "other"):
            await scene.alter_isr((2,), TopicPartition(topic, 0))
        await scene.crash(2)
        allowed.update({TOPIC, "other"})
        scene.controller.unclean_allowed([TOPIC])
        await scene.settled()
        assert scene.leader_and_isr() == (3, (3,))
        assert scene.leader_and_isr(TopicPartition("other", 0)) == (-1, (2,))
        scene.controller.unclean_allowed(None)
        await scene.settled()
        assert scene.leader_and_isr(TopicPartition("other", 0)) == (3, (3,))

    run(test, unclean=lambda topic: topic in allowed)


def test_a_broker_that_restarts_unseen_is_one_that_went_and_came() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        old = scene.cluster.brokers[2]
        scene.zookeeper.suspend(scene.cluster.brokers[1].store)
        scene.cluster.crash(2)
        await scene.cluster.add(2)
        scene.zookeeper.resume(scene.cluster.brokers[1].store)
        await scene.settled()
        assert scene.cluster.brokers[2].epoch > old.epoch
        assert scene.context.brokers[2].epoch == scene.cluster.brokers[2].epoch
        # What it had in sync it may have lost.
        assert scene.leader_and_isr() == (3, (3, 1))
        scene.check()
        await scene.catch_up()
        assert set(scene.state().isr) == {1, 2, 3}

    run(test)


def test_a_topic_that_was_made_without_some_brokers_reaches_them_when_they_come() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.crash(3)
        node = znodes.TopicAssignment(topic_id=None, partitions={0: (3, 2), 1: (3,)})
        await scene.write(Create(znodes.topic_path(TOPIC), node.encode()))
        assert scene.leader_and_isr() == (2, (2,))
        assert not scene.exists(znodes.partition_state_path(TopicPartition(TOPIC, 1)))
        await scene.add(3)
        assert scene.leader_and_isr(TopicPartition(TOPIC, 1)) == (3, (3,))
        await scene.catch_up()
        assert scene.leader_and_isr() == (2, (2, 3)) or set(scene.state().isr) == {2, 3}
        scene.check()

    run(test)


def test_brokers_hear_of_new_addresses() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        path = znodes.broker_path(3)
        before = BrokerRegistration.decode(3, scene.node(path).data)
        moved = BrokerRegistration(broker_id=3, endpoints=before.endpoints, rack="elsewhere")
        await scene.write(Set(path, moved.encode()))
        assert scene.context.brokers[3].registration.rack == "elsewhere"

    run(test)


# Log directories


def test_a_replica_on_a_failed_directory_leads_no_more() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        scene.cluster.brokers[2].refuse[P0] = ErrorCode.KAFKA_STORAGE_ERROR
        await scene.write(
            Create(znodes.LOG_DIR_EVENT_PREFIX, znode_requests.encode_log_dir_event(2), sequential=True)
        )
        assert scene.leader_and_isr() == (3, (3, 1))
        assert scene.cluster.brokers[1].metadata[P0].offline_replicas == [2]
        assert not scene.node(znodes.LOG_DIR_EVENTS).children
        # A restart with another disk: the replica is well again.
        await scene.crash(2)
        await scene.add(2)
        await scene.catch_up()
        assert set(scene.state().isr) == {1, 2, 3}
        assert scene.cluster.brokers[1].metadata[P0].offline_replicas == []
        scene.check()

    run(test)


def test_an_answer_that_a_replica_is_well_is_believed() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        scene.cluster.brokers[3].refuse[P0] = ErrorCode.KAFKA_STORAGE_ERROR
        notice = Create(znodes.LOG_DIR_EVENT_PREFIX, znode_requests.encode_log_dir_event(3), sequential=True)
        await scene.write(notice)
        assert scene.leader_and_isr() == (2, (2, 1))
        scene.cluster.brokers[3].refuse.clear()
        await scene.write(notice)
        assert not scene.context.offline_directories[3]

    run(test)


# Controlled shutdown


def test_a_broker_that_shuts_down_hands_over_what_it_leads() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((2, 3, 1), (3, 2, 1))
        await scene.create((2,), topic="single")
        epoch = scene.cluster.brokers[2].epoch
        # What has no other replica is not counted: it cannot be handed over.
        assert await scene.controller.shut_down_broker(2, epoch) == []
        await scene.settled()
        assert scene.leader_and_isr() == (3, (3, 1))
        assert scene.leader_and_isr(TopicPartition(TOPIC, 1)) == (3, (3, 1))
        assert scene.leader_and_isr(TopicPartition("single", 0)) == (2, (2,))
        # It does not get anything new, and does not come into sync again.
        assert await scene.alter_isr((3, 1, 2)) is ErrorCode.INELIGIBLE_REPLICA
        await scene.crash(2)
        await scene.add(2)
        await scene.catch_up()
        scene.check()

    run(test)


def test_a_shutdown_that_nobody_can_take_over_from_is_told_what_remains() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        await scene.alter_isr((2,))
        assert await scene.controller.shut_down_broker(2, scene.cluster.brokers[2].epoch) == [P0]
        assert scene.leader_and_isr() == (2, (2,))

    run(test)


def test_a_shutdown_asked_for_by_an_earlier_life_is_refused() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        for broker, epoch, code in (
            (2, scene.cluster.brokers[2].epoch - 1, ErrorCode.STALE_BROKER_EPOCH),
            (9, 1, ErrorCode.BROKER_NOT_AVAILABLE),
        ):
            with pytest.raises(KafkaError) as refusal:
                await scene.controller.shut_down_broker(broker, epoch)
            assert refusal.value.code is code
        assert scene.leader_and_isr() == (2, (2, 3, 1))

    run(test)


def test_requests_to_a_broker_that_is_no_controller_are_refused() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        with pytest.raises(KafkaError) as refusal:
            await scene.cluster.controllers[2].shut_down_broker(3, -1)
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER

    run(test)


def test_a_request_that_waits_when_the_controller_closes_is_refused() -> None:
    async def test(scene: Scene) -> None:
        await three(scene)
        scene.zookeeper.suspend(scene.cluster.brokers[1].store)
        asked = [
            asyncio.ensure_future(scene.controller.delete_topics([scene.context.topic_ids[TOPIC]])),
            asyncio.ensure_future(scene.controller.reassign({P0: (1,)})),
        ]
        await scene.settled()
        await scene.cluster.controllers[1].close()
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(outcome, KafkaError)
            assert outcome.code is ErrorCode.NOT_CONTROLLER

    run(test)
