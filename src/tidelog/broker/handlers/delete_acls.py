"""DeleteAcls 1 to 3: removes the access rules that filters mean, and tells which these were.

A rule that several filters of a request mean is told for the first of them. SECURITY_DISABLED without an
authorizer; a filter with a code of the future is INVALID_REQUEST, where Kafka closes the connection.
"""

from __future__ import annotations

from tidelog.broker.access.acl_requests import filter_of, without_rules
from tidelog.broker.access.authorization import Authorization
from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.store import StoreError
from tidelog.scheduling.yielding import yielding_every
from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import AclBinding
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)

API = ApiKey.DELETE_ACLS
VERSIONS = (1, 3)

_BATCH_SIZE = 100


async def handle(
    context: RequestContext, request: DeleteAclsRequest, authorization: Authorization
) -> DeleteAclsResponse:
    """Remove what the filters mean."""
    if authorization.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, f"{without_rules(authorization)}.")
    filters: list[AclFilter | KafkaError] = []
    async for each in yielding_every(_BATCH_SIZE, request.filters):
        try:
            filters.append(
                filter_of(
                    each.resource_type_filter,
                    each.resource_name_filter,
                    each.pattern_type_filter,
                    each.principal_filter,
                    each.host_filter,
                    each.operation,
                    each.permission_type,
                )
            )
        except KafkaError as error:
            filters.append(error)
    removed = await authorization.acls.remove([each for each in filters if isinstance(each, AclFilter)])
    log = authorization.log
    found = iter(removed)
    response = DeleteAclsResponse()
    async for wanted in yielding_every(_BATCH_SIZE, filters):
        if isinstance(wanted, KafkaError):
            response.filter_results.append(_refusal(wanted))
            continue
        result = DeleteAclsFilterResult(error_message=None)
        async for binding, failure in yielding_every(_BATCH_SIZE, next(found).items()):
            if failure is None and log is not None:
                log.changed(context.session, "removed", binding)
            result.matching_acls.append(_removed(binding, failure))
        response.filter_results.append(result)
    return response


def _refusal(error: KafkaError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.message or None)


def _removed(binding: AclBinding, failure: StoreError | None) -> DeleteAclsMatchingAcl:
    pattern, entry = binding
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE if failure is None else ErrorCode.UNKNOWN_SERVER_ERROR,
        error_message=None if failure is None else str(failure),
        resource_type=pattern.type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
