"""What a client knows of a cluster: its brokers, topics and partition leaders, as plain dataclasses.

A :class:`ClusterMetadata` never changes; news makes another one (:func:`merge`, :func:`with_leaders`).
Invariant: as long as a topic keeps its id, a partition's leader epoch never goes back, whichever broker
answers, for some of them are late (KIP-320).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.client.errors import AuthenticationError
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid
from tidelog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

UNKNOWN_NODE = -1
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


@dataclass(frozen=True, slots=True)
class Node:
    """One broker as it advertises itself."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Who serves one partition; ``leader`` is None while there is none."""

    partition: int
    leader: int | None
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic; ``error`` is set where the broker would not describe it."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """What is known at one moment."""

    cluster_id: str | None
    controller_id: int
    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicMetadata]
    topic_names: Mapping[Uuid, str] = field(init=False, compare=False, repr=False)
    """The names of the topics whose ids are known."""

    def __post_init__(self) -> None:
        names = {topic.topic_id: name for name, topic in self.topics.items() if topic.topic_id != ZERO_UUID}
        object.__setattr__(self, "topic_names", names)

    def partition(self, partition: TopicPartition) -> PartitionMetadata | None:
        """What is known of one partition."""
        topic = self.topics.get(partition.topic)
        return None if topic is None else topic.partitions.get(partition.partition)


NO_METADATA = ClusterMetadata(None, UNKNOWN_NODE, {}, {})


class LeaderHint(NamedTuple):
    """A newer leader than the metadata may name, from a produce or fetch response (KIP-951)."""

    leader: int
    leader_epoch: int


def parse_metadata(response: MetadataResponse) -> ClusterMetadata:
    """An answer as metadata; an error of the whole answer is raised, errors of topics are in the result."""
    if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationError(
            "the broker's listener requires a login: set security.protocol=SASL_PLAINTEXT (SASL_SSL with "
            "TLS), sasl.mechanism, sasl.username and sasl.password"
        )
    if response.error_code:
        raise KafkaError(ErrorCode(response.error_code), "the broker cannot answer with metadata now")
    nodes = {
        broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in response.brokers
    }
    topics = {
        topic.name: _parse_topic(topic.name, topic) for topic in response.topics if topic.name is not None
    }
    return ClusterMetadata(response.cluster_id, response.controller_id, nodes, topics)


def merge(known: ClusterMetadata, fresh: ClusterMetadata, *, keep_other_topics: bool) -> ClusterMetadata:
    """``known`` brought up to date by an answer, which may be about some topics only."""
    topics = {**known.topics} if keep_other_topics else {}
    for name, topic in fresh.topics.items():
        topics[name] = _newer(known.topics.get(name), topic)
    return ClusterMetadata(fresh.cluster_id, fresh.controller_id, fresh.nodes, topics)


def with_leaders(
    known: ClusterMetadata, hints: Mapping[TopicPartition, LeaderHint], nodes: Iterable[Node] = ()
) -> ClusterMetadata:
    """``known`` with the leaders that are newer and whose brokers are known; itself where there is none."""
    all_nodes = {**known.nodes, **{node.id: node for node in nodes}}
    topics = dict(known.topics)
    changed = False
    for partition, hint in hints.items():
        topic = topics.get(partition.topic)
        current = None if topic is None else topic.partitions.get(partition.partition)
        if topic is None or current is None or hint.leader_epoch <= current.leader_epoch:
            continue
        if hint.leader not in all_nodes:
            continue
        moved = dataclasses.replace(
            current, leader=hint.leader, leader_epoch=hint.leader_epoch, error=ErrorCode.NONE
        )
        partitions = {**topic.partitions, partition.partition: moved}
        topics[partition.topic] = dataclasses.replace(topic, partitions=partitions)
        changed = True
    return ClusterMetadata(known.cluster_id, known.controller_id, all_nodes, topics) if changed else known


def check_place(topic: object, partition: object = None) -> None:
    """Refuse what can be no topic or partition, before it gets into a request that is about others, too."""
    if not isinstance(topic, str):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"a topic's name is a str, got {topic!r}")
    if partition is not None and (not isinstance(partition, int) or partition < 0):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"a partition is a number from 0 on, got {partition!r} for topic {topic!r}",
        )


def check_topic_name(name: object, remedy: str = "") -> None:
    """Refuse what no broker takes for a topic's name; ``remedy`` is what the caller may have meant."""
    check_place(name)
    if not _TOPIC_NAME.fullmatch(str(name)) or name in (".", ".."):
        problem = f"{name!r} is no valid topic name: one has up to 249 letters, digits, '.', '_' and '-'"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem + remedy)


def topic_problem(name: str, error: ErrorCode) -> KafkaError:
    """Why a topic cannot be used, as an error."""
    match error:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return KafkaError(error, f"topic {name!r} does not exist; create it, or check the name")
        case ErrorCode.INVALID_TOPIC_EXCEPTION:
            return KafkaError(error, f"{name!r} is no valid topic name")
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return KafkaError(error, f"this client may not use topic {name!r}")
    return KafkaError(error, f"topic {name!r} cannot be used now")


def _newer(known: TopicMetadata | None, fresh: TopicMetadata) -> TopicMetadata:
    if known is None or known.topic_id != fresh.topic_id or not known.partitions:
        return fresh
    late = {
        number: before
        for number, partition in fresh.partitions.items()
        if (before := known.partitions.get(number)) is not None
        and NO_LEADER_EPOCH < partition.leader_epoch < before.leader_epoch
    }
    return dataclasses.replace(fresh, partitions={**fresh.partitions, **late}) if late else fresh


def _parse_topic(name: str, topic: MetadataResponseTopic) -> TopicMetadata:
    partitions = {
        partition.partition_index: PartitionMetadata(
            partition.partition_index,
            None if partition.leader_id == UNKNOWN_NODE else partition.leader_id,
            partition.leader_epoch,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
            ErrorCode(partition.error_code),
        )
        for partition in sorted(topic.partitions, key=lambda each: each.partition_index)
    }
    return TopicMetadata(name, topic.topic_id, topic.is_internal, partitions, ErrorCode(topic.error_code))
