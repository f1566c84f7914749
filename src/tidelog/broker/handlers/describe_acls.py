"""DescribeAcls, versions 1 to 3: SECURITY_DISABLED, as a Kafka broker without an authorizer answers."""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

API = ApiKey.DESCRIBE_ACLS
VERSIONS = (1, 3)


def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """There are no ACLs to describe."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
