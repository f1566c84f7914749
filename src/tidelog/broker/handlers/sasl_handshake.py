"""SaslHandshake 0 and 1: refused, as there is no listener on which clients log in.

Behaviour as on a PLAINTEXT listener of Kafka: ILLEGAL_SASL_STATE and no mechanisms.
"""

from __future__ import annotations

from tidelog.broker.context import RequestContext
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

API = ApiKey.SASL_HANDSHAKE
VERSIONS = (0, 1)


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Nobody logs in here."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
