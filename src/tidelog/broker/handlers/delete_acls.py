"""DeleteAcls, versions 1 to 3: SECURITY_DISABLED, as a Kafka broker without an authorizer answers."""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse

API = ApiKey.DELETE_ACLS
VERSIONS = (1, 3)


def handle(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse every filter: there are no ACLs."""
    return refuse(request, KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."))


def refuse(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    """The answer when no filter can be applied."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=error.code, error_message=error.message or None)
            for _ in request.filters
        ]
    )
