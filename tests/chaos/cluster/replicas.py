"""Whether the replicas of a partition are the same below the high watermark, read from the brokers' files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from tests.chaos.damage import segments

from tidelog.errors import CorruptRecordError
from tidelog.records.batch import check_crc, iter_batches

CHECKPOINT = "replication-offset-checkpoint"

Batch = tuple[int, int, bytes]
"""First offset, last offset, all bytes."""


def differences(log_dirs: Mapping[int, Path]) -> list[str]:
    """What the replicas of stopped brokers do not have in common, though all of them say it is committed."""
    marks = {broker: high_watermarks(path) for broker, path in log_dirs.items()}
    names = sorted({name for known in marks.values() for name in known})
    found: list[str] = []
    for name in names:
        holders = [broker for broker, path in log_dirs.items() if (path / name).is_dir()]
        until = min(marks[broker].get(name, 0) for broker in holders)
        logs = {broker: batches(log_dirs[broker] / name) for broker in holders}
        first, *others = holders
        for other in others:
            what = difference(logs[first], logs[other], until)
            if what:
                found.append(f"{name} on brokers {first} and {other}, below {until}: {what}")
    return found


def difference(one: Sequence[Batch], other: Sequence[Batch], until: int) -> str:
    """Where two logs part before an offset; nothing if they do not."""
    start = max((log[0][0] for log in (one, other) if log), default=0)
    kept = [[batch for batch in log if start <= batch[0] and batch[1] < until] for log in (one, other)]
    for left, right in zip_longest(*kept):
        if left is None or right is None:
            return f"one has no batch at {(left or right)[0]}"
        if left != right:
            return f"the batches at {left[0]} and {right[0]} are not the same"
    return ""


def batches(partition: Path) -> list[Batch]:
    """All batches of a partition's directory; a damaged one ends the list."""
    return [batch for segment in segments(partition) for batch in sound_batches(segment.read_bytes())]


def sound_batches(data: bytes) -> list[Batch]:
    """The batches of a segment before the first that is damaged or cut short."""
    found: list[Batch] = []
    try:
        for pos, header in iter_batches(data):
            if not check_crc(data, pos, header.size_bytes):
                break
            found.append((header.base_offset, header.last_offset, data[pos : pos + header.size_bytes]))
    except CorruptRecordError:
        return found
    return found


def high_watermarks(log_dir: Path) -> dict[str, int]:
    """By the name of a partition's directory."""
    lines = (log_dir / CHECKPOINT).read_text().splitlines()[2:]
    fields = [line.rsplit(" ", 2) for line in lines]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in fields}
