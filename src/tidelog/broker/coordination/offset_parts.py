"""The common half of requests that write or delete the offsets of a group.

Used by the handlers of OffsetCommit, TxnOffsetCommit and OffsetDelete.

Only topics and partitions that exist go to the group's coordinator; the others are answered here. Offsets of
very many partitions are written in parts of a few hundred. Each part is written as if it had come alone, in a
turn of its own, so that nobody else waits for all of them. Every partition has its answer in the response, so
a client learns which parts were written where some were not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, cast

from msgspec.structs import replace

from tidelog.broker.responses import refused_element
from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise, gather
from tidelog.scheduling.yielding import yielding_every
from tidelog.wire.schema import Message, Payload

PARTITIONS_AT_ONCE = 256


class _Topic(Protocol):
    @property
    def partitions(self) -> list[Any]:
        """What is named of it, or answered."""


T = TypeVar("T", bound=Message)
A = TypeVar("A", bound=Message)
Q = TypeVar("Q", bound=Payload)
S = TypeVar("S", bound=Payload)


def take_existing(
    topics: Sequence[T], answer: type[A], find: Callable[[T], Collection[int] | ErrorCode]
) -> tuple[list[T], list[A]]:
    """The topics with those of their partitions that exist, and the answers for the others.

    ``find`` gives the partitions of a topic, or what refuses it.
    """
    known: list[T] = []
    refused: list[A] = []
    for topic in topics:
        found = find(topic)
        if isinstance(found, ErrorCode):
            refused.append(refused_element(answer, topic, KafkaError(found)))
            continue
        named = _partitions(topic)
        existing = [each for each in named if each.partition_index in found]
        if len(existing) < len(named):
            missing = replace(topic, partitions=[each for each in named if each.partition_index not in found])
            error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            refused.append(refused_element(answer, missing, error))
            topic = replace(topic, partitions=existing)
        if existing:
            known.append(topic)
    return known, refused


def write_offsets(request: Q, write: Callable[[Q], Promise[S]], *, first_alone: bool = False) -> Awaitable[S]:
    """The answer to a request that ``write`` carries out, in parts if it is about very many partitions.

    ``first_alone``: the first part is written before all others.
    """
    if is_wide(getattr(request, "topics")):  # noqa: B009
        return _write_in_parts(request, write, first_alone)
    return write(request)


async def _write_in_parts(request: Q, write: Callable[[Q], Promise[S]], first_alone: bool) -> S:
    replies: list[Promise[S]] = []
    async for topics in yielding_every(1, in_parts(getattr(request, "topics"))):  # noqa: B009
        replies.append(write(replace(request, topics=topics)))
        if first_alone and len(replies) == 1:
            await replies[0]
    responses = await gather(replies)
    found: dict[object, Any] = {}
    async for response in yielding_every(1, responses):
        _add(found, getattr(response, "topics"))  # noqa: B009
    return replace(responses[0], topics=list(found.values()))


def with_refused(refused: Sequence[A], response: S) -> S:
    """The response with what was refused before; a topic that is in both is one, as clients expect it."""
    found: dict[object, Any] = {}
    _add(found, refused)
    _add(found, getattr(response, "topics"))  # noqa: B009
    return replace(response, topics=list(found.values()))


def _add(found: dict[object, Any], topics: Iterable[Any]) -> None:
    for topic in topics:
        present = found.setdefault((topic.name, getattr(topic, "topic_id", None)), topic)
        if present is not topic:
            present.partitions.extend(topic.partitions)


def _partitions(topic: Message) -> list[Any]:
    return cast("_Topic", topic).partitions


def is_wide(topics: Sequence[_Topic]) -> bool:
    """Whether a request has so many partitions that it is served in parts."""
    if len(topics) > PARTITIONS_AT_ONCE:
        return True
    return sum(len(topic.partitions) for topic in topics) > PARTITIONS_AT_ONCE


def in_parts(topics: Sequence[T]) -> Iterator[list[T]]:
    """The topics in their order, some of them with some of their partitions in each part."""
    part: list[T] = []
    room = PARTITIONS_AT_ONCE
    for topic in topics:
        partitions = _partitions(topic)
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
