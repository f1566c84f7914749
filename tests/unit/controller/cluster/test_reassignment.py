"""Partitions move to other brokers: begun, replaced, taken back, with brokers that die meanwhile."""

from __future__ import annotations

import pytest
from tests.unit.controller.cluster.scene import P0, TOPIC, Scene, run

from tidelog.controller.controller import MorePartitions
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.store import Create, Set
from tidelog.metadata.znodes import znode_requests, znodes

P1 = TopicPartition(TOPIC, 1)


async def prepared(scene: Scene) -> None:
    await scene.add(1, 2, 3, 4, 5)
    await scene.create((1, 2, 3))


async def reassign(scene: Scene, *target: int) -> KafkaError | None:
    outcomes = await scene.controller.reassign({P0: target or None})
    await scene.settled()
    return outcomes[P0]


def assert_done(scene: Scene, *replicas: int) -> None:
    node = scene.assignment()
    assert node.partitions[0] == replicas
    assert 0 not in node.adding_replicas
    assert 0 not in node.removing_replicas
    assert set(scene.state().isr) <= set(replicas)
    scene.check()


def test_new_replicas_are_added_first_and_old_ones_removed_when_all_are_in_sync() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        assert await reassign(scene, 4, 5, 1) is None
        node = scene.assignment()
        assert node.partitions[0] == (4, 5, 1, 2, 3)
        assert node.adding_replicas[0] == (4, 5)
        assert node.removing_replicas[0] == (2, 3)
        listed = await scene.controller.list_reassignments()
        assert listed[P0].target == (4, 5, 1)
        for broker in (4, 5):
            assert scene.cluster.brokers[broker].replicas[P0].is_new
            assert scene.cluster.brokers[broker].replicas[P0].adding_replicas == [4, 5]
        assert not scene.cluster.brokers[1].replicas[P0].is_new
        scene.check()
        await scene.alter_isr((1, 2, 3, 4))
        assert scene.assignment() == node
        await scene.alter_isr((1, 2, 3, 4, 5))
        assert_done(scene, 4, 5, 1)
        assert scene.leader_and_isr() == (1, (1, 4, 5))
        for broker in (2, 3):
            assert scene.cluster.brokers[broker].deleted == [P0]
        assert await scene.controller.list_reassignments() == {}

    run(test)


def test_a_leader_that_goes_is_succeeded_by_one_that_stays() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await reassign(scene, 4, 5)
        await scene.catch_up()
        assert_done(scene, 4, 5)
        assert scene.leader_and_isr() == (4, (4, 5))
        assert scene.cluster.brokers[1].deleted == [P0]

    run(test)


def test_another_order_of_the_same_replicas_takes_effect_at_once() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await reassign(scene, 3, 1, 2)
        assert_done(scene, 3, 1, 2)
        assert scene.state().leader == 1
        assert all(not broker.deleted for broker in scene.cluster.brokers.values())

    run(test)


def test_a_reassignment_is_replaced_by_the_next() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await reassign(scene, 4, 2, 3)
        await reassign(scene, 5, 2, 3)
        node = scene.assignment()
        assert node.partitions[0] == (5, 2, 3, 1)
        assert node.adding_replicas[0] == (5,)
        assert scene.cluster.brokers[4].deleted == [P0]
        scene.check()
        await scene.catch_up()
        assert_done(scene, 5, 2, 3)

    run(test)


def test_a_reassignment_is_taken_back() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await reassign(scene, 4, 5)
        await scene.alter_isr((1, 2, 3, 4))
        await reassign(scene)
        assert_done(scene, 1, 2, 3)
        assert scene.cluster.brokers[4].deleted == [P0]
        assert set(scene.state().isr) == {1, 2, 3}

    run(test)


def test_one_that_is_taken_back_while_a_new_replica_leads_falls_to_an_old_one() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3, 4, 5)
        await scene.create((2, 3))
        await reassign(scene, 4, 5)
        await scene.alter_isr((2, 3, 4))
        await scene.crash(2)
        assert scene.state().leader == 4
        await reassign(scene)
        assert_done(scene, 2, 3)
        assert scene.leader_and_isr() == (3, (3,))

    run(test)


def test_one_that_is_replaced_while_a_needless_replica_leads_keeps_a_leader() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3, 4, 5)
        await scene.create((2, 3))
        await reassign(scene, 4, 3)
        await reassign(scene, 4, 5)
        await scene.alter_isr((2, 3, 4))
        await scene.crash(2)
        assert scene.state().leader == 4
        await reassign(scene, 5, 3)
        assert scene.state().leader == 3
        scene.check()
        await scene.catch_up()
        assert_done(scene, 5, 3)

    run(test)


def test_a_reassignment_waits_for_a_new_broker_that_died() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await reassign(scene, 4, 2, 3)
        await scene.crash(4)
        await scene.catch_up()
        assert scene.assignment().adding_replicas[0] == (4,)
        scene.check()
        await scene.add(4)
        await scene.catch_up()
        assert_done(scene, 4, 2, 3)

    run(test)


def test_an_old_broker_that_is_dead_does_not_hold_a_reassignment_up() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await scene.crash(3)
        await reassign(scene, 1, 2, 4)
        await scene.catch_up()
        assert_done(scene, 1, 2, 4)
        # It comes back with a replica that it should not have; nobody tells it to serve that.
        await scene.add(3)
        assert P0 not in scene.cluster.brokers[3].replicas
        scene.check()

    run(test)


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, -1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_makes_no_sense_is_refused(target: tuple[int, ...], code: ErrorCode) -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        refusal = await reassign(scene, *target)
        assert refusal is not None
        assert refusal.code is code
        unknown = TopicPartition(TOPIC, 7)
        outcomes = await scene.controller.reassign({unknown: (1,)})
        refused = outcomes[unknown]
        assert refused is not None
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert_done(scene, 1, 2, 3)

    run(test)


def test_a_factor_that_must_not_change_is_that_of_the_replicas_that_will_stay() -> None:
    async def test(scene: Scene) -> None:
        async def outcome(*target: int) -> KafkaError | None:
            outcomes = await scene.controller.reassign({P0: target}, allow_replication_factor_change=False)
            await scene.settled()
            return outcomes[P0]

        async def assert_refused(*target: int) -> None:
            before = scene.assignment()
            refusal = await outcome(*target)
            assert refusal is not None
            assert refusal.code is ErrorCode.INVALID_REPLICATION_FACTOR
            assert refusal.message == f"The replication factor is changed from 3 to {len(target)}"
            assert scene.assignment() == before

        await prepared(scene)
        await assert_refused(4, 2)
        await assert_refused(4, 5, 2, 3)
        assert await outcome(4, 2, 3) is None
        # Old and new replicas are four now.
        await assert_refused(4, 5, 2, 3)
        assert await outcome(5, 2, 3) is None
        assert scene.assignment().partitions[0] == (5, 2, 3, 1)
        outcomes = await scene.controller.reassign({P0: None}, allow_replication_factor_change=False)
        assert outcomes[P0] is None

    run(test)


def test_a_topic_under_reassignment_gets_no_partitions() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await reassign(scene, 4, 2, 3)
        outcomes = await scene.controller.create_partitions([MorePartitions(TOPIC, 3)])
        refusal = outcomes[TOPIC]
        assert refusal is not None
        assert refusal.code is ErrorCode.REASSIGNMENT_IN_PROGRESS

    run(test)


def test_a_partition_that_never_had_a_leader_can_be_given_other_replicas() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        node = znodes.TopicAssignment(topic_id=None, partitions={0: (8, 9)})
        await scene.write(Create(znodes.topic_path(TOPIC), node.encode()))
        assert await reassign(scene, 9, 8) is None
        assert scene.assignment().partitions[0] == (9, 8)

    run(test)


# /admin/reassign_partitions


def test_what_a_tool_asks_for_in_zookeeper_is_done_and_struck() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3, 4)
        await scene.create((1, 2), (2, 3))
        wanted = {P0: (4, 2), P1: (4, 3), TopicPartition("unknown", 0): (1,)}
        await scene.write(Create(znodes.REASSIGN_PARTITIONS, znode_requests.encode_reassignment(wanted)))
        left = znode_requests.decode_reassignment(scene.node(znodes.REASSIGN_PARTITIONS).data)
        assert left == {P0: (4, 2), P1: (4, 3)}
        epoch = scene.state(P1).leader_epoch
        await scene.alter_isr((1, 2, 4), P0)
        assert_done(scene, 4, 2)
        left = znode_requests.decode_reassignment(scene.node(znodes.REASSIGN_PARTITIONS).data)
        assert left == {P1: (4, 3)}
        # The other one is on its way and is not begun again.
        assert scene.state(P1).leader_epoch == epoch
        await scene.catch_up()
        assert not scene.exists(znodes.REASSIGN_PARTITIONS)
        assert scene.assignment().partitions == {0: (4, 2), 1: (4, 3)}
        scene.check()

    run(test)


def test_what_a_tool_asked_for_outlives_the_controller() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3, 4)
        await scene.create((2, 3))
        scene.zookeeper.suspend(scene.cluster.brokers[1].store)
        wanted = znode_requests.encode_reassignment({P0: (4, 3)})
        await scene.write(Create(znodes.REASSIGN_PARTITIONS, wanted))
        await scene.crash(1)
        await scene.catch_up()
        assert_done(scene, 4, 3)
        assert not scene.exists(znodes.REASSIGN_PARTITIONS)

    run(test)


def test_the_last_word_wins_whether_by_request_or_by_node() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        wanted = znode_requests.encode_reassignment({P0: (4, 2, 3)})
        await scene.write(Create(znodes.REASSIGN_PARTITIONS, wanted))
        await reassign(scene, 5, 2, 3)
        assert not scene.exists(znodes.REASSIGN_PARTITIONS)
        assert scene.assignment().adding_replicas[0] == (5,)
        await scene.write(Create(znodes.REASSIGN_PARTITIONS, wanted))
        assert scene.assignment().adding_replicas[0] == (4,)
        await scene.write(
            Set(znodes.REASSIGN_PARTITIONS, znode_requests.encode_reassignment({P0: (1, 2, 3)}))
        )
        assert_done(scene, 1, 2, 3)
        assert not scene.exists(znodes.REASSIGN_PARTITIONS)

    run(test)
