"""SaslAuthenticate 0 to 2: refused, as there is no listener on which clients log in.

Behaviour as on a PLAINTEXT listener of Kafka, where every connection counts as authenticated already:
ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

API = ApiKey.SASL_AUTHENTICATE
VERSIONS = (0, 2)


def handle(context: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    """Nobody logs in here."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
