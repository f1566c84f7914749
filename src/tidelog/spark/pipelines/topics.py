"""Creates the topics of pipelines, and keeps the promise of those that shall lose no record.

Called before a pipeline starts. A topic that exists stays as it is, with one exception: a topic that is
``kept`` (:class:`PipelineTopic`) and has no retention of its own gets an unlimited one. A retention that an
operator has set stays.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode, KafkaError
from tidelog.spark.pipelines.pipeline import KEPT_FOREVER, PipelineTopic
from tidelog.spark.settings import PipelineSettings, client_options

if TYPE_CHECKING:
    from tidelog.client import Admin

PARTITIONS = 4

logger = logging.getLogger(__name__)


def ensure_topics(
    settings: PipelineSettings,
    topics: Iterable[PipelineTopic],
    *,
    partitions: int = PARTITIONS,
    replication_factor: int = -1,
) -> list[str]:
    """Create the topics that are missing and return their names; none with ``settings.topics_exist``."""
    if settings.topics_exist:
        return []
    from tidelog.client import Admin, NewTopic

    wanted = {topic.name: topic for topic in topics}
    with Admin(client_options(settings)) as admin:
        there = {topic.name for topic in admin.list_topics()}
        missing = [
            NewTopic(name, partitions, replication_factor, configs=topic.configs)
            for name, topic in wanted.items()
            if name not in there
        ]
        created = []
        for result in admin.create_topics(missing) if missing else ():
            if result.error is None:
                created.append(result.name)
            elif result.error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                # Another process may have been faster; every other refusal is reported.
                raise result.error
        _keep(admin, [name for name, topic in wanted.items() if topic.kept and name not in created])
    return created


def _keep(admin: Admin, topics: list[str]) -> None:
    """Give topics that exist the retention they promise; a cluster that does not let us is told of."""
    from tidelog.client import AlterConfigOp, ConfigResource, ConfigSource, ResourceType

    resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
    refused: dict[str, KafkaError] = {}
    changes = {}
    try:
        for found in admin.describe_configs(resources, names=KEPT_FOREVER) if resources else ():
            if found.error is not None:
                refused[found.resource.name] = found.error
                continue
            own = {each.name for each in found.entries if each.source is ConfigSource.DYNAMIC_TOPIC_CONFIG}
            if not own:
                changes[found.resource] = [AlterConfigOp(name, value) for name, value in KEPT_FOREVER.items()]
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
