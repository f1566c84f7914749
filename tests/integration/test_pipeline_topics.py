"""The topics of the pipelines: what promises to keep its records keeps them, whoever has created it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.waiting import wait_until

from tidelog import (
    Admin,
    AlterConfigOp,
    ConfigResource,
    ConfigResult,
    ErrorCode,
    KafkaError,
    NewTopic,
    OffsetSpec,
    Producer,
    ResourceType,
    TopicPartition,
)
from tidelog.spark.settings import PipelineSettings
from tidelog.testing import broker
from tidelog_rewards import events
from tidelog_rewards.topics import ensure_topics

RETENTION = ("retention.ms", "retention.bytes")
FOR_EVER = ["-1", "-1"]
BRIEF = {
    "log.retention.ms": "1",
    "log.retention.bytes": "1",
    "log.retention.check.interval.ms": "50",
    "log.segment.delete.delay.ms": "0",
}


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[PipelineSettings]:
    with broker(options=BRIEF) as running:
        yield PipelineSettings(bootstrap_servers=running.bootstrap_servers, directory=tmp_path)


@pytest.fixture
def admin(settings: PipelineSettings) -> Iterator[Admin]:
    with Admin(bootstrap_servers=settings.bootstrap_servers) as admin:
        yield admin


def retention(admin: Admin, topic: str) -> list[str | None]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    (found,) = admin.describe_configs([resource], names=RETENTION)
    found.raise_for_error()
    by_name = {entry.name: entry.value for entry in found.entries}
    return [by_name[name] for name in RETENTION]


def test_alerts_and_dead_letters_outlive_the_brokers_retention(
    settings: PipelineSettings, admin: Admin
) -> None:
    ensure_topics(settings, partitions=1)
    with Producer(bootstrap_servers=settings.bootstrap_servers) as producer:
        for topic in (*events.KEPT, events.USER_REGIONS):
            producer.send(topic, b"long ago", timestamp_ms=1_500_000_000_000).result(30)

    def start(topic: str) -> int:
        place = TopicPartition(topic, 0)
        return admin.list_offsets({place: OffsetSpec.EARLIEST})[place].offset

    wait_until(lambda: start(events.USER_REGIONS) == 1)
    assert [start(topic) for topic in events.KEPT] == [0, 0, 0]


@pytest.mark.parametrize("topic", events.KEPT)
def test_a_topic_that_exists_without_a_retention_of_its_own_gets_that_of_the_pipelines(
    settings: PipelineSettings, admin: Admin, topic: str
) -> None:
    admin.create_topics([NewTopic(topic, 1)])[0].raise_for_error()
    assert retention(admin, topic) == ["1", "1"]
    assert topic not in ensure_topics(settings)
    wait_until(lambda: retention(admin, topic) == FOR_EVER)
    ensure_topics(settings)
    assert retention(admin, topic) == FOR_EVER


def test_a_retention_that_somebody_has_set_stays(settings: PipelineSettings, admin: Admin) -> None:
    topic, region = events.DEAD_LETTERS, events.USER_REGIONS
    admin.create_topics([NewTopic(topic, 1, configs={"retention.ms": "5000"})])[0].raise_for_error()
    admin.create_topics([NewTopic(region, 1)])[0].raise_for_error()
    ensure_topics(settings)
    assert retention(admin, topic) == ["5000", "1"]
    assert retention(admin, region) == ["1", "1"], "no promise was made for it"


def test_a_cluster_that_does_not_let_us_is_told_of_and_the_pipeline_runs(
    settings: PipelineSettings,
    admin: Admin,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin.create_topics([NewTopic(events.DEAD_LETTERS, 1)])[0].raise_for_error()

    def refuse(self: Admin, changes: dict[ConfigResource, list[AlterConfigOp]]) -> list[ConfigResult]:
        error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no right")
        return [ConfigResult(resource, error=error) for resource in changes]

    monkeypatch.setattr(Admin, "alter_configs", refuse)
    with caplog.at_level(logging.WARNING):
        assert events.USER_REGIONS in ensure_topics(settings)
    assert "tidelog configs alter --topic ml_dead_letters --set retention.ms=-1" in caplog.text
