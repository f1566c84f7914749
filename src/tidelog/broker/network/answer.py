"""What a request comes to: an answer at once, none at all, or a promise of one.

``Answer`` is what goes out on the socket: one ``bytes``, or a list of ``bytes`` and ``FileRange`` parts, in
both cases with the frame's size in front. ``NO_ANSWER`` is for requests that want none (produce with
acks=0).

``PromisedAnswer`` is what a request comes to that has to wait (a long poll, an admin call): the connection
takes the answer in the same turn of the loop in which it is there.

``StagedAnswer`` is what a produce request comes to: its records are staged, and its answer is known as soon
as all that one event has staged was written.

What is refused holds up what is behind it: a request that comes to an error keeps those behind it on its
connection from being judged until its answer is out, as every request does in Kafka. Otherwise a batch could
overtake one before it that its producer is about to send again. Nor is anything refused for want of a leader
or of replicas while requests before it wait for their answers (``NOT_YET``): by the time of its turn all may
be well, and then those behind it would not fit to it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from tidelog.errors import TidelogError
from tidelog.scheduling.promise import Promise
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


PromisedAnswer: TypeAlias = Promise[Answer | NoAnswer]
"""The answer to a request that has to wait; its connection is closed if it fails, with the error's words.

``pipelined`` says whether the requests behind it may be handled before it is answered. No longer once it is
refused: a producer must hear of that before anything that it sent behind is judged.
"""


class NotAnswerable(TidelogError):
    """Why there is no answer to a request, which closes its connection."""


class StagedAnswer:
    """The answer to a request whose records are staged and not yet written."""

    __slots__ = ("refused",)

    refused: bool
    """Whether anything of the request is refused, as far as is known: settling may find more."""

    def settle(self) -> Answer | NoAnswer | PromisedAnswer:
        """The answer; to be called once, after the commit."""
        raise NotImplementedError


HandlerResult = Answer | NoAnswer | NotYet | PromisedAnswer | StagedAnswer
