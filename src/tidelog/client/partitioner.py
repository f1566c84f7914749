"""Which partition a key belongs to, so that clients of all languages agree.

Keys are hashed with murmur2 exactly as the Java client does it (``records/column_writer``).
``producer.partitioner`` says where records without a key go; ``producer.quick_send`` has a compiled twin.
"""

from __future__ import annotations

from tidelog.records.column_codec import murmur2


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition of a key, the same one that Java's producer chooses.

    Args:
        key: The serialized key.
        partition_count: The number of the topic's partitions.

    Returns:
        The partition.

    Raises:
        ZeroDivisionError: ``partition_count`` is 0.

    Example:
        partition_for_key(b"table-4", 6)
    """
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
