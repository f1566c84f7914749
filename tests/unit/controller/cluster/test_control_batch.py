"""What brokers are told: whom, what, in which order and in whose name."""

from __future__ import annotations

from tests.unit.controller.cluster.scene import P0, TOPIC

from tidelog.config.listeners import Listener
from tidelog.controller.cluster.context import ControllerContext, Leadership, LiveBroker, ReplicaAssignment
from tidelog.controller.cluster.control_batch import ControlBatch
from tidelog.ids import TopicPartition, random_uuid
from tidelog.metadata.znodes.znodes import BrokerRegistration, PartitionState
from tidelog.wire.messages.leader_and_isr import LeaderAndIsrRequest
from tidelog.wire.messages.stop_replica import StopReplicaRequest
from tidelog.wire.messages.update_metadata import UpdateMetadataRequest

P1 = TopicPartition(TOPIC, 1)


def context() -> ControllerContext:
    """Brokers 1 to 3; partition 0 is on 1, 2 and the dead 4, and 1 leads it."""
    known = ControllerContext(epoch=7)
    known.topic_ids[TOPIC] = random_uuid()
    for broker in (1, 2, 3):
        endpoints = (
            Listener("INTERNAL", f"host{broker}", 9000 + broker, "PLAINTEXT"),
            Listener("CLIENT", f"host{broker}", 9100 + broker, "SSL"),
        )
        registration = BrokerRegistration(broker_id=broker, endpoints=endpoints, rack=f"r{broker}")
        known.brokers[broker] = LiveBroker(registration, 100 + broker)
    known.put_assignment(P0, ReplicaAssignment((1, 2, 4), adding=(2,), removing=(4,)))
    known.put_assignment(P1, ReplicaAssignment((3,)))
    state = PartitionState(leader=1, leader_epoch=5, isr=(1, 2), controller_epoch=6, leader_recovery_state=1)
    known.leaderships[P0] = Leadership(state, 12)
    return known


def batch(known: ControllerContext) -> ControlBatch:
    return ControlBatch(known, 3, "INTERNAL")


def test_leaders_hear_first_then_everybody_and_last_who_must_stop() -> None:
    known = context()
    told = batch(known)
    told.stop(2, P1, delete=True)
    told.become([2, 1], P0)
    kinds = [(type(request), broker) for broker, request in told.requests()]
    assert kinds == [
        (LeaderAndIsrRequest, 2),
        (LeaderAndIsrRequest, 1),
        (UpdateMetadataRequest, 1),
        (UpdateMetadataRequest, 2),
        (UpdateMetadataRequest, 3),
        (StopReplicaRequest, 2),
    ]


def test_every_request_carries_the_controllers_epoch_and_that_of_its_broker() -> None:
    told = batch(context())
    told.become([1, 2], P0)
    told.stop(2, P0, delete=False)
    for broker, request in told.requests():
        assert isinstance(request, LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest)
        assert (request.controller_id, request.controller_epoch) == (3, 7)
        assert request.broker_epoch == 100 + broker


def test_a_replica_learns_all_of_the_partitions_state_and_where_its_leader_is() -> None:
    known = context()
    told = batch(known)
    told.become([2], P0, is_new=True)
    broker, request = told.requests()[0]
    assert broker == 2
    assert isinstance(request, LeaderAndIsrRequest)
    (topic,) = request.topic_states
    (state,) = topic.partition_states
    assert topic.topic_id == known.topic_ids[TOPIC]
    assert (state.leader, state.leader_epoch, state.isr, state.partition_epoch) == (1, 5, [1, 2], 12)
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == ([1, 2, 4], [2], [4])
    # The decision keeps the epoch of the controller that made it.
    assert (state.controller_epoch, state.is_new, state.leader_recovery_state) == (6, True, 1)
    (leader,) = request.live_leaders
    assert (leader.broker_id, leader.host_name, leader.port) == (1, "host1", 9001)


def test_a_new_replica_stays_new_though_it_is_told_again() -> None:
    told = batch(context())
    told.become([1, 2], P0, is_new=True)
    told.become([2], P0)
    states = {
        broker: request.topic_states[0].partition_states[0].is_new
        for broker, request in told.requests()
        if isinstance(request, LeaderAndIsrRequest)
    }
    assert states == {1: True, 2: True}


def test_the_dead_are_told_nothing_and_shown_as_offline() -> None:
    told = batch(context())
    told.become([1, 4], P0)
    told.stop(4, P0, delete=False)
    requests = told.requests()
    assert all(broker != 4 for broker, _ in requests)
    metadata = next(request for _, request in requests if isinstance(request, UpdateMetadataRequest))
    (state,) = metadata.topic_states[0].partition_states
    assert state.offline_replicas == [4]
    assert [each.id for each in metadata.live_brokers] == [1, 2, 3]
    assert [(each.listener, each.security_protocol) for each in metadata.live_brokers[0].endpoints] == [
        ("INTERNAL", 0),
        ("CLIENT", 1),
    ]
    assert metadata.live_brokers[0].rack == "r1"


def test_a_topic_that_is_being_deleted_is_told_with_sentinels() -> None:
    known = context()
    known.deleting.add(TOPIC)
    told = batch(known)
    told.tell([1], [P0, P1])
    told.stop(1, P0, delete=True)
    told.stop(1, P0, delete=False)
    (_, metadata), (_, stop) = told.requests()
    assert isinstance(metadata, UpdateMetadataRequest)
    assert isinstance(stop, StopReplicaRequest)
    # A partition that never had a leader is nobody's business.
    (state,) = metadata.topic_states[0].partition_states
    assert (state.partition_index, state.leader) == (0, -2)
    (stopped,) = stop.topic_states[0].partition_states
    assert (stopped.leader_epoch, stopped.delete_partition) == (-2, True)


def test_a_replica_is_stopped_in_the_epoch_that_is_known() -> None:
    told = batch(context())
    told.stop(1, P0, delete=False)
    told.stop(1, P1, delete=False)
    ((_, stop),) = told.requests()
    assert isinstance(stop, StopReplicaRequest)
    assert [each.leader_epoch for each in stop.topic_states[0].partition_states] == [5, -1]
