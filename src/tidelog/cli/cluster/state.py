"""How a cluster stands: its brokers, and the partitions that are not as they should be.

Pure: made from what the brokers say (:func:`state_of`), printed by ``tidelog cluster describe``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidelog.cli.output import counted, print_table
from tidelog.client.metadata import PartitionMetadata
from tidelog.client.resources import ClusterDescription, TopicDescription

_BROKERS = ("broker", "address", "rack", "role", "leads", "preferred", "hosts", "in sync")
_PARTITIONS = ("topic", "partition", "problem", "leader", "replicas", "isr", "min isr")


@dataclass(frozen=True)
class BrokerState:
    """One broker; ``alive`` is False for one that partitions name and that is not there."""

    id: int
    address: str | None
    rack: str | None
    alive: bool
    controller: bool
    partitions_led: int
    partitions_preferred: int
    """Those that it leads when all is well."""
    partitions_hosted: int
    partitions_in_sync: int


@dataclass(frozen=True)
class TroubledPartition:
    """A partition that lacks something."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int | None
    offline: bool
    under_replicated: bool
    under_min_isr: bool


@dataclass(frozen=True)
class ClusterState:
    """The whole cluster at one moment."""

    cluster_id: str | None
    controller: int | None
    brokers: list[BrokerState]
    topics: int
    partitions: int
    under_replicated: int
    under_min_isr: int
    offline: int
    troubled: list[TroubledPartition]


def state_of(
    cluster: ClusterDescription, topics: Iterable[TopicDescription], min_isr: Mapping[str, int]
) -> ClusterState:
    """What these answers say; ``min_isr`` has min.insync.replicas of the topics of which it is known."""
    topics = list(topics)
    partitions = [each for topic in topics for each in topic.partitions]
    checked = [
        _checked(topic.name, each, min_isr.get(topic.name)) for topic in topics for each in topic.partitions
    ]
    troubled = [each for each in checked if each.offline or each.under_replicated or each.under_min_isr]
    return ClusterState(
        cluster.cluster_id,
        _controller_id(cluster),
        _brokers(cluster, partitions),
        len(topics),
        len(partitions),
        sum(each.under_replicated for each in troubled),
        sum(each.under_min_isr for each in troubled),
        sum(each.offline for each in troubled),
        troubled,
    )


def _checked(topic: str, partition: PartitionMetadata, min_isr: int | None) -> TroubledPartition:
    # As leaders count it: no more can be in sync than there are.
    enough = None if min_isr is None else min(min_isr, len(partition.replicas))
    return TroubledPartition(
        topic,
        partition.partition,
        partition.leader,
        partition.replicas,
        partition.isr,
        enough,
        offline=partition.leader is None,
        under_replicated=len(partition.isr) < len(partition.replicas),
        under_min_isr=enough is not None and len(partition.isr) < enough,
    )


def _brokers(cluster: ClusterDescription, partitions: list[PartitionMetadata]) -> list[BrokerState]:
    nodes = {node.id: node for node in cluster.nodes}
    ids = {*nodes, *(broker for each in partitions for broker in each.replicas)}
    controller = _controller_id(cluster)
    return [
        BrokerState(
            id=broker,
            address=str(nodes[broker]) if broker in nodes else None,
            rack=nodes[broker].rack if broker in nodes else None,
            alive=broker in nodes,
            controller=broker == controller,
            partitions_led=sum(each.leader == broker for each in partitions),
            partitions_preferred=sum(each.replicas[:1] == (broker,) for each in partitions),
            partitions_hosted=sum(broker in each.replicas for each in partitions),
            partitions_in_sync=sum(broker in each.isr for each in partitions),
        )
        for broker in sorted(ids)
    ]


def _controller_id(cluster: ClusterDescription) -> int | None:
    return None if cluster.controller is None else cluster.controller.id


def print_state(state: ClusterState) -> None:
    """For people: the brokers, then the partitions in trouble, then the counts."""
    print(f"cluster {state.cluster_id or '-'}")
    rows = [
        (
            broker.id,
            broker.address,
            broker.rack,
            "controller" if broker.controller else None if broker.alive else "DOWN",
            broker.partitions_led,
            broker.partitions_preferred,
            broker.partitions_hosted,
            broker.partitions_in_sync,
        )
        for broker in state.brokers
    ]
    print_table(_BROKERS, rows, right=("broker", *_BROKERS[4:]), optional=("preferred", "rack"))
    if state.troubled:
        print_table(
            _PARTITIONS,
            [
                (
                    each.topic,
                    each.partition,
                    _problem(each),
                    each.leader,
                    each.replicas,
                    each.isr,
                    each.min_isr,
                )
                for each in state.troubled
            ],
            right=("partition", "leader", "min isr"),
        )
    print(_summary(state))


def _problem(partition: TroubledPartition) -> str:
    if partition.offline:
        return "offline"
    return "under min isr" if partition.under_min_isr else "under-replicated"


def _summary(state: ClusterState) -> str:
    told = f"{counted(state.partitions, 'partition')} of {counted(state.topics, 'topic')}"
    if not state.troubled:
        return f"{told}, all in sync"
    return (
        f"{told}: {state.under_replicated} under-replicated, {state.under_min_isr} under min isr, "
        f"{state.offline} offline"
    )
