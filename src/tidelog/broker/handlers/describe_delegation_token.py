"""DescribeDelegationToken 1 to 3: refused, as tokens stand for somebody who has logged in.

Behaviour as on a PLAINTEXT listener of Kafka: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

API = ApiKey.DESCRIBE_DELEGATION_TOKEN
VERSIONS = (1, 3)


def handle(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """There are no tokens."""
    return DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
