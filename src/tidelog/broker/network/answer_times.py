"""When what happened to the requests of one connection, and how many came, for whoever counts or logs that.

A connection has one of these only while somebody wants to know (``Network.observer``). Most requests are
answered in the wake-up in which they came: their observer is told once, of all of them. The others are kept
here until their answers are out: those that wait for something, those behind them, and those whose answers
the socket does not take at once. Whoever was told of a request is told of its answer, too, also when somebody
else has taken its place by then: who is told of one without the other would take it for another's.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, Protocol

from tidelog.broker.network.answer import HandlerResult, PromisedAnswer

_PRODUCE = 0
_NO_API = -1
_LAST_API = 127
_LONGEST_CLIENT_ID = 256


def _key_of(frame: memoryview) -> int:
    return frame[0] << 8 | frame[1] if len(frame) > 1 else _NO_API


class RequestObserver(Protocol):
    """Who is told how long requests took: ``metrics/request_times``, or the request log before it."""

    def answered(
        self,
        connection: Any,
        frames: list[memoryview],
        done: int,
        later: list[int] | None,
        arrived_s: float,
        began_s: float,
        handled_s: float,
    ) -> None:
        """The first ``done`` of ``frames`` were handled, and are answered but for those of the APIs in
        ``later``."""

    def waited(
        self,
        connection: Any,
        key: int,
        arrived_s: float,
        began_s: float,
        taken_s: float,
        settled_s: float,
        ready_s: float,
    ) -> None:
        """One of those is answered, too."""

    def throttled(self, connection: Any, key: int, throttle_ms: float) -> None:
        """A quota has the sender of a request wait for so long."""


HandleFrame = Callable[[Any, memoryview], HandlerResult]


class AnswerLog(Protocol):
    """Who sees the answers to all requests: the request log, while it logs every request."""

    def around(self, handle: HandleFrame) -> HandleFrame:
        """``handle``, with its outcome noted."""


class _Unanswered:
    """A request whose answer is not out yet."""

    __slots__ = ("arrived_s", "began_s", "key", "observer", "promise", "ready_s", "settled_s", "taken_s")

    def __init__(
        self,
        observer: RequestObserver,
        promise: PromisedAnswer | None,
        key: int,
        arrived_s: float,
        began_s: float,
    ) -> None:
        self.observer = observer
        self.promise = promise
        self.key = key
        self.arrived_s = arrived_s
        self.began_s = began_s
        self.taken_s = monotonic()
        self.settled_s = self.ready_s = 0.0 if promise is not None and not promise.done else self.taken_s


class AnswerTimes:
    """The requests of one connection that are not answered yet."""

    __slots__ = (
        "_connection",
        "_unanswered",
        "client_id",
        "later",
        "observer",
        "pauses",
        "received_bytes",
        "requests",
        "sent_bytes",
        "since_s",
        "waiting_since_s",
    )

    def __init__(self, connection: Any, observer: RequestObserver) -> None:
        self.observer = observer
        """Who is told of the requests that are being handled."""
        self.client_id: str | None = None
        """What the client calls itself, or the beginning of it, by its first request that says so."""
        self.since_s = monotonic()
        """When its first request came."""
        self.requests = 0
        self.received_bytes = 0
        self.sent_bytes = 0
        self.pauses = 0
        """How often it was told to pause because of a quota."""
        self._connection = connection
        self._unanswered: list[_Unanswered] = []
        self.later: list[int] = []
        """The APIs of the requests that are being handled and answered later."""
        self.waiting_since_s = 0.0
        """When the requests came that were put back; 0 if none was."""

    def count(self, frames: list[memoryview], done: int) -> None:
        """The first ``done`` of ``frames`` were handled."""
        self.requests += done
        self.received_bytes += len(frames[0]) if done == 1 else sum(map(len, frames[:done]))
        if self.client_id is None and done and 0 <= _key_of(frames[0]) <= _LAST_API:
            length = int.from_bytes(frames[0][8:10], "big", signed=True)
            if length > 0:
                shown = frames[0][10 : 10 + min(length, _LONGEST_CLIENT_ID)]
                self.client_id = str(shown, "utf-8", "replace")

    def put_back(self) -> None:
        """Requests have come that have to wait before they are handled."""
        self.waiting_since_s = self.waiting_since_s or monotonic()

    def taken_back(self) -> None:
        """None of them waits any longer."""
        self.waiting_since_s = 0.0

    def promised(self, promise: PromisedAnswer, frame: memoryview | None, began_s: float) -> None:
        """A request that is being handled is answered later; without ``frame`` it is one to produce."""
        key = _PRODUCE if frame is None else _key_of(frame)
        self.later.append(key)
        arrived_s = self.waiting_since_s or began_s
        self._unanswered.append(_Unanswered(self.observer, promise, key, arrived_s, began_s))

    def handled(
        self,
        frames: list[memoryview],
        done: int,
        began_s: float,
        handled_s: float,
        *,
        unsent: bool,
    ) -> None:
        """So many of ``frames`` have been handled; ``unsent``: not all answers went into the socket."""
        arrived_s = self.waiting_since_s or began_s
        later: list[int] | None = None
        if self.later or unsent:
            later, self.later = self.later, []
            if unsent:
                left = later.copy()
                later = [_key_of(frame) for frame in frames[:done]]
                for key in later:
                    if key in left:
                        left.remove(key)
                    else:
                        self._unanswered.append(_Unanswered(self.observer, None, key, arrived_s, began_s))
        self.observer.answered(self._connection, frames, done, later, arrived_s, began_s, handled_s)

    def settled(self) -> float:
        """An answer has become known; gives the time, 0 if nobody waits for any."""
        if not self._unanswered:
            return 0.0
        now_s = monotonic()
        for each in self._unanswered:
            if not each.settled_s and each.promise is not None and each.promise.done:
                each.settled_s = now_s
        return now_s

    def handed_over(self, answered: list[PromisedAnswer], ready_s: float, *, unsent: bool) -> None:
        """These have had their turn at ``ready_s``; ``unsent`` says that the socket has not taken all."""
        left: list[_Unanswered] = []
        for each in self._unanswered:
            if each.promise is None or each.promise not in answered:
                left.append(each)
                continue
            each.ready_s = ready_s
            each.settled_s = each.settled_s or ready_s
            if unsent:
                each.promise = None
                left.append(each)
            else:
                self._tell(each)
        self._unanswered = left

    def sent(self) -> None:
        """The socket has taken everything that was handed over."""
        out = [each for each in self._unanswered if each.promise is None]
        if out:
            self._unanswered = [each for each in self._unanswered if each.promise is not None]
            for each in out:
                self._tell(each)

    def forget(self) -> None:
        """Nobody waits for an answer any more."""
        self._unanswered.clear()
        self.later.clear()

    def _tell(self, each: _Unanswered) -> None:
        each.observer.waited(
            self._connection,
            each.key,
            each.arrived_s,
            each.began_s,
            each.taken_s,
            each.settled_s,
            each.ready_s,
        )
