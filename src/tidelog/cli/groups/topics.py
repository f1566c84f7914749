"""Topics and partitions as ``groups`` commands take them: ``orders`` or ``orders:0,3``."""

from __future__ import annotations

from tidelog.cli.values import parse_topic_partitions
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.errors import KafkaError
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
        if isinstance(described, KafkaError):
            raise described
        named += (TopicPartition(topic, each.partition) for each in described.partitions)
    return sorted(set(named))


def assignment_text(partitions: tuple[TopicPartition, ...] | None) -> str | None:
    """``orders:0,1 payments:2``; None where nothing is known or assigned."""
    topics: dict[str, list[str]] = {}
    for partition in partitions or ():
        topics.setdefault(partition.topic, []).append(str(partition.partition))
    return " ".join(f"{topic}:{','.join(indexes)}" for topic, indexes in topics.items()) or None
