"""What can go wrong between a client and a cluster, besides the codes that brokers answer with.

    ClientError                 a sentence for a person, as all of Tidelog's errors
    ├── BrokerUnreachableError  no connection could be opened
    ├── ConnectionLostError     a connection closed while requests were under way
    ├── RequestTimeoutError     a broker has not answered in time
    ├── NoLeaderError           metadata names no leader for a partition
    ├── AuthenticationError     TLS or SASL: one side does not accept who the other is
    ├── ClientClosedError       a client was used after its close, or in a forked child
    ├── IllegalStateError       a call that the consumer's state does not allow
    ├── NoOffsetForPartitionError    nothing is committed and auto.offset.reset is none
    └── LogTruncationError      records that were read are gone from the log and auto.offset.reset is none

More are in the ``errors`` of ``consumer``, ``producer`` and ``group``.
The first four and every retriable ``KafkaError`` may go away by themselves: ``is_retriable`` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import TopicPartition

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


class IllegalStateError(ClientError):
    """A call that does not fit what the consumer is doing."""


class NoOffsetForPartitionError(ClientError):
    """Partitions without a position: nothing committed, and no policy that says where to begin."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        super().__init__(
            f"no offset is committed for {_names(self.partitions)} and auto.offset.reset is none: "
            "seek to one, or set auto.offset.reset to earliest or latest"
        )


class LogTruncationError(ClientError):
    """Records before these positions were lost by the cluster (an unclean leader election)."""

    def __init__(self, divergent: Mapping[TopicPartition, int | None]) -> None:
        self.divergent_offsets = dict(divergent)
        places = ", ".join(
            f"{partition} from {'an unknown offset' if offset is None else offset} on"
            for partition, offset in sorted(divergent.items())
        )
        super().__init__(
            f"the cluster has lost records that were read already: {places}; auto.offset.reset is none: "
            "seek to where you want to go on"
        )


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


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions))
