"""The time that requests take of the broker's loop, for ``request_percentage``.

There is one loop, so 100 % is all that a broker can do; Kafka has as many hundreds as it has threads. What is
measured is what runs on behalf of a request: its reading, handling and answering, and each step of the work
that goes on beyond its turn. As in Kafka a client is judged when a request is answered, by the time that it
has taken until then, and pauses for a window at most; what comes afterwards counts for the next one. What
brokers ask of each other is counted by itself and makes nobody pause.

While no such quota is set, nothing is measured. Called by ``broker/dispatch`` and the handlers of produce and
fetch, always on the loop: at any moment one request is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from tidelog.broker.quotas.payer import Payer
from tidelog.broker.quotas.rate_quota import RateQuota
from tidelog.broker.sampled_rate import SampledRate
from tidelog.clock import Clock

_PERCENT = 100.0

T = TypeVar("T")


class Interrupted(NamedTuple):
    """A request that was being timed when another one came in between."""

    spent_s: float
    is_exempt: bool


class RequestTime:
    """Times requests and charges their clients."""

    def __init__(self, windows: int, window_ms: float, clock: Clock) -> None:
        # As in Kafka nobody pauses longer than a window, whatever a single request has cost.
        self.quota = RateQuota(windows, window_ms, clock, max_pause_ms=window_ms)
        self.exempt = SampledRate(windows, window_ms)
        """What brokers have taken."""
        self.is_exempt = False
        """Whether the request that is being timed is a broker's: its handler says so."""
        self._now_ms = clock.monotonic_ms
        self._began_s: float | None = None

    def begin(self, *, is_exempt: bool = False) -> Interrupted | None:
        """Time what follows; gives back, for ``end``, what was being timed before."""
        now_s = perf_counter()
        before = None if self._began_s is None else Interrupted(now_s - self._began_s, self.is_exempt)
        self._began_s = now_s
        self.is_exempt = is_exempt
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
        return self.quota.charge(payer, self._lap())

    def charge_within(self, payer: Payer) -> bool:
        """The same, if its client surely need not pause; else ``pause_ms`` is to say so."""
        spent = self._lap()
        if self.quota.charge_within(payer, spent):
            return True
        self.quota.note(payer, spent)
        return False

    def end(self, payer: Payer | None, before: Interrupted | None = None) -> None:
        """What was timed is over: charge the rest, and go on with what was timed before."""
        spent = self._lap()
        if self.is_exempt or payer is None:
            self.exempt.record(spent, self._now_ms())
        else:
            self.quota.note(payer, spent)
        self._began_s, self.is_exempt = None, False
        if before is not None:
            # Its time stood still.
            self._began_s = perf_counter() - before.spent_s
            self.is_exempt = before.is_exempt

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
