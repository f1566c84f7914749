"""Which partition a key belongs to, so that clients of all languages agree.

Keys are hashed with murmur2 exactly as the Java client does it (``records/column_writer``).
``producer.partitioner`` says where records without a key go; ``producer.quick_send`` has a compiled twin.
"""

from __future__ import annotations

from tidelog.records.column_codec import murmur2


def partition_for_key(key: bytes, partition_count: int) -> int:
    """The partition of ``key`` among ``partition_count``, the same one that Java's producer chooses."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
