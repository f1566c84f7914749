from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.client.admin._quota_retry import ThrottlingQuotaExceededError
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import NewTopic
from tidelog.errors import ErrorCode
from tidelog.ids import Uuid, random_uuid
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from tidelog.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse

PUT_OFF = ErrorCode.THROTTLING_QUOTA_EXCEEDED


def run(broker: Any, action: Callable[[AsyncAdmin], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with (
            broker,
            asyncio.timeout(30),
            AsyncAdmin({"bootstrap.servers": broker.address, "retry.backoff.ms": 1, **options}) as admin,
        ):
            await action(admin)

    asyncio.run(main())


class Creations:
    """Admits one topic per request; the others are put off for a while."""

    def __init__(self, broker: Any, throttle_time_ms: int) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.asked: list[list[str]] = []
        broker.handlers[ApiKey.CREATE_TOPICS] = self._answer

    def _answer(self, request: Any, version: int) -> CreateTopicsResponse:
        names = [topic.name for topic in request.topics]
        self.asked.append(names)
        codes = {name: ErrorCode.NONE if index == 0 else PUT_OFF for index, name in enumerate(names)}
        return CreateTopicsResponse(
            throttle_time_ms=self.throttle_time_ms if len(names) > 1 else 0,
            # In an order of its own.
            topics=[CreatableTopicResult(name=name, error_code=codes[name]) for name in reversed(names)],
        )


def test_only_what_was_put_off_is_asked_for_again_after_the_pause(scripted_broker: Any) -> None:
    creations = Creations(scripted_broker, throttle_time_ms=20)

    async def action(admin: AsyncAdmin) -> None:
        results = await admin.create_topics([NewTopic(name, 1) for name in "abc"])
        assert {result.name: result.error for result in results} == dict.fromkeys("abc")
        assert admin.metrics()["throttle-total"] == 2

    run(scripted_broker, action)
    assert creations.asked == [["a", "b", "c"], ["b", "c"], ["c"]]


def test_without_retries_the_error_tells_how_long_to_wait(scripted_broker: Any) -> None:
    creations = Creations(scripted_broker, throttle_time_ms=1234)

    async def action(admin: AsyncAdmin) -> None:
        results = await admin.create_topics(
            [NewTopic(name, 1) for name in "ab"], retry_on_quota_violation=False
        )
        by_name = {result.name: result.error for result in results}
        assert by_name["a"] is None
        error = by_name["b"]
        assert isinstance(error, ThrottlingQuotaExceededError)
        assert error.throttle_time_ms == 1234
        assert "controller_mutation_rate" in str(error)
        assert "1234 ms" in str(error)

    run(scripted_broker, action)
    assert creations.asked == [["a", "b"]]


def test_a_pause_longer_than_the_call_may_take_is_told_at_once(scripted_broker: Any) -> None:
    creations = Creations(scripted_broker, throttle_time_ms=60_000)

    async def action(admin: AsyncAdmin) -> None:
        results = await admin.create_topics([NewTopic(name, 1) for name in "ab"])
        error = {result.name: result.error for result in results}["b"]
        assert isinstance(error, ThrottlingQuotaExceededError)
        assert "default.api.timeout.ms" in str(error)

    run(scripted_broker, action, **{"default.api.timeout.ms": 20_000, "request.timeout.ms": 20_000})
    assert creations.asked == [["a", "b"]]


def test_deletions_by_name_and_by_id_are_tried_again(scripted_broker: Any) -> None:
    asked: list[list[str | Uuid]] = []
    by_id = random_uuid()

    def answer(request: Any, version: int) -> DeleteTopicsResponse:
        wanted = [topic.name or topic.topic_id for topic in request.topics]
        first = not asked
        asked.append(wanted)
        return DeleteTopicsResponse(
            throttle_time_ms=1 if first else 0,
            responses=[
                DeletableTopicResult(
                    name=topic.name, topic_id=topic.topic_id, error_code=PUT_OFF if first else ErrorCode.NONE
                )
                for topic in request.topics
            ],
        )

    scripted_broker.handlers[ApiKey.DELETE_TOPICS] = answer

    async def action(admin: AsyncAdmin) -> None:
        results = await admin.delete_topics(["a", by_id])
        assert [result.error for result in results] == [None, None]

    run(scripted_broker, action)
    assert asked == [["a", by_id]] * 2


@pytest.mark.parametrize("retry", [True, False])
def test_new_partitions_are_tried_again_if_that_is_wanted(scripted_broker: Any, retry: bool) -> None:
    refusals = [PUT_OFF]

    def answer(request: Any, version: int) -> CreatePartitionsResponse:
        code = refusals.pop() if refusals else ErrorCode.NONE
        return CreatePartitionsResponse(
            throttle_time_ms=1 if code else 0,
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=code) for topic in request.topics
            ],
        )

    scripted_broker.handlers[ApiKey.CREATE_PARTITIONS] = answer

    async def action(admin: AsyncAdmin) -> None:
        (result,) = await admin.create_partitions({"a": 3}, retry_on_quota_violation=retry)
        assert (result.error is None) is retry

    run(scripted_broker, action)
