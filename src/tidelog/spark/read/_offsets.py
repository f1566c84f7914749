"""Offsets of log partitions as Spark sees them: JSON in options and checkpoints, and places yet to be found.

The shape is that of Spark's Kafka connector, ``{"topic": {"0": 12, "1": -2}}``, so that checkpoints and jobs
move between the two; -2 stands for the earliest offset and -1 for the latest. Text is written with topics and
partitions in order: Spark takes offsets for equal where their text is.

Beside a topic stands its id, as a further name with no partitions, ``{"t": {"0": 12}, "t#id:aVkB…": {}}``.
It tells a topic that was deleted and made anew from the one that was read. No topic's name has a ``#``, and
Spark's connector finds no offsets there and goes on; a checkpoint of its has no ids, and gets them with the
next micro-batch. Brokers before Kafka 2.8 have none to give.

A *limit* is what a job says about where to begin or to end. ``read._offset_reader`` turns it into offsets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelog.errors import ConfigError
from tidelog.ids import TopicPartition, Uuid, uuid_from_text, uuid_to_text

EARLIEST = -2
LATEST = -1

_ID_MARK = "#id:"

PartitionOffsets = dict[TopicPartition, int]
TopicIds = dict[str, Uuid]
OffsetJson = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """An offset in each partition, and the ids of the topics that have one."""

    offsets: PartitionOffsets
    topic_ids: TopicIds = field(default_factory=dict)

    def made_anew(self, later: SourceOffset) -> frozenset[str]:
        """The topics that have another id in ``later``."""
        return frozenset(
            topic
            for topic, topic_id in self.topic_ids.items()
            if later.topic_ids.get(topic, topic_id) != topic_id
        )

    def without(self, topics: Collection[str]) -> SourceOffset:
        """The same for all other topics."""
        if not topics:
            return self
        return SourceOffset(
            {each: offset for each, offset in self.offsets.items() if each.topic not in topics},
            {topic: topic_id for topic, topic_id in self.topic_ids.items() if topic not in topics},
        )


@dataclass(frozen=True, slots=True)
class EarliestLimit:
    """The first offset that each partition has."""


@dataclass(frozen=True, slots=True)
class LatestLimit:
    """The offset behind the last record of each partition."""


@dataclass(frozen=True, slots=True)
class SpecificLimit:
    """An offset for each partition, or ``EARLIEST`` or ``LATEST``."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, Uuid] = field(default_factory=dict)
    """Of the topics that they were copied from, as far as that is known."""


@dataclass(frozen=True, slots=True)
class TimestampLimit:
    """The first record at or after a time in ms, one for each partition."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GlobalTimestampLimit:
    """The first record at or after a time in ms, the same for all partitions."""

    timestamp: int


OffsetLimit = EarliestLimit | LatestLimit | SpecificLimit | TimestampLimit | GlobalTimestampLimit


def read_partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """The partitions in the JSON of option ``name``, ``{"topicA":[0,1]}``, in order."""
    found = _read_json(name, text, '{"topicA":[0,1],"topicB":[2,4]}')
    partitions: set[TopicPartition] = set()
    for topic, numbers in found.items():
        if not isinstance(numbers, list) or not all(_is_number(number) and number >= 0 for number in numbers):
            raise _malformed(name, text, '{"topicA":[0,1],"topicB":[2,4]}')
        partitions |= {TopicPartition(topic, number) for number in numbers}
    if not partitions:
        raise ConfigError(f"option {name} names no partition: give some, as in {{'topicA':[0,1]}}")
    return tuple(sorted(partitions))


def read_offsets(name: str, text: str) -> SourceOffset:
    """The number of each partition in the JSON of option ``name``, ``{"topicA":{"0":23,"1":-1}}``."""
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    return _numbers(_read_json(name, text, example), lambda: _malformed(name, text, example))


def from_json(offset: Mapping[str, Any]) -> SourceOffset:
    """Offsets as Spark hands them back from a checkpoint or an earlier call."""
    return _numbers(offset, lambda: ConfigError(f"the checkpoint holds {offset!r}, which are no offsets"))


def to_json(offset: SourceOffset) -> OffsetJson:
    """Offsets as Spark keeps them."""
    found: OffsetJson = {}
    for partition in sorted(offset.offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offset.offsets[partition]
    for topic, topic_id in sorted(offset.topic_ids.items()):
        found[f"{topic}{_ID_MARK}{uuid_to_text(topic_id)}"] = {}
    return found


def _numbers(found: Mapping[str, Any], malformed: Callable[[], ConfigError]) -> SourceOffset:
    offsets: PartitionOffsets = {}
    topic_ids: TopicIds = {}
    for topic, numbers in found.items():
        if not isinstance(numbers, Mapping):
            raise malformed()
        name, mark, text = topic.partition(_ID_MARK)
        if mark:
            if numbers:
                raise malformed()
            try:
                topic_ids[name] = uuid_from_text(text)
            except ValueError:
                raise malformed() from None
            continue
        for partition, number in numbers.items():
            if not str(partition).isdecimal() or not _is_number(number):
                raise malformed()
            offsets[TopicPartition(topic, int(partition))] = number
    return SourceOffset(offsets, topic_ids)


def _read_json(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _malformed(name, text, example) from None
    if not isinstance(found, dict):
        raise _malformed(name, text, example)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _malformed(name: str, text: str, example: str) -> ConfigError:
    return ConfigError(f"option {name} must look like {example}, not {text.strip()!r}")
