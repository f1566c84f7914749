"""The process that filters records for the console: ``python -m tidelog.console.records.filter_worker``.

Reads frames from stdin and answers each on stdout; a frame is four bytes of length, big-endian, and MsgPack.
The first is ``{"filter": text, "memory_bytes": n, "cpu_s": n}``, each later one a list of records; an answer
is the list of the places of those that match, and an empty one before all says that it is ready. It bounds
its own memory and processor time before it reads anything else, and the console ends it when it takes too
long (``filter_process``).
"""

from __future__ import annotations

import resource
import sys
from typing import BinaryIO

import msgspec

from tidelog.console.records.filter_expression import Filter
from tidelog.console.records.raw import RawRecord


class Order(msgspec.Struct, frozen=True):
    """What is to be done, and within what bounds."""

    filter: str
    memory_bytes: int
    cpu_s: int


def main() -> int:
    """Filter until the console hangs up."""
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    first = read_frame(incoming)
    if first is None:
        return 0
    order = msgspec.msgpack.decode(first, type=Order)
    resource.setrlimit(resource.RLIMIT_AS, (order.memory_bytes, order.memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (order.cpu_s, order.cpu_s))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    wanted = Filter(order.filter)
    records = msgspec.msgpack.Decoder(list[RawRecord])
    _answer(outgoing, [])
    while (frame := read_frame(incoming)) is not None:
        found = [at for at, record in enumerate(records.decode(frame)) if wanted.matches(record)]
        _answer(outgoing, found)
    return 0


def _answer(outgoing: BinaryIO, places: list[int]) -> None:
    outgoing.write(framed(msgspec.msgpack.encode(places)))
    outgoing.flush()


def framed(body: bytes) -> bytes:
    """A frame with ``body``."""
    return len(body).to_bytes(4, "big") + body


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame's body; None at the end."""
    head = stream.read(4)
    return stream.read(int.from_bytes(head, "big")) if len(head) == 4 else None


if __name__ == "__main__":
    sys.exit(main())
