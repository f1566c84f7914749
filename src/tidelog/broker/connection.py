"""One client connection: frames to the dispatcher, answers out in the order of the requests.

Order. Answers leave in the order of the requests. A request that has to wait (``PendingAnswer``) holds the
ones behind it back, as in Kafka, unless it says that it may be pipelined; the answers to pipelined requests
queue up. All requests of one readable event are handled before their answers are sent, in one go. A produce
request that is refused, be it when it is staged, written, or late, is different: nothing behind it is handled
until its answer is out, and it is not refused before its turn (``pending``).

Bounds. A connection is not read from (muted) while it has unsent answers, a request that holds back the
others, too many requests under way, or no memory for its next large frame. One turn of the loop handles
frames for a bounded time and sends a bounded number of bytes; what is left then waits in the network's
backlog, of which only a little is served before the loop looks at the other connections again. So no peer,
and no crowd of peers, starves the others.

Frames come from an ``Inbox``, answers that the socket does not take at once go into an ``Outbox``. Created by
``network``; knows the dispatcher only as ``RequestHandler``.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from tidelog.broker.inbox import Inbox, KeptFrame
from tidelog.broker.outbox import Outbox, read_if_small
from tidelog.broker.pending import (
    Answer,
    HandlerResult,
    NoAnswer,
    NotYet,
    PendingAnswer,
    StagedAnswer,
)
from tidelog.errors import WireError

if TYPE_CHECKING:
    from tidelog.broker.network import Network

_MAX_IN_FLIGHT = 64
_TURN_S = 0.0005
# Produce requests may go on for so much longer: they are written together.
_STAGED_S = 0.0015
_UNSENT_BYTES = 128 * 1024
_QUEUED_BYTES = 64 * 1024
# Short answers are cheaper joined than sent as pieces, long ones are not; a call takes so many pieces.
_JOINED_BYTES = 16 * 1024
_MAX_PIECES = 1024


class RequestHandler(Protocol):
    """What a connection needs from the dispatcher."""

    def handle(self, connection: Connection, frame: memoryview) -> HandlerResult:
        """Answer one request; ``WireError`` closes the connection."""

    def commit(self) -> None:
        """Write what the produce requests of this event have staged."""


class Connection:
    """One accepted socket on the loop."""

    __slots__ = (
        "_closed",
        "_handle",
        "_holding",
        "_inbox",
        "_muted",
        "_network",
        "_outbox",
        "_queue",
        "_resuming",
        "_send",
        "_sock",
        "_staged",
        "_turn",
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
        self._send = sock.send
        self._network = network
        self._handle = network.handler.handle
        self._inbox = Inbox(sock, network)
        self._outbox = Outbox(sock)
        self._queue: deque[PendingAnswer] = deque()
        self._staged: list[StagedAnswer] = []
        # Whether the next request waits until all before it are answered.
        self._holding = False
        self._turn: asyncio.Future[None] | None = None
        self._writing = False
        self._muted = False
        self._resuming = False
        self._closed = False
        self._listen()

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

    @property
    def has_unanswered(self) -> bool:
        """Whether requests before the one being handled have yet to be answered."""
        return bool(self._queue or self._staged)

    async def turn_of(self, pending: PendingAnswer) -> None:
        """Wait until all before ``pending`` are answered, or nobody waits for it any more."""
        queue = self._queue
        while pending in queue and queue[0] is not pending:
            self._turn = self._turn or self._network.loop.create_future()
            await self._turn

    @property
    def arrived_bytes(self) -> int:
        """How much has arrived of an unfinished request."""
        return self._inbox.arrived_bytes

    @property
    def buffered_bytes(self) -> int:
        """Memory that an unfinished request takes."""
        return self._inbox.buffered_bytes

    def keep(self, frame: memoryview) -> KeptFrame:
        """A frame being handled, for longer than this turn of the loop."""
        return self._inbox.keep(frame)

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
        self.give_up_waits()
        self._outbox.clear()
        self._inbox.close()
        network.forget(self)

    def refuse(self, reason: str) -> None:
        """Close the connection because of what the peer sent, with one line in the log."""
        if not self._closed:
            self._network.rate_limited_log.warn("refused", "Closing the connection of %s: %s", self, reason)
            self.close()

    def stop_reading(self) -> None:
        """Take no further requests; what is under way is still answered."""
        if not self._muted and not self._closed:
            self._muted = True
            self._network.loop.remove_reader(self._sock)

    def give_up_waits(self) -> None:
        """Forget the requests that wait for something; they are answered by the end of the connection."""
        for pending in self._queue:
            pending.cancel()
        self._queue.clear()
        self._take_turns()

    def look_for_end(self) -> None:
        """Close the connection if its peer is gone and the loop has not told."""
        if self._muted or self._closed:
            return
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._went_away(error)
            return
        self._on_readable()

    def look_for_requests(self) -> None:
        """Serve what has come, before the loop tells of it."""
        if not self._muted and not self._closed:
            self._on_readable()

    # -- receiving and handling -----------------------------------------------------------------------

    def _listen(self) -> None:
        on_readable = (
            self._on_readable if self._network.after_event is None else self._on_readable_then_others
        )
        self._network.loop.add_reader(self._sock, on_readable)

    def _on_readable_then_others(self) -> None:
        self._on_readable()
        if self._network.after_event is not None:
            self._network.after_event()

    def _on_readable(self) -> None:
        self.last_active = self._network.loop.time()
        inbox = self._inbox
        try:
            if self._queue or self._writing or inbox.awaits_memory or inbox.waiting:
                if inbox.awaits_memory or self._is_blocked():
                    self._mute()
                    return
                if inbox.waiting:
                    return
            frames = inbox.receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._went_away(error)
            return
        if frames is None:
            self.close()
            return
        if frames:
            done = self._run(frames)
            if self._closed:
                return
            if inbox.has_more(done):
                inbox.put_back(done)
                self._resume_soon()
            inbox.release()
        if inbox.awaits_memory:
            inbox.wait_for_memory(self._resume_soon)
        if inbox.refusal is not None and not inbox.waiting:
            self.refuse(inbox.refusal)

    def _run(self, frames: list[memoryview]) -> int:
        """Handle ``frames`` until one of them holds back the rest; returns how many were handled."""
        handle = self._handle
        queue = self._queue
        staged = self._staged
        self._holding = False
        out: list[bytes] = []
        unsent = done = 0
        refusal: str | None = None
        # Most peers send one request at a time, and need not pay for a clock.
        end_s = monotonic() + _TURN_S if len(frames) > 1 else inf
        try:
            for frame in frames:
                outcome = handle(self, frame)
                if isinstance(outcome, NotYet):
                    self._settle(staged, out)
                    self._send_all(out)
                    if queue:
                        self._holding = True
                        break
                    outcome = handle(self, frame)
                    assert not isinstance(outcome, NotYet), "nothing before it is unanswered"
                done += 1
                if isinstance(outcome, StagedAnswer):
                    staged.append(outcome)
                    if not outcome.refused and monotonic() < end_s + _STAGED_S:
                        continue
                    self._settle(staged, out)
                    self._send_all(out)
                    if monotonic() >= end_s or self._is_blocked():
                        break
                    continue
                if staged:
                    self._settle(staged, out)
                pieces: list[bytes] | None = None
                if not queue:
                    if isinstance(outcome, bytes):
                        pieces = [outcome]
                    elif isinstance(outcome, list):
                        pieces = read_if_small(outcome)
                if pieces is not None:
                    out += pieces
                    unsent += sum(map(len, pieces))
                    if unsent < _UNSENT_BYTES and monotonic() < end_s:
                        continue
                    unsent = 0
                    self._send_all(out)
                    self._flush_new()
                else:
                    self._send_all(out)
                    self._take(outcome)
                if monotonic() >= end_s or self._is_blocked():
                    break
        except WireError as error:
            refusal = str(error)
        except Exception:
            self._network.logger.exception("Unexpected error in a request of %s", self)
            refusal = "its request could not be handled"
        if staged:
            self._settle(staged, out)
        if out:
            self._send_all(out)
        self._flush_new()
        if refusal is not None:
            self.refuse(refusal)
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
                self._take(outcome, refused=answer.refused)
        staged.clear()

    def _take(self, outcome: Answer | NoAnswer | PendingAnswer, *, refused: bool = False) -> None:
        """Put an outcome in its place behind the answers before it."""
        if isinstance(outcome, PendingAnswer):
            self._queue.append(outcome)
            if outcome.done:
                self._advance()
            else:
                outcome.when_done(self._advance)
        elif self._queue:
            # Requests behind a large answer wait until it has gone: one is as much as a connection may keep.
            slot = PendingAnswer(pipelined=_held_bytes(outcome) <= _QUEUED_BYTES and not refused)
            slot.resolve(outcome)
            self._queue.append(slot)
        elif isinstance(outcome, bytes | list):
            self._outbox.put(outcome)
            if self._outbox.is_due:
                self._flush_new()

    def _advance(self) -> None:
        """A pending answer is there: send it and those behind it that waited for their turn."""
        queue = self._queue
        while queue and queue[0].done:
            pending = queue.popleft()
            if pending.failure is not None:
                self.refuse(pending.failure)
                return
            if isinstance(pending.answer, bytes | list):
                try:
                    self._outbox.put(pending.answer)
                except OSError as error:
                    self._went_away(error)
                    return
        self._take_turns()
        if self._outbox:
            self._flush()
        self._go_on()

    def _take_turns(self) -> None:
        """Requests have been answered, or given up: it may be another's turn."""
        if self._turn is not None:
            turn, self._turn = self._turn, None
            if not turn.done():
                turn.set_result(None)

    # -- sending --------------------------------------------------------------------------------------

    def _send_all(self, out: list[bytes]) -> None:
        """Send answers in one go; what the socket does not take waits in the outbox. Empties ``out``."""
        if not out or self._closed:
            return
        sent = 0
        if not self._outbox:
            count = len(out)
            size = len(out[0]) if count == 1 else sum(map(len, out))
            try:
                if count == 1:
                    sent = self._send(out[0])
                elif size <= _JOINED_BYTES or count > _MAX_PIECES:
                    sent = self._send(b"".join(out))
                else:
                    sent = self._sock.sendmsg(out)
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._went_away(error)
                return
            if sent == size:
                out.clear()
                return
            self._outbox.put_rest(out, sent)
            out.clear()
            self._flush()
            return
        self._outbox.put_rest(out, 0)
        out.clear()

    def _flush_new(self) -> None:
        """Send answers that were put into the outbox in this turn, unless others before them wait there."""
        if self._outbox and not self._writing:
            self._flush()

    def _flush(self) -> None:
        if self._closed:
            return
        try:
            drained = self._outbox.flush()
        except OSError as error:
            self._went_away(error)
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
        self._go_on()

    def _go_on(self) -> None:
        """Something that requests had to wait for is over."""
        inbox = self._inbox
        if (self._muted or inbox.waiting or inbox.awaits_memory) and not self._is_blocked():
            self._resume_soon()

    def _went_away(self, error: OSError) -> None:
        self._network.logger.debug("%s went away: %s", self, error)
        self.close()

    # -- muting ---------------------------------------------------------------------------------------

    def _is_blocked(self) -> bool:
        """Whether the next request has to wait."""
        if self._writing or self._closed:
            return True
        queue = self._queue
        if self._holding and queue:
            return True
        # One in the midst may have been refused after those behind it were taken.
        return len(queue) >= _MAX_IN_FLIGHT or not all(pending.pipelined for pending in queue)

    def _resume_soon(self) -> None:
        # In a turn of its own: the shared receive buffer may be in use up the stack.
        if not self._resuming:
            self._resuming = True
            self._network.resume_soon(self)

    def resume(self) -> None:
        """Go on with what was put back, then with reading."""
        self._resuming = False
        inbox = self._inbox
        if self._is_blocked():
            return
        if inbox.waiting:
            done = self._run(inbox.take_back())
            if self._closed:
                return
            if inbox.has_more(done):
                inbox.put_back(done)
                self._resume_soon()
                return
        if inbox.refusal is not None:
            self.refuse(inbox.refusal)
        elif inbox.awaits_memory:
            inbox.retry(self._resume_soon)
        if self._muted and not inbox.awaits_memory and not self._is_blocked() and not self._network.stopping:
            self._muted = False
            self._listen()

    def _mute(self) -> None:
        """Something is readable, and it has to wait. A peer that has gone need not be waited for."""
        waits_only = not self._writing and all(pending.cancellable for pending in self._queue)
        if waits_only and self._sock.recv(1, socket.MSG_PEEK) == b"":
            self.close()
            return
        self._muted = True
        self._network.loop.remove_reader(self._sock)


def _held_bytes(answer: Answer | NoAnswer) -> int:
    """How much memory an answer takes that has to wait; what is in files takes none."""
    if isinstance(answer, list):
        return sum(len(part) for part in answer if isinstance(part, bytes))
    return len(answer) if isinstance(answer, bytes) else 0
