"""Reads a topic of dead letters, as far as it goes now, and chooses among them.

Needs no Spark: a consumer without a group, which sees only what is committed. Used by ``tidelog
deadletters``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tidelog.client.options import ADMIN, CONSUMER, PRODUCER, ClientKind
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import TopicPartition
from tidelog.spark.dead_letters.letter import Letter, Place, read_letter

if TYPE_CHECKING:
    from tidelog.client import Consumer, ConsumerRecord

_POLL_S = 0.5
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class LetterFilter:
    """Which letters are wanted; None is for what does not matter."""

    topic: str | None = None
    """Of the record."""
    pipeline: str | None = None
    code: str | None = None
    """A whole code, a part of it (``missing:user_id``), or what is wrong with some field (``missing``)."""
    since_ms: int | None = None
    """When it was refused, included; ``until_ms`` is not."""
    until_ms: int | None = None

    def takes(self, letter: Letter) -> bool:
        """Whether a letter is wanted."""
        return (
            self.topic in (None, letter.place.topic)
            and self.pipeline in (None, letter.pipeline)
            and (self.code is None or self.code == letter.code or self.code in letter.codes)
            and (self.since_ms is None or letter.refused_at_ms >= self.since_ms)
            and (self.until_ms is None or letter.refused_at_ms < self.until_ms)
        )


ALL_LETTERS = LetterFilter()


class LetterReader:
    """Reads the letters of one topic, from ``with`` to its end."""

    def __init__(self, options: Mapping[str, object], topic: str) -> None:
        self._topic = topic
        self._consumer = open_consumer(options)
        self.others = 0
        """Records that were read and are no letters."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._consumer.close()

    def letters(self, wanted: LetterFilter = ALL_LETTERS) -> Iterator[Letter]:
        """The letters that are wanted, a partition's in their order."""
        consumer = self._consumer
        partitions = partitions_of(consumer, self._topic)
        starts = consumer.beginning_offsets(partitions)
        if wanted.since_ms is not None:
            found = consumer.offsets_for_times(dict.fromkeys(partitions, wanted.since_ms))
            ends = consumer.end_offsets(partitions)
            starts = {each: ends[each] if at is None else at.offset for each, at in found.items()}
        for record in read_to_the_end(consumer, starts):
            letter = read_letter(record)
            if letter is None:
                self.others += 1
            elif wanted.takes(letter):
                yield letter

    def letter(self, partition: int, offset: int) -> Letter | None:
        """The letter at a place of the topic; None where there is none."""
        at = TopicPartition(self._topic, partition)
        if at not in (partitions := partitions_of(self._consumer, self._topic)):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {self._topic!r} has no partition {partition}, only 0 to {len(partitions) - 1}",
            )
        found = read_record(self._consumer, Place(self._topic, partition, offset))
        return None if found is None else read_letter(found)


def open_consumer(options: Mapping[str, object]) -> Consumer:
    """A consumer without a group that reads what is committed, and makes no topics."""
    from tidelog.client import Consumer

    own = {
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
    }
    given = options_for(CONSUMER, options)
    given.pop("group.id", None)
    return Consumer({**given, **own})


def options_for(kind: ClientKind, options: Mapping[str, object]) -> dict[str, object]:
    """The options of one kind of client, out of those that people give for all of them in one file."""
    others = {name for other in (ADMIN, CONSUMER, PRODUCER) for name in other.options if other is not kind}
    return {name: value for name, value in options.items() if name in kind.options or name not in others}


def partitions_of(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """The partitions of a topic; raises where there is no such topic."""
    return [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic, _PATIENCE_S / 2)]


def read_record(consumer: Consumer, place: Place) -> ConsumerRecord | None:
    """The record at a place; None where it is not, or not any more."""
    at = TopicPartition(place.topic, place.partition)
    begin, end = consumer.beginning_offsets([at])[at], consumer.end_offsets([at])[at]
    if not begin <= place.offset < end:
        return None
    first = next(read_to_the_end(consumer, {at: place.offset}), None)
    return first if first is not None and first.offset == place.offset else None


def read_to_the_end(consumer: Consumer, starts: Mapping[TopicPartition, int]) -> Iterator[ConsumerRecord]:
    """The records of some partitions from their offsets on, until where the partitions end now."""
    consumer.assign(starts)
    ends = consumer.end_offsets(list(starts))
    for partition, offset in starts.items():
        consumer.seek(partition, offset)
    quiet_since = time.monotonic()
    while any(consumer.position(each) < end for each, end in ends.items()):
        if records := consumer.poll(_POLL_S):
            quiet_since = time.monotonic()
            yield from (
                each for each in records if each.offset < ends[TopicPartition(each.topic, each.partition)]
            )
        elif time.monotonic() - quiet_since > _PATIENCE_S:
            trouble = consumer.ongoing_error()
            said = "no broker says why" if trouble is None else trouble[1]
            raise TidelogError(f"nothing could be read for {_PATIENCE_S:.0f} s: {said}")
