"""One client connection: bytes in, frames to the dispatcher, answers out in the order of the requests.

Receiving. All connections of a broker share one receive buffer: a readable event receives into it, every complete
frame is handled in place as a memoryview, and only an unfinished tail is copied out. A frame too large for that gets
a buffer of its own that grows with what has arrived, never with what was announced. So whatever a handler wants to
keep of a frame it must copy before it returns (decoded messages are copies; produce writes its records to the log
before the event ends).

Order. Answers leave in the order of the requests. A request that has to wait (``PendingAnswer``) holds the ones
behind it back, as in Kafka, unless it says that it may be pipelined; the answers of pipelined requests queue up.

Bounds. A connection is not read from (muted) while it has unsent answers, a request that holds back the others, too
many requests under way, or no memory for its next large frame. One turn of the loop handles a bounded number of
frames and sends a bounded number of bytes, so that no peer starves the others.

Created by ``broker/acceptor``; knows the dispatcher only as ``RequestHandler``.
"""

from __future__ import annotations

import socket
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.outbox import Outbox, in_memory
from tidelog.broker.pending import Answer, NoAnswer, Outcome, PendingAnswer, StagedAnswer
from tidelog.errors import WireError

if TYPE_CHECKING:
    from tidelog.broker.network import Network

RECEIVE_BUFFER_BYTES = 256 * 1024

_SMALL_FRAME_BYTES = 64 * 1024
_GROWTH = 4
_MAX_IN_FLIGHT = 64
_FRAMES_PER_TURN = 256
_UNSENT_BYTES = 512 * 1024
_unpack_size = Struct(">i").unpack_from


class RequestHandler(Protocol):
    """What a connection needs from the dispatcher."""

    def handle(self, connection: Connection, frame: memoryview) -> Outcome:
        """Answer one request; ``WireError`` closes the connection."""

    def commit(self) -> None:
        """Write what the produce requests of this event have staged."""


class Connection:
    """One accepted socket on the loop."""

    __slots__ = (
        "_awaits_memory",
        "_closed",
        "_handle",
        "_held",
        "_large",
        "_large_have",
        "_large_size",
        "_muted",
        "_network",
        "_outbox",
        "_queue",
        "_recv_into",
        "_reserved_bytes",
        "_resuming",
        "_send",
        "_sock",
        "_writing",
        "client_software",
        "last_active",
        "listener",
        "peer",
    )

    def __init__(self, sock: socket.socket, peer: tuple[str, int], listener: str, network: Network) -> None:
        self.peer = peer
        self.listener = listener
        self.client_software: tuple[str, str] | None = None
        self.last_active = network.loop.time()
        self._sock = sock
        self._network = network
        self._handle = network.handler.handle
        self._held = b""
        self._large: bytearray | None = None
        self._large_have = 0
        self._large_size = 0
        self._reserved_bytes = 0
        self._awaits_memory = False
        self._queue: deque[PendingAnswer] = deque()
        self._outbox = Outbox(sock)
        self._recv_into = sock.recv_into
        self._send = sock.send
        self._writing = False
        self._muted = False
        self._resuming = False
        self._closed = False
        network.loop.add_reader(sock, self._on_readable)

    def __repr__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]} ({self.listener})"

    @property
    def busy(self) -> bool:
        """Whether a request is being worked on, rather than waiting, or an answer being sent."""
        return bool(self._outbox) or not all(pending.cancellable for pending in self._queue)

    @property
    def muted(self) -> bool:
        """Whether the connection is not being read from."""
        return self._muted

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        return self._closed

    def close(self) -> None:
        """Close the socket and give everything back; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        network = self._network
        if not self._muted:
            network.loop.remove_reader(self._sock)
        if self._writing:
            network.loop.remove_writer(self._sock)
        self._sock.close()
        for pending in self._queue:
            pending.cancel()
        self._queue.clear()
        self._outbox.clear()
        self._held = b""
        network.memory.forget(self)
        self._drop_large()
        network.forget(self)

    def refuse(self, reason: str) -> None:
        """Close the connection because of what the peer sent, with one line in the log."""
        if not self._closed:
            self._network.complaints.say("refused", "Closing the connection of %s: %s", self, reason)
            self.close()

    def stop_reading(self) -> None:
        """Take no further requests; what is under way is still answered."""
        if not self._muted and not self._closed:
            self._muted = True
            self._network.loop.remove_reader(self._sock)

    # Receiving

    def _on_readable(self) -> None:
        network = self._network
        self.last_active = network.loop.time()
        try:
            if (self._queue or self._writing or self._awaits_memory) and self._is_blocked():
                self._mute()
            elif self._large is not None:
                self._receive_large(self._large)
            elif self._held:
                self._receive_more()
            else:
                buffer = network.receive_buffer
                received = self._recv_into(buffer)
                if received:
                    self._process(buffer, received)
                else:
                    self.close()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            network.logger.debug("%s went away: %s", self, error)
            self.close()

    def _receive_more(self) -> None:
        """Receive behind the part of a frame that is already here."""
        buffer = self._network.receive_buffer
        have = len(self._held)
        buffer[:have] = self._held
        received = self._recv_into(buffer[have:])
        if received:
            self._process(buffer, have + received)
        else:
            self.close()

    def _receive_large(self, buffer: bytearray) -> None:
        size = self._large_size
        have = self._large_have
        received = self._recv_into(memoryview(buffer)[have:size])
        if not received:
            self.close()
            return
        have += received
        self._large_have = have
        if have == size:
            self._large = None
            try:
                self._run([memoryview(buffer)[:size]])
            finally:
                self._network.frame_buffers.give_back(buffer)
                self._release_memory()
        elif have == len(buffer):
            grown = self._network.frame_buffers.take(min(size, have * _GROWTH))
            grown[:have] = buffer
            self._large = grown
            self._network.frame_buffers.give_back(buffer)

    def _process(self, view: memoryview, end: int) -> None:
        """Handle the frames in ``view[:end]`` and hold what is left of it."""
        frames: list[memoryview] = []
        limit = self._network.max_request_bytes
        pos = 0
        while end - pos >= 4 and len(frames) < _FRAMES_PER_TURN:
            (size,) = _unpack_size(view, pos)
            stop = pos + 4 + size
            if stop > end or size < 0 or size > limit:
                break
            frames.append(view[pos + 4 : stop])
            pos = stop
        if frames:
            done = self._run(frames)
            if done < len(frames):
                pos = sum(4 + len(frame) for frame in frames[:done])
        if self._closed:
            return
        if pos == end:
            self._held = b""
        elif self._begin_frame(view, pos, end):
            self._held = bytes(view[pos:end])

    def _begin_frame(self, view: memoryview, pos: int, end: int) -> bool:
        """Look at what follows the handled frames; whether it has to be held."""
        have = end - pos - 4
        if have < 0:
            return True
        (size,) = _unpack_size(view, pos)
        limit = self._network.max_request_bytes
        if size < 0 or size > limit:
            self.refuse(
                f"it announced a request of {size} bytes"
                + (f", and socket.request.max.bytes allows {limit}" if size > 0 else "")
            )
            return False
        if have >= size:
            self._resume_soon()
            return True
        if size <= _SMALL_FRAME_BYTES:
            return True
        if not self._network.memory.reserve(size):
            self._awaits_memory = True
            self._network.memory.wait(self, self._memory_is_free)
            return True
        self._reserved_bytes = size
        self._large = self._network.frame_buffers.take(min(size, max(have * _GROWTH, RECEIVE_BUFFER_BYTES)))
        self._large[:have] = view[pos + 4 : end]
        self._large_have = have
        self._large_size = size
        self._held = b""
        return False

    def _memory_is_free(self) -> None:
        self._awaits_memory = False
        self._resume_soon()

    def _drop_large(self) -> None:
        if self._large is not None:
            self._network.frame_buffers.give_back(self._large)
            self._large = None
        self._release_memory()

    def _release_memory(self) -> None:
        size, self._reserved_bytes = self._reserved_bytes, 0
        if size:
            self._network.memory.release(size)

    # Handling

    def _run(self, frames: list[memoryview]) -> int:
        """Handle ``frames`` until one of them holds back the rest; returns how many were handled."""
        handle = self._handle
        queue = self._queue
        staged: list[StagedAnswer] = []
        refused: str | None = None
        out: list[bytes] = []
        unsent = 0
        done = 0
        try:
            for frame in frames:
                outcome = handle(self, frame)
                done += 1
                if isinstance(outcome, StagedAnswer):
                    staged.append(outcome)
                    continue
                if staged:
                    self._settle(staged, out)
                if isinstance(outcome, bytes) and not queue:
                    out.append(outcome)
                    unsent += len(outcome)
                    if unsent < _UNSENT_BYTES:
                        continue
                    unsent = 0
                self._send_all(out)
                if not isinstance(outcome, bytes) or queue:
                    self._take(outcome)
                if self._is_blocked():
                    break
        except WireError as error:
            refused = str(error)
        except Exception:
            self._network.logger.exception("A request of %s met a bug", self)
            refused = "its request could not be handled"
        if staged:
            self._settle(staged, out)
        if out:
            self._send_all(out)
        if refused is not None:
            self.refuse(refused)
        return done

    def _settle(self, staged: list[StagedAnswer], out: list[bytes]) -> None:
        """Write what is staged; the answers go behind those in ``out``."""
        self._network.handler.commit()
        queue = self._queue
        for answer in staged:
            outcome = answer.settle()
            if isinstance(outcome, bytes) and not queue:
                out.append(outcome)
            else:
                self._send_all(out)
                self._take(outcome)
        staged.clear()

    def _take(self, outcome: Answer | NoAnswer | PendingAnswer) -> None:
        """Put an outcome in its place behind the answers before it."""
        if isinstance(outcome, PendingAnswer):
            self._queue.append(outcome)
            if outcome.done:
                self._advance()
            else:
                outcome.when_done(self._advance)
        elif self._queue:
            slot = PendingAnswer(pipelined=True)
            slot.resolve(in_memory(outcome) if isinstance(outcome, list) else outcome)
            self._queue.append(slot)
        elif isinstance(outcome, bytes):
            self._outbox.put(outcome)
            self._flush()
        elif isinstance(outcome, list):
            self._outbox.put_all(outcome)
            self._flush()

    def _advance(self) -> None:
        """A pending answer is there: send it and those behind it that waited for their turn."""
        queue = self._queue
        while queue and queue[0].done:
            pending = queue.popleft()
            if pending.failure is not None:
                self.refuse(pending.failure)
                return
            answer = pending.answer
            if isinstance(answer, bytes):
                self._outbox.put(answer)
            elif isinstance(answer, list):
                self._outbox.put_all(answer)
        for pending in queue:
            if isinstance(pending.answer, list):
                pending.answer = in_memory(pending.answer)
        if self._outbox:
            self._flush()
        self._unblocked()

    # Sending, muting

    def _send_all(self, out: list[bytes]) -> None:
        """Send answers in one go; what the socket does not take waits in the outbox. Empties ``out``."""
        if not out or self._closed:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        if not self._writing:
            try:
                sent = self._send(data)
            except (BlockingIOError, InterruptedError):
                sent = 0
            except OSError as error:
                self._network.logger.debug("%s went away: %s", self, error)
                self.close()
                return
            if sent == len(data):
                return
            data = data[sent:]
        self._outbox.put(data)
        self._flush()

    def _flush(self) -> None:
        if self._closed:
            return
        try:
            drained = self._outbox.flush()
        except OSError as error:
            self._network.logger.debug("%s went away: %s", self, error)
            self.close()
            return
        if drained == self._writing:
            self._writing = not drained
            if drained:
                self._network.loop.remove_writer(self._sock)
            else:
                self._network.loop.add_writer(self._sock, self._on_writable)

    def _on_writable(self) -> None:
        self.last_active = self._network.loop.time()
        self._flush()
        self._unblocked()

    def _is_blocked(self) -> bool:
        if self._writing or self._awaits_memory or self._closed:
            return True
        queue = self._queue
        return bool(queue) and (not queue[-1].pipelined or len(queue) >= _MAX_IN_FLIGHT)

    def _unblocked(self) -> None:
        if self._is_blocked():
            return
        if self._held:
            self._resume_soon()
        elif self._muted and not self._network.stopping:
            self._unmute()

    def _resume_soon(self) -> None:
        # In a turn of its own: the shared receive buffer may be in use up the stack.
        if not self._resuming:
            self._resuming = True
            self._network.loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Go on with the frames that were held back."""
        self._resuming = False
        if self._is_blocked():
            return
        held = self._held
        if held:
            buffer = self._network.receive_buffer
            buffer[: len(held)] = held
            self._process(buffer, len(held))
        if self._muted and not self._is_blocked() and not self._network.stopping:
            self._unmute()

    def _mute(self) -> None:
        """Something is readable, and it has to wait. A peer that has gone need not be waited for."""
        if all(pending.cancellable for pending in self._queue) and not self._writing:
            if self._sock.recv(1, socket.MSG_PEEK) == b"":
                self.close()
                return
        self._muted = True
        self._network.loop.remove_reader(self._sock)

    def _unmute(self) -> None:
        self._muted = False
        self._network.loop.add_reader(self._sock, self._on_readable)
