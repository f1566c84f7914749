"""Znodes by which brokers and tools ask the controller for something, or tell brokers that something has
changed.

Notices are sequential nodes below one parent each (``isr_change_0000000001``); whoever they are for reads
them and, except for config changes, deletes them. Requests are single nodes with a list of partitions; the
controller strikes what it has done. The JSON is Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from tidelog.errors import StorageError
from tidelog.ids import TopicPartition
from tidelog.metadata.znodes.znodes import PREFERRED_REPLICA_ELECTION, REASSIGN_PARTITIONS, decode_json

_encode = msgspec.json.encode

LOG_DIR_FAILURE = 1


class _Partition(msgspec.Struct):
    topic: str
    partition: int


class _Partitions(msgspec.Struct):
    version: int
    partitions: list[_Partition]


class _Reassigned(msgspec.Struct):
    topic: str
    partition: int
    replicas: tuple[int, ...]


class _Reassignment(msgspec.Struct):
    version: int
    partitions: list[_Reassigned]


class _LogDirEvent(msgspec.Struct):
    version: int
    broker: int
    event: int


class _ConfigChange(msgspec.Struct):
    version: int
    entity_path: str | None = None
    entity_type: str | None = None
    entity_name: str | None = None


def encode_config_change(entity_path: str) -> bytes:
    """``/config/changes/config_change_N``: which entity changed, such as ``topics/orders``."""
    return _encode({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, raw: bytes) -> str:
    """Which entity changed; version 1 names kind and entity apart."""
    change = decode_json(_ConfigChange, path, raw)
    if change.entity_path is not None:
        return change.entity_path
    if change.entity_type is None or change.entity_name is None:
        raise StorageError(f"metadata node {path} does not say whose config has changed")
    return f"{change.entity_type}/{change.entity_name}"


def encode_isr_change(partitions: Iterable[TopicPartition]) -> bytes:
    """``/isr_change_notification/isr_change_N``."""
    return _encode_partitions(partitions)


def decode_isr_change(path: str, raw: bytes) -> list[TopicPartition]:
    """The partitions whose in-sync replicas have changed."""
    return _decode_partitions(path, raw)


def encode_log_dir_event(broker_id: int) -> bytes:
    """``/log_dir_event_notification/log_dir_event_N``: a directory of this broker failed."""
    return _encode({"version": 1, "broker": broker_id, "event": LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, raw: bytes) -> int:
    """The broker whose directory has failed."""
    return decode_json(_LogDirEvent, path, raw).broker


def encode_preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    """``/admin/preferred_replica_election``."""
    return _encode_partitions(partitions)


def decode_preferred_election(raw: bytes) -> list[TopicPartition]:
    """The partitions that their preferred replicas are to lead."""
    return _decode_partitions(PREFERRED_REPLICA_ELECTION, raw)


def encode_reassignment(targets: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """``/admin/reassign_partitions``."""
    listed = [
        {"topic": each.topic, "partition": each.partition, "replicas": replicas}
        for each, replicas in targets.items()
    ]
    return _encode({"version": 1, "partitions": listed})


def decode_reassignment(raw: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """The partitions that are to be moved, and where to."""
    found = decode_json(_Reassignment, REASSIGN_PARTITIONS, raw)
    return {TopicPartition(each.topic, each.partition): each.replicas for each in found.partitions}


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    listed = [{"topic": each.topic, "partition": each.partition} for each in partitions]
    return _encode({"version": 1, "partitions": listed})


def _decode_partitions(path: str, raw: bytes) -> list[TopicPartition]:
    found = decode_json(_Partitions, path, raw)
    return [TopicPartition(each.topic, each.partition) for each in found.partitions]
