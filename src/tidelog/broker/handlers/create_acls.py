"""CreateAcls 1 to 3: adds access rules.

Rules of a request succeed and fail one by one; those of one pattern are written together. A rule that is
there already is no error. They hold on this broker when the answer leaves, and on others a moment later.
SECURITY_DISABLED without an authorizer; INVALID_REQUEST for a rule that cannot be
(``broker/access/acl_requests``).
"""

from __future__ import annotations

from tidelog.broker.access.acl_requests import binding_of, without_rules
from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.store import TooLargeError
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.model import AclBinding
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)

API = ApiKey.CREATE_ACLS
VERSIONS = (1, 3)

_BATCH_SIZE = 100


async def handle(
    context: RequestContext, request: CreateAclsRequest, authorization: Authorization
) -> CreateAclsResponse:
    """Add what can be added."""
    if authorization.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, f"{without_rules(authorization)}.")
    bindings: list[AclBinding | KafkaError] = []
    async for each in yielding_every(_BATCH_SIZE, request.creations):
        try:
            bindings.append(binding_of(each))
        except KafkaError as error:
            bindings.append(error)
    valid = [each for each in bindings if isinstance(each, AclBinding)]
    outcomes = await authorization.acls.add(valid)
    log = authorization.log
    results: list[AclCreationResult] = []
    async for binding in yielding_every(_BATCH_SIZE, bindings):
        if isinstance(binding, KafkaError):
            results.append(_refusal(binding))
        elif (failure := outcomes[binding.pattern]) is not None:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(failure, TooLargeError):
                code = ErrorCode.INVALID_REQUEST
            results.append(_refusal(KafkaError(code, str(failure))))
        else:
            if log is not None:
                log.changed(context.session, "added", binding)
            results.append(AclCreationResult(error_message=None))
    return CreateAclsResponse(results=results)


def _refusal(error: KafkaError) -> AclCreationResult:
    return AclCreationResult(error_code=error.code, error_message=error.message or None)
