"""A seeded world without threads, sockets or real time: clients, a broker that crashes, links that break.

Everything that happens is an event in one queue, ordered by virtual time; the seed decides delays, losses and
crashes, so a seed that failed fails again. Clients are generators: they yield what they wait for, a
:class:`Call` to the broker or a :class:`Sleep`, and get the answer, None if the link broke before it came.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from tests.rigs.clock import ManualClock

from tidelog.scheduling.promise import Promise
from tidelog.scheduling.timers import Timers

LATENCY_MS = (1, 40)
REMEMBERED_EVENTS = 60


class Call(NamedTuple):
    """A request: what the broker is to do when it arrives."""

    what: str
    serve: Callable[[], Promise[Any]]


class Sleep(NamedTuple):
    """Let so much time pass."""

    delay_ms: int


Life = Generator[Call | Sleep, Any, None]


class World:
    """The queue of events and the dice."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.history: deque[str] = deque(maxlen=REMEMBERED_EVENTS)
        self.timers: Timers | None = None
        """Those of the broker that is up."""
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()

    def note(self, text: str) -> None:
        """Remember what happened, for whoever reads a failure."""
        self.history.append(f"{self.clock.monotonic_ms():>9.0f} {text}")

    def after(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Let ``action`` happen later."""
        heapq.heappush(self._queue, (self.clock.monotonic_ms() + delay_ms, next(self._numbers), action))

    def latency_ms(self) -> int:
        return self.random.randint(*LATENCY_MS)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def run(self, for_ms: float, check: Callable[[], None] = lambda: None) -> None:
        """Let time pass; ``check`` looks at everything after every event."""
        end = self.clock.monotonic_ms() + for_ms
        try:
            while self._step(end):
                check()
        except Exception as error:
            error.add_note(f"seed {self.seed}; the last events:\n" + "\n".join(self.history))
            raise

    def _step(self, end: float) -> bool:
        now = self.clock.monotonic_ms()
        due = [end]
        if self._queue:
            due.append(self._queue[0][0])
        if self.timers is not None and self.timers.next_delay_ms is not None:
            due.append(now + self.timers.next_delay_ms)
        until = min(due)
        if until > now:
            # Whole milliseconds, as the clock has them.
            self.clock.advance(int(-(-(until - now) // 1)))
        if self.timers is not None:
            self.timers.run_due()
        now = self.clock.monotonic_ms()
        while self._queue and self._queue[0][0] <= now:
            heapq.heappop(self._queue)[2]()
        return now < end


class Link:
    """A client's way to the broker: in order, until it breaks and loses what is on its way."""

    def __init__(self, world: World, is_up: Callable[[], bool], loss: float) -> None:
        self.world = world
        self.loss = loss
        self._is_up = is_up
        self._breaks = 0
        self._under_way: list[Callable[[], None]] = []

    def break_off(self) -> None:
        """Lose every request and answer that is under way; the client finds out soon."""
        self._breaks += 1
        lost, self._under_way = self._under_way, []
        for give_up in lost:
            self.world.after(self.world.latency_ms(), give_up)

    def call(self, call: Call, timeout_ms: int, answer: Callable[[Promise[Any] | None], None]) -> None:
        """Send a request; ``answer`` gets its reply, or None when none came in time."""
        breaks = self._breaks
        settled = False

        def finish(reply: Promise[Any] | None) -> None:
            nonlocal settled
            if not settled:
                settled = True
                if give_up in self._under_way:
                    self._under_way.remove(give_up)
                answer(reply)

        def give_up() -> None:
            finish(None)

        def arrive() -> None:
            if not self._is_up():
                self.break_off()
            if breaks != self._breaks:
                return
            reply = call.serve()
            reply.when_done(leave)

        def leave(reply: Promise[Any]) -> None:
            if self.world.chance(self.loss):
                self.break_off()
            self.world.after(self.world.latency_ms(), lambda: back(reply))

        def back(reply: Promise[Any]) -> None:
            if breaks == self._breaks:
                finish(reply)

        def late() -> None:
            if not settled:
                self.break_off()

        self._under_way.append(give_up)
        if self.world.chance(self.loss):
            self.break_off()
        else:
            self.world.after(self.world.latency_ms(), arrive)
        self.world.after(timeout_ms, late)


class Actor:
    """A client: its life, which can be ended at any moment, and its link."""

    def __init__(self, world: World, name: str, link: Link, life: Life, timeout_ms: int = 20_000) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self._link = link
        self._life = life
        self._timeout_ms = timeout_ms
        self._stalled_until = 0.0
        world.after(0, lambda: self._resume(None))

    def kill(self) -> None:
        """End it without a word, as kill -9 does."""
        self.alive = False
        self._link.break_off()
        self._life.close()

    def stall(self, for_ms: int) -> None:
        """Stop it for a while, as a long pause of a process does; it does not know."""
        self._stalled_until = self.world.clock.monotonic_ms() + for_ms

    def _resume(self, value: Promise[Any] | None) -> None:
        now = self.world.clock.monotonic_ms()
        if not self.alive:
            return
        if now < self._stalled_until:
            self.world.after(self._stalled_until - now, lambda: self._resume(value))
            return
        try:
            effect = self._life.send(value)
        except StopIteration:
            self.alive = False
            return
        if isinstance(effect, Sleep):
            self.world.after(effect.delay_ms, lambda: self._resume(None))
        else:
            self.world.note(f"{self.name}: {effect.what}")
            self._link.call(effect, self._timeout_ms, self._resume)
