"""What a client knows of a cluster: its brokers, topics and partition leaders, as plain dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.errors import ErrorCode
from tidelog.ids import NO_LEADER_EPOCH, Uuid

UNKNOWN_NODE = -1


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
    """One answer to a Metadata request."""

    cluster_id: str | None
    controller_id: int
    nodes: Mapping[int, Node]
    topics: Mapping[str, TopicMetadata]
