"""Which APIs exist, under which key, and in which versions: the single table of the protocol.

``API_TABLE`` says what the code can read and write. What a broker serves is its own dispatch table; what
it tells clients is ``advertised_min`` to ``advertised_max``, which differ from the real range in two
places where Kafka's do too:

- Produce 0 to 2 are advertised and refused, because librdkafka gives up compression without them;
- InitProducerId 6 exists but Kafka 4.3 still calls it unstable, so it is accepted and not advertised.

Keys 4 to 7 are what a controller tells the brokers of a cluster with ZooKeeper. Kafka 4 has dropped them;
their versions are those of Kafka 3.9.

Message classes are imported on first use: a broker that never sees an API never pays for it.
"""

from __future__ import annotations

import enum
import importlib
from functools import cached_property
from typing import cast

from tidelog.errors import WireError
from tidelog.wire.schema import LATEST, Payload


class ApiKey(enum.IntEnum):
    """Kafka's API keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Api:
    """One API: the versions that can be read and written, those to advertise, and its two classes."""

    def __init__(
        self,
        key: ApiKey,
        min_version: int,
        max_version: int,
        flexible_since: int = LATEST,
        advertised_min: int | None = None,
        advertised_max: int | None = None,
    ) -> None:
        self.key = key
        self.min_version = min_version
        self.max_version = max_version
        self.flexible_since = flexible_since
        self.advertised_min = min_version if advertised_min is None else advertised_min
        self.advertised_max = max_version if advertised_max is None else advertised_max
        self.name = "".join(part.capitalize() for part in key.name.split("_"))
        self.module = f"tidelog.wire.messages.{key.name.lower()}"

    def __repr__(self) -> str:
        return f"Api({self.name} {self.min_version}..{self.max_version})"

    def accepts(self, version: int) -> bool:
        """Whether a body of this version can be read."""
        return self.min_version <= version <= self.max_version

    @cached_property
    def request(self) -> type[Payload]:
        """The request's message class."""
        return self._load(f"{self.name}Request")

    @cached_property
    def response(self) -> type[Payload]:
        """The response's message class."""
        return self._load(f"{self.name}Response")

    def _load(self, name: str) -> type[Payload]:
        return cast(type[Payload], getattr(importlib.import_module(self.module), name))


_TABLE = (
    Api(ApiKey.PRODUCE, 3, 13, 9, advertised_min=0),
    Api(ApiKey.FETCH, 4, 18, 12),
    Api(ApiKey.LIST_OFFSETS, 1, 11, 6),
    Api(ApiKey.METADATA, 0, 13, 9),
    Api(ApiKey.LEADER_AND_ISR, 0, 7, 4),
    Api(ApiKey.STOP_REPLICA, 0, 4, 2),
    Api(ApiKey.UPDATE_METADATA, 0, 8, 6),
    Api(ApiKey.CONTROLLED_SHUTDOWN, 0, 3, 3),
    Api(ApiKey.OFFSET_COMMIT, 2, 10, 8),
    Api(ApiKey.OFFSET_FETCH, 1, 10, 6),
    Api(ApiKey.FIND_COORDINATOR, 0, 6, 3),
    Api(ApiKey.JOIN_GROUP, 0, 9, 6),
    Api(ApiKey.HEARTBEAT, 0, 4, 4),
    Api(ApiKey.LEAVE_GROUP, 0, 5, 4),
    Api(ApiKey.SYNC_GROUP, 0, 5, 4),
    Api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
    Api(ApiKey.LIST_GROUPS, 0, 5, 3),
    Api(ApiKey.SASL_HANDSHAKE, 0, 1),
    Api(ApiKey.API_VERSIONS, 0, 4, 3),
    Api(ApiKey.CREATE_TOPICS, 2, 7, 5),
    Api(ApiKey.DELETE_TOPICS, 1, 6, 4),
    Api(ApiKey.DELETE_RECORDS, 0, 2, 2),
    Api(ApiKey.INIT_PRODUCER_ID, 0, 6, 2, advertised_max=5),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
    Api(ApiKey.END_TXN, 0, 5, 3),
    Api(ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
    Api(ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3),
    Api(ApiKey.DESCRIBE_ACLS, 1, 3, 2),
    Api(ApiKey.CREATE_ACLS, 1, 3, 2),
    Api(ApiKey.DELETE_ACLS, 1, 3, 2),
    Api(ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
    Api(ApiKey.ALTER_CONFIGS, 0, 2, 2),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
    Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
    Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, 2),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, 2),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, 2),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, 2),
    Api(ApiKey.DELETE_GROUPS, 0, 2, 2),
    Api(ApiKey.ELECT_LEADERS, 0, 2, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
    Api(ApiKey.OFFSET_DELETE, 0, 0),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0),
    Api(ApiKey.DESCRIBE_QUORUM, 0, 2, 0),
    Api(ApiKey.ALTER_PARTITION, 2, 3, 0),
    Api(ApiKey.UPDATE_FEATURES, 0, 2, 0),
    Api(ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
    Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
    Api(ApiKey.UNREGISTER_BROKER, 0, 0, 0),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
    Api(ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
    Api(ApiKey.ALLOCATE_PRODUCER_IDS, 0, 0, 0),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, 0, 0),
    Api(ApiKey.PUSH_TELEMETRY, 0, 0, 0),
    Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, 0),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, 0),
    Api(ApiKey.SHARE_FETCH, 1, 2, 0),
    Api(ApiKey.SHARE_ACKNOWLEDGE, 1, 2, 0),
    Api(ApiKey.ADD_RAFT_VOTER, 0, 1, 0),
    Api(ApiKey.REMOVE_RAFT_VOTER, 0, 0, 0),
    Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, 0),
    Api(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, 0),
    Api(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, 0),
    Api(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, 0),
    Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, 0),
    Api(ApiKey.STREAMS_GROUP_HEARTBEAT, 0, 0, 0),
    Api(ApiKey.STREAMS_GROUP_DESCRIBE, 0, 0, 0),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, 0),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, 0),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, 0),
)

API_TABLE: dict[ApiKey, Api] = {api.key: api for api in _TABLE}


def request_header_version(key: int, version: int) -> int:
    """Header version of a request: 2 (with tagged fields) where the body is flexible, else 1.

    Answers for versions that do not exist too, as the header of a request from the future must still be
    read to answer it; raises :class:`WireError` for a key that does not exist.
    """
    return 2 if version >= _api(key).flexible_since else 1


def response_header_version(key: int, version: int) -> int:
    """Header version of a response: 1 where the body is flexible, else 0; always 0 for ApiVersions.

    A client that asks for ApiVersions does not yet know what the broker speaks (KIP-511).
    """
    return 1 if version >= _api(key).flexible_since and key != ApiKey.API_VERSIONS else 0


def _api(key: int) -> Api:
    try:
        return API_TABLE[key]  # type: ignore[index]
    except KeyError:
        raise WireError(f"API key {key} does not exist") from None
