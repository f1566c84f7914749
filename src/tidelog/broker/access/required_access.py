"""What each API needs: the one table of operations and resources, from which requests are checked and the
page ``docs/reference/access.md`` is written.

A need whose ``field`` is set concerns the whole request and is checked by ``broker/exchange/dispatch``: the
resource is named by that field of the request, or is the cluster. The others concern single things in a
request; their handlers check them. A test holds that every API served is here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.broker.access.authorization import Authorization, refusal
from tidelog.security.acls.model import CLUSTER_NAME, Operation, ResourceType
from tidelog.security.session import Session
from tidelog.wire.api import ApiKey
from tidelog.wire.schema import Payload

_CLUSTER_FIELD: Final = "the cluster"


class Need(NamedTuple):
    """An operation on a resource."""

    operation: Operation
    kind: ResourceType
    field: str = ""
    """What names the resource of a whole request."""
    instead: Operation | None = None
    """Another operation on the same resource that does as well."""


class Access(NamedTuple):
    """What an API needs, and what is told to who lacks it."""

    needs: tuple[Need, ...]
    note: str = ""


def _cluster(operation: Operation, instead: Operation | None = None) -> Need:
    return Need(operation, ResourceType.CLUSTER, _CLUSTER_FIELD, instead)


def _group(operation: Operation) -> Need:
    return Need(operation, ResourceType.GROUP, "group_id")


def _transaction(operation: Operation) -> Need:
    return Need(operation, ResourceType.TRANSACTIONAL_ID, "transactional_id")


def _each(operation: Operation, kind: ResourceType, instead: Operation | None = None) -> Need:
    return Need(operation, kind, "", instead)


_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_ID = ResourceType.TRANSACTIONAL_ID
_Op = Operation

_NOTHING = Access((), "Open to everybody who may connect.")
_TOKENS = Access(
    (),
    "A client that has logged in asks for tokens of its own. One of somebody else needs CREATE_TOKENS on "
    "that user to be made, and DESCRIBE_TOKENS on the user, or DESCRIBE on the token, to be seen.",
)

REQUIRED: Final[dict[ApiKey, Access]] = {
    ApiKey.PRODUCE: Access(
        (_each(_Op.WRITE, _TOPIC), _each(_Op.WRITE, _ID)),
        "Each topic is refused by itself; without the transactional id, the whole of a request with "
        "transactional records.",
    ),
    ApiKey.FETCH: Access(
        (_each(_Op.READ, _TOPIC), _each(_Op.CLUSTER_ACTION, _CLUSTER)),
        "Consumers need READ on each topic, which is refused by itself. Followers need CLUSTER_ACTION "
        "instead; without it every topic is refused.",
    ),
    ApiKey.LIST_OFFSETS: Access((_each(_Op.DESCRIBE, _TOPIC),), "Each topic is refused by itself."),
    ApiKey.METADATA: Access(
        (_each(_Op.DESCRIBE, _TOPIC), _each(_Op.CREATE, _CLUSTER), _each(_Op.CREATE, _TOPIC)),
        "Topics that may not be described are left out of a list of all, and refused, without saying whether "
        "they exist, where they were asked for. A topic is created on the way with CREATE on the cluster or "
        "on the topic. Authorized operations of the cluster need DESCRIBE on it.",
    ),
    ApiKey.LEADER_AND_ISR: Access((_cluster(_Op.CLUSTER_ACTION),)),
    ApiKey.STOP_REPLICA: Access((_cluster(_Op.CLUSTER_ACTION),)),
    ApiKey.UPDATE_METADATA: Access((_cluster(_Op.CLUSTER_ACTION),)),
    ApiKey.CONTROLLED_SHUTDOWN: Access((_cluster(_Op.CLUSTER_ACTION),)),
    ApiKey.OFFSET_COMMIT: Access(
        (_group(_Op.READ), _each(_Op.READ, _TOPIC)), "Each topic is refused by itself."
    ),
    ApiKey.OFFSET_FETCH: Access(
        (_each(_Op.DESCRIBE, _GROUP), _each(_Op.DESCRIBE, _TOPIC)),
        "Each group and each topic is refused by itself; where all topics were asked for, those that may not "
        "be described are left out.",
    ),
    ApiKey.FIND_COORDINATOR: Access(
        (_each(_Op.DESCRIBE, _GROUP), _each(_Op.DESCRIBE, _ID)), "Each key is refused by itself."
    ),
    ApiKey.JOIN_GROUP: Access((_group(_Op.READ),)),
    ApiKey.HEARTBEAT: Access((_group(_Op.READ),)),
    ApiKey.LEAVE_GROUP: Access((_group(_Op.READ),)),
    ApiKey.SYNC_GROUP: Access((_group(_Op.READ),)),
    ApiKey.DESCRIBE_GROUPS: Access((_each(_Op.DESCRIBE, _GROUP),), "Each group is refused by itself."),
    ApiKey.LIST_GROUPS: Access(
        (_each(_Op.DESCRIBE, _CLUSTER), _each(_Op.DESCRIBE, _GROUP)),
        "With DESCRIBE on the cluster all groups, otherwise those that may be described; never an error.",
    ),
    ApiKey.SASL_HANDSHAKE: _NOTHING,
    ApiKey.API_VERSIONS: _NOTHING,
    ApiKey.SASL_AUTHENTICATE: _NOTHING,
    ApiKey.CREATE_TOPICS: Access(
        (
            _each(_Op.CREATE, _CLUSTER),
            _each(_Op.CREATE, _TOPIC),
            _each(_Op.DESCRIBE_CONFIGS, _TOPIC),
        ),
        "CREATE on the cluster or on each topic, which is refused by itself. The answer tells partitions and "
        "configs of a new topic only with DESCRIBE_CONFIGS on it.",
    ),
    ApiKey.DELETE_TOPICS: Access(
        (_each(_Op.DELETE, _TOPIC), _each(_Op.DESCRIBE, _TOPIC), _each(_Op.DELETE, _CLUSTER)),
        "Each topic is refused by itself, unless DELETE is allowed on the cluster, which is not enough for "
        "the audit log; one named by its id keeps its name to itself without DESCRIBE.",
    ),
    ApiKey.DELETE_RECORDS: Access((_each(_Op.DELETE, _TOPIC),), "Each topic is refused by itself."),
    ApiKey.INIT_PRODUCER_ID: Access(
        (
            _each(_Op.WRITE, _ID),
            _each(_Op.TWO_PHASE_COMMIT, _ID),
            _each(_Op.IDEMPOTENT_WRITE, _CLUSTER),
            _each(_Op.WRITE, _TOPIC),
        ),
        "With a transactional id WRITE on that, and TWO_PHASE_COMMIT for two-phase commit; without one "
        "IDEMPOTENT_WRITE on the cluster or WRITE on any topic.",
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Access(
        (_each(_Op.CLUSTER_ACTION, _CLUSTER), _each(_Op.DESCRIBE, _TOPIC)),
        "CLUSTER_ACTION, or DESCRIBE on each topic, which is refused by itself.",
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Access(
        (_each(_Op.WRITE, _ID), _each(_Op.WRITE, _TOPIC), _each(_Op.CLUSTER_ACTION, _CLUSTER)),
        "Producers need WRITE on the id and on each topic; if one is refused, nothing is added. Brokers "
        "(version 4 and later) need CLUSTER_ACTION instead.",
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: Access((_transaction(_Op.WRITE), _group(_Op.READ))),
    ApiKey.END_TXN: Access((_transaction(_Op.WRITE),)),
    ApiKey.WRITE_TXN_MARKERS: Access((_cluster(_Op.CLUSTER_ACTION, _Op.ALTER),)),
    ApiKey.TXN_OFFSET_COMMIT: Access(
        (_transaction(_Op.WRITE), _group(_Op.READ), _each(_Op.READ, _TOPIC)),
        "Each topic is refused by itself.",
    ),
    ApiKey.DESCRIBE_ACLS: Access((_cluster(_Op.DESCRIBE),)),
    ApiKey.CREATE_ACLS: Access((_cluster(_Op.ALTER),)),
    ApiKey.DELETE_ACLS: Access((_cluster(_Op.ALTER),)),
    ApiKey.DESCRIBE_CONFIGS: Access(
        tuple(_each(_Op.DESCRIBE_CONFIGS, kind) for kind in (_CLUSTER, _TOPIC, _GROUP)),
        "Each resource is refused by itself; brokers, their loggers and client metrics are the cluster's.",
    ),
    ApiKey.ALTER_CONFIGS: Access(
        tuple(_each(_Op.ALTER_CONFIGS, kind) for kind in (_CLUSTER, _TOPIC, _GROUP)),
        "Each resource is refused by itself; brokers and client metrics are the cluster's.",
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Access(
        tuple(_each(_Op.ALTER_CONFIGS, kind) for kind in (_CLUSTER, _TOPIC, _GROUP)),
        "Each resource is refused by itself; brokers, their loggers and client metrics are the cluster's.",
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Access((_cluster(_Op.ALTER),)),
    ApiKey.DESCRIBE_LOG_DIRS: Access((_cluster(_Op.DESCRIBE),)),
    ApiKey.CREATE_PARTITIONS: Access((_each(_Op.ALTER, _TOPIC),), "Each topic is refused by itself."),
    ApiKey.CREATE_DELEGATION_TOKEN: _TOKENS,
    ApiKey.RENEW_DELEGATION_TOKEN: _TOKENS,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _TOKENS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _TOKENS,
    ApiKey.DELETE_GROUPS: Access((_each(_Op.DELETE, _GROUP),), "Each group is refused by itself."),
    ApiKey.ELECT_LEADERS: Access((_each(_Op.ALTER, _CLUSTER),)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Access((_cluster(_Op.ALTER),)),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Access((_cluster(_Op.DESCRIBE_CONFIGS),)),
    ApiKey.ALTER_CLIENT_QUOTAS: Access((_cluster(_Op.ALTER_CONFIGS),)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Access((_cluster(_Op.DESCRIBE),)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Access((_cluster(_Op.ALTER),)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Access((_cluster(_Op.DESCRIBE),)),
    ApiKey.OFFSET_DELETE: Access(
        (_group(_Op.DELETE), _each(_Op.READ, _TOPIC)), "Each topic is refused by itself."
    ),
    ApiKey.ALTER_PARTITION: Access((_cluster(_Op.CLUSTER_ACTION),)),
    ApiKey.UPDATE_FEATURES: Access((_cluster(_Op.ALTER),)),
    ApiKey.DESCRIBE_CLUSTER: Access(
        (), "Open to everybody who may connect; authorized operations need DESCRIBE on the cluster."
    ),
    ApiKey.DESCRIBE_PRODUCERS: Access((_each(_Op.READ, _TOPIC),), "Each topic is refused by itself."),
    ApiKey.DESCRIBE_TRANSACTIONS: Access(
        (_each(_Op.DESCRIBE, _ID), _each(_Op.DESCRIBE, _TOPIC)),
        "Each id is refused by itself; topics that may not be described are left out.",
    ),
    ApiKey.LIST_TRANSACTIONS: Access(
        (_each(_Op.DESCRIBE, _ID),), "Those that may not be described are left out."
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: Access((_cluster(_Op.CLUSTER_ACTION),)),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Access(
        (_group(_Op.READ), _each(_Op.DESCRIBE, _TOPIC)),
        "One subscribed topic that may not be described refuses the request; of those that a regular "
        "expression matches, such topics are left out.",
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Access(
        (_each(_Op.DESCRIBE, _GROUP), _each(_Op.DESCRIBE, _TOPIC)),
        "Each group is refused by itself, also where it has been assigned a topic that may not be described.",
    ),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _NOTHING,
    ApiKey.PUSH_TELEMETRY: _NOTHING,
    ApiKey.LIST_CONFIG_RESOURCES: Access((_cluster(_Op.DESCRIBE_CONFIGS),)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Access(
        (_each(_Op.DESCRIBE, _TOPIC),),
        "Topics that may not be described are left out of a list of all, and refused where they were asked "
        "for.",
    ),
}

Check = Callable[[Session, Payload], None]


def needs_of_request(key: ApiKey) -> tuple[Need, ...]:
    """The needs that concern the whole of a request."""
    access = REQUIRED.get(key)
    return () if access is None else tuple(need for need in access.needs if need.field)


def is_about_cluster(key: ApiKey) -> bool:
    """Whether nothing can be done by an API without a right to the cluster."""
    return any(need.field == _CLUSTER_FIELD for need in needs_of_request(key))


def check_of(key: ApiKey, authorization: Authorization) -> Check | None:
    """What raises the refusal of a whole request; ``None`` if there is nothing to check."""
    needs = needs_of_request(key)
    if not authorization.is_on or not needs:
        return None

    def check(session: Session, request: Payload) -> None:
        for operation, kind, field, instead in needs:
            name = CLUSTER_NAME if field == _CLUSTER_FIELD else getattr(request, field)
            if instead is not None and authorization.allows(session, instead, kind, name, instead=True):
                continue
            if not authorization.allows(session, operation, kind, name):
                raise refusal(session, operation, kind, name)

    return check
