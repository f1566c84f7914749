"""The time that requests take of the broker's loop, for ``request_percentage``.

There is one loop, so 100 % is all that a broker can do; Kafka has as many hundreds as it has threads. What is
measured is what runs on behalf of requests: their handling, and writing, answering and sending, and each step
of work that goes on beyond their turn. As in Kafka a client is validated when a request is answered, by the
time that it has taken until then, and pauses for a window at most; what comes afterwards counts for the next
one. The requests of brokers are counted separately and cause no pause.

Requests that have come together on a connection are timed together (``turn_to`` … ``leave``): the clock is
read when the first of them begins and when all are done. In between, ``until_s`` is the moment until which
the client surely is within its quota, so that an answer costs one look at the clock; beyond it, ``pause_ms``
charges the time so far and finds out. Where another client pays for the next request, the one before is
charged first. The time of a wake-up is added to what its share owes, which counts at once; it is recorded in
the windows every ten milliseconds, and before the rate of the share is read.

While no such quota is set, nothing is measured. Called by ``broker/network/connection``,
``broker/exchange/dispatch`` and the handlers of produce and fetch, always on the loop: at any moment one
thing is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidelog.broker.quotas.payer import Payer, payer_of
from tidelog.broker.quotas.rate_quota import RateQuota
from tidelog.clock import Clock
from tidelog.metrics.sampled_rate import SampledRate

if TYPE_CHECKING:
    from tidelog.broker.network.connection import Connection
    from tidelog.broker.quotas.client_levels import Share

_PERCENT = 100.0
# More than clocks are rounded by.
_ROUNDED_S = 1e-8
# For so long what wake-ups have taken is kept with the share, where it counts, before it is in the windows.
_DUE_S = 0.01

T = TypeVar("T")


class Interrupted(NamedTuple):
    """What was being timed when something else came in between."""

    spent_s: float
    is_exempt: bool
    connection: Connection | None
    payer: Payer | None
    named: bytes | memoryview | None
    named_end: int
    is_mixed: bool


class RequestTime:
    """Times requests and charges their clients."""

    __slots__ = (
        "_began_s",
        "_found",
        "_interrupted",
        "_now_ms",
        "_share",
        "connection",
        "exempt",
        "is_exempt",
        "is_mixed",
        "named",
        "named_end",
        "payer",
        "quota",
        "until_s",
    )

    def __init__(self, windows: int, window_ms: float, clock: Clock) -> None:
        # As in Kafka nobody pauses longer than a window, whatever a single request has cost.
        self.quota = RateQuota(windows, window_ms, clock, max_pause_ms=window_ms)
        self.exempt = SampledRate(windows, window_ms)
        """What brokers have taken."""
        self.is_exempt = False
        """Whether the request that is being timed is a broker's: its handler says so."""
        self.connection: Connection | None = None
        """Whose wake-up is being timed."""
        self.payer: Payer | None = None
        """Who pays for its requests."""
        self.named: bytes | memoryview | None = None
        """The client id of the last of them, as it is in the frame up to ``named_end``."""
        self.named_end = 0
        self.is_mixed = False
        """Whether the requests of this wake-up are paid for by several."""
        self.until_s = -inf
        """Until when the payer surely has time left."""
        self._share: Share[SampledRate] | None = None
        self._found = self.quota.levels.found
        self._interrupted: list[Interrupted] = []
        self._now_ms = clock.monotonic_ms
        self._began_s: float | None = None

    # A wake-up of a connection: requests that have come together

    def turn_to(self, connection: Connection, frame: memoryview, *, is_exempt: bool = False) -> None:
        """The next request is the first of a wake-up, or one that another payer is charged for."""
        payer = payer_of(connection, frame)
        now_s = perf_counter()
        if self.connection is not connection:
            if self._began_s is not None:
                self._interrupted.append(self._interrupt(now_s))
            self.connection = connection
            self.is_mixed = False
        elif self._began_s is not None:
            self._charge_lap(now_s)
            self.is_mixed = self.is_mixed or payer != self.payer
        self._began_s = now_s
        self.payer, self.is_exempt = payer, is_exempt
        known = connection.session.known_payer
        if known is not None and known[2] is payer:
            _, _, _, self.named, self.named_end = known
        else:
            # Too long to be remembered: each request is looked into.
            self.named, self.named_end = None, 0
        share = self._found.get(payer)
        if share is not None and now_s < share.due_s:
            # What nearly every wake-up finds: its room was looked up a moment ago.
            self._share = share
            self.until_s = now_s + (share.room - share.owed) / _PERCENT - _ROUNDED_S
        else:
            self._look_ahead(payer, now_s)

    def leave(self, connection: Connection) -> None:
        """The wake-up of a connection is over: charge its payer, and go on with what was timed before."""
        began_s = self._began_s
        if self.connection is not connection or began_s is None:
            return
        now_s = perf_counter()
        share = self._share
        if share is not None and now_s < share.due_s and not self.is_exempt:
            share.owed += (now_s - began_s) * _PERCENT
        else:
            self._charge_lap(now_s)
        self._began_s = None
        self.connection = self.payer = self._share = None
        if self._interrupted:
            self._resume(self._interrupted.pop())

    def is_within(self) -> bool:
        """Whether the payer of what is being timed surely has time left."""
        return perf_counter() < self.until_s

    def _charge_lap(self, now_s: float) -> None:
        began_s = self._began_s
        if began_s is None:
            return
        spent = (now_s - began_s) * _PERCENT
        if self.is_exempt or self.payer is None:
            self.exempt.record(spent, self._now_ms())
        else:
            self.quota.note(self.payer, spent)

    def _look_ahead(self, payer: Payer, began_s: float) -> None:
        """Work out until when a payer surely has time left whose requests are timed from ``began_s`` on."""
        try:
            share = self._share = self._found[payer]
        except KeyError:
            self._share = None
            self.until_s = -inf
            return
        if share is None:
            self.until_s = inf
            return
        if began_s >= share.due_s:
            # What is owed is recorded, and what is left looked up, once in a while.
            self.quota.note(payer, 0.0)
            share.room = self.quota.room(share)
            share.due_s = began_s + _DUE_S
        self.until_s = began_s + (share.room - share.owed) / _PERCENT - _ROUNDED_S

    # What is done on behalf of others

    def begin(self, *, is_exempt: bool = False) -> Interrupted | None:
        """Time what follows; gives back, for ``end``, what was being timed before."""
        now_s = perf_counter()
        before = None if self._began_s is None else self._interrupt(now_s)
        self._began_s = now_s
        self.is_exempt = is_exempt
        self.connection = self.payer = self._share = None
        self.until_s = -inf
        return before

    def charge(self, payer: Payer | None, work: Callable[[], T]) -> T:
        """Do something on behalf of a client, None of a broker, whoever has made it happen.

        Whoever's request is being timed meanwhile, a producer's of what a consumer waits for, say, does not
        pay for it.
        """
        before = self.begin(is_exempt=payer is None)
        try:
            return work()
        finally:
            self.end(payer, before)

    def pause_ms(self, payer: Payer) -> int:
        """A request is answered: charge its client for the time so far; how long it has to pause."""
        pause_ms = self.quota.charge(payer, self._lap())
        if self._began_s is not None and self.payer is not None:
            self._look_ahead(self.payer, self._began_s)
        return pause_ms

    def end(self, payer: Payer | None, before: Interrupted | None = None) -> None:
        """What was timed is over: charge the rest, and go on with what was timed before."""
        spent = self._lap()
        if self.is_exempt or payer is None:
            self.exempt.record(spent, self._now_ms())
        else:
            self.quota.note(payer, spent)
        self._began_s, self.is_exempt = None, False
        if before is not None:
            self._resume(before)

    def _interrupt(self, now_s: float) -> Interrupted:
        spent_s = 0.0 if self._began_s is None else now_s - self._began_s
        named, named_end = self.named, self.named_end
        return Interrupted(
            spent_s, self.is_exempt, self.connection, self.payer, named, named_end, self.is_mixed
        )

    def _resume(self, before: Interrupted) -> None:
        """Go on with what was being timed: for it the time stood still."""
        self._began_s = perf_counter() - before.spent_s
        _, self.is_exempt, self.connection, self.payer, self.named, self.named_end, self.is_mixed = before
        if self.payer is not None:
            self._look_ahead(self.payer, self._began_s)
        else:
            self._share = None
            self.until_s = -inf

    def _lap(self) -> float:
        if self._began_s is None:
            return 0.0
        now_s = perf_counter()
        spent_s, self._began_s = now_s - self._began_s, now_s
        return spent_s * _PERCENT


class TimedWork:
    """Work of several turns on behalf of a client, each of its steps timed."""

    def __init__(self, work: Coroutine[Any, Any, None], time: RequestTime, payer: Payer) -> None:
        self._work = work
        self._time = time
        self._payer = payer

    def __await__(self) -> Generator[Any, None, None]:
        steps = self._work.__await__()
        failure: BaseException | None = None
        # A fetch turns out to be a follower's in the midst of it.
        is_exempt = False
        while True:
            before = self._time.begin(is_exempt=is_exempt)
            try:
                waited = steps.send(None) if failure is None else steps.throw(failure)
            except StopIteration:
                return
            finally:
                is_exempt = self._time.is_exempt
                self._time.end(self._payer, before)
            failure = None
            try:
                yield waited
            except BaseException as error:  # handed on: whoever works is to hear that it is given up
                failure = error


async def timed(work: Coroutine[Any, Any, None], time: RequestTime, payer: Payer) -> None:
    """Do the work, and charge ``payer`` for it."""
    await TimedWork(work, time, payer)
