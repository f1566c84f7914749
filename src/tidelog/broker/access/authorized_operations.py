"""What a client may do, as bit fields in answers: by access rules, and everything without an authorizer.

Bit N stands for the ACL operation with the code N. Called by the handlers that are asked for it (Metadata,
DescribeCluster, DescribeTopicPartitions, DescribeGroups, ConsumerGroupDescribe).
"""

from __future__ import annotations

from typing import Final

from tidelog.broker.access.authorization import Authorization
from tidelog.security.acls.model import Operation, ResourceType
from tidelog.security.acls.supported import SUPPORTED_OPERATIONS, bit_field
from tidelog.security.session import Session

NOT_ASKED: Final = -(2**31)
"""What stands in a response whose request did not ask."""

TOPIC_OPERATIONS: Final = bit_field(SUPPORTED_OPERATIONS[ResourceType.TOPIC])
CLUSTER_OPERATIONS: Final = bit_field(SUPPORTED_OPERATIONS[ResourceType.CLUSTER])
GROUP_OPERATIONS: Final = bit_field(SUPPORTED_OPERATIONS[ResourceType.GROUP])


def topic_operations(authorization: Authorization, session: Session, topic: str) -> int:
    """What a client may do to a topic."""
    if not authorization.is_on:
        return TOPIC_OPERATIONS
    return authorization.operations(session, ResourceType.TOPIC, topic)


def group_operations(authorization: Authorization, session: Session, group_id: str) -> int:
    """What a client may do to a group."""
    if not authorization.is_on:
        return GROUP_OPERATIONS
    return authorization.operations(session, ResourceType.GROUP, group_id)


def cluster_operations(authorization: Authorization, session: Session) -> int:
    """What a client may do to the cluster; nothing is said to those who may not describe it."""
    if not authorization.is_on:
        return CLUSTER_OPERATIONS
    if not authorization.allows(session, Operation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return authorization.operations(session, ResourceType.CLUSTER)
