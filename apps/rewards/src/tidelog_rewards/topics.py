"""The topics of these pipelines, and how they are created where they are missing."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.spark.pipelines import topics as creation
from tidelog.spark.pipelines.pipeline import PipelineTopic
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards.events import COMPACTED, KEPT, KINDS, OUTPUTS

ALL = tuple(
    PipelineTopic(name, compacted=name in COMPACTED, kept=name in KEPT)
    for name in (*(kind.topic for kind in KINDS), *OUTPUTS)
)
_BY_NAME = {topic.name: topic for topic in ALL}


def ensure_topics(
    settings: PipelineSettings,
    names: Iterable[str] = tuple(_BY_NAME),
    *,
    partitions: int = creation.PARTITIONS,
    replication_factor: int = -1,
) -> list[str]:
    """Create the topics that are missing and return their names."""
    wanted = [_BY_NAME[name] for name in names]
    return creation.ensure_topics(
        settings, wanted, partitions=partitions, replication_factor=replication_factor
    )
