"""One client connection: frames to the dispatcher, answers out in the order of the requests.

Order. Answers leave in the order of the requests. A request that has to wait (``PromisedAnswer``) holds the
ones behind it back, as in Kafka, unless it says that it may be pipelined; the answers to pipelined requests
queue up. All requests of one readable event are handled before their answers are sent, in one go. A produce
request that is refused, be it when it is staged, written, or late, is different: nothing behind it is handled
until its answer is out, and it is not refused before its turn (``broker/network/answer``).

Bounds. A connection is not read from (muted) while it has unsent answers, a request that holds back the
others, too many requests under way, no memory for its next large frame, or a client that has used up its
quota. One turn of the loop handles frames for a bounded time and sends a bounded number of bytes; what is
left then waits in the network's backlog, of which only a little is served before the loop looks at the other
connections again. Connections that send or are sent much at once share a bounded time of each turn
(``loop_turn``). So no peer, and no crowd of peers, starves the others.

Frames come from an ``Inbox``, answers that the socket does not take at once go into an ``Outbox``. A socket
with TLS (``tls_socket``) behaves as one without; which of the two it is is not asked again. Created by
``network``; knows the dispatcher only as ``RequestHandler``.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any, Protocol

from tidelog.broker.network.answer import (
    Answer,
    HandlerResult,
    NoAnswer,
    NotYet,
    PromisedAnswer,
    StagedAnswer,
)
from tidelog.broker.network.answer_times import AnswerLog, AnswerTimes, HandleFrame, RequestObserver
from tidelog.broker.network.inbox import Inbox, KeptFrame, ReceivingSide
from tidelog.broker.network.loop_turn import LoopTurn
from tidelog.broker.network.outbox import Outbox, read_if_small
from tidelog.broker.network.rate_limited_log import RateLimitedLog
from tidelog.broker.network.tls_socket import TlsSocket
from tidelog.errors import WireError
from tidelog.scheduling.promise import Promise
from tidelog.security.session import Session

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


class RequestTimer(Protocol):
    """What a connection needs from the quota of the time that requests take."""

    def leave(self, connection: Connection) -> None:
        """The requests that have come together on ``connection`` are handled."""


class SocketEvents(Protocol):
    """Tells when a socket can be read from or written to: the loop, or a socket with TLS (``tls_socket``)."""

    def add_reader(self, fd: Any, callback: Callable[[], None], /) -> object: ...

    def remove_reader(self, fd: Any, /) -> object: ...

    def add_writer(self, fd: Any, callback: Callable[[], None], /) -> object: ...

    def remove_writer(self, fd: Any, /) -> object: ...


class ConnectionOwner(ReceivingSide, Protocol):
    """What a connection needs from the network it belongs to."""

    loop: asyncio.AbstractEventLoop
    handler: RequestHandler
    logger: logging.Logger
    rate_limited_log: RateLimitedLog
    turn: LoopTurn
    stopping: bool
    after_event: Callable[[], None] | None
    observer: RequestObserver | None
    answer_log: AnswerLog | None
    request_time: RequestTimer | None

    def forget(self, connection: Connection) -> None:
        """A connection has closed itself."""

    def resume_soon(self, connection: Connection) -> None:
        """``connection`` has requests left, and goes on after those who came before it."""


class Connection:
    """One accepted socket on the loop."""

    __slots__ = (
        "_closed",
        "_events",
        "_handle",
        "_holding",
        "_inbox",
        "_muted",
        "_network",
        "_outbox",
        "_queue",
        "_resuming",
        "_send",
        "_sends_much",
        "_sock",
        "_staged",
        "_throttle",
        "_times",
        "_turn",
        "_writing",
        "client_software",
        "is_follower",
        "last_active",
        "listener",
        "peer",
        "producer_ids",
        "session",
    )

    def __init__(
        self,
        sock: socket.socket | TlsSocket,
        peer: tuple[str, int],
        listener: str,
        network: ConnectionOwner,
        session: Session | None = None,
    ) -> None:
        self.peer = peer
        self.listener = listener
        self.session = session or Session(peer[0])
        """Who is at the other end."""
        self.client_software: tuple[str, str] | None = None
        self.producer_ids: tuple[int, ...] = ()
        """The last ones that were given out over it, for people who want to know whose they are."""
        self.is_follower = False
        """Whether another broker fetches here."""
        self.last_active = network.loop.time()
        self._sock = sock
        self._events: SocketEvents = sock if isinstance(sock, TlsSocket) else network.loop
        self._send = sock.send
        self._network = network
        self._handle = network.handler.handle
        self._inbox = Inbox(sock, network, self.session)
        self._outbox = Outbox(sock)
        self._queue: deque[PromisedAnswer] = deque()
        self._staged: list[StagedAnswer] = []
        # Only where somebody wants to know how long requests take.
        self._times: AnswerTimes | None = None
        # Whether the next request waits until all before it are answered.
        self._holding = False
        self._turn: asyncio.Future[None] | None = None
        self._writing = False
        self._muted = False
        # While it runs the client pauses, because of a quota.
        self._throttle: asyncio.TimerHandle | None = None
        self._resuming = False
        # Whether several requests had come when it was last read from; nothing is known of a newcomer.
        self._sends_much = True
        self._closed = False
        self._listen()

    def __repr__(self) -> str:
        return f"{self.peer[0]}:{self.peer[1]} ({self.listener})"

    @property
    def busy(self) -> bool:
        """Whether a request is being worked on, rather than waiting, or an answer being sent."""
        return bool(self._outbox) or not all(promise.cancellable for promise in self._queue)

    @property
    def has_waiting_requests(self) -> bool:
        """Whether requests have come that are not being handled yet."""
        return bool(self._inbox.waiting)

    @property
    def has_unsent_answers(self) -> bool:
        """Whether the socket has not taken all answers yet."""
        return bool(self._outbox)

    @property
    def cipher(self) -> tuple[str, str] | None:
        """Name of the cipher and version of TLS, where there is TLS."""
        return self._sock.cipher if isinstance(self._sock, TlsSocket) else None

    @property
    def muted(self) -> bool:
        """Whether the connection is not being read from."""
        return self._muted

    @property
    def throttled(self) -> bool:
        """Whether its client pauses because of a quota."""
        return self._throttle is not None

    @property
    def pause_left_s(self) -> float:
        """For how much longer it does."""
        return 0.0 if self._throttle is None else max(self._throttle.when() - self._network.loop.time(), 0.0)

    @property
    def times(self) -> AnswerTimes | None:
        """What it has asked for so far; None where nobody wanted to know, or it has asked for nothing yet."""
        return self._times

    @property
    def sent_bytes(self) -> int:
        """How much it was sent since somebody wants to know; of what is large, since it was opened."""
        return self._outbox.sent_bytes + (0 if self._times is None else self._times.sent_bytes)

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        return self._closed

    @property
    def has_unanswered(self) -> bool:
        """Whether requests before the one being handled have yet to be answered."""
        return bool(self._queue or self._staged)

    async def turn_of(self, promise: PromisedAnswer) -> None:
        """Wait until all before ``promise`` are answered, or nobody waits for it any more."""
        queue = self._queue
        while promise in queue and queue[0] is not promise:
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

    def serve_by(self, handler: RequestHandler) -> None:
        """From the next request on let ``handler`` answer: who it is is known, or has to be proven first."""
        self._handle = handler.handle

    def limit_frames(self, max_bytes: int | None, option: str = "") -> None:
        """Refuse longer requests than ``max_bytes``, as ``option`` says; ``None`` for what all may send."""
        self._inbox.limit_frames(max_bytes, option)

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
            self._events.remove_reader(self._sock)
        if self._writing:
            self._events.remove_writer(self._sock)
        if self._throttle is not None:
            self._throttle.cancel()
        self._sock.close()
        self.give_up_waits()
        self._outbox.clear()
        self._inbox.close()
        network.forget(self)
        # They know this connection: a crowd that comes and goes would keep the garbage collector busy.
        self._times = None

    def throttle(self, pause_ms: int, key: int) -> None:
        """Take no requests for so long: the client has used more than its quota, and is told so.

        ``key`` is the API of the request that it is told in answer to.
        """
        if self._closed or pause_ms <= 0:
            return
        if self._network.observer is not None:
            self._network.observer.throttled(self, key, pause_ms)
            if self._times is not None:
                self._times.pauses += 1
        loop = self._network.loop
        until_s = loop.time() + pause_ms / 1000
        if self._throttle is not None:
            until_s = max(until_s, self._throttle.when())
            self._throttle.cancel()
        self._throttle = loop.call_at(until_s, self._unthrottle)

    def _unthrottle(self) -> None:
        self._throttle = None
        self.last_active = self._network.loop.time()
        self._go_on()

    def refuse(self, reason: str) -> None:
        """Close the connection because of what the peer sent, with one line in the log."""
        if not self._closed:
            self._network.rate_limited_log.warn("refused", "Closing the connection of %s: %s", self, reason)
            self.close()

    def stop_reading(self) -> None:
        """Take no further requests; what is under way is still answered."""
        if not self._muted and not self._closed:
            self._stop_listening()

    def give_up_waits(self) -> None:
        """Forget the requests that wait for something; they are answered by the end of the connection."""
        for promise in self._queue:
            promise.cancel()
        self._queue.clear()
        if self._times is not None:
            self._times.forget()
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

    def peer_has_ended(self) -> bool:
        """Whether its peer is gone, or sends nothing more: for those who work long on an answer."""
        if self._closed or not self._muted:
            # While it listens, the loop tells.
            return self._closed
        try:
            return self._sock.recv(1, socket.MSG_PEEK) == b""
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True

    # -- receiving and handling -----------------------------------------------------------------------

    def _listen(self) -> None:
        on_readable = (
            self._on_readable if self._network.after_event is None else self._on_readable_then_others
        )
        self._events.add_reader(self._sock, on_readable)

    def _on_readable_then_others(self) -> None:
        self._on_readable()
        if self._network.after_event is not None:
            self._network.after_event()

    def _on_readable(self) -> None:
        self.last_active = self._network.loop.time()
        inbox = self._inbox
        try:
            if (
                self._queue
                or self._writing
                or inbox.awaits_memory
                or inbox.waiting
                or self._throttle is not None
            ):
                if inbox.awaits_memory or self._is_blocked():
                    self._mute()
                    return
                if inbox.waiting:
                    # It goes on with these first: until then there is no use in being told of more.
                    self._stop_listening()
                    return
            began_s = 0.0
            if self._sends_much or inbox.is_filling:
                if self._network.turn.is_spent:
                    self._stop_listening()
                    self._network.turn.put_off(self._read_now)
                    return
                began_s = monotonic()
            frames = inbox.receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._went_away(error)
            return
        if frames is None:
            self.close()
            return
        self._sends_much = len(frames) > 1
        if frames:
            if self._sends_much:
                began_s = began_s or monotonic()
            run = self._run if self._network.request_time is None else self._run_timed
            done = run(frames, one_only=self._network.turn.is_spent)
            if self._closed:
                return
            if inbox.has_more(done):
                inbox.put_back(done)
                if self._times is not None:
                    self._times.put_back()
                self._resume_soon()
            inbox.release()
        if began_s:
            self._network.turn.spend_since(began_s)
        if inbox.awaits_memory:
            inbox.wait_for_memory(self._resume_soon)
        if inbox.refusal is not None and not inbox.waiting:
            self.refuse(inbox.refusal)

    def _run_timed(self, frames: list[memoryview], *, one_only: bool = False) -> int:
        """The same while there is a quota of the time that requests take."""
        request_time = self._network.request_time
        assert request_time is not None
        try:
            return self._run(frames, one_only=one_only)
        finally:
            request_time.leave(self)

    def _run(self, frames: list[memoryview], *, one_only: bool = False) -> int:
        """Handle ``frames`` until one of them holds back the rest, or for a moment; returns how many were
        handled."""
        handle: HandleFrame = self._handle
        queue = self._queue
        staged = self._staged
        self._holding = False
        out: list[bytes] = []
        unsent = done = 0
        refusal: str | None = None
        observer = self._network.observer
        times: AnswerTimes | None = None
        began_s = 0.0
        if observer is not None:
            times = self._times
            if times is None:
                times = self._times = AnswerTimes(self, observer)
            times.observer = observer
            if self._network.answer_log is not None:
                handle = self._network.answer_log.around(handle)
            began_s = monotonic()
        # Most peers send one request at a time, and need not pay for a clock.
        end_s = staged_end_s = inf
        if len(frames) > 1:
            end_s = staged_end_s = monotonic()
            if not one_only:
                end_s += _TURN_S
                staged_end_s = end_s + _STAGED_S
        try:
            for frame in frames:
                outcome = handle(self, frame)
                if isinstance(outcome, NotYet):
                    self._settle(staged, out, began_s)
                    self._send_all(out)
                    if queue:
                        self._holding = True
                        break
                    outcome = handle(self, frame)
                    assert not isinstance(outcome, NotYet), "nothing before it is unanswered"
                done += 1
                if isinstance(outcome, StagedAnswer):
                    staged.append(outcome)
                    if not outcome.refused and monotonic() < staged_end_s:
                        continue
                    self._settle(staged, out, began_s)
                    self._send_all(out)
                    if monotonic() >= end_s or self._is_blocked():
                        break
                    continue
                if staged:
                    self._settle(staged, out, began_s)
                pieces: list[bytes] | None = None
                if not queue:
                    if isinstance(outcome, bytes):
                        pieces = [outcome]
                    elif isinstance(outcome, list):
                        pieces = read_if_small(outcome)
                if pieces is not None:
                    out += pieces
                    unsent += sum(map(len, pieces))
                    if unsent < _UNSENT_BYTES and monotonic() < end_s and self._throttle is None:
                        continue
                    unsent = 0
                    self._send_all(out)
                    self._flush_new()
                else:
                    self._send_all(out)
                    self._take(outcome, frame, began_s)
                if monotonic() >= end_s or self._is_blocked():
                    break
        except WireError as error:
            refusal = str(error)
        except Exception:
            self._network.logger.exception("Unexpected error in a request of %s", self)
            refusal = "its request could not be handled"
        if staged:
            self._settle(staged, out, began_s)
        if times is None or observer is None:
            if out:
                self._send_all(out)
            self._flush_new()
        else:
            handled_s = monotonic()
            if out:
                self._send_all(out)
            self._flush_new()
            if done == 1 and times.client_id is not None:
                times.requests += 1
                times.received_bytes += len(frames[0])
            else:
                times.count(frames, done)
            if self._writing or times.later or times.waiting_since_s:
                times.handled(frames, done, began_s, handled_s, unsent=self._writing)
            else:
                # What nearly every wake-up is: all are answered, and nobody pays for one step more.
                observer.answered(self, frames, done, None, began_s, began_s, handled_s)
        if refusal is not None:
            self.refuse(refusal)
        return done

    def _settle(self, staged: list[StagedAnswer], out: list[bytes], began_s: float) -> None:
        """Write what is staged; the answers go behind those in ``out``."""
        self._network.handler.commit()
        queue = self._queue
        for answer in staged:
            outcome = answer.settle()
            if isinstance(outcome, bytes) and not queue:
                out.append(outcome)
            else:
                self._send_all(out)
                self._take(outcome, None, began_s, refused=answer.refused)
        staged.clear()

    def _take(
        self,
        outcome: Answer | NoAnswer | PromisedAnswer,
        frame: memoryview | None,
        began_s: float,
        *,
        refused: bool = False,
    ) -> None:
        """Put the outcome of a request, of a staged one without ``frame``, behind the answers before it."""
        times = self._times
        if isinstance(outcome, Promise):
            self._queue.append(outcome)
            if times is not None and began_s:
                times.promised(outcome, frame, began_s)
            outcome.when_done(self._advance)
        elif self._queue:
            # Requests behind a large answer wait until it has gone: one is as much as a connection may keep.
            slot: PromisedAnswer = Promise(pipelined=_held_bytes(outcome) <= _QUEUED_BYTES and not refused)
            slot.resolve(outcome)
            self._queue.append(slot)
            if times is not None and began_s:
                times.promised(slot, frame, began_s)
        elif isinstance(outcome, bytes | list):
            self._outbox.put(outcome)
            if self._outbox.is_due:
                self._flush_new()

    def _advance(self, _: object) -> None:
        """A promised answer is there: send it and those behind it that waited for their turn."""
        queue = self._queue
        times = self._times
        ready_s = times.settled() if times is not None else 0.0
        answered: list[PromisedAnswer] = []
        while queue and queue[0].done:
            promise = queue.popleft()
            answered.append(promise)
            if promise.error is not None:
                self.refuse(str(promise.error))
                return
            if isinstance(promise.value, bytes | list):
                try:
                    self._outbox.put(promise.value)
                except OSError as error:
                    self._went_away(error)
                    return
        self._take_turns()
        if self._outbox:
            self._flush()
        if times is not None and ready_s:
            times.handed_over(answered, ready_s, unsent=self._writing)
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
            if self._times is not None:
                self._times.sent_bytes += sent
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
                self._events.remove_writer(self._sock)
                if self._times is not None:
                    self._times.sent()
            else:
                self._events.add_writer(self._sock, self._on_writable)

    def _on_writable(self) -> None:
        turn = self._network.turn
        if turn.is_spent:
            self._events.remove_writer(self._sock)
            turn.put_off(self._write_now)
            return
        began_s = monotonic()
        self.last_active = self._network.loop.time()
        self._flush()
        self._go_on()
        turn.spend_since(began_s)

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
        if self._writing or self._closed or self._throttle is not None:
            return True
        queue = self._queue
        if self._holding and queue:
            return True
        # One in the midst may have been refused after those behind it were taken.
        return len(queue) >= _MAX_IN_FLIGHT or not all(promise.pipelined for promise in queue)

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
            run = self._run if self._network.request_time is None else self._run_timed
            done = run(inbox.take_back())
            if self._closed:
                return
            if inbox.has_more(done):
                inbox.put_back(done)
                self._resume_soon()
                return
            if self._times is not None:
                self._times.taken_back()
        if inbox.refusal is not None:
            self.refuse(inbox.refusal)
        elif inbox.awaits_memory:
            inbox.retry(self._resume_soon)
        self._listen_again()

    def _listen_again(self) -> None:
        """Be told of new requests, if they can be taken."""
        inbox = self._inbox
        if (
            self._muted
            and not inbox.waiting
            and not inbox.awaits_memory
            and not self._is_blocked()
            and not self._network.stopping
        ):
            self._muted = False
            self._listen()

    def _read_now(self) -> None:
        """Its turn has come: to wait until the loop tells of bytes again would be to lose it to others."""
        self._listen_again()
        if not self._muted and not self._closed:
            self._on_readable()

    def _write_now(self) -> None:
        """Its turn has come to send more, if there is more."""
        if self._writing and not self._closed:
            self._events.add_writer(self._sock, self._on_writable)
            self._on_writable()

    def _mute(self) -> None:
        """Something is readable, and it has to wait. A peer that has gone need not be waited for."""
        waits_only = not self._writing and all(promise.cancellable for promise in self._queue)
        if waits_only and self._sock.recv(1, socket.MSG_PEEK) == b"":
            self.close()
            return
        self._stop_listening()

    def _stop_listening(self) -> None:
        self._muted = True
        self._events.remove_reader(self._sock)


def _held_bytes(answer: Answer | NoAnswer) -> int:
    """How much memory an answer takes that has to wait; what is in files takes none."""
    if isinstance(answer, list):
        return sum(len(part) for part in answer if isinstance(part, bytes))
    return len(answer) if isinstance(answer, bytes) else 0
