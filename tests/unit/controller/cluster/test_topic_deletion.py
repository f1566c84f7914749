"""A topic goes when all its replicas have gone, and waits as long as one of them cannot."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.controller.cluster.scene import P0, TOPIC, Scene, run

from tidelog.controller.cluster.leadership_nodes import MAX_OPS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.metadata.store import Create, Delete, Op, Result, Set
from tidelog.metadata.znodes import znodes

P1 = TopicPartition(TOPIC, 1)


async def prepared(scene: Scene) -> None:
    await scene.add(1, 2, 3)
    await scene.create((1, 2, 3), (2, 3, 1))


def assert_gone(scene: Scene) -> None:
    assert scene.topics() == []
    assert not scene.exists(znodes.delete_topic_path(TOPIC))
    assert not scene.exists(znodes.topic_config_path(TOPIC))
    assert TOPIC not in scene.context.assignments
    assert not scene.context.replica_phases
    assert not scene.context.partition_phases
    assert not scene.context.leaderships
    assert not scene.context.deleting


def test_every_broker_deletes_its_replicas_and_then_the_topic_is_gone() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await scene.delete()
        assert_gone(scene)
        for broker in scene.cluster.brokers.values():
            assert sorted(broker.deleted) == [P0, P1]
            # Clients must not be sent there any more: the leader is the sentinel for deletions.
            assert {each.leader for each in broker.metadata.values()} == {-2}

    run(test)


def test_topics_with_very_many_partitions_are_made_and_deleted_in_several_transactions() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1)
        store = scene.cluster.brokers[1].store
        real, sizes = store.multi, []

        async def multi(ops: Sequence[Op]) -> list[Result]:
            sizes.append(len(ops))
            return await real(ops)

        store.multi = multi  # type: ignore[method-assign]
        await scene.create(*[(1,)] * 1100)
        assert len(scene.context.leaderships) == 1100
        assert max(sizes) <= 1 + 2 * MAX_OPS + 1
        scene.check()
        await scene.delete()
        assert_gone(scene)
        assert max(sizes) <= 1 + 2 * MAX_OPS + 1

    run(test)


def test_a_deletion_waits_for_a_broker_that_is_away() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await scene.crash(3)
        await scene.delete()
        assert scene.topics() == [TOPIC]
        assert scene.exists(znodes.delete_topic_path(TOPIC))
        assert sorted(scene.cluster.brokers[2].deleted) == [P0, P1]
        await scene.add(3)
        assert_gone(scene)
        assert sorted(scene.cluster.brokers[3].deleted) == [P0, P1]

    run(test)


def test_a_broker_that_dies_during_a_deletion_deletes_when_it_is_back() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        scene.cluster.brokers[3].up = False
        await scene.delete()
        assert scene.topics() == [TOPIC]
        await scene.crash(3)
        assert scene.topics() == [TOPIC]
        await scene.add(3)
        assert_gone(scene)

    run(test)


def test_a_replica_that_cannot_be_deleted_keeps_the_topic_until_its_broker_restarts() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        scene.cluster.brokers[2].refuse[P1] = ErrorCode.KAFKA_STORAGE_ERROR
        await scene.delete()
        assert scene.topics() == [TOPIC]
        assert TOPIC in scene.context.deletion_ineligible
        await scene.crash(2)
        await scene.add(2)
        assert_gone(scene)

    run(test)


def test_a_topic_being_deleted_is_left_alone() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await scene.crash(3)
        await scene.delete()
        outcomes = await scene.controller.reassign({P0: (1, 2)})
        refusal = outcomes[P0]
        assert isinstance(refusal, KafkaError)
        assert refusal.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await scene.alter_isr((1,), leader=1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # Partitions that somebody adds to it meanwhile are taken away again.
        node = scene.assignment()
        grown = znodes.TopicAssignment(topic_id=node.topic_id, partitions={**node.partitions, 2: (1,)})
        await scene.write(Set(znodes.topic_path(TOPIC), grown.encode()))
        assert scene.assignment() == node
        await scene.add(3)
        assert_gone(scene)

    run(test)


def test_a_topic_that_is_being_reassigned_goes_with_its_old_and_new_replicas() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3, 4)
        await scene.create((1, 2, 3))
        await scene.controller.reassign({P0: (4, 2, 3)})
        await scene.settled()
        await scene.delete()
        assert_gone(scene)
        assert all(broker.deleted == [P0] for broker in scene.cluster.brokers.values())
        assert await scene.controller.list_reassignments() == {}

    run(test)


def test_a_reassignment_that_cannot_end_does_not_keep_a_topic() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3, 4)
        await scene.create((2,))
        await scene.controller.reassign({P0: (4,)})
        await scene.settled()
        await scene.crash(2)
        await scene.delete()
        await scene.crash(1)
        await scene.add(2)
        assert_gone(scene)

    run(test)


def test_a_topic_can_be_made_anew_after_its_deletion() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        first = scene.context.topic_ids[TOPIC]
        await scene.delete()
        await scene.create((3, 1))
        assert scene.context.topic_ids[TOPIC] != first
        assert scene.leader_and_isr() == (3, (3, 1))
        assert scene.cluster.brokers[3].replicas[P0].is_new
        scene.check()

    run(test)


def test_marks_by_others_are_obeyed_and_those_of_unknown_topics_removed() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await scene.write(Create(znodes.delete_topic_path("unknown")))
        assert not scene.exists(znodes.delete_topic_path("unknown"))
        await scene.write(Create(znodes.delete_topic_path(TOPIC)))
        assert_gone(scene)

    run(test)


def test_where_deletions_are_not_allowed_marks_are_removed() -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await scene.write(Create(znodes.delete_topic_path(TOPIC)))
        assert not scene.exists(znodes.delete_topic_path(TOPIC))
        assert scene.topics() == [TOPIC]
        await scene.crash(1)
        assert scene.topics() == [TOPIC]
        scene.check()

    run(test, delete_topics=False)


def test_a_topic_whose_nodes_somebody_removed_is_forgotten() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((1, 2))
        await scene.write(
            Delete(znodes.partition_state_path(P0)),
            Delete(znodes.partition_path(P0)),
            Delete(znodes.partitions_path(TOPIC)),
            Delete(znodes.topic_path(TOPIC)),
        )
        assert not scene.context.assignments
        assert not scene.context.leaderships

    run(test)


@pytest.mark.parametrize("answer", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.FENCED_LEADER_EPOCH])
def test_other_topics_are_deleted_though_one_cannot_be(answer: ErrorCode) -> None:
    async def test(scene: Scene) -> None:
        await prepared(scene)
        await scene.create((1, 2), topic="other")
        scene.cluster.brokers[2].refuse[P1] = answer
        await scene.delete()
        await scene.delete("other")
        assert scene.topics() == [TOPIC]

    run(test)
