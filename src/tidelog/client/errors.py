"""What can go wrong between a client and a cluster, besides the codes that brokers answer with.

    ClientError                 a sentence for a person, as all of Tidelog's errors
    ├── BrokerUnreachableError  no connection could be opened
    ├── ConnectionLostError     a connection closed while requests were under way
    ├── RequestTimeoutError     a broker has not answered in time
    ├── NoLeaderError           metadata names no leader for a partition
    ├── AuthenticationError     TLS or SASL: one side does not accept who the other is
    └── ClientClosedError       a client was used after its close, or in a forked child

The first four and every retriable ``KafkaError`` may go away by themselves: ``is_retriable`` says so.
"""

from __future__ import annotations

from tidelog.errors import ErrorCode, KafkaError, TidelogError

_PREDICATES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "does not exist",
    ErrorCode.NON_EMPTY_GROUP: "has members",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "is of a topic that members of the group read",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "does not exist",
}


class ClientError(TidelogError):
    """Root of what the client raises by itself."""

    is_reported = False
    """Whether a warning of the connection has named it already."""


class BrokerUnreachableError(ClientError):
    """A broker to which no connection can be opened."""


class ConnectionLostError(ClientError):
    """The connection closed before the answer came; the request may or may not have been carried out."""


class RequestTimeoutError(ClientError):
    """No answer within the time allowed; the request may or may not have been carried out."""


class NoLeaderError(ClientError):
    """A partition that has no leader now."""


class AuthenticationError(ClientError):
    """One side does not accept who the other says it is; trying again with the same options is no use."""


class ClientClosedError(ClientError):
    """A client that cannot be used any more."""


NO_ANSWER = (BrokerUnreachableError, ConnectionLostError, RequestTimeoutError)
"""A broker has not answered: another one may, or the same one later."""


def is_retriable(error: BaseException) -> bool:
    """Whether the same request may succeed if it is sent again."""
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, (*NO_ANSWER, NoLeaderError))


def error_from(code: int, message: str | None, subject: str) -> KafkaError | None:
    """The error that a broker answered with, None for 0.

    ``subject`` is what was asked for; it is named where the broker's own text does not.
    """
    if code == ErrorCode.NONE:
        return None
    known = ErrorCode(code)
    if known is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(known, f"{subject} does not exist")
    if message:
        return KafkaError(known, message)
    if known in _PREDICATES:
        return KafkaError(known, f"{subject} {_PREDICATES[known]}")
    if known is ErrorCode.UNKNOWN_SERVER_ERROR and code != ErrorCode.UNKNOWN_SERVER_ERROR:
        return KafkaError(known, f"{subject}: error {code}, which this client does not know")
    return KafkaError(known, f"{subject}: {known.name.lower().replace('_', ' ')}")
