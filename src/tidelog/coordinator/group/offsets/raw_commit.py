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
_TAGGED_ID_SIZE = len(_TOPIC_ID_TAG) + 16
_PARTITION_SIZE = 4
_MAX_NAMES = 10_000


class RawCommits:
    """Reads records of one shard; the same names and topic ids come again and again, and are kept."""

    def __init__(self) -> None:
        self._names: dict[bytes, tuple[str, str]] = {}
        self._topic_ids: dict[bytes, Uuid] = {}

    def key(self, key: bytes) -> tuple[str, str, int] | None:
        """Group, topic and partition, if ``key`` is one of the usual ones."""
        prefix = key[:-_PARTITION_SIZE]
        names = self._names.get(prefix)
        if names is None:
            names = _read_names(prefix)
            if names is None:
                return None
            if len(self._names) >= _MAX_NAMES:
                self._names.clear()
            self._names[prefix] = names
        return names[0], names[1], _int32(key, len(prefix))[0]

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
        rest = value[end + 8 :]
        if version == 4 and len(rest) == _TAGGED_ID_SIZE and rest.startswith(_TOPIC_ID_TAG):
            raw_id = rest[len(_TOPIC_ID_TAG) :]
            topic_id = self._topic_ids.setdefault(raw_id, Uuid(raw_id))
        elif rest == (_NO_TAGS if version == 4 else b""):
            topic_id = ZERO_UUID
        else:
            return None
        return CommittedOffset(
            offset, leader_epoch, metadata, committed_at_ms, NO_EXPIRY, topic_id, record_offset
        )


def _read_names(prefix: bytes) -> tuple[str, str] | None:
    """Group and topic of a key without its partition."""
    try:
        record_type, length = _type_and_length(prefix)
        end = _GROUP_AT + length
        (topic_length,) = _int16(prefix, end)
        topic_at = end + 2
        if record_type != _KEY_TYPE or length < 0 or topic_at + topic_length != len(prefix):
            return None
        return prefix[_GROUP_AT:end].decode(), prefix[topic_at:].decode()
    except (struct_error, UnicodeDecodeError):
        return None
