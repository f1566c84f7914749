"""Two moments of a small cluster."""

from __future__ import annotations

from tidelog.cli.top.sample import Disk, Sample
from tidelog.client.admin.group_resources import GroupListing, GroupState, GroupType
from tidelog.client.metadata import Node, PartitionMetadata
from tidelog.client.resources import ClusterDescription, TopicDescription
from tidelog.ids import ZERO_UUID, TopicPartition

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
OFFSETS = TopicPartition("__consumer_offsets", 0)
NODES = (Node(1, "one", 9092, None), Node(2, "two", 9092, "east"))


def sample(
    at_s: float, ends: tuple[int, int], *, committed: int = 0, nodes: tuple[Node, ...] = NODES
) -> Sample:
    """``orders`` with a partition on each broker, and the group ``billing``, which reads the first."""
    alive = {node.id for node in nodes}
    topics = (
        TopicDescription(
            "orders",
            ZERO_UUID,
            False,
            tuple(
                PartitionMetadata(
                    index,
                    leader if leader in alive else None,
                    replicas=(leader,),
                    isr=(leader,) if leader in alive else (),
                )
                for index, leader in ((0, 1), (1, 2))
            ),
        ),
        TopicDescription(
            "__consumer_offsets", ZERO_UUID, True, (PartitionMetadata(0, 1, replicas=(1,), isr=(1,)),)
        ),
    )
    return Sample(
        at_s,
        ClusterDescription("c", nodes[0], nodes),
        topics,
        {ORDERS_0: ends[0], ORDERS_1: ends[1], OFFSETS: 5},
        {(1, ORDERS_0): ends[0] * 10, (2, ORDERS_1): ends[1] * 10, (1, OFFSETS): 50},
        {node.id: Disk(1000, 5_000_000, 9_000_000) for node in nodes},
        (
            GroupListing("billing", "consumer", GroupState.STABLE, GroupType.CLASSIC, nodes[0]),
            GroupListing("idle", "consumer", GroupState.EMPTY, GroupType.CLASSIC, nodes[0]),
        ),
        {"billing": {ORDERS_0: committed, TopicPartition("gone", 0): 7}, "idle": {}},
    )
