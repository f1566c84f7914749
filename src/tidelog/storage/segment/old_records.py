"""The records of one message of format 0 or 1 for compaction, as a batch of format 2 has them.

What the cleaner writes is of format 2 alone, as in Kafka 4 (KIP-724): a message becomes a batch with its
codec, a compressed one a batch of all that it carries. Records of format 0 have no timestamp and get -1. A
compressed message is unpacked piece by piece, as often as it is needed, and what it may hold is bounded
(``legacy.BROKER_LIMITS``). Used by ``compaction`` and ``record_filter``, in the cleaner's process.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import MAGIC_V2, MAX_INT32, BatchHeader, Buffer
from tidelog.records.legacy import BROKER_LIMITS, LegacyMessage, messages_in, open_legacy
from tidelog.records.record import Record, encode_records
from tidelog.storage.segment.batch_records import BatchRecords

_AT_ONCE = 1000


class OldRecords(BatchRecords):
    """The records of the message at ``pos``."""

    def __init__(self, buf: Buffer, pos: int, header: BatchHeader) -> None:
        super().__init__(buf, pos, header)
        self.converted = header
        """The header of a batch of format 2 with all records, once they are checked."""

    def check(self) -> None:
        """Raise ``CorruptRecordError`` unless every record can be read and all fit one batch."""
        stored = self._header
        count = first_offset = first_timestamp = 0
        highest = stored.max_timestamp
        for message in self._messages():
            if not count:
                first_offset, first_timestamp = message.offset, message.timestamp
                highest = message.timestamp
            count += 1
            highest = max(highest, message.timestamp)
        last_offset_delta = stored.last_offset - first_offset
        if last_offset_delta > MAX_INT32:
            raise CorruptRecordError(f"offsets {first_offset} and {stored.last_offset} are too far apart")
        self.converted = stored._replace(
            base_offset=first_offset,
            magic=MAGIC_V2,
            last_offset_delta=last_offset_delta,
            base_timestamp=first_timestamp,
            max_timestamp=highest,
            record_count=count,
        )

    def pieces(self) -> Iterator[bytes]:
        """The records, some at a time."""
        first_offset, first_timestamp = self.converted.base_offset, self.converted.base_timestamp
        messages = self._messages()
        while some := list(islice(messages, _AT_ONCE)):
            records = [Record(each.offset, each.timestamp, each.key, each.value) for each in some]
            yield encode_records(records, first_offset, first_timestamp)[0]

    def _messages(self) -> Iterator[LegacyMessage]:
        return messages_in(open_legacy(self._buf, self._pos), BROKER_LIMITS)
