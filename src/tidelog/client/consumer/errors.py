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

from collections.abc import Mapping

from tidelog.client.errors import ClientError
from tidelog.client.errors import IllegalStateError as IllegalStateError
from tidelog.client.errors import LogTruncationError as LogTruncationError
from tidelog.client.errors import NoOffsetForPartitionError as NoOffsetForPartitionError
from tidelog.ids import TopicPartition


class WakeupError(ClientError):
    """Somebody called ``wakeup``; nothing is lost, call again when you like."""


class ConsumerTimeoutError(ClientError):
    """Time is up; the text says what the consumer waited for and what stood in the way."""


class OffsetOutOfRangeError(ClientError):
    """Positions that lie outside of their logs, by partition."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)
        places = ", ".join(f"{partition} at {offset}" for partition, offset in sorted(offsets.items()))
        super().__init__(
            f"the log no longer has these positions: {places}; auto.offset.reset is none: seek to an offset "
            "between beginning_offsets and end_offsets, or set it to earliest or latest"
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
