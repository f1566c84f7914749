from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode
from tidelog.metadata.image import PartitionImage, TopicImage
from tidelog.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)

Run = Callable[..., None]
Page = tuple[list[tuple[str, list[int]]], tuple[str, int] | None]


async def _page(broker: Any, names: list[str], limit: int = 2000, cursor: Cursor | None = None) -> Page:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    response = await broker.call("describe_topic_partitions", request, 0)
    following = response.next_cursor
    return (
        [(topic.name, [p.partition_index for p in topic.partitions]) for topic in response.topics],
        None if following is None else (following.topic_name, following.partition_index),
    )


async def _make(broker: Any) -> None:
    await broker.controller.create_topics([NewTopic("b", 3), NewTopic("a", 2), NewTopic("c", 1)])


def test_pages_end_at_the_limit_and_go_on_at_the_cursor(run: Run) -> None:
    async def body(broker: Any) -> None:
        await _make(broker)
        assert await _page(broker, []) == ([("a", [0, 1]), ("b", [0, 1, 2]), ("c", [0])], None)
        assert await _page(broker, [], 3) == ([("a", [0, 1]), ("b", [0])], ("b", 1))
        rest = Cursor(topic_name="b", partition_index=1)
        assert await _page(broker, [], 3, rest) == ([("b", [1, 2]), ("c", [0])], None)
        assert await _page(broker, ["c", "a", "a"], 2) == ([("a", [0, 1])], ("c", 0))

    run(body)


@pytest.mark.parametrize("limit", [1, 0, -7])
def test_a_page_has_at_least_one_partition(run: Run, limit: int) -> None:
    async def body(broker: Any) -> None:
        await _make(broker)
        assert await _page(broker, ["b"], limit) == ([("b", [0])], ("b", 1))

    run(body)


def test_a_page_has_at_most_what_the_broker_allows(run: Run) -> None:
    async def body(broker: Any) -> None:
        await _make(broker)
        assert await _page(broker, []) == ([("a", [0, 1])], ("b", 0))

    run(body, {"max.request.partition.size.limit": "2"})


def test_a_cursor_beyond_the_last_partition_finds_nothing_there(run: Run) -> None:
    async def body(broker: Any) -> None:
        await _make(broker)
        beyond = Cursor(topic_name="b", partition_index=50)
        assert await _page(broker, ["b", "c"], 5, beyond) == ([("b", []), ("c", [0])], None)

    run(body)


def test_partitions_that_are_not_known_yet_are_left_out(run: Run) -> None:
    async def body(broker: Any) -> None:
        await _make(broker)
        known = PartitionImage(replicas=(1,), leader=1, leader_epoch=0, isr=(1,))
        partitions = dict.fromkeys((5, 1, 3), known)
        broker.image.install(TopicImage("b", broker.image.topics["b"].id, partitions))
        assert await _page(broker, []) == ([("a", [0, 1]), ("b", [1, 3, 5]), ("c", [0])], None)
        assert await _page(broker, [], 4) == ([("a", [0, 1]), ("b", [1, 3])], ("b", 5))
        between = Cursor(topic_name="b", partition_index=2)
        assert await _page(broker, ["b"], 1, between) == ([("b", [3])], ("b", 5))

    run(body)


@pytest.mark.parametrize("cursor", [Cursor(topic_name="x"), Cursor(topic_name="a", partition_index=-1)])
def test_an_impossible_cursor_refuses_the_request(run: Run, cursor: Cursor) -> None:
    async def body(broker: Any) -> None:
        await _make(broker)
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="a")], cursor=cursor)
        (topic,) = (await broker.call("describe_topic_partitions", request, 0)).topics
        assert (topic.name, topic.error_code, topic.partitions) == ("a", ErrorCode.INVALID_REQUEST, [])

    run(body)


def test_topics_come_with_id_leaders_and_allowed_operations(run: Run) -> None:
    async def body(broker: Any) -> None:
        await _make(broker)
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=n) for n in ("c", "no", "b ad")])
        response = await broker.call("describe_topic_partitions", request, 0)
        bad, good, missing = response.topics
        assert good.topic_id == broker.image.topics["c"].id
        (partition,) = good.partitions
        assert (partition.leader_id, partition.leader_epoch, partition.isr_nodes) == (1, 0, [1])
        assert (partition.replica_nodes, partition.offline_replicas) == ([1], [])
        assert good.topic_authorized_operations == 3576
        assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(body)
