"""What a request comes to: an answer at once, none at all, or a promise of one.

``Answer`` is what goes out on the socket: one ``bytes``, or a list of ``bytes`` and ``FileRange`` parts, in
both cases with the frame's size in front. ``NO_ANSWER`` is for requests that want none (produce with
acks=0).

``PendingAnswer`` is the promise of a request that has to wait (a long poll, an admin call). It is not an
asyncio future on purpose: the connection takes the answer in the same turn of the loop in which it is
there, and nobody pays for a task, a context or a second callback.

``StagedAnswer`` is what a produce request comes to: its records are staged, and its answer is known as soon
as all that one event has staged was written.

What is refused holds up what is behind it: a request that comes to an error keeps those behind it on its
connection from being judged until its answer is out, as every request does in Kafka. Otherwise a batch could
overtake one before it that its producer is about to send again. Nor is anything refused for want of a leader
or of replicas while requests before it wait for their answers (``NOT_YET``): by the time of its turn all may
be well, and then those behind it would not fit to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.wire.fetch import FileRange

Part = bytes | FileRange
Answer = bytes | list[Part]


class NoAnswer:
    """The type of ``NO_ANSWER``."""

    __slots__ = ()


NO_ANSWER: Final = NoAnswer()


class NotYet:
    """The type of ``NOT_YET``."""

    __slots__ = ()


NOT_YET: Final = NotYet()
"""Nothing was done: the request is to be handled when those before it are answered."""


class PendingAnswer:
    """An answer that comes later, once; ``on_cancel`` is told when nobody wants it any more."""

    __slots__ = ("_on_cancel", "_on_done", "answer", "failure", "pipelined")

    def __init__(self, on_cancel: Callable[[], object] | None = None, *, pipelined: bool = False) -> None:
        self.answer: Answer | NoAnswer | None = None
        self.failure: str | None = None
        # Whether the requests behind this one may be handled before it is answered. No longer once it is
        # refused: a producer must hear of that before anything that it sent behind is judged.
        self.pipelined = pipelined
        self._on_cancel = on_cancel
        self._on_done: Callable[[], None] | None = None

    @property
    def done(self) -> bool:
        """Whether there is an answer, or a reason to close the connection."""
        return self.answer is not None or self.failure is not None

    @property
    def cancellable(self) -> bool:
        """Whether giving up costs nothing: a wait, not work."""
        return self._on_cancel is not None

    def resolve(self, answer: Answer | NoAnswer) -> None:
        """Here is the answer."""
        self.answer = answer
        self._finish()

    def fail(self, reason: str) -> None:
        """There is no answer: the connection has to be closed, because of ``reason``."""
        self.failure = reason
        self._finish()

    def follow(self, outcome: Answer | NoAnswer | PendingAnswer) -> None:
        """Here is the answer, or another promise of it."""
        if not isinstance(outcome, PendingAnswer):
            self.resolve(outcome)
        elif not outcome.done:
            if outcome.cancellable:
                self.only_waits(outcome.cancel)
            outcome.when_done(lambda: self.follow(outcome))
        elif outcome.failure is not None:
            self.fail(outcome.failure)
        elif outcome.answer is not None:
            self.resolve(outcome.answer)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` as soon as there is an answer."""
        self._on_done = callback

    def only_waits(self, on_cancel: Callable[[], object] | None = None) -> None:
        """From now on nobody works on the request: it waits for something."""
        self._on_cancel = self._on_cancel or on_cancel or _nothing

    def works(self) -> None:
        """From now on somebody works on the request again."""
        self._on_cancel = None

    def cancel(self) -> None:
        """Nobody wants the answer any longer: the connection is gone."""
        self._on_done = None
        if self._on_cancel is not None and not self.done:
            on_cancel, self._on_cancel = self._on_cancel, None
            on_cancel()

    def _finish(self) -> None:
        self._on_cancel = None
        if self._on_done is not None:
            on_done, self._on_done = self._on_done, None
            on_done()


def _nothing() -> None:
    """What is to be done when nobody wants an answer that nobody works on."""


class StagedAnswer:
    """The answer to a request whose records are staged and not yet written."""

    __slots__ = ("refused",)

    refused: bool
    """Whether anything of the request is refused, as far as is known: settling may find more."""

    def settle(self) -> Answer | NoAnswer | PendingAnswer:
        """The answer; to be called once, after the commit."""
        raise NotImplementedError


HandlerResult = Answer | NoAnswer | NotYet | PendingAnswer | StagedAnswer
