"""A socket with TLS that behaves, for a connection, as one without does.

``connection``, ``inbox`` and ``outbox`` use a few methods of a socket and four of the loop; here they are,
with what differs under TLS kept to itself:

Receiving. OpenSSL hands out one record (16 KB at most) at a time and may hold a rest of it while the socket
itself is not readable: the loop would not tell of that, so whoever reads is called again, in a turn of its
own.

Sending. A record that the kernel does not take is OpenSSL's to send again, and must be offered to it with the
same bytes. They are kept here and not counted as sent; when they have gone, as many bytes of what is offered
next, which are the same since answers leave in order, are passed over. Files are read and encrypted in
slices, a slice in a turn; where the kernel encrypts, they are sent as without TLS.

Waiting. OpenSSL may have to write before it can read, and the other way round (the answer to a new key of the
peer): then the other event of the loop counts.

Errors are those of sockets: ``BlockingIOError`` for *not now*, another ``OSError`` for a peer that is gone or
does not keep to the protocol. Made by ``tls_handshake``.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress

from tidelog.security.tls import kernel_tls

Callback = Callable[[], None]
Data = bytes | memoryview

_RECORD_BYTES = 16 * 1024
# What is read of a file, or taken of a long answer, in one call: less than half a millisecond of encryption.
_SLICE_BYTES = 256 * 1024


class TlsSocket:
    """A connected socket whose handshake is over."""

    __slots__ = (
        "_ahead",
        "_ended",
        "_fd",
        "_kernel_encrypts",
        "_loop",
        "_on_readable",
        "_on_writable",
        "_peeked",
        "_read_needs_write",
        "_reading",
        "_sock",
        "_told_soon",
        "_unsent",
        "_write_needs_read",
        "_writing",
    )

    def __init__(self, sock: ssl.SSLSocket, loop: asyncio.AbstractEventLoop) -> None:
        self._sock = sock
        self._loop = loop
        self._fd = sock.fileno()
        self._kernel_encrypts = kernel_tls.encrypts(sock)
        self._peeked = b""
        self._ended = False
        # A record that OpenSSL has begun to send, and how many bytes have gone that were not counted as sent.
        self._unsent = b""
        self._ahead = 0
        self._on_readable: Callback | None = None
        self._on_writable: Callback | None = None
        # What the loop was asked to tell of.
        self._reading = self._writing = False
        self._read_needs_write = self._write_needs_read = False
        self._told_soon = False

    @property
    def cipher(self) -> tuple[str, str] | None:
        """Name of the cipher and version of TLS, once they are agreed upon."""
        found = self._sock.cipher()
        return None if found is None else (found[0], self._sock.version() or found[1])

    def fileno(self) -> int:
        """The descriptor, -1 when it is closed."""
        return self._sock.fileno()

    def close(self) -> None:
        """Say goodbye, if that can be done at once, and close."""
        self._on_readable = self._on_writable = None
        self._arm()
        with suppress(OSError, ValueError):
            # The peer's own goodbye is not waited for.
            self._sock.unwrap()
        self._sock.close()

    # -- receiving ------------------------------------------------------------------------------------

    def recv_into(self, buffer: memoryview) -> int:
        """Receive what has come, up to the size of ``buffer``; 0 when the peer has ended."""
        received = len(self._peeked)
        if received:
            buffer[:received] = self._peeked
            self._peeked = b""
        read = self._sock.recv_into
        size = len(buffer)
        try:
            while received < size:
                count = read(buffer[received:], size - received)
                if not count:
                    self._ended = True
                    break
                received += count
        except ssl.SSLWantReadError:
            self._not_now(received)
        except ssl.SSLWantWriteError:
            self._read_needs_write = True
            self._arm()
            self._not_now(received)
        return received

    def recv(self, size: int, flags: int) -> bytes:
        """Look at the next byte (``MSG_PEEK``, which is all that this is asked for); empty at the end."""
        assert (size, flags) == (1, socket.MSG_PEEK)
        if not self._peeked:
            try:
                self._peeked = self._sock.recv(1)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise BlockingIOError from None
        return self._peeked

    @staticmethod
    def _not_now(received: int) -> None:
        if not received:
            raise BlockingIOError

    # -- sending --------------------------------------------------------------------------------------

    def send(self, data: Data, _flags: int = 0) -> int:
        """Send what can be sent of the first bytes of ``data``; how many."""
        view = memoryview(data)[:_SLICE_BYTES]
        done = min(self._ahead, len(view))
        self._ahead -= done
        try:
            if self._unsent and not self._ahead:
                done += self._send_again(len(view) - done)
            write = self._sock.send
            size = len(view)
            while done < size:
                piece = view[done : done + _RECORD_BYTES]
                self._unsent = b""
                try:
                    done += write(piece)
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    self._unsent = bytes(piece)
                    raise
        except ssl.SSLWantWriteError:
            self._not_now(done)
        except ssl.SSLWantReadError:
            self._write_needs_read = True
            self._arm()
            self._not_now(done)
        return done

    def _send_again(self, room: int) -> int:
        """Send what OpenSSL has begun to; how many of the ``room`` bytes behind it have gone with it."""
        sent = self._sock.send(self._unsent)
        self._unsent = self._unsent[sent:]
        self._ahead = max(sent - room, 0)
        return min(sent, room)

    def sendmsg(self, pieces: Sequence[Data], _ancillary: tuple[()] = (), _flags: int = 0) -> int:
        """Send what can be sent of several pieces, one behind the other; how many bytes."""
        taken: list[Data] = []
        size = 0
        for piece in pieces:
            taken.append(memoryview(piece)[: _SLICE_BYTES - size])
            size += len(taken[-1])
            if size >= _SLICE_BYTES:
                break
        # A copy, that records may be full: each of them costs a system call and a tag.
        return self.send(b"".join(taken))

    def sendfile(self, file: int, position: int, count: int) -> int:
        """Send of a file what can be sent, a slice at most unless the kernel encrypts; how many bytes."""
        if self._kernel_encrypts and not self._unsent and not self._ahead:
            return os.sendfile(self._fd, file, position, count)
        data = os.pread(file, min(count, _SLICE_BYTES), position)
        return self.send(data) if data else 0

    # -- events ---------------------------------------------------------------------------------------

    def add_reader(self, _sock: object, callback: Callback) -> None:
        """Call ``callback`` when there is something to receive."""
        self._on_readable = callback
        self._arm()
        self._tell_soon()

    def remove_reader(self, _sock: object) -> None:
        """Call nobody any more."""
        self._on_readable = None
        self._arm()

    def add_writer(self, _sock: object, callback: Callback) -> None:
        """Call ``callback`` when something can be sent."""
        self._on_writable = callback
        self._arm()

    def remove_writer(self, _sock: object) -> None:
        """Call nobody any more."""
        self._on_writable = None
        self._write_needs_read = False
        self._arm()

    def _arm(self) -> None:
        """Have the loop tell of what is waited for, and of nothing else."""
        receives, sends = self._on_readable is not None, self._on_writable is not None
        reading = (receives and not self._read_needs_write) or (sends and self._write_needs_read)
        writing = (sends and not self._write_needs_read) or (receives and self._read_needs_write)
        if reading != self._reading:
            self._reading = reading
            if reading:
                self._loop.add_reader(self._fd, self._readable)
            else:
                self._loop.remove_reader(self._fd)
        if writing != self._writing:
            self._writing = writing
            if writing:
                self._loop.add_writer(self._fd, self._writable)
            else:
                self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        if self._write_needs_read:
            self._write_needs_read = False
            self._arm()
            if self._on_writable is not None:
                self._on_writable()
        if self._on_readable is not None:
            self._on_readable()
            self._tell_soon()

    def _writable(self) -> None:
        if self._read_needs_write:
            self._read_needs_write = False
            self._arm()
            if self._on_readable is not None:
                self._on_readable()
                self._tell_soon()
        if self._on_writable is not None:
            self._on_writable()

    def _tell_soon(self) -> None:
        """Call the reader again, if there is something that the loop does not know of."""
        if self._on_readable is None or self._told_soon:
            return
        if self._peeked or self._ended or self._sock.pending():
            self._told_soon = True
            self._loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._told_soon = False
        if self._on_readable is not None and not self._read_needs_write:
            self._on_readable()
            self._tell_soon()
