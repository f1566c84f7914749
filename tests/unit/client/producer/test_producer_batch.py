from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tidelog.client.producer._producer_batch import ProducerBatch
from tidelog.client.producer.quick_send import RecordFuture
from tidelog.ids import TopicPartition
from tidelog.records.record_codec import BatchBuilder


def new_batch() -> ProducerBatch:
    batch = ProducerBatch(TopicPartition("t", 0), BatchBuilder(1000), 0, 0.0)
    batch.append(0, None, b"x", ())
    return batch


def failing_callback(batch: ProducerBatch) -> None:
    def fail(future: object) -> None:
        raise BrokenPipeError("the reader has gone")

    RecordFuture(batch, 0).add_done_callback(fail)


def waiter_whose_loop_is_gone(batch: ProducerBatch) -> None:
    async def wait(waiting: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        task.cancel()

    async def waiting() -> None:
        await RecordFuture(batch, 0)

    asyncio.run(wait(waiting()))


Spoil = Callable[[ProducerBatch], None]


@pytest.fixture(params=[failing_callback, waiter_whose_loop_is_gone], ids=lambda each: each.__name__)
def spoil(request: pytest.FixtureRequest) -> Spoil:
    found: Spoil = request.param
    return found


def test_one_who_cannot_be_woken_keeps_nobody_else_from_it(
    spoil: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    batch = new_batch()
    heard: list[object] = []
    spoil(batch)
    RecordFuture(batch, 0).add_done_callback(lambda future: heard.append(future.result(0).offset))
    batch.add_callback(0, (0, -1, 1), lambda metadata, error: heard.append((metadata.offset, error)))
    assert batch.end(None, 5)
    assert heard == [5, (5, None)]
    assert "t-0" in caplog.text


def test_the_same_where_the_batch_is_split(spoil: Spoil) -> None:
    batch, part = new_batch(), new_batch()
    heard: list[object] = []
    spoil(batch)
    RecordFuture(batch, 0).add_done_callback(lambda future: heard.append(future.result(0).offset))
    batch.move_callbacks([0], [part])
    part.end(None, 7)
    assert heard == [7]
