"""Access rules and filters as requests bring them, checked as Kafka checks them.

Called by the handlers of DescribeAcls, CreateAcls and DeleteAcls.
"""

from __future__ import annotations

from tidelog.broker.access.authorization import Authorization
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.znodes.acl_znodes import cannot_be_kept
from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import (
    CLUSTER_NAME,
    STORED_PATTERN_TYPES,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    operation_of,
    pattern_type_of,
    permission_of,
    resource_type_of,
)
from tidelog.security.principal import parse_principal
from tidelog.wire.messages.create_acls import AclCreation

_NO_AUTHORIZER = "No Authorizer is configured"
_NO_RULES = "The authorizer of this broker is a custom class, which keeps no access rules"


def without_rules(authorization: Authorization) -> str:
    """Why there are no access rules to list or change."""
    return _NO_RULES if authorization.is_on else _NO_AUTHORIZER


def binding_of(creation: AclCreation) -> AclBinding:
    """The rule to add; raises INVALID_REQUEST if there can be no such rule."""
    pattern = ResourcePattern(
        resource_type_of(creation.resource_type),
        creation.resource_name,
        pattern_type_of(creation.resource_pattern_type),
    )
    entry = AclEntry(
        creation.principal,
        creation.host,
        operation_of(creation.operation),
        permission_of(creation.permission_type),
    )
    reason = _reason_refused(pattern, entry)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, reason)
    return AclBinding(pattern, entry)


def _reason_refused(pattern: ResourcePattern, entry: AclEntry) -> str | None:
    if pattern.type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not pattern.name:
        return "Invalid empty resource name"
    if pattern.type <= ResourceType.ANY:
        return f"Invalid resourceType {pattern.type.name}"
    if pattern.pattern_type not in STORED_PATTERN_TYPES:
        return f"Invalid patternType {pattern.pattern_type.name}"
    if entry.operation <= Operation.ANY:
        return f"Invalid operation {entry.operation.name}"
    if entry.permission <= Permission.ANY:
        return f"Invalid permissionType {entry.permission.name}"
    if cannot_be_kept(pattern.name):
        return f"The resource name {pattern.name!r} cannot be kept: it must not hold a slash, nor be . or .."
    try:
        parse_principal(entry.principal)
    except ValueError as error:
        return str(error)
    return None


def filter_of(
    resource_type: int,
    name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """The filter of a request; raises INVALID_REQUEST for codes of the future."""
    wanted = AclFilter(
        resource_type_of(resource_type),
        name,
        pattern_type_of(pattern_type),
        principal,
        host,
        operation_of(operation),
        permission_of(permission),
    )
    if (
        ResourceType.UNKNOWN is wanted.resource_type
        or PatternType.UNKNOWN is wanted.pattern_type
        or Operation.UNKNOWN is wanted.operation
        or Permission.UNKNOWN is wanted.permission
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The filter contains UNKNOWN elements")
    return wanted
