"""CreateAcls, versions 1 to 3: SECURITY_DISABLED, as a Kafka broker without an authorizer answers."""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse

API = ApiKey.CREATE_ACLS
VERSIONS = (1, 3)


def handle(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse every entry: nothing would enforce it."""
    return refuse(request, KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured."))


def refuse(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    """The answer when no entry can be created."""
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=error.code, error_message=error.message or None)
            for _ in request.creations
        ]
    )
