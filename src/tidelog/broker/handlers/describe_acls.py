"""DescribeAcls 1 to 3: the access rules that a filter means.

SECURITY_DISABLED without an authorizer. Rules are told pattern by pattern. Difference: a filter with a code
of the future is INVALID_REQUEST, where Kafka closes the connection.
"""

from __future__ import annotations

from tidelog.broker.access.acl_requests import filter_of, without_rules
from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.slices import Slices
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

API = ApiKey.DESCRIBE_ACLS
VERSIONS = (1, 3)


def handle(
    context: RequestContext, request: DescribeAclsRequest, authorization: Authorization
) -> Slices[DescribeAclsResponse]:
    """Tell the rules."""
    if authorization.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, f"{without_rules(authorization)} on the broker")
    rules = authorization.acls.rules
    wanted = filter_of(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    response = DescribeAclsResponse(error_message=None)
    for pattern in rules.candidates(wanted):
        entries = [each for each in rules.entries(pattern) if wanted.matches_entry(each)]
        if entries:
            response.resources.append(
                DescribeAclsResource(
                    resource_type=pattern.type,
                    resource_name=pattern.name,
                    pattern_type=pattern.pattern_type,
                    acls=[
                        AclDescription(
                            principal=each.principal,
                            host=each.host,
                            operation=each.operation,
                            permission_type=each.permission,
                        )
                        for each in entries
                    ],
                )
            )
        yield
    return response
