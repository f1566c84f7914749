from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

Run = Callable[..., None]
UNKNOWN = Uuid(bytes(range(1, 17)))


async def _delete(broker: Any, *topics: DeleteTopicState, version: int = 6) -> list[Any]:
    if version >= 6:
        request = DeleteTopicsRequest(topics=list(topics), timeout_ms=1000)
    else:
        request = DeleteTopicsRequest(topic_names=[topic.name or "" for topic in topics], timeout_ms=1000)
    responses: list[Any] = (await broker.call("delete_topics", request, version)).responses
    return responses


@pytest.mark.parametrize("version", range(1, 7))
def test_a_topic_is_gone_with_its_logs_when_the_answer_leaves(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", 2), NewTopic("kept")])
        await broker.produce("t", 0, 2)
        directory = broker.partitions.get("t", 0).log.directory
        (result,) = await _delete(broker, DeleteTopicState(name="t"), version=version)
        assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
        assert broker.image.topics.keys() == {"kept"}
        with pytest.raises(KafkaError):
            broker.partitions.get("t", 0)
        assert not directory.exists()

    run(body)


def test_the_name_of_a_deleted_topic_is_free_for_an_empty_one(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        await broker.produce("t", 0, 2)
        await _delete(broker, DeleteTopicState(name="t"))
        await broker.controller.create_topics([NewTopic("t")])
        assert broker.partitions.get("t", 0).log.log_end_offset == 0

    run(body)


def test_topics_are_deleted_by_id(run: Run) -> None:
    async def body(broker: Any) -> None:
        created = await broker.controller.create_topics([NewTopic("t")])
        topic_id = created["t"].id
        (result,) = await _delete(broker, DeleteTopicState(topic_id=topic_id))
        assert (result.name, result.topic_id, result.error_code) == ("t", topic_id, 0)
        assert broker.image.topics == {}

    run(body)


def test_refusals_are_one_by_one(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t"), NewTopic("good")])
        results = await _delete(
            broker,
            DeleteTopicState(name="no"),
            DeleteTopicState(topic_id=UNKNOWN),
            DeleteTopicState(),
            DeleteTopicState(name="t", topic_id=UNKNOWN),
            DeleteTopicState(name="good"),
        )
        assert [(each.name, each.topic_id, each.error_code, each.error_message) for each in results] == [
            (
                "no",
                ZERO_UUID,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "This server does not host this topic-partition.",
            ),
            (None, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
            (None, ZERO_UUID, ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."),
            ("t", UNKNOWN, ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."),
            ("good", results[4].topic_id, 0, None),
        ]
        assert broker.image.topics.keys() == {"t"}

    run(body)


def test_a_topic_that_is_named_twice_is_not_deleted(run: Run) -> None:
    async def body(broker: Any) -> None:
        created = await broker.controller.create_topics([NewTopic("t")])
        topic_id = created["t"].id
        by_name, by_id = DeleteTopicState(name="t"), DeleteTopicState(topic_id=topic_id)
        for topics, message in (
            ([by_name, by_name], "Duplicate topic name."),
            ([by_id, by_id], "Duplicate topic id."),
            ([by_id, by_name], "The provided topic name maps to an ID that was already supplied."),
        ):
            (result,) = await _delete(broker, *topics)
            assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)
        assert broker.image.topics.keys() == {"t"}

    run(body)


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.INVALID_REQUEST), (6, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_deletion_can_be_disabled(run: Run, version: int, code: ErrorCode) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        (result,) = await _delete(broker, DeleteTopicState(name="t"), version=version)
        assert (result.name, result.error_code, result.error_message) == ("t", code, None)
        assert broker.image.topics.keys() == {"t"}

    run(body, {"delete.topic.enable": "false"})
