"""A log of committed offsets, made in a moment: what a broker has to replay before its groups are served.

One batch holds one commit, as brokers write them when every request commits one partition; records are those
of Kafka 4 (key type 1, value version 4 with a topic id), written here by hand.
"""

from __future__ import annotations

import shutil
import struct
import time
from pathlib import Path

from benchmarks import wire

TOPIC = "committed"
_TOPIC_ID = bytes(range(16))
_INDEX_INTERVAL_BYTES = 4096


def write(directory: Path, commits: int, groups: int, partitions: int) -> None:
    """Put `commits` commits, group by group and partition by partition in turn, into a partition's directory.

    The offset of the nth commit is n.
    """
    identity = (directory / "partition.metadata").read_bytes()
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / "partition.metadata").write_bytes(identity)
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    stem = directory / f"{0:020d}"
    now = int(time.time() * 1000)
    keys = [_key(f"group-{group}", partition) for partition in range(partitions) for group in range(groups)]
    index = bytearray()
    position, indexed_at = 0, 0
    with Path(f"{stem}.log").open("wb", buffering=1 << 20) as log:
        for number in range(commits):
            if position - indexed_at >= _INDEX_INTERVAL_BYTES:
                index += struct.pack(">ii", number, position)
                indexed_at = position
            batch = _batch(number, now, keys[number % len(keys)], _value(number, now))
            position += log.write(batch)
    Path(f"{stem}.index").write_bytes(index)
    Path(f"{stem}.timeindex").write_bytes(struct.pack(">qi", now, 0))


def last_offset(commits: int, groups: int, partitions: int, group: int, partition: int) -> int:
    """What that group has committed last for that partition."""
    turn, place = groups * partitions, partition * groups + group
    return place + (commits - 1 - place) // turn * turn


def _key(group: str, partition: int) -> bytes:
    return b"".join(
        (struct.pack(">hh", 1, len(group)), group.encode(), struct.pack(">h", len(TOPIC)), TOPIC.encode(),
         struct.pack(">i", partition))
    )  # fmt: skip


def _value(offset: int, now: int) -> bytes:
    return struct.pack(">hqibq", 4, offset, 0, 1, now) + b"\x01\x00\x10" + _TOPIC_ID


def _batch(offset: int, now: int, key: bytes, value: bytes) -> bytearray:
    fields = b"".join((b"\x00\x00\x00", wire.varint(len(key)), key, wire.varint(len(value)), value, b"\x00"))
    body = wire.varint(len(fields)) + fields
    out = bytearray(
        struct.pack(">qiibIhiqqqhii", offset, wire.HEADER_SIZE - 12 + len(body), 0, 2, 0, 0, 0,
                    now, now, -1, -1, -1, 1)
    )  # fmt: skip
    out += body
    wire.seal(out)
    return out
