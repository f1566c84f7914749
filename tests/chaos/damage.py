"""Doing to files what crashes, disks and people do to them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tidelog.records.batch import HEADER_SIZE, iter_batches

Damage = Callable[[Path, random.Random], None]


def delete(path: Path, _: random.Random) -> None:
    path.unlink()


def garble(path: Path, chance: random.Random) -> None:
    """Other bytes, as many."""
    path.write_bytes(chance.randbytes(max(path.stat().st_size, 16)))


def cut(path: Path, chance: random.Random) -> None:
    """A part of it is missing at the end."""
    with path.open("r+b") as file:
        file.truncate(chance.randrange(path.stat().st_size) if path.stat().st_size else 0)


def empty(path: Path, _: random.Random) -> None:
    with path.open("r+b") as file:
        file.truncate(0)


def zero(path: Path, _: random.Random) -> None:
    """Zeros, as many: what a power failure leaves of a file whose size was written, but not its blocks."""
    path.write_bytes(bytes(path.stat().st_size))


def flip(path: Path, chance: random.Random) -> None:
    """One bit is another."""
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


WAYS: dict[str, Damage] = {
    "deleted": delete,
    "garbled": garble,
    "cut": cut,
    "empty": empty,
    "zeroed": zero,
    "flipped": flip,
}


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def segments(partition: Path) -> list[Path]:
    """The ``.log`` files of a partition's directory, oldest first."""
    return sorted(partition.glob("*.log"))


def whole_batches(data: bytes) -> list[tuple[int, int, int]]:
    """``(start, end, number of records)`` of every whole batch."""
    return [(pos, pos + header.size_bytes, header.record_count) for pos, header in iter_batches(data)]


def records_in(path: Path) -> int:
    """How many records the whole batches of a segment hold."""
    return sum(count for _, _, count in whole_batches(path.read_bytes()))


def spoil_batch(path: Path, index: int, at: int) -> int:
    """Change the byte ``at`` of a batch, or one of its records; gives the number of records before it."""
    data = bytearray(path.read_bytes())
    batches = whole_batches(bytes(data))
    start, end, _ = batches[index]
    place = start + at if at < HEADER_SIZE else start + HEADER_SIZE + (at % (end - start - HEADER_SIZE))
    data[place] ^= 0x55
    path.write_bytes(data)
    return sum(count for _, _, count in batches[:index])
