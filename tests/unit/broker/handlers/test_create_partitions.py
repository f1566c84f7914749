from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)

Run = Callable[..., None]


def _topic(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsTopic:
    placed = None
    if assignments is not None:
        placed = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    return CreatePartitionsTopic(name=name, count=count, assignments=placed)


@pytest.mark.parametrize("version", range(4))
def test_new_partitions_take_records_when_the_answer_leaves(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        request = CreatePartitionsRequest(topics=[_topic("t", 3)], timeout_ms=1000)
        (result,) = (await broker.call("create_partitions", request, version)).results
        assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
        assert (await broker.produce("t", 2, 4)).log.log_end_offset == 4

    run(body)


def test_refusals_are_one_by_one(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", 2), NewTopic("good")])
        request = CreatePartitionsRequest(
            topics=[
                _topic("t", 2),
                _topic("no", 2),
                _topic("good", 2, [[1]]),
                _topic("twice", 2),
                _topic("twice", 3),
            ],
            timeout_ms=1000,
        )
        results = (await broker.call("create_partitions", request, 3)).results
        assert {each.name: (each.error_code, each.error_message) for each in results} == {
            "t": (ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
            "no": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
            "good": (0, None),
            "twice": (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
        }
        assert len(broker.image.topics["good"].partitions) == 2

    run(body)


def test_validate_only_adds_nothing(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        request = CreatePartitionsRequest(topics=[_topic("t", 9)], timeout_ms=1000, validate_only=True)
        (result,) = (await broker.call("create_partitions", request, 3)).results
        assert result.error_code == 0
        assert len(broker.image.topics["t"].partitions) == 1

    run(body)
