"""The values that ``perf produce`` sends: random letters, lines of a file, or numbers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tidelog.cli.failure import Failure

Payload = Callable[[int], bytes]
"""The value of the record with this number."""

_POOL_BYTES = 4 << 20
_LETTERS = bytes(65 + byte % 26 for byte in range(256))


def random_letters(size: int) -> Payload:
    """Letters as Kafka's tool sends them, cut from a pool that is larger than what codecs look back on."""
    pool = random.Random(0).randbytes(_POOL_BYTES + size).translate(_LETTERS)
    places = _POOL_BYTES // size or 1

    def payload(number: int) -> bytes:
        at = number % places * size
        return pool[at : at + size]

    return payload


def from_file(path: Path, delimiter: str) -> Payload:
    """One of the file's parts, chosen at random."""
    separator = delimiter.encode()
    parts = [part for part in path.read_bytes().split(separator) if part] if separator else []
    if not parts:
        raise Failure(f"--payload-file {path} contains no payload, split by {delimiter!r}")
    chosen = random.Random(0)

    def payload(number: int) -> bytes:
        return parts[chosen.randrange(len(parts))]

    return payload


def numbers(number: int) -> bytes:
    """0, 1, 2, …"""
    return b"%d" % number
