"""Makes sure that the topics of the pipelines exist, the compacted ones compacted.

Called before a pipeline or the generator starts. Topics that are there stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.errors import ErrorCode
from tidelog.pipelines.events import COMPACTED, KINDS, OUTPUTS
from tidelog.pipelines.pipeline import PipelineSettings

ALL = (*(kind.topic for kind in KINDS), *OUTPUTS)
PARTITIONS = 4


def ensure_topics(
    settings: PipelineSettings,
    topics: Iterable[str] = ALL,
    *,
    partitions: int = PARTITIONS,
    replication_factor: int = -1,
) -> list[str]:
    """Create the topics that are missing and return their names; none where somebody has seen to them."""
    if settings.topics_exist:
        return []
    from tidelog.client import Admin, NewTopic

    wanted = list(dict.fromkeys(topics))
    with Admin({**settings.client_options, "bootstrap.servers": settings.bootstrap_servers}) as admin:
        there = {topic.name for topic in admin.list_topics()}
        missing = [
            NewTopic(name, partitions, replication_factor, configs=_configs(name))
            for name in wanted
            if name not in there
        ]
        created = []
        for result in admin.create_topics(missing) if missing else ():
            if result.error is None:
                created.append(result.name)
            elif result.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                # Somebody else may have been quicker; every other refusal is told.
                raise result.error
    return created


def _configs(topic: str) -> dict[str, str | None]:
    return {"cleanup.policy": "compact"} if topic in COMPACTED else {}
