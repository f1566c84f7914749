"""What tools and other brokers write into ZooKeeper, the controller takes up."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.unit.controller.cluster.scene import P0, TOPIC, Scene, run

from tidelog.config.listeners import Listener
from tidelog.controller.cluster.controller_term import ControllerTerm
from tidelog.controller.topics import ElectionType
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.metadata.store import Create, Set
from tidelog.metadata.znodes import znode_requests, znodes
from tidelog.metadata.znodes.znodes import TopicAssignment

P1 = TopicPartition(TOPIC, 1)


def old_node(**partitions: list[int]) -> bytes:
    """A topic as ``kafka-topics --zookeeper`` wrote it."""
    return json.dumps({"version": 1, "partitions": partitions}).encode()


def test_a_topic_of_another_maker_gets_an_id_and_leaders() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.write(Create(znodes.topic_path(TOPIC), old_node(**{"0": [3, 1], "1": [1, 2]})))
        assert scene.assignment().topic_id is not None
        assert scene.leader_and_isr(P0) == (3, (3, 1))
        assert scene.leader_and_isr(P1) == (1, (1, 2))
        scene.check()

    run(test)


def test_topics_from_before_ids_get_them_when_a_controller_takes_office() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2)
        scene.zookeeper.suspend(scene.cluster.brokers[1].store)
        scene.zookeeper.suspend(scene.cluster.brokers[2].store)
        await scene.write(Create(znodes.topic_path(TOPIC), old_node(**{"0": [2]})))
        await scene.crash(1)
        scene.zookeeper.resume(scene.cluster.brokers[2].store)
        await scene.settled()
        topic_id = scene.assignment().topic_id
        assert topic_id is not None
        assert scene.leader_and_isr() == (2, (2,))
        await scene.add(1)
        await scene.crash(2)
        assert scene.assignment().topic_id == topic_id

    run(test)


def test_partitions_that_somebody_adds_get_leaders_and_the_others_stay() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3, 4)
        await scene.create((1, 2))
        await scene.controller.reassign({P0: (4, 2)})
        await scene.settled()
        node = scene.assignment()
        epoch = scene.state().leader_epoch
        # The tool does not know of reassignments, and leaves its lists out.
        grown = TopicAssignment(topic_id=node.topic_id, partitions={**node.partitions, 1: (2, 3)})
        await scene.write(Set(znodes.topic_path(TOPIC), grown.encode()))
        assert scene.leader_and_isr(P1) == (2, (2, 3))
        assert scene.state().leader_epoch == epoch
        assert scene.context.assignment(P0).adding == (4,)
        await scene.catch_up()
        assert scene.assignment().partitions == {0: (4, 2), 1: (2, 3)}
        scene.check()

    run(test)


def test_a_node_that_cannot_be_read_keeps_no_other_topic_from_anything() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2)
        await scene.write(Create(znodes.topic_path("bad"), b"{"))
        await scene.create((1, 2))
        assert scene.leader_and_isr() == (1, (1, 2))
        await scene.crash(1)
        assert scene.leader_and_isr() == (2, (2,))

    run(test)


def test_in_sync_replicas_that_a_leader_wrote_itself_are_told_to_all() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((2, 3, 1))
        state = scene.state()
        changed = znodes.PartitionState(
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=(2, 1),
            controller_epoch=state.controller_epoch,
        )
        await scene.write(
            Set(znodes.partition_state_path(P0), changed.encode()),
            Create(
                f"{znodes.ISR_CHANGES}/isr_change_", znode_requests.encode_isr_change([P0]), sequential=True
            ),
        )
        assert scene.cluster.brokers[3].metadata[P0].isr == [2, 1]
        assert not scene.node(znodes.ISR_CHANGES).children
        # A change that the controller has not heard of yet does no harm either.
        await scene.write(Set(znodes.partition_state_path(P0), state.encode()))
        await scene.crash(2)
        assert scene.leader_and_isr() == (3, (3, 1))
        scene.check()

    run(test)


# What nobody can read

REQUESTS = [znodes.REASSIGN_PARTITIONS, znodes.PREFERRED_REPLICA_ELECTION]
BAD = b'{"version":1,"partitions":[{'


@pytest.mark.parametrize("path", REQUESTS)
def test_a_request_that_cannot_be_read_keeps_nobody_from_office(path: str) -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2)
        await scene.create((1, 2))
        scene.zookeeper.suspend(scene.cluster.brokers[1].store)
        scene.zookeeper.suspend(scene.cluster.brokers[2].store)
        await scene.write(Create(path, BAD))
        await scene.crash(1)
        scene.zookeeper.resume(scene.cluster.brokers[2].store)
        await scene.settled()
        assert scene.context.epoch == 2
        assert scene.leader_and_isr() == (2, (2,))
        assert not scene.exists(path)
        scene.check()

    run(test)


@pytest.mark.parametrize("path", REQUESTS)
def test_a_request_that_cannot_be_read_is_removed(path: str) -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2)
        await scene.write(Create(path, BAD))
        assert not scene.exists(path)
        assert scene.context.epoch == 1

    run(test)


def test_a_reassignment_goes_on_beside_a_request_that_cannot_be_read() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2)
        await scene.create((1,))
        # The tool writes it while the call is under way.
        scene.zookeeper.write([Create(znodes.REASSIGN_PARTITIONS, BAD)], 0)
        assert await scene.controller.reassign({P0: (2,)}) == {P0: None}
        await scene.settled()
        await scene.catch_up()
        assert scene.assignment().partitions == {0: (2,)}
        assert not scene.exists(znodes.REASSIGN_PARTITIONS)
        scene.check()

    run(test)


def test_a_state_that_cannot_be_read_keeps_no_other_partition_from_a_leader() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2)
        await scene.create((1, 2), (1, 2))
        await scene.write(Set(znodes.partition_state_path(P0), b"{"))
        await scene.crash(1)
        assert scene.context.epoch == 2
        assert scene.leader_and_isr(P1) == (2, (2,))
        assert scene.node(znodes.partition_state_path(P0)).data == b"{", "it is there for whoever mends it"
        # A partition that nobody has led yet is created beside it.
        node = scene.assignment()
        scene.zookeeper.suspend(scene.cluster.brokers[2].store)
        grown = TopicAssignment(topic_id=node.topic_id, partitions={**node.partitions, 2: (3,)})
        await scene.write(Set(znodes.topic_path(TOPIC), grown.encode()))
        await scene.crash(2)
        await scene.add(3)
        assert scene.leader_and_isr(TopicPartition(TOPIC, 2)) == (3, (3,))

    run(test)


def test_a_registration_that_cannot_be_read_counts_once_it_can() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1)
        path = znodes.broker_path(7)
        other = scene.zookeeper.session()
        await other.create(path, b"{", ephemeral=True)
        await other.create(f"{znodes.BROKER_IDS}/seven", b"", ephemeral=True)
        await scene.add(2, 3)
        await scene.crash(1)
        assert scene.context.epoch == 2
        assert scene.cluster.brokers[3].live == {2, 3}
        registration = znodes.BrokerRegistration(
            broker_id=7, endpoints=(Listener("PLAINTEXT", "127.0.0.1", 9007, "PLAINTEXT"),)
        )
        await other.set(path, registration.encode())
        await scene.settled()
        assert scene.cluster.brokers[3].live == {2, 3, 7}
        # What cannot be read any more does not end a broker that is known.
        await other.set(path, b"{")
        await scene.add(4)
        assert scene.cluster.brokers[3].live == {2, 3, 4, 7}

    run(test)


def test_a_notice_that_cannot_be_read_does_not_stand_in_the_way_of_others() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((2, 3, 1))
        changed = msgspec.structs.replace(scene.state(), isr=(2, 1))
        isr_notice = f"{znodes.ISR_CHANGES}/isr_change_"
        log_dir_notice = f"{znodes.LOG_DIR_EVENTS}/log_dir_event_"
        scene.cluster.brokers[3].refuse[P0] = ErrorCode.KAFKA_STORAGE_ERROR
        await scene.write(
            Create(isr_notice, b"{", sequential=True),
            Create(log_dir_notice, b"{", sequential=True),
            Set(znodes.partition_state_path(P0), changed.encode()),
            Create(isr_notice, znode_requests.encode_isr_change([P0]), sequential=True),
        )
        assert scene.cluster.brokers[3].metadata[P0].isr == [2, 1]
        await scene.write(Create(log_dir_notice, znode_requests.encode_log_dir_event(3), sequential=True))
        assert scene.context.offline_directories[3] == {P0}
        assert not scene.node(znodes.ISR_CHANGES).children
        assert not scene.node(znodes.LOG_DIR_EVENTS).children

    run(test)


# Preferred leaders


async def strayed(scene: Scene) -> None:
    """Broker 2 is preferred for both partitions, and leads none."""
    await scene.add(1, 2, 3)
    await scene.create((2, 3), (2, 1))
    await scene.crash(2)
    await scene.add(2)
    await scene.catch_up()
    assert scene.state(P0).leader == 3
    assert scene.state(P1).leader == 1


def test_preferred_leaders_are_elected_where_a_tool_asks_for_them() -> None:
    async def test(scene: Scene) -> None:
        await strayed(scene)
        asked = znode_requests.encode_preferred_election([P0, TopicPartition("unknown", 0)])
        await scene.write(Create(znodes.PREFERRED_REPLICA_ELECTION, asked))
        assert scene.state(P0).leader == 2
        assert scene.state(P1).leader == 1
        assert not scene.exists(znodes.PREFERRED_REPLICA_ELECTION)
        epoch = scene.state(P0).leader_epoch
        await scene.write(Create(znodes.PREFERRED_REPLICA_ELECTION, asked))
        # Who leads already need not be elected.
        assert scene.state(P0).leader_epoch == epoch
        scene.check()

    run(test)


def test_leaders_are_elected_by_request_with_an_answer_for_each() -> None:
    async def test(scene: Scene) -> None:
        await strayed(scene)
        unknown = TopicPartition("unknown", 0)
        outcomes = await scene.controller.elect_leaders([P0, P1, unknown], ElectionType.PREFERRED)
        await scene.settled()
        assert (outcomes[P0], outcomes[P1]) == (None, None)
        refused = outcomes[unknown]
        assert refused is not None
        assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for kind in ElectionType:
            needless = (await scene.controller.elect_leaders([P0], kind))[P0]
            assert needless is not None
            assert needless.code is ErrorCode.ELECTION_NOT_NEEDED
        await scene.crash(2)
        away = (await scene.controller.elect_leaders([P0], ElectionType.PREFERRED))[P0]
        assert away is not None
        assert away.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    run(test)


def test_an_unclean_election_by_request_elects_whoever_is_alive() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((2, 3))
        await scene.alter_isr((2,))
        await scene.crash(2)
        assert (await scene.controller.elect_leaders([P0], ElectionType.UNCLEAN))[P0] is None
        await scene.settled()
        assert scene.leader_and_isr() == (3, (3,))
        assert scene.state().leader_recovery_state == 1
        scene.check()

    run(test)


def test_leadership_returns_by_itself_to_brokers_that_have_lost_too_much() -> None:
    async def test(scene: Scene) -> None:
        await strayed(scene)
        term: ControllerTerm = scene.controller.term
        await term.balance.run()
        await scene.settled()
        assert [scene.state(each).leader for each in (P0, P1)] == [2, 2]
        scene.check()
        # A preferred leader that is not in sync does not lead.
        await scene.crash(2)
        await scene.add(2)
        await term.balance.run()
        assert scene.state(P0).leader == 3

    run(test)
