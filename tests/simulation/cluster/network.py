"""The network between brokers and clients: connections on which bytes keep their order and take their time.

A connection is what the real client code opens (``loop.create_connection``) on one side and an entrance into
a broker's dispatcher on the other. Each way has a delay of its own, so messages of different connections
overtake each other. A *cut* between two machines, in one direction or in both, holds back what is sent; when
it is mended the connection goes on where it was, or breaks. A broker that was killed resets its connections;
one whose machine lost power says nothing, and its peers find out by their timeouts.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.simulation.cluster.trace import Trace
from tests.simulation.virtual_loop import OWNER, Life

from tidelog.broker.network.answer import NOT_YET, HandlerResult, Part, PromisedAnswer, StagedAnswer
from tidelog.broker.network.inbox import KeptFrame
from tidelog.errors import WireError
from tidelog.scheduling.promise import Promise
from tidelog.security.session import Session

if TYPE_CHECKING:
    from tidelog.broker.exchange.dispatch import Dispatcher

CLIENTS = "clients"
_ORDER_S = 1e-7
_SIZE_BYTES = 4


class SimNetwork:
    """Who can be reached where, what is cut, and how long everything takes."""

    def __init__(self, rng: random.Random, trace: Trace) -> None:
        self.rng = rng
        self.trace = trace
        self.loop = asyncio.get_running_loop()
        self.cut: set[tuple[str, str]] = set()
        """Pairs of machines, from and to, between which nothing gets through."""
        self.silent: set[str] = set()
        """Machines that are down and do not even refuse."""
        self.slow: dict[str, float] = {}
        """Machines whose every message takes so many seconds more."""
        self._doors: dict[str, tuple[Life, Dispatcher]] = {}
        self._links: dict[Link, None] = {}

    def listen(self, host: str, life: Life, dispatcher: Dispatcher) -> None:
        """Let a broker be reached."""
        self._doors[host] = life, dispatcher

    def delay_s(self, source: str, target: str) -> float:
        """How long the next message takes."""
        rng = self.rng
        usual = rng.uniform(0.0005, 0.006) if rng.random() < 0.97 else rng.uniform(0.03, 0.3)
        return usual + self.slow.get(source, 0.0) + self.slow.get(target, 0.0)

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        """Satisfies ``Connector``."""
        life = OWNER.get()
        source = CLIENTS if life is None else life.name
        await asyncio.sleep(self.delay_s(source, host))
        while host in self.silent or (source, host) in self.cut or (host, source) in self.cut:
            if self.rng.random() < 0.3:
                raise ConnectionRefusedError(f"{host} cannot be reached from {source}")
            await asyncio.sleep(0.5)
        door = self._doors.get(host)
        if door is None or door[0].ended:
            raise ConnectionRefusedError(f"nobody listens at {host}")
        link = Link(self, source, host, life, factory(), *door)
        self._links[link] = None
        return link.client, link.receiver

    def mend(self) -> None:
        """All cuts are over: what was held back goes on, or turns out to be lost."""
        self.cut.clear()
        for link in list(self._links):
            if not link.is_stuck:
                continue
            if self.rng.random() < 0.5:
                link.break_off()
            else:
                link.go_on()

    def reset(self, host: str) -> None:
        """A process is gone; its machine tells everybody who is connected to it."""
        self._doors.pop(host, None)
        for link in list(self._links):
            if host in (link.source, link.target):
                link.break_off()

    def power_off(self, host: str) -> None:
        """A machine is gone; nobody tells anybody."""
        self._doors.pop(host, None)
        self.silent.add(host)
        for link in list(self._links):
            if host in (link.source, link.target):
                link.is_dead = True

    def power_on(self, host: str) -> None:
        """A machine is back; it knows nothing of its earlier connections and says so."""
        self.silent.discard(host)
        for link in list(self._links):
            if host in (link.source, link.target) and link.is_dead:
                link.break_off()

    def break_some(self, host: str) -> None:
        """Connections of a broker break for no reason."""
        for link in list(self._links):
            if host in (link.source, link.target) and self.rng.random() < 0.5:
                link.break_off()

    def forget(self, link: Link) -> None:
        """A connection is over."""
        self._links.pop(link, None)


class _Way:
    """One direction of a connection: in order, each message with a delay."""

    def __init__(self, link: Link, source: str, target: str, take: Callable[[bytes], None]) -> None:
        self._link = link
        self._ends = source, target
        self._take = take
        self._last_s = 0.0
        self.stuck: deque[bytes] = deque()

    def next_s(self) -> float:
        """When that arrives which is sent now."""
        network = self._link.network
        self._last_s = max(network.loop.time() + network.delay_s(*self._ends), self._last_s + _ORDER_S)
        return self._last_s

    def send(self, data: bytes) -> None:
        self._link.network.loop.call_at(self.next_s(), self._arrive, data, context=_NOBODY)

    def _arrive(self, data: bytes) -> None:
        link = self._link
        if link.is_over:
            return
        if link.is_dead or self._ends in link.network.cut or self.stuck:
            self.stuck.append(data)
            return
        link.network.trace.note(*self._ends, len(data))
        self._take(data)

    def go_on(self) -> None:
        while self.stuck:
            self.send(self.stuck.popleft())


class Link:
    """One connection, from whoever opened it to a broker."""

    def __init__(
        self,
        network: SimNetwork,
        source: str,
        target: str,
        opener: Life | None,
        receiver: Any,
        server: Life,
        dispatcher: Dispatcher,
    ) -> None:
        self.network = network
        self.source = source
        self.target = target
        self.receiver = receiver
        self.is_over = False
        self.is_closing = False
        self.is_dead = False
        self.client = ClientEnd(self)
        self._opener = opener
        self._server_life = server
        self._server = ServerEnd(self, dispatcher)
        self._there = _Way(self, source, target, self._to_server)
        self._back = _Way(self, target, source, self._to_client)

    @property
    def is_stuck(self) -> bool:
        return bool(self._there.stuck or self._back.stuck)

    def go_on(self) -> None:
        """Deliver what was held back."""
        self._there.go_on()
        self._back.go_on()

    def ask(self, data: bytes) -> None:
        """Bytes of the one who opened it."""
        if not self.is_over and not self.is_closing:
            self._there.send(data)

    def answer(self, data: bytes) -> None:
        """Bytes of the broker."""
        if not self.is_over:
            self._back.send(data)

    def break_off(self) -> None:
        """Lose what is under way; each side that lives finds out soon."""
        if self.is_over:
            return
        self.is_over = True
        self.network.forget(self)
        delay = self.network.delay_s(self.source, self.target)
        self._in_life(self._server_life, delay, self._server.lost)
        if not self.is_closing:
            self._in_life(self._opener, delay, self.receiver.connection_lost, ConnectionResetError("reset"))

    def close(self) -> None:
        """The one who opened it has had enough: what it has sent arrives yet, answers find nobody."""
        if self.is_over or self.is_closing:
            return
        self.is_closing = True
        self._in_life(self._opener, 0.0, self.receiver.connection_lost, None)
        self.network.loop.call_at(self._there.next_s(), self._end, context=_NOBODY)

    def _end(self) -> None:
        if not self.is_over:
            self.is_over = True
            self.network.forget(self)
            self._server_life.call_soon(self._server.lost)

    def _in_life(self, life: Life | None, delay_s: float, work: Callable[..., Any], *args: Any) -> None:
        context = _NOBODY if life is None else life.context
        self.network.loop.call_later(delay_s, work, *args, context=context)

    def _to_server(self, data: bytes) -> None:
        self._server_life.call_soon(self._server.receive, data)

    def _to_client(self, data: bytes) -> None:
        if self._opener is None:
            self._feed(data)
        else:
            self._opener.call_soon(self._feed, data)

    def _feed(self, data: bytes) -> None:
        if self.is_over or self.is_closing:
            return
        view = memoryview(data)
        while view:
            room = self.receiver.get_buffer(-1)
            taken = min(len(room), len(view))
            room[:taken] = view[:taken]
            self.receiver.buffer_updated(taken)
            view = view[taken:]


class ClientEnd(asyncio.Transport):
    """The transport that the client's connection writes to, one request at a time."""

    def __init__(self, link: Link) -> None:
        super().__init__()
        self._link = link

    def write(self, data: Any) -> None:
        self._link.ask(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self._link.ask(b"".join(list_of_data))

    def close(self) -> None:
        self._link.close()

    def abort(self) -> None:
        self._link.close()

    def is_closing(self) -> bool:
        return self._link.is_over or self._link.is_closing


class ServerEnd:
    """A broker's side: requests in order to the dispatcher, answers in order back."""

    def __init__(self, link: Link, dispatcher: Dispatcher) -> None:
        self.session = Session(link.source)
        self.peer = (link.source, 0)
        self.listener = "PLAINTEXT"
        self.client_software: tuple[str, str] | None = None
        self.producer_ids: tuple[int, ...] = ()
        self.is_follower = False
        self._link = link
        self._dispatcher = dispatcher
        self._queue: deque[PromisedAnswer] = deque()
        self._waiting: deque[bytes] = deque()
        self._holding = False
        self._throttled_until_s = 0.0
        self._turn: asyncio.Future[None] | None = None

    @property
    def closed(self) -> bool:
        """Whether the connection is gone."""
        return self._link.is_over

    @property
    def has_unanswered(self) -> bool:
        """Whether requests before the one being handled have yet to be answered."""
        return bool(self._queue)

    async def turn_of(self, pending: PromisedAnswer) -> None:
        """Wait until all before ``pending`` are answered, or nobody waits for it any more."""
        while pending in self._queue and self._queue[0] is not pending:
            self._turn = self._turn or asyncio.get_running_loop().create_future()
            await self._turn

    def keep(self, frame: memoryview) -> KeptFrame:
        """A frame is good for ever here."""
        return KeptFrame(frame, lambda: None)

    def throttle(self, pause_ms: int, key: int) -> None:
        """Take no requests for so long."""
        if pause_ms > 0 and not self._link.is_over:
            loop = asyncio.get_running_loop()
            until_s = loop.time() + pause_ms / 1000
            if until_s > self._throttled_until_s:
                self._throttled_until_s = until_s
                loop.call_at(until_s, self._work)

    def receive(self, data: bytes) -> None:
        """A request."""
        self._waiting.append(data)
        self._work()

    def lost(self) -> None:
        """The connection is gone."""
        for pending in self._queue:
            pending.cancel()
        self._queue.clear()
        self._waiting.clear()
        self._take_turns()

    def _work(self) -> None:
        while self._waiting and not self._is_blocked() and not self._link.is_over:
            self._holding = False
            data = self._waiting.popleft()
            frame = memoryview(bytearray(data))[_SIZE_BYTES:]
            try:
                outcome: HandlerResult = self._dispatcher.handle(self, frame)  # type: ignore[arg-type]
                if outcome is NOT_YET:
                    self._waiting.appendleft(data)
                    self._holding = True
                    return
                refused = False
                if isinstance(outcome, StagedAnswer):
                    self._dispatcher.commit()
                    staged = outcome
                    outcome = staged.settle()
                    refused = staged.refused
            except WireError as error:
                raise AssertionError(f"a request that cannot be read: {error}") from error
            self._take(outcome, refused)

    def _is_blocked(self) -> bool:
        if self._holding and self._queue:
            return True
        if self._throttled_until_s > asyncio.get_running_loop().time():
            return True
        return not all(pending.pipelined for pending in self._queue)

    def _take(self, outcome: Any, refused: bool) -> None:
        if isinstance(outcome, Promise):
            pending = outcome
        else:
            pending = Promise(pipelined=not refused)
            pending.resolve(in_memory(outcome) if isinstance(outcome, list) else outcome)
        self._queue.append(pending)
        pending.when_done(self._advance)

    def _advance(self, _: object) -> None:
        queue = self._queue
        while queue and queue[0].done:
            answer = queue.popleft().value
            if isinstance(answer, list):
                answer = in_memory(answer)
            if isinstance(answer, bytes):
                self._link.answer(answer)
        for pending in queue:
            if isinstance(pending.value, list):
                pending.value = in_memory(pending.value)
        self._take_turns()
        if self._waiting and not self._is_blocked():
            self._work()

    def _take_turns(self) -> None:
        if self._turn is not None:
            turn, self._turn = self._turn, None
            if not turn.done():
                turn.set_result(None)


def in_memory(parts: list[Part]) -> bytes:
    """The parts of an answer as bytes, files read."""
    return b"".join(
        part if isinstance(part, bytes) else os.pread(part.fd, part.length, part.position) for part in parts
    )


def _nobody() -> Any:
    context = contextvars.copy_context()
    context.run(OWNER.set, None)
    return context


_NOBODY = _nobody()
