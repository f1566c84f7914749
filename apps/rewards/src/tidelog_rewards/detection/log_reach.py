"""How far the logs of topics reach: whether what a detecting pipeline judges by is all there, and their ends.

Retention deletes old records, and what a pipeline does not find it takes for something that never was: a
pupil at the class's tablet whose own phone is forgotten looks like an account of a farm. So who judges a past
range asks here first. A log that begins at offset 0 is whole, however young it is; of another one the oldest
record must be from before all that is needed. Called by ``alert_job`` and by ``tidelog pipeline dry-run``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.spark.pipelines.source import EARLY_SLACK
from tidelog_rewards.detection.alert_evidence import Window, time_text

if TYPE_CHECKING:
    from tidelog.client import Admin
    from tidelog.client.resources import OffsetResult

_EARLY_SLACK_US = EARLY_SLACK // timedelta(microseconds=1)
_ANY_TIME_MS = 0
_US_PER_MS = 1000


class CutLogError(TidelogError):
    """Records that a range is judged by are deleted; the text is one sentence."""


def needed_us(within: Window, memory_us: int) -> int:
    """From when on records are needed to judge a range of time."""
    return within.with_context(memory_us).start_us - _EARLY_SLACK_US


def is_cut(
    client: Mapping[str, Any], topics: Collection[str], within: Window, memory_us: int, *, allowed: bool
) -> bool:
    """Whether topics have lost records by which a range of time is judged.

    :raises CutLogError: they have, and it is not ``allowed``.
    """
    from tidelog.client import Admin

    since_us = needed_us(within, memory_us)
    with Admin(client) as admin:
        for topic in topics:
            for partition, oldest_us in _oldest_of_cut(admin, topic).items():
                if oldest_us is not None and oldest_us <= since_us:
                    continue
                if allowed:
                    return True
                raise CutLogError(_sentence(partition, oldest_us, since_us, within))
    return False


def ends(client: Mapping[str, Any], topics: Collection[str]) -> dict[TopicPartition, int]:
    """Where the logs of topics end now."""
    from tidelog.client import Admin, OffsetSpec

    with Admin(client) as admin:
        partitions = [each for topic in topics for each in _partitions(admin, topic)]
        found = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return {partition: _checked(result).offset for partition, result in found.items()}


def _oldest_of_cut(admin: Admin, topic: str) -> dict[TopicPartition, int | None]:
    """Of partitions that have lost records: the time of the oldest one that is there, None without any."""
    from tidelog.client import OffsetSpec

    starts = admin.list_offsets(dict.fromkeys(_partitions(admin, topic), OffsetSpec.EARLIEST))
    cut = [partition for partition, result in starts.items() if _checked(result).offset > 0]
    # The first record from 1970 on is the first one; asked for by its name it would come without a time.
    found = admin.list_offsets(dict.fromkeys(cut, _ANY_TIME_MS))
    return {
        partition: result.timestamp * _US_PER_MS if _checked(result).offset >= 0 else None
        for partition, result in found.items()
    }


def _partitions(admin: Admin, topic: str) -> list[TopicPartition]:
    """None of a topic that is not there."""
    described = admin.describe_topics([topic])[topic]
    if described.error is not None and described.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    described.raise_for_error()
    return [TopicPartition(topic, each.partition) for each in described.partitions]


def _checked(result: OffsetResult) -> OffsetResult:
    result.raise_for_error()
    return result


def _sentence(partition: TopicPartition, oldest_us: int | None, since_us: int, within: Window) -> str:
    there = "are all deleted"
    later = ""
    if oldest_us is not None:
        there = f"from before {time_text(oldest_us)} are deleted"
        later = f", give --from {time_text(oldest_us + within.start_us - since_us)} or later"
    return (
        f"records of {partition.topic} (partition {partition.partition}) {there}, and a range from "
        f"{time_text(within.start_us)} on is judged by those since {time_text(since_us)}: people would be "
        "accused for want of what spoke for them; have the topic keep records for longer (retention.ms)"
        f"{later}, or take what is there with --allow-cut-log"
    )
