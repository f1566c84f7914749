"""The configs of topics are the same on every broker of a cluster, from a topic's first moment on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from tests.cluster.cluster_process import ForegroundCommand

from tidelog import Admin
from tidelog.client.resources import AlterConfigOp, ConfigResource, NewTopic, ResourceType
from tidelog.errors import ErrorCode, KafkaError

CREATED = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
TIMEOUT_S = 30.0


def overrides(address: str, topic: str) -> Mapping[str, str | None]:
    """What one broker says is set for a topic, as soon as it knows the topic."""
    deadline = time.monotonic() + TIMEOUT_S
    with Admin(bootstrap_servers=address) as admin:
        while True:
            (result,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
            error = result.error
            if error is None:
                return {
                    each.name: each.value
                    for each in result.entries
                    if each.source.name == "DYNAMIC_TOPIC_CONFIG"
                }
            unknown = isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert unknown, error
            assert time.monotonic() < deadline, error
            time.sleep(0.05)


def test_every_broker_knows_what_a_topic_was_created_with(
    cluster: ForegroundCommand, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    addresses = cluster.value("bootstrap.servers").split(",")
    with Admin(bootstrap_servers=cluster.value("bootstrap.servers")) as admin:
        (made,) = admin.create_topics([NewTopic(topic, 3, 3, configs=CREATED)])
        assert made.error is None
        assert [overrides(address, topic) for address in addresses] == [CREATED] * 3
        # Another change leaves them as they are, whichever broker makes it.
        change = {ConfigResource(ResourceType.TOPIC, topic): [AlterConfigOp("retention.ms", "1000")]}
        (changed,) = admin.alter_configs(change)
        assert changed.error is None
    deadline = time.monotonic() + TIMEOUT_S
    wanted = [{**CREATED, "retention.ms": "1000"}] * 3
    while [overrides(address, topic) for address in addresses] != wanted:
        assert time.monotonic() < deadline, [overrides(address, topic) for address in addresses]
        time.sleep(0.05)
