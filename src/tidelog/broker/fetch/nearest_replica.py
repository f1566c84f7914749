"""Which replica a consumer is sent to: one in its own rack, where there is one (KIP-392).

``replica.selector.class`` chooses; of the two selectors that come with Kafka, the one that always names the
leader is the same as none. A consumer says its rack with every fetch (``client.rack``). It is sent to the
in-sync follower in that rack whose log reaches furthest, if it has what the consumer asks for and listens
where the consumer does; nobody is sent anywhere if the leader is in that rack itself.

Asked by the fetch handler of a leader.
"""

from __future__ import annotations

from tidelog.metadata.image import MetadataImage
from tidelog.replication.partition import Partition

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class NearestReplica:
    """The choice, by what a broker knows of its cluster."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def find(self, partition: Partition, rack: str, listener: str, offset: int) -> int | None:
        """The follower that a consumer in ``rack`` shall fetch ``offset`` from; None for the leader."""
        if not rack or not partition.is_leader or self._rack_of(partition.broker_id, listener) == rack:
            return None
        near = [
            follower
            for follower in partition.readable_followers(offset)
            if self._rack_of(follower.broker_id, listener) == rack
        ]
        if not near:
            return None
        return max(near, key=lambda each: (each.log_end_offset, each.caught_up_ms, each.broker_id)).broker_id

    def _rack_of(self, broker_id: int, listener: str) -> str | None:
        broker = self._image.brokers.get(broker_id)
        if broker is None or not any(each.name == listener for each in broker.endpoints):
            return None
        return broker.rack
