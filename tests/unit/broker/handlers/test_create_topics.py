from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.config.config_entries import ConfigSource
from tidelog.config.options.topic_options import TOPIC_OPTIONS
from tidelog.errors import ErrorCode
from tidelog.ids import ZERO_UUID
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

Run = Callable[..., None]


def _topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items()],
    )


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_and_takes_records_in_every_version(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        request = CreateTopicsRequest(topics=[_topic("orders", 3)])
        (result,) = (await broker.call("create_topics", request, version)).topics
        assert (result.name, result.error_code) == ("orders", ErrorCode.NONE)
        image = broker.image.topics["orders"]
        assert result.topic_id == (image.id if version >= 7 else ZERO_UUID)
        assert result.num_partitions == (3 if version >= 5 else -1)
        partition = await broker.produce("orders", 2, 5)
        assert partition.log.log_end_offset == 5

    run(body)


def test_the_answer_has_every_effective_config_sorted_by_name(run: Run) -> None:
    async def body(broker: Any) -> None:
        request = CreateTopicsRequest(topics=[_topic("t", retention_ms="77")])
        (result,) = (await broker.call("create_topics", request, 7)).topics
        names = [config.name for config in result.configs]
        assert names == sorted(name for name, option in TOPIC_OPTIONS.items() if not option.internal)
        by_name = {config.name: config for config in result.configs}
        assert by_name["retention.ms"].value == "77"
        assert by_name["retention.ms"].config_source == ConfigSource.TOPIC_CONFIG
        assert by_name["segment.bytes"].config_source == ConfigSource.STATIC_BROKER_CONFIG
        assert by_name["max.message.bytes"].config_source == ConfigSource.DEFAULT_CONFIG

    run(body, {"log.segment.bytes": "2097152"})


def test_configs_of_the_request_are_told_as_they_were_given(run: Run) -> None:
    async def body(broker: Any) -> None:
        request = CreateTopicsRequest(topics=[_topic("t", retention_ms=" 77 ", preallocate="TRUE")])
        (result,) = (await broker.call("create_topics", request, 7)).topics
        told = {config.name: config.value for config in result.configs}
        assert (told["retention.ms"], told["preallocate"]) == (" 77 ", "TRUE")

    run(body)


def test_validate_only_answers_as_if_and_creates_nothing(run: Run) -> None:
    async def body(broker: Any) -> None:
        request = CreateTopicsRequest(topics=[_topic("t", 4, cleanup_policy="compact")], validate_only=True)
        (result,) = (await broker.call("create_topics", request, 7)).topics
        assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 4, 1)
        assert {c.name: c.value for c in result.configs}["cleanup.policy"] == "compact"
        assert broker.image.topics == {}

    run(body)


def test_a_name_that_comes_twice_and_kafkas_metadata_topic_are_refused(run: Run) -> None:
    async def body(broker: Any) -> None:
        topics = [_topic("twice"), _topic("once"), _topic("twice"), _topic("__cluster_metadata")]
        response = await broker.call("create_topics", CreateTopicsRequest(topics=topics), 7)
        assert {each.name: (each.error_code, each.error_message) for each in response.topics} == {
            "once": (0, None),
            "twice": (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
            "__cluster_metadata": (
                ErrorCode.INVALID_REQUEST,
                "Creation of internal topic __cluster_metadata is prohibited.",
            ),
        }
        assert broker.image.topics.keys() == {"once"}

    run(body)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (_topic("t", 0), ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid"),
        (_topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, "Unable to replicate the partition 2"),
        (_topic("t", 1, 1, retention_ms="x"), ErrorCode.INVALID_CONFIG, "Invalid value x for configuration"),
        (_topic("t", 1, 1, retention_ms=None), ErrorCode.INVALID_CONFIG, "Null value not supported for"),
        (_topic("t", 1, 1, no_such="1"), ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (_topic("t", 10_001), ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions"),
        (
            CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[9])],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
    ],
)
def test_refusals_have_kafkas_codes_and_words(
    run: Run, topic: CreatableTopic, code: ErrorCode, message: str
) -> None:
    async def body(broker: Any) -> None:
        (result,) = (await broker.call("create_topics", CreateTopicsRequest(topics=[topic]), 7)).topics
        assert result.error_code == code
        assert result.error_message.startswith(message)
        assert (result.num_partitions, result.topic_id) == (-1, ZERO_UUID)
        assert broker.image.topics == {}

    run(body)


def test_a_client_that_does_not_wait_is_timed_out(run: Run) -> None:
    async def body(broker: Any) -> None:
        request = CreateTopicsRequest(topics=[_topic("t")], timeout_ms=0)
        (result,) = (await broker.call("create_topics", request, 7)).topics
        assert (result.error_code, result.error_message) == (ErrorCode.REQUEST_TIMED_OUT, None)
        assert broker.image.topics == {}

    run(body)


def test_topics_and_their_records_are_there_after_a_restart(run: Run) -> None:
    async def before(broker: Any) -> None:
        await broker.call("create_topics", CreateTopicsRequest(topics=[_topic("t", 2)]), 7)
        await broker.produce("t", 1, 3)

    async def after(broker: Any) -> None:
        assert broker.partitions.get("t", 1).log.log_end_offset == 3
        assert broker.partitions.get("t", 0).log.log_end_offset == 0

    run(before)
    run(after)
