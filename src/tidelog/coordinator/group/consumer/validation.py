"""Whether the consumer protocol is served at all, and what every ConsumerGroupHeartbeat must say.

Checked by the handlers, in Kafka's order, before any group is looked at.
"""

from __future__ import annotations

from collections.abc import Collection

from tidelog.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from tidelog.coordinator.group.group import GroupType
from tidelog.coordinator.group.groups import GroupSupport
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_CLIENT_MEMBER_ID_SINCE = 1
"""Since this version clients make up their member ids themselves (KIP-1082)."""
_FEATURE = "group.version"
_FEATURE_LEVEL = 1


def check_served(support: GroupSupport) -> None:
    """Raise UNSUPPORTED_VERSION unless options and the cluster's feature level allow the protocol."""
    served = GroupType.CONSUMER.value in support.config.list("group.coordinator.rebalance.protocols")
    if not served or support.image.features.get(_FEATURE, 0) < _FEATURE_LEVEL:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The consumer group protocol is not enabled: it takes consumer in "
            f"group.coordinator.rebalance.protocols and {_FEATURE}={_FEATURE_LEVEL}.",
        )


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]
) -> None:
    """Raise INVALID_REQUEST or UNSUPPORTED_ASSIGNOR."""
    epoch = request.member_epoch
    if api_version >= _CLIENT_MEMBER_ID_SINCE or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _require_text(request.member_id, "MemberId")
    _require_text(request.group_id, "GroupId")
    _require_text(request.instance_id, "InstanceId")
    _require_text(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _require_text(value: str | None, name: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
