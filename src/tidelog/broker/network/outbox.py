"""The answers that one connection still has to send, in order.

Parts are ``bytes`` or ranges of log files. Neighbouring ``bytes`` leave in one system call, those of several
answers, too: answers are put here until some are together, and then flushed. Large file ranges leave with
``sendfile`` and never enter this process; small ones are read, which is cheaper than the system calls that
sending them by themselves takes (measured: up to about 24 KB). A range that waits here holds the file that it
is of, so that its descriptor is neither closed nor used for another file when its segment is deleted.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from functools import partial

from tidelog.broker.network.answer import Answer, Part
from tidelog.broker.network.tls_socket import TlsSocket
from tidelog.wire.fetch import FileRange

_READ_UP_TO = 24 * 1024
_BYTES_PER_TURN = 4 * 1024 * 1024
# What is put here before anything is sent: so much of files, which takes no memory, and so much that does.
_TOGETHER_FILE_BYTES = 16 * 1024 * 1024
_TOGETHER_BYTES = 512 * 1024
_GATHER = 64
_JOINED_BYTES = 4 * 1024
# Tells the kernel that the file follows: the response header does not travel in a packet of its own.
_MORE = getattr(socket, "MSG_MORE", 0)


class Outbox:
    """Parts waiting for the socket; true while there are any."""

    __slots__ = ("_bytes", "_file_bytes", "_parts", "_sendfile", "_sock", "sent_bytes")

    def __init__(self, sock: socket.socket | TlsSocket) -> None:
        self._sock = sock
        self._sendfile = sock.sendfile if isinstance(sock, TlsSocket) else partial(os.sendfile, sock.fileno())
        self._parts: deque[Part | memoryview] = deque()
        # Put here since the last flush.
        self._bytes = self._file_bytes = 0
        self.sent_bytes = 0
        """What the socket has taken from here."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    @property
    def is_due(self) -> bool:
        """Whether so much was put here since the last flush that it is time for another."""
        return self._file_bytes >= _TOGETHER_FILE_BYTES or self._bytes >= _TOGETHER_BYTES

    def put(self, answer: Answer) -> None:
        """Queue one answer."""
        for part in (answer,) if isinstance(answer, bytes) else answer:
            if type(part) is FileRange and part.length > _READ_UP_TO:
                self._file_bytes += part.length
                self._parts.append(part)
            else:
                data = _as_bytes(part)
                self._bytes += len(data)
                self._parts.append(data)

    def put_rest(self, pieces: list[bytes], sent: int) -> None:
        """Queue what is left of ``pieces`` when the socket has taken the first ``sent`` bytes."""
        for piece in pieces:
            if sent >= len(piece):
                sent -= len(piece)
            else:
                # Not a copy: an answer may be long, and many connections may have the same one to send.
                self._parts.append(memoryview(piece)[sent:])
                self._bytes += len(piece) - sent
                sent = 0

    def flush(self) -> bool:
        """Send what the socket takes; whether nothing is left. ``OSError`` means that the peer is gone."""
        self._bytes = self._file_bytes = 0
        parts = self._parts
        budget = _BYTES_PER_TURN
        try:
            while parts and budget > 0:
                part = parts[0]
                sent = self._send_file(part) if type(part) is FileRange else self._send_bytes()
                if not sent:
                    break
                budget -= sent
        except (BlockingIOError, InterruptedError):
            pass
        return not parts

    def clear(self) -> None:
        """Forget what is unsent, and let go of its files."""
        self._parts.clear()

    def _send_bytes(self) -> int:
        """Send the bytes in front, all that are not behind a file; how many, or 0 if the socket is full."""
        parts = self._parts
        run: list[bytes | memoryview] = []
        flags = size = 0
        for part in parts:
            if isinstance(part, FileRange):
                flags = _MORE
                break
            run.append(part)
            size += len(part)
            if len(run) == _GATHER:
                break
        if len(run) == 1:
            sent = self._sock.send(run[0], flags)
        elif size <= _JOINED_BYTES:
            sent = self._sock.send(b"".join(run), flags)
        else:
            sent = self._sock.sendmsg(run, (), flags)
        self.sent_bytes += sent
        left = sent
        for data in run:
            if left < len(data):
                parts[0] = memoryview(data)[left:]
                return 0
            parts.popleft()
            left -= len(data)
        return sent

    def _send_file(self, part: FileRange) -> int:
        """Send of the range in front what a turn allows; how much, or 0 if the socket is full."""
        fd, position, length, owner = part
        wanted = length if length <= _BYTES_PER_TURN else _BYTES_PER_TURN
        sent = self._sendfile(fd, position, wanted)
        self.sent_bytes += sent
        if sent == length:
            self._parts.popleft()
            return length
        if not sent:
            raise OSError(f"the file ended {length} bytes before the range that was promised to the peer")
        self._parts[0] = FileRange(fd, position + sent, length - sent, owner)
        return sent if sent == wanted else 0


def read_if_small(parts: list[Part]) -> list[bytes] | None:
    """The parts of an answer as bytes if all its files are better read than sent; else ``None``."""
    for part in parts:
        if type(part) is FileRange and part.length > _READ_UP_TO:
            return None
    return [_as_bytes(part) for part in parts]


def _as_bytes(part: Part) -> bytes:
    if isinstance(part, bytes):
        return part
    data = os.pread(part.fd, part.length, part.position)
    if len(data) != part.length:
        # The answer's length has been given already: what follows would be read as part of this one.
        raise OSError(
            f"the file ended {part.length - len(data)} bytes before the range that was promised to the peer"
        )
    return data
