"""OffsetCommit records read by hand, because a coordinator may have to read millions before it serves.

Understands what Kafka since 2.1 and this broker write: keys of type 1, values of version 3 and 4::

    key      int16 1, string group, string topic, int32 partition
    value 3  int16 3, int64 offset, int32 leader epoch, string metadata, int64 commit timestamp
    value 4  the same with a compact string, and tagged fields: none, or 0 = the topic's id

Everything else, and everything that looks wrong, is left to the general path, which knows what to say.
``tests/unit/coordinator/offsets/test_raw_commit.py`` holds both paths against each other.
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error

from tidelog.coordinator.group.offsets.committed_offset import NO_EXPIRY, CommittedOffset
from tidelog.ids import ZERO_UUID, Uuid

_type_and_length = Struct(">hh").unpack_from
_int16 = Struct(">h").unpack_from
_int32 = Struct(">i").unpack_from
_int64 = Struct(">q").unpack_from
_value_head = Struct(">hqi").unpack_from

_KEY_TYPE = 1
_GROUP_AT = 4
_METADATA_AT = 14
_NO_TAGS = b"\0"
_TOPIC_ID_TAG = b"\1\0\x10"
_TOPIC_ID_SIZE = 16


class RawCommits:
    """Reads records of one shard; keeps one copy of each topic id."""

    def __init__(self) -> None:
        self._topic_ids: dict[bytes, Uuid] = {}

    def key(self, key: bytes) -> tuple[str, str, int] | None:
        """Group, topic and partition, if ``key`` is one of the usual ones."""
        try:
            record_type, length = _type_and_length(key)
            if record_type != _KEY_TYPE or length < 0:
                return None
            end = _GROUP_AT + length
            (length,) = _int16(key, end)
            topic_at = end + 2
            topic_end = topic_at + length
            if length < 0 or topic_end + 4 != len(key):
                return None
            return key[_GROUP_AT:end].decode(), key[topic_at:topic_end].decode(), _int32(key, topic_end)[0]
        except (struct_error, UnicodeDecodeError):
            return None

    def value(self, record_offset: int, value: bytes) -> CommittedOffset | None:
        """The offset in ``value``, if that is one of the usual ones."""
        try:
            version, offset, leader_epoch = _value_head(value)
            if version == 4:
                length = value[_METADATA_AT] - 1
                start = _METADATA_AT + 1
                # A second byte of the length means a long string, or the length is that of null.
                if not 0 <= length < 0x7F:
                    return None
            elif version == 3:
                (length,) = _int16(value, _METADATA_AT)
                start = _METADATA_AT + 2
                if length < 0:
                    return None
            else:
                return None
            end = start + length
            metadata = value[start:end].decode() if length else ""
            (committed_at_ms,) = _int64(value, end)
        except (struct_error, IndexError, UnicodeDecodeError):
            return None
        topic_id = self._topic_id(value, end + 8) if version == 4 else _rest_is(value, end + 8, b"")
        if topic_id is None:
            return None
        return CommittedOffset(
            offset, leader_epoch, metadata, committed_at_ms, NO_EXPIRY, topic_id, record_offset
        )

    def _topic_id(self, value: bytes, pos: int) -> Uuid | None:
        id_at = pos + len(_TOPIC_ID_TAG)
        if len(value) == id_at + _TOPIC_ID_SIZE and value.startswith(_TOPIC_ID_TAG, pos):
            raw = value[id_at:]
            return self._topic_ids.setdefault(raw, Uuid(raw))
        return _rest_is(value, pos, _NO_TAGS)


def _rest_is(value: bytes, pos: int, expected: bytes) -> Uuid | None:
    return ZERO_UUID if value[pos:] == expected else None
