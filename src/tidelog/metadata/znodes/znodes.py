"""Kafka's znodes: where each piece of metadata lives and the JSON it is written as.

Paths, keys, versions and number-as-string habits are those of Kafka 3.9 in ZooKeeper mode, so that a
Kafka broker or tool reads what Tidelog writes and the other way round. Every payload decodes what older
Kafka versions wrote too (missing keys take their defaults).

Everything in ``metadata``, the controller and the handlers that persist something go through this module and
``znode_requests``; no path or JSON key is spelt anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import msgspec

from tidelog.config.client_quotas import CLIENT_ID, IP, USER, QuotaEntity
from tidelog.config.listeners import Listener, parse_listeners
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import ConfigError, StorageError
from tidelog.ids import TopicPartition, Uuid, uuid_from_text, uuid_to_text

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CLUSTER_ID = "/cluster/id"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE_PREFIX = "/isr_change_notification/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"

CONFIG_TYPES = ("topics", "clients", "users", "brokers", "ips")
"""What Kafka 3.9 keeps configs of in ZooKeeper."""
GROUP_CONFIGS = "/config/groups"
"""Of Kafka 4, so made for the first group that has options: Kafka 3.9 has no such node."""
CLIENT_METRICS = "/config/client-metrics"
"""The same for subscriptions to clients' metrics, which Kafka 3.9 has without ZooKeeper only."""
USER_CONFIGS = "/config/users"
CLIENT_CONFIGS = "/config/clients"
IP_CONFIGS = "/config/ips"
DELEGATION_TOKENS = "/delegation_token/tokens"
DEFAULT_ENTITY = "<default>"
SCRAM_SALT_SECRET = "/tidelog/scram_salt_secret"
"""Ours alone: Kafka tells names that exist from others by what it answers."""

PERSISTENT_PATHS: tuple[str, ...] = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"{CONFIG}/{kind}" for kind in CONFIG_TYPES),
)
"""What a broker makes sure of when it starts."""

NO_LEADER = -1


def broker_path(broker_id: int) -> str:
    """Where a live broker registers, ephemerally."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """A topic's id and replica assignment."""
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """The parent of a topic's partitions."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    """One partition."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}"


def partition_state_path(partition: TopicPartition) -> str:
    """A partition's leader and in-sync replicas."""
    return f"{TOPICS}/{partition.topic}/partitions/{partition.partition}/state"


def config_path(kind: str, entity: str) -> str:
    """The overrides of one topic, broker, …; ``kind`` is one of :data:`CONFIG_TYPES`, or another's."""
    return f"{CONFIG}/{kind}/{entity}"


def topic_config_path(topic: str) -> str:
    """A topic's overrides."""
    return config_path("topics", topic)


def broker_config_path(broker_id: int | None) -> str:
    """A broker's dynamic options, or with None those of every broker."""
    return config_path("brokers", DEFAULT_ENTITY if broker_id is None else str(broker_id))


def group_config_path(group: str) -> str:
    """A group's options. Its id may hold anything, so it is escaped, as Kafka does with users and clients."""
    return config_path("groups", sanitized(group))


def client_metrics_path(name: str) -> str:
    """A subscription to clients' metrics; its name may hold anything."""
    return config_path("client-metrics", sanitized(name))


def user_config_path(user: str) -> str:
    """What is kept of a user."""
    return config_path("users", sanitized(user))


def user_of_config_node(entity: str) -> str:
    """The user whom a node is about."""
    return unquote(entity)


def quota_path(entity: QuotaEntity) -> str:
    """The quotas of a user, a client id, both together, or an IP address; see ``client_quotas``."""
    nodes = {kind: DEFAULT_ENTITY if name is None else sanitized(name) for kind, name in entity}
    if IP in nodes:
        return f"{IP_CONFIGS}/{nodes[IP]}"
    if USER not in nodes:
        return f"{CLIENT_CONFIGS}/{nodes[CLIENT_ID]}"
    of_user = f"{USER_CONFIGS}/{nodes[USER]}"
    return f"{of_user}/clients/{nodes[CLIENT_ID]}" if CLIENT_ID in nodes else of_user


def quota_entity_of(path: str) -> QuotaEntity | None:
    """Whose quotas a node has; None if it can have none."""
    match path[1:].split("/"):
        case ["config", "users", user]:
            return ((USER, _entity_name(user)),)
        case ["config", "users", user, "clients", client_id]:
            return (USER, _entity_name(user)), (CLIENT_ID, _entity_name(client_id))
        case ["config", "clients", client_id]:
            return ((CLIENT_ID, _entity_name(client_id)),)
        case ["config", "ips", ip]:
            return ((IP, _entity_name(ip)),)
    return None


def _entity_name(node: str) -> str | None:
    return None if node == DEFAULT_ENTITY else unquote(node)


def sanitized(name: str) -> str:
    """A name that may hold anything, as that of a node: Kafka's way for users, clients and their like."""
    escaped = quote(name, safe="-_").replace("~", "%7E")
    # No node can be called "." or "..".
    return escaped.replace(".", "%2E") if set(name) == {"."} else escaped


def group_of_config_node(entity: str) -> str:
    """The group whose options a node has."""
    return unquote(entity)


def subscription_of_config_node(entity: str) -> str:
    """The subscription to clients' metrics that a node has."""
    return unquote(entity)


def delete_topic_path(topic: str) -> str:
    """The mark of a topic that is being deleted."""
    return f"{DELETE_TOPICS}/{topic}"


_encode = msgspec.json.encode
_T = TypeVar("_T")


def decode_json(kind: type[_T], path: str, raw: bytes) -> _T:
    """A node's JSON as ``kind``; raises :class:`StorageError` that names the node."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except DECODE_ERRORS as error:
        raise StorageError(f"metadata node {path} holds what Kafka would not write: {error}") from error


class BrokerRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """``/brokers/ids/N``: what a live broker tells about itself."""

    broker_id: int
    endpoints: tuple[Listener, ...]
    rack: str | None = None
    features: Mapping[str, Mapping[str, int]] = {}
    timestamp_ms: int = 0
    jmx_port: int = -1

    def encode(self) -> bytes:
        """Version 5; host and port are those of the first PLAINTEXT endpoint, for old clients."""
        plain = next((each for each in self.endpoints if each.security_protocol == "PLAINTEXT"), None)
        payload: dict[str, object] = {
            "features": self.features,
            "listener_security_protocol_map": {each.name: each.security_protocol for each in self.endpoints},
            "endpoints": [str(each) for each in self.endpoints],
            "jmx_port": self.jmx_port,
            "port": plain.port if plain else -1,
            "host": plain.host if plain else None,
            "version": 5,
            "timestamp": str(self.timestamp_ms),
        }
        if self.rack is not None:
            payload["rack"] = self.rack
        return _encode(payload)

    @classmethod
    def decode(cls, broker_id: int, raw: bytes) -> BrokerRegistration:
        """Any version from 1 on."""
        payload = decode_json(_BrokerPayload, broker_path(broker_id), raw)
        if payload.version < 2:
            plain = Listener("PLAINTEXT", payload.host or "", payload.port, "PLAINTEXT")
            endpoints: tuple[Listener, ...] = (plain,)
        else:
            protocols = payload.listener_security_protocol_map or {
                name: name for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
            }
            endpoints = _endpoints(broker_path(broker_id), payload.endpoints, protocols)
        return cls(
            broker_id=broker_id,
            endpoints=endpoints,
            rack=payload.rack,
            features=payload.features or {},
            timestamp_ms=int(payload.timestamp) if payload.timestamp.isdecimal() else 0,
            jmx_port=payload.jmx_port,
        )


def _endpoints(path: str, texts: list[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    try:
        return parse_listeners("endpoints", texts, protocols)
    except ConfigError as error:
        raise StorageError(f"metadata node {path} has bad endpoints: {error}") from error


class _BrokerPayload(msgspec.Struct):
    version: int
    host: str | None = None
    port: int = -1
    jmx_port: int = -1
    timestamp: str = "0"
    endpoints: list[str] = []
    listener_security_protocol_map: dict[str, str] | None = None
    rack: str | None = None
    features: dict[str, dict[str, int]] | None = None


class TopicAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """``/brokers/topics/T``: a topic's id and which brokers hold each partition."""

    topic_id: Uuid | None
    partitions: Mapping[int, tuple[int, ...]]
    adding_replicas: Mapping[int, tuple[int, ...]] = {}
    removing_replicas: Mapping[int, tuple[int, ...]] = {}

    def encode(self) -> bytes:
        """Version 3."""
        payload: dict[str, Any] = {
            "removing_replicas": _text_keys(self.removing_replicas),
            "partitions": _text_keys(self.partitions),
        }
        if self.topic_id is not None:
            payload["topic_id"] = uuid_to_text(self.topic_id)
        payload["adding_replicas"] = _text_keys(self.adding_replicas)
        payload["version"] = 3
        return _encode(payload)

    @classmethod
    def decode(cls, topic: str, raw: bytes) -> TopicAssignment:
        """Any version; those before 3 have no topic id."""
        payload = decode_json(_TopicPayload, topic_path(topic), raw)
        try:
            topic_id = None if payload.topic_id is None else uuid_from_text(payload.topic_id)
        except ValueError as error:
            raise StorageError(f"metadata node {topic_path(topic)} has a bad topic_id: {error}") from error
        return cls(
            topic_id=topic_id,
            partitions=dict(sorted(payload.partitions.items())),
            adding_replicas=payload.adding_replicas or {},
            removing_replicas=payload.removing_replicas or {},
        )


class _TopicPayload(msgspec.Struct):
    version: int
    partitions: dict[int, tuple[int, ...]] = {}
    topic_id: str | None = None
    adding_replicas: dict[int, tuple[int, ...]] | None = None
    removing_replicas: dict[int, tuple[int, ...]] | None = None


def _text_keys(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {str(partition): brokers for partition, brokers in sorted(replicas.items()) if brokers}


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """``/brokers/topics/T/partitions/P/state``: who leads and who is in sync."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_recovery_state: int = 0
    """1 while the leader recovers from an unclean election."""

    def encode(self) -> bytes:
        """Version 1."""
        payload: dict[str, object] = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
        }
        if self.leader_recovery_state:
            payload["leader_recovery_state"] = self.leader_recovery_state
        return _encode(payload)

    @classmethod
    def decode(cls, partition: TopicPartition, raw: bytes) -> PartitionState:
        """The state that a controller wrote."""
        try:
            return _state_decoder.decode(raw)
        except DECODE_ERRORS as error:
            path = partition_state_path(partition)
            raise StorageError(f"metadata node {path} holds what Kafka would not write: {error}") from error


_state_decoder = msgspec.json.Decoder(PartitionState)


class ProducerIdBlock(msgspec.Struct, frozen=True):
    """``/latest_producer_id_block``: the last producer ids handed to a broker, both ends included."""

    broker: int
    first: int
    last: int

    def encode(self) -> bytes:
        """Version 1; the ends are strings because JSON readers round large numbers."""
        return _encode(
            {"version": 1, "broker": self.broker, "block_start": str(self.first), "block_end": str(self.last)}
        )

    @classmethod
    def decode(cls, raw: bytes) -> ProducerIdBlock:
        """The block that some broker took."""
        payload = decode_json(_BlockPayload, PRODUCER_ID_BLOCK, raw)
        try:
            return cls(payload.broker, int(payload.block_start), int(payload.block_end))
        except ValueError as error:
            raise StorageError(
                f"metadata node {PRODUCER_ID_BLOCK} has ends that are no numbers: {error}"
            ) from error


class _BlockPayload(msgspec.Struct):
    broker: int
    block_start: str
    block_end: str


def encode_cluster_id(cluster_id: str) -> bytes:
    """``/cluster/id``; its version is a string."""
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(raw: bytes) -> str:
    """The inverse of :func:`encode_cluster_id`."""
    payload = decode_json(dict[str, object], CLUSTER_ID, raw)
    cluster_id = payload.get("id")
    if not isinstance(cluster_id, str):
        raise StorageError(f"metadata node {CLUSTER_ID} has no id")
    return cluster_id


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    """``/controller``, which the elected broker holds ephemerally."""
    return _encode(
        {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    )


def decode_controller(raw: bytes) -> int:
    """The controller's broker id."""
    broker_id = decode_json(dict[str, object], CONTROLLER, raw).get("brokerid")
    if not isinstance(broker_id, int):
        raise StorageError(f"metadata node {CONTROLLER} has no brokerid")
    return broker_id


def encode_controller_epoch(epoch: int) -> bytes:
    """``/controller_epoch``: bare digits."""
    return str(epoch).encode()


def decode_controller_epoch(raw: bytes) -> int:
    """The inverse of :func:`encode_controller_epoch`."""
    try:
        return int(raw)
    except ValueError as error:
        raise StorageError(f"metadata node {CONTROLLER_EPOCH} holds {raw!r}, which is no number") from error


def encode_config(config: Mapping[str, str]) -> bytes:
    """``/config/…``: overrides of one entity."""
    return _encode({"version": 1, "config": config})


def decode_config(path: str, raw: bytes) -> dict[str, str]:
    """Overrides of one entity; an empty node has none."""
    return dict(decode_json(_ConfigPayload, path, raw).config) if raw else {}


class _ConfigPayload(msgspec.Struct):
    config: dict[str, str] = {}


def encode_feature(features: Mapping[str, int]) -> bytes:
    """``/feature``: the finalized feature levels, enabled."""
    levels = {name: {"max_version_level": level} for name, level in features.items()}
    return _encode({"version": 2, "status": 1, "features": levels})


def decode_feature(raw: bytes) -> dict[str, int]:
    """Finalized feature levels; none while the feature is disabled."""
    payload = decode_json(_FeaturePayload, FEATURE, raw)
    if not payload.status:
        return {}
    return {name: levels.max_version_level for name, levels in payload.features.items()}


class _FeatureLevels(msgspec.Struct):
    max_version_level: int


class _FeaturePayload(msgspec.Struct):
    version: int
    status: int
    features: dict[str, _FeatureLevels] = {}
