"""Topics and partitions as ``groups`` commands take them: ``orders`` or ``orders:0,3``."""

from __future__ import annotations

from collections.abc import Collection

from tidelog.cli.values import parse_topic_partitions
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition


async def resolve_partitions(admin: AsyncAdmin, texts: list[str], option: str) -> list[TopicPartition]:
    """The partitions that ``texts`` name; a topic alone stands for all of its partitions."""
    named: list[TopicPartition] = []
    whole: list[str] = []
    for text in texts:
        topic, indexes = parse_topic_partitions(text, option)
        if indexes is None:
            whole.append(topic)
        else:
            named += (TopicPartition(topic, index) for index in indexes)
    for topic, described in (await admin.describe_topics(whole)).items() if whole else ():
        described.raise_for_error()
        named += (TopicPartition(topic, each.partition) for each in described.partitions)
    return sorted(set(named))


async def check_exist(admin: AsyncAdmin, partitions: Collection[TopicPartition]) -> None:
    """Fail if one of ``partitions`` does not exist."""
    described = await admin.describe_topics(sorted({each.topic for each in partitions}))
    for topic, index in partitions:
        found = described[topic]
        found.raise_for_error()
        if index not in {each.partition for each in found.partitions}:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {index}, but {len(found.partitions)} from 0 on",
            )


def assignment_text(partitions: tuple[TopicPartition, ...] | None) -> str | None:
    """``orders:0,1 payments:2``; None where nothing is known or assigned."""
    topics: dict[str, list[str]] = {}
    for partition in partitions or ():
        topics.setdefault(partition.topic, []).append(str(partition.partition))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in topics.items()) or None
