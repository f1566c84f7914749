"""What a broker answered in an earlier life says nothing about the one that is there now."""

from __future__ import annotations

from tests.unit.controller.cluster.scene import P0, TOPIC, Scene, run

from tidelog.controller.cluster.context import Replica
from tidelog.controller.cluster.states import ReplicaPhase
from tidelog.errors import ErrorCode
from tidelog.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)


def test_a_late_refusal_does_not_halt_a_deletion_that_goes_on_with_the_broker_that_came_back() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2)
        await scene.create((1, 2))
        term = scene.controller.term
        scene.context.deleting.add(TOPIC)
        scene.context.deletion_started.add(TOPIC)
        scene.context.replica_phases[Replica(P0, 2)] = ReplicaPhase.DELETION_STARTED
        late = StopReplicaRequest(
            broker_epoch=scene.context.brokers[2].epoch - 1,
            topic_states=[
                StopReplicaTopicState(
                    topic_name=TOPIC,
                    partition_states=[StopReplicaPartitionState(partition_index=0, delete_partition=True)],
                )
            ],
        )
        refusal = StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
        await term._answered(2, late, refusal)
        assert scene.context.replica_phases[Replica(P0, 2)] is ReplicaPhase.DELETION_STARTED
        assert not scene.context.deletion_ineligible
        late.broker_epoch = scene.context.brokers[2].epoch
        await term._answered(2, late, refusal)
        assert TOPIC in scene.context.deletion_ineligible

    run(test)
