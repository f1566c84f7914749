"""Requests that change the offsets of very many partitions, in parts of a few hundred.

Each part is written as if it had come alone, in a turn of its own, so that nobody else waits for all of them.
Every partition has its answer in the response, so it is told which parts were written where some were not.
Used by the handlers of OffsetCommit, TxnOffsetCommit and OffsetDelete.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from tidelog.scheduling.yielding import yielding_every
from tidelog.wire.schema import Message

PARTITIONS_AT_ONCE = 256


class _Topic(Protocol):
    @property
    def partitions(self) -> list[Any]:
        """What is named of it, or answered."""


T = TypeVar("T", bound=_Topic)
M = TypeVar("M", bound=Message)


def is_wide(topics: Sequence[_Topic]) -> bool:
    """Whether a request has so many partitions that it is served in parts."""
    if len(topics) > PARTITIONS_AT_ONCE:
        return True
    return sum(len(topic.partitions) for topic in topics) > PARTITIONS_AT_ONCE


def in_parts(topics: Sequence[M]) -> Iterator[list[M]]:
    """The topics in their order, some of them with some of their partitions in each part."""
    part: list[M] = []
    room = PARTITIONS_AT_ONCE
    for topic in topics:
        partitions: list[Any] = getattr(topic, "partitions")  # noqa: B009
        at = 0
        while True:
            taken = partitions[at : at + room]
            part.append(replace(topic, partitions=taken))
            # A topic costs something, too, even if nothing of it is named.
            room -= max(len(taken), 1)
            at += len(taken)
            if room == 0:
                yield part
                part, room = [], PARTITIONS_AT_ONCE
            if at >= len(partitions):
                break
    if part:
        yield part


async def merged(answers: Iterable[list[T]], key: Callable[[T], Hashable]) -> list[T]:
    """The topics of all answers, each once, with all of its partitions."""
    found: dict[Hashable, T] = {}
    async for topics in yielding_every(1, answers):
        for topic in topics:
            present = found.setdefault(key(topic), topic)
            if present is not topic:
                present.partitions.extend(topic.partitions)
    return list(found.values())
