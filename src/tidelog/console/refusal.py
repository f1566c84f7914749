"""What the console answers when it cannot do what was asked: one sentence and an HTTP status.

Errors of the client and of brokers become refusals in one place, :func:`refusal_of`; the API calls it for
whatever a handler raises.
"""

from __future__ import annotations

import logging

from tidelog.client.errors import (
    AuthenticationError,
    BrokerUnreachableError,
    ConnectionLostError,
    NoLeaderError,
    RequestTimeoutError,
)
from tidelog.errors import ConfigError, ErrorCode, KafkaError, TidelogError

logger = logging.getLogger(__name__)

_NOT_FOUND = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
    }
)
_FORBIDDEN = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    }
)
_CONFLICT = frozenset(
    {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
)
_AWAY = (BrokerUnreachableError, ConnectionLostError, RequestTimeoutError, NoLeaderError, TimeoutError)


class Refusal(TidelogError):
    """The sentence that a person reads, the HTTP status, and a word for programs."""

    def __init__(self, text: str, status: int = 400, code: str = "BAD_REQUEST") -> None:
        super().__init__(text)
        self.status = status
        self.code = code


def forbidden(text: str) -> Refusal:
    """Somebody lacks the right."""
    return Refusal(text, 403, "FORBIDDEN")


def not_found(text: str) -> Refusal:
    """There is no such thing."""
    return Refusal(text, 404, "NOT_FOUND")


def refusal_of(error: Exception) -> Refusal:
    """``error`` for whoever asked; a bug of our own is logged with its traceback."""
    match error:
        case Refusal():
            return error
        case KafkaError():
            return Refusal(sentence(error), _status_of(error.code), error.code.name)
        case AuthenticationError():
            return Refusal(f"the cluster rejected the console's login: {error}", 502, "LOGIN_FAILED")
        case ConfigError():
            return Refusal(sentence(error))
        case error if isinstance(error, _AWAY):
            return Refusal(f"the cluster does not respond: {sentence(error)}", 503, "UNREACHABLE")
        case TidelogError():
            return Refusal(sentence(error), 502, "FAILED")
    logger.error("a request failed because of a bug in the console", exc_info=error)
    return Refusal(f"this is a bug in the console ({type(error).__name__}); its log says where", 500, "BUG")


def sentence(error: BaseException) -> str:
    """What a person reads of ``error``."""
    text = (error.message if isinstance(error, KafkaError) else str(error)).strip().rstrip(".")
    if isinstance(error, KafkaError):
        return f"{text or 'the broker refused'} ({error.code.name})"
    return text or type(error).__name__


def _status_of(code: ErrorCode) -> int:
    if code in _NOT_FOUND:
        return 404
    if code in _FORBIDDEN:
        return 403
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return 501
    return 409 if code in _CONFLICT else 400
