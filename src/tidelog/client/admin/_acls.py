"""Access rules of a cluster: describing, creating and deleting them, at whichever broker answers.

Rules and filters are those of ``tidelog.security.acls``. Called by ``tidelog acls``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.client._network.cluster import Cluster
from tidelog.client.errors import error_from
from tidelog.client.resources import Outcome
from tidelog.errors import KafkaError
from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    ResourcePattern,
    operation_of,
    pattern_type_of,
    permission_of,
    resource_type_of,
)
from tidelog.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from tidelog.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from tidelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


@dataclass(frozen=True, slots=True)
class AclResult(Outcome):
    """What became of one rule."""

    binding: AclBinding
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class DeletedAcls(Outcome):
    """The rules that one filter meant, each with its own outcome; or what was wrong with the filter."""

    filter: AclFilter
    results: tuple[AclResult, ...] = ()
    error: KafkaError | None = None


async def describe_acls(cluster: Cluster, wanted: AclFilter) -> list[AclBinding]:
    """The rules that a filter means; raises what the broker refuses."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    response = await cluster.request_any(request, DescribeAclsResponse)
    error = error_from(response.error_code, response.error_message, "the list of access rules")
    if error is not None:
        raise error
    return [
        AclBinding(
            ResourcePattern(
                resource_type_of(each.resource_type), each.resource_name, pattern_type_of(each.pattern_type)
            ),
            AclEntry(
                acl.principal, acl.host, operation_of(acl.operation), permission_of(acl.permission_type)
            ),
        )
        for each in response.resources
        for acl in each.acls
    ]


async def create_acls(cluster: Cluster, bindings: Sequence[AclBinding]) -> list[AclResult]:
    """Add rules; those that are there already are fine."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=pattern.type,
                resource_name=pattern.name,
                resource_pattern_type=pattern.pattern_type,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entry in bindings
        ]
    )
    response = await cluster.request_any(request, CreateAclsResponse)
    return [
        AclResult(binding, error_from(each.error_code, each.error_message, f"the rule {binding}"))
        for binding, each in zip(bindings, response.results, strict=True)
    ]


async def delete_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> list[DeletedAcls]:
    """Remove the rules that filters mean."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.resource_type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )
    response = await cluster.request_any(request, DeleteAclsResponse)
    return [
        DeletedAcls(
            wanted,
            tuple(map(_deleted, found.matching_acls)),
            error_from(found.error_code, found.error_message, "the filter of access rules"),
        )
        for wanted, found in zip(filters, response.filter_results, strict=True)
    ]


def _deleted(each: DeleteAclsMatchingAcl) -> AclResult:
    binding = AclBinding(
        ResourcePattern(
            resource_type_of(each.resource_type), each.resource_name, pattern_type_of(each.pattern_type)
        ),
        AclEntry(
            each.principal, each.host, operation_of(each.operation), permission_of(each.permission_type)
        ),
    )
    return AclResult(binding, error_from(each.error_code, each.error_message, f"the rule {binding}"))
