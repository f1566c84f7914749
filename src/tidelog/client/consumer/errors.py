"""What a consumer can raise by itself.

ClientError
├── IllegalStateError           a call that makes no sense now: poll without a subscription, seek elsewhere
├── ConsumerClosedError         a call on a consumer that was closed
├── WakeupError                 ``wakeup`` was called while another thread or task waited
├── ConsumerTimeoutError        a wait with a deadline ended; the text says what was waited for
├── NoOffsetForPartitionError   nothing is committed and auto.offset.reset is none
├── OffsetOutOfRangeError       a position that the log does not have and auto.offset.reset is none
├── LogTruncationError          records that were read are gone from the log and auto.offset.reset is none
├── RecordTooLargeError         a batch that no fetch can carry
└── RecordDeserializationError  a key or value that its deserializer refuses, and where it lies
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidelog.client.errors import ClientError
from tidelog.ids import TopicPartition


class IllegalStateError(ClientError):
    """A call that does not fit what the consumer is doing."""


class WakeupError(ClientError):
    """Somebody called ``wakeup``; nothing is lost, call again when you like."""


class ConsumerTimeoutError(ClientError):
    """Time is up; the text says what the consumer waited for and what stood in the way."""


class NoOffsetForPartitionError(ClientError):
    """Partitions without a position: nothing committed, and no policy that says where to begin."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        super().__init__(
            f"no offset is committed for {_names(self.partitions)} and auto.offset.reset is none: "
            "seek to one, or set auto.offset.reset to earliest or latest"
        )


class OffsetOutOfRangeError(ClientError):
    """Positions that lie outside of their logs, by partition."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)
        places = ", ".join(f"{partition} at {offset}" for partition, offset in sorted(offsets.items()))
        super().__init__(
            f"the log no longer has these positions: {places}; auto.offset.reset is none: seek to an offset "
            "between beginning_offsets and end_offsets, or set it to earliest or latest"
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


class RecordTooLargeError(ClientError):
    """A batch that is larger than a fetch may be; asking again would bring the same."""


class RecordDeserializationError(ClientError):
    """A key or value that its deserializer refuses; seek past ``offset`` to go on without the record."""

    def __init__(self, partition: TopicPartition, offset: int, part: str, cause: BaseException) -> None:
        self.partition = partition
        self.offset = offset
        self.part = part
        super().__init__(
            f"the {part} of {partition} at offset {offset} cannot be deserialized: {cause}; "
            "seek past it to go on"
        )


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions))
