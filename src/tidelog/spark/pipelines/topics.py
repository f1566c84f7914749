"""Makes sure that the topics of the pipelines exist, the compacted ones compacted, and that those which
promise to keep what they were given do.

Called before a pipeline or the generator starts. Topics that are there stay as they are, but for one thing:
a topic of ``events.KEPT`` that has no retention of its own, because somebody else has
created it, gets that of the pipelines. A retention that an operator has set stays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode, KafkaError
from tidelog.pipelines.framework.events import COMPACTED, KEPT, KINDS, OUTPUTS
from tidelog.spark.pipelines.pipeline import PipelineSettings
from tidelog.spark.pipelines.source import client_options

if TYPE_CHECKING:
    from tidelog.client import Admin

ALL = (*(kind.topic for kind in KINDS), *OUTPUTS)
PARTITIONS = 4
FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}

logger = logging.getLogger(__name__)


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
    with Admin(client_options(settings)) as admin:
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
        _keep(admin, [name for name in wanted if name in KEPT and name not in created])
    return created


def _configs(topic: str) -> dict[str, str | None]:
    if topic in COMPACTED:
        return {"cleanup.policy": "compact"}
    return dict(FOR_EVER) if topic in KEPT else {}


def _keep(admin: Admin, topics: list[str]) -> None:
    """Give topics that exist the retention they promise; a cluster that does not let us is told of."""
    from tidelog.client import AlterConfigOp, ConfigResource, ConfigSource, ResourceType

    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    refused: dict[str, KafkaError] = {}
    changes = {}
    try:
        for found in admin.describe_configs(resources, names=FOR_EVER) if resources else ():
            if found.error is not None:
                refused[found.resource.name] = found.error
                continue
            own = {each.name for each in found.entries if each.source is ConfigSource.DYNAMIC_TOPIC_CONFIG}
            if not own:
                changes[found.resource] = [AlterConfigOp(name, value) for name, value in FOR_EVER.items()]
        for result in admin.alter_configs(changes) if changes else ():
            if result.error is not None:
                refused[result.resource.name] = result.error
    except KafkaError as error:  # a broker that is too old for the request
        refused = dict.fromkeys(topics, error)
    for name, why in refused.items():
        logger.warning(
            "%s may lose its records by the brokers' retention, which could not be changed (%s): have "
            "somebody who may run `tidelog configs alter --topic %s --set retention.ms=-1`",
            *(name, why, name),
        )
