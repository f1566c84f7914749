"""The records of one message of format 0 or 1 for compaction: the twin of ``batch_records``.

A compressed message carries a whole message set, which is unpacked piece by piece, as often as it is needed;
what it may hold is bounded (``legacy.BROKER_LIMITS``). :func:`rewritten` makes a message of the same format
and codec of those that stay. Used by ``compaction`` and ``record_filter``, in the cleaner's process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.ids import NO_TIMESTAMP
from tidelog.records.batch import LOG_APPEND_TIME, MAGIC_V0, MAGIC_V1, TIMESTAMP_TYPE_BIT, Buffer
from tidelog.records.body_compressor import BodyCompressor
from tidelog.records.compression import Codec
from tidelog.records.legacy import (
    BROKER_LIMITS,
    LegacyMessage,
    lz4_of_format_0,
    messages_in,
    open_legacy,
    pack_legacy,
)


class OldRecords:
    """The records of the message at ``pos``, with their true offsets and times."""

    def __init__(self, buf: Buffer, pos: int) -> None:
        self._buf = buf
        self._pos = pos

    def check(self) -> None:
        """Raise ``CorruptRecordError`` unless every record can be read."""
        for _ in self.messages():
            pass

    def outer(self) -> LegacyMessage:
        """The message itself."""
        return open_legacy(self._buf, self._pos)

    def messages(self) -> Iterator[LegacyMessage]:
        """Every record; raises ``CorruptRecordError`` when it comes to one that cannot be read."""
        return messages_in(self.outer(), BROKER_LIMITS)


def rewritten(records: OldRecords, verdicts: Sequence[int]) -> bytes:
    """The compressed message with those of its records, at least one, that have a verdict of 1.

    As Kafka does it: format and codec stay, its offset and timestamp are those of what is left.
    """
    outer = records.outer()
    compressor = BodyCompressor(Codec(outer.codec), None)
    first = last = -1
    highest = NO_TIMESTAMP
    for message, stays in zip(records.messages(), verdicts, strict=True):
        if not stays:
            continue
        if first < 0:
            first = message.offset
        last = message.offset
        highest = max(highest, message.timestamp)
        compressor.write(
            pack_legacy(
                message.offset - first if outer.magic == MAGIC_V1 else message.offset,
                outer.magic,
                message.attributes & TIMESTAMP_TYPE_BIT,
                message.timestamp,
                message.key,
                message.value,
            )
        )
    payload = compressor.finish()
    if outer.magic == MAGIC_V0 and outer.codec == Codec.LZ4:
        payload = lz4_of_format_0(payload)
    timestamp = outer.timestamp if outer.timestamp_type == LOG_APPEND_TIME else highest
    return pack_legacy(last, outer.magic, outer.attributes, timestamp, outer.key, payload)
