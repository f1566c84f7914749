"""The answers that one connection still has to send, in order.

Parts are ``bytes`` or ranges of log files. Neighbouring ``bytes`` leave in one system call, file ranges leave with
``sendfile`` and never enter this process. A file range is only good for the turn of the loop in which it was made
(its segment may be deleted and the descriptor used for another file), so what cannot be sent at once gets a
descriptor of its own.
"""

from __future__ import annotations

import os
import socket
from collections import deque

from tidelog.broker.pending import Part
from tidelog.wire.fetch import FileRange

_BYTES_PER_TURN = 4 * 1024 * 1024
_GATHER = 64
# Tells the kernel that the file follows: the response header does not travel in a packet of its own.
_MORE = getattr(socket, "MSG_MORE", 0)


class Outbox:
    """Parts waiting for the socket; true while there are any."""

    __slots__ = ("_owned", "_parts", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._parts: deque[Part] = deque()
        self._owned: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._parts)

    def put(self, part: Part) -> None:
        """Queue one part."""
        self._parts.append(part)

    def put_all(self, parts: list[Part]) -> None:
        """Queue the parts of one answer."""
        self._parts.extend(parts)

    def flush(self) -> bool:
        """Send what the socket takes; whether nothing is left. ``OSError`` means that the peer is gone."""
        parts = self._parts
        budget = _BYTES_PER_TURN
        try:
            while parts and budget > 0:
                budget -= self._send_bytes() if type(parts[0]) is bytes else self._send_file()
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
        parts = self._parts
        if len(parts) == 1:
            data = parts[0]
            sent = self._sock.send(data)  # type: ignore[arg-type]
            if sent == len(data):  # type: ignore[arg-type]
                parts.popleft()
                return sent
        else:
            sent = self._send_run()
        left = sent
        while parts and left >= (size := len(parts[0])):  # type: ignore[arg-type]
            parts.popleft()
            left -= size
            if left == 0:
                return sent
        parts[0] = parts[0][left:]  # type: ignore[index]
        return sent

    def _send_run(self) -> int:
        run: list[bytes] = []
        flags = 0
        for part in self._parts:
            if type(part) is not bytes:
                flags = _MORE
                break
            run.append(part)
            if len(run) == _GATHER:
                break
        if len(run) == 1:
            return self._sock.send(run[0], flags)
        return self._sock.sendmsg(run, (), flags)

    def _send_file(self) -> int:
        part = self._parts[0]
        assert isinstance(part, FileRange)
        sent = os.sendfile(self._sock.fileno(), part.fd, part.position, part.length)
        if sent == 0:
            raise OSError(f"the file ended {part.length} bytes before the range that was promised to the peer")
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
            if isinstance(part, FileRange) and part.fd not in self._owned:
                fd = os.dup(part.fd)
                self._owned.add(fd)
                self._parts[index] = FileRange(fd, part.position, part.length)
