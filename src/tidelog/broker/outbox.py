"""The answers that one connection still has to send, in order.

Parts are ``bytes`` or ranges of log files. Neighbouring ``bytes`` leave in one system call. Large file
ranges leave with ``sendfile`` and never enter this process; small ones are read, which is cheaper than the
system calls that sending them by themselves takes (measured: up to about 24 KB). A file range is only good
for the turn of the loop in which it was made (its segment may be deleted and the descriptor used for
another file), so what cannot be sent at once, or has to wait for the answers before it, gets a descriptor of
its own.
"""

from __future__ import annotations

import os
import socket
from collections import deque

from tidelog.broker.pending import Answer, Part
from tidelog.wire.fetch import FileRange

_READ_UP_TO = 24 * 1024
_BYTES_PER_TURN = 4 * 1024 * 1024
_GATHER = 64
# Tells the kernel that the file follows: the response header does not travel in a packet of its own.
_MORE = getattr(socket, "MSG_MORE", 0)


class Outbox:
    """Parts waiting for the socket; true while there are any."""

    __slots__ = ("_owned", "_parts", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._parts: deque[Part | memoryview] = deque()
        self._owned: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def put(self, answer: Answer) -> None:
        """Queue one answer."""
        if isinstance(answer, bytes):
            self._parts.append(answer)
            return
        for part in answer:
            large = isinstance(part, FileRange) and part.length > _READ_UP_TO
            self._parts.append(part if large else _as_bytes(part))

    def put_rest(self, pieces: list[bytes], sent: int) -> None:
        """Queue what is left of ``pieces`` when the socket has taken the first ``sent`` bytes."""
        for piece in pieces:
            if sent >= len(piece):
                sent -= len(piece)
            else:
                # Not a copy: an answer may be long, and many connections may have the same one to send.
                self._parts.append(memoryview(piece)[sent:])
                sent = 0

    def keep(self, answer: list[Part]) -> list[Part]:
        """An answer that has to wait for others before it, made good for later turns of the loop.

        Large files are not read: that would take as long as sending them, and their memory.
        """
        return [self._kept(part) for part in answer]

    def flush(self) -> bool:
        """Send what the socket takes; whether nothing is left. ``OSError`` means that the peer is gone."""
        parts = self._parts
        budget = _BYTES_PER_TURN
        try:
            while parts and budget > 0:
                part = parts[0]
                budget -= self._send_file(part) if isinstance(part, FileRange) else self._send_bytes()
        except (BlockingIOError, InterruptedError):
            pass
        if not parts:
            return True
        self._own_files()
        return False

    def clear(self) -> None:
        """Forget what is unsent and close the descriptors that were made for it."""
        self._parts.clear()
        for fd in self._owned:
            os.close(fd)
        self._owned.clear()

    def _send_bytes(self) -> int:
        """Send the bytes in front, all that are not behind a file, and drop what has gone."""
        parts = self._parts
        run: list[bytes | memoryview] = []
        flags = 0
        for part in parts:
            if isinstance(part, FileRange):
                flags = _MORE
                break
            run.append(part)
            if len(run) == _GATHER:
                break
        sent = left = self._sock.send(run[0], flags) if len(run) == 1 else self._sock.sendmsg(run, (), flags)
        for data in run:
            if left < len(data):
                parts[0] = memoryview(data)[left:]
                break
            parts.popleft()
            left -= len(data)
        return sent

    def _send_file(self, part: FileRange) -> int:
        sent = os.sendfile(self._sock.fileno(), part.fd, part.position, part.length)
        if sent == 0:
            raise OSError(
                f"the file ended {part.length} bytes before the range that was promised to the peer"
            )
        if sent == part.length:
            self._parts.popleft()
            if part.fd in self._owned:
                self._owned.discard(part.fd)
                os.close(part.fd)
        else:
            self._parts[0] = FileRange(part.fd, part.position + sent, part.length - sent)
        return sent

    def _own_files(self) -> None:
        for index, part in enumerate(self._parts):
            if isinstance(part, FileRange):
                self._parts[index] = self._owned_range(part)

    def _kept(self, part: Part) -> Part:
        if isinstance(part, bytes) or part.length <= _READ_UP_TO:
            return _as_bytes(part)
        return self._owned_range(part)

    def _owned_range(self, part: FileRange) -> FileRange:
        if part.fd in self._owned:
            return part
        fd = os.dup(part.fd)
        self._owned.add(fd)
        return FileRange(fd, part.position, part.length)


def read_if_small(parts: list[Part]) -> list[bytes] | None:
    """The parts of an answer as bytes if all its files are better read than sent; else ``None``."""
    for part in parts:
        if isinstance(part, FileRange) and part.length > _READ_UP_TO:
            return None
    return [_as_bytes(part) for part in parts]


def in_memory(parts: list[Part]) -> bytes:
    """The parts of an answer as bytes, files read; for networks that are simulated."""
    return b"".join(map(_as_bytes, parts))


def size_of(answer: Answer) -> int:
    """How many bytes an answer will be on the wire."""
    if isinstance(answer, bytes):
        return len(answer)
    return sum(part.length if isinstance(part, FileRange) else len(part) for part in answer)


def _as_bytes(part: Part) -> bytes:
    return part if isinstance(part, bytes) else os.pread(part.fd, part.length, part.position)
