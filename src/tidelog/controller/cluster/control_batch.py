"""What the brokers must be told after a change, gathered and made into one request of a kind for each broker.

LeaderAndIsr tells replicas what they are now, UpdateMetadata tells every broker what clients may know,
StopReplica tells a broker to stop, and perhaps to delete, replicas. They are sent in this order, as in
Kafka: a broker knows itself to be the leader before clients are sent to it.

Pure: the batch reads the context when something is added and when the requests are built; ``state_changes``
sends, through :class:`BrokerChannels`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from tidelog.config.options.network_options import SECURITY_PROTOCOLS
from tidelog.controller.cluster.context import LEADER_DURING_DELETE, ControllerContext, LiveBroker
from tidelog.ids import ZERO_UUID, TopicPartition
from tidelog.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tidelog.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tidelog.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from tidelog.wire.schema import Payload


class ControlBatch:
    """Gathers what one change of state means for the brokers."""

    def __init__(self, context: ControllerContext, controller_id: int, inter_broker_listener: str) -> None:
        self._context = context
        self._controller_id = controller_id
        self._listener = inter_broker_listener
        self._become: dict[int, dict[TopicPartition, LeaderAndIsrPartitionState]] = {}
        self._stop: dict[int, dict[TopicPartition, StopReplicaPartitionState]] = {}
        self._tell: set[int] = set()
        self._partitions: dict[TopicPartition, UpdateMetadataPartitionState] = {}

    def become(self, brokers: Iterable[int], partition: TopicPartition, *, is_new: bool = False) -> None:
        """Tell some of a partition's replicas who leads, and everybody else of it."""
        known = self._context.leaderships[partition]
        assignment = self._context.assignment(partition)
        for broker in brokers:
            states = self._become.setdefault(broker, {})
            earlier = states.get(partition)
            states[partition] = LeaderAndIsrPartitionState(
                topic_name=partition.topic,
                partition_index=partition.partition,
                controller_epoch=known.state.controller_epoch,
                leader=known.state.leader,
                leader_epoch=known.state.leader_epoch,
                isr=list(known.state.isr),
                partition_epoch=known.version,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding),
                removing_replicas=list(assignment.removing),
                is_new=is_new or (earlier is not None and earlier.is_new),
                leader_recovery_state=known.state.leader_recovery_state,
            )
        self.tell(self._context.brokers, [partition])

    def stop(self, broker: int, partition: TopicPartition, *, delete: bool) -> None:
        """Tell a broker to stop a replica, and with ``delete`` to remove its log."""
        states = self._stop.setdefault(broker, {})
        earlier = states.get(partition)
        states[partition] = StopReplicaPartitionState(
            partition_index=partition.partition,
            leader_epoch=self._context.leader_epoch(partition),
            delete_partition=delete or (earlier is not None and earlier.delete_partition),
        )

    def tell(self, brokers: Iterable[int], partitions: Iterable[TopicPartition] = ()) -> None:
        """Tell brokers of the live brokers, and of partitions whose leader is known."""
        self._tell.update(brokers)
        for partition in partitions:
            known = self._context.leaderships.get(partition)
            if known is None:
                continue
            going = partition.topic in self._context.deleting
            replicas = self._context.assignment(partition).replicas
            self._partitions[partition] = UpdateMetadataPartitionState(
                topic_name=partition.topic,
                partition_index=partition.partition,
                controller_epoch=known.state.controller_epoch,
                leader=LEADER_DURING_DELETE if going else known.state.leader,
                leader_epoch=self._context.leader_epoch(partition),
                isr=list(known.state.isr),
                zk_version=known.version,
                replicas=list(replicas),
                offline_replicas=[each for each in replicas if not self._context.is_online(each, partition)],
            )

    def requests(self) -> list[tuple[int, Payload]]:
        """What is to be sent to whom, in this order."""
        live = self._context.brokers
        return [
            *((broker, self._leader_and_isr(broker)) for broker in self._become if broker in live),
            *((broker, self._update_metadata(broker)) for broker in sorted(self._tell) if broker in live),
            *((broker, self._stop_replica(broker)) for broker in self._stop if broker in live),
        ]

    def _leader_and_isr(self, broker: int) -> LeaderAndIsrRequest:
        states = self._become[broker]
        topics: dict[str, LeaderAndIsrTopicState] = {}
        for partition, state in states.items():
            topic_id = self._context.topic_ids.get(partition.topic, ZERO_UUID)
            topic = topics.setdefault(
                partition.topic,
                LeaderAndIsrTopicState(topic_name=partition.topic, topic_id=topic_id),
            )
            topic.partition_states.append(state)
        leaders = {state.leader for state in states.values()}
        return LeaderAndIsrRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=self._context.brokers[broker].epoch,
            topic_states=list(topics.values()),
            live_leaders=[
                LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
                for broker_id, each in self._context.brokers.items()
                for endpoint in each.registration.endpoints
                if broker_id in leaders and endpoint.name == self._listener
            ],
        )

    def _update_metadata(self, broker: int) -> UpdateMetadataRequest:
        topics: dict[str, UpdateMetadataTopicState] = {}
        for partition, state in self._partitions.items():
            topic_id = self._context.topic_ids.get(partition.topic, ZERO_UUID)
            topic = topics.setdefault(
                partition.topic,
                UpdateMetadataTopicState(topic_name=partition.topic, topic_id=topic_id),
            )
            topic.partition_states.append(state)
        return UpdateMetadataRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=self._context.brokers[broker].epoch,
            topic_states=list(topics.values()),
            live_brokers=[
                UpdateMetadataBroker(
                    id=broker_id,
                    endpoints=[
                        UpdateMetadataEndpoint(
                            port=endpoint.port,
                            host=endpoint.host,
                            listener=endpoint.name,
                            security_protocol=SECURITY_PROTOCOLS.index(endpoint.security_protocol),
                        )
                        for endpoint in each.registration.endpoints
                    ],
                    rack=each.registration.rack,
                )
                for broker_id, each in self._context.brokers.items()
            ],
        )

    def _stop_replica(self, broker: int) -> StopReplicaRequest:
        topics: dict[str, StopReplicaTopicState] = {}
        for partition, state in self._stop[broker].items():
            topic = topics.setdefault(partition.topic, StopReplicaTopicState(topic_name=partition.topic))
            topic.partition_states.append(state)
        return StopReplicaRequest(
            controller_id=self._controller_id,
            controller_epoch=self._context.epoch,
            broker_epoch=self._context.brokers[broker].epoch,
            topic_states=list(topics.values()),
        )


OnResponse = Callable[[Payload], None]


class BrokerChannels(Protocol):
    """Ways to all live brokers, this one included.

    Each broker gets its requests one after the other, in the order in which they were handed over, and the
    next one only when the last is answered. A request is sent again until it is answered or the broker is
    gone. ``broker/cluster`` has the real channels, tests have others.
    """

    def set_brokers(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Hold a channel to each of these; what waits for others, or for an earlier epoch of one, is
        dropped."""

    def send(self, broker_id: int, request: Payload, on_response: OnResponse) -> None:
        """Send in turn; ``on_response`` is called with the answer. To a broker that is not held, nothing is
        sent."""

    def close(self) -> None:
        """Drop everything."""
