"""Batches that take long to judge: in which order, and what becomes of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.rigs.clock import ManualClock

from tidelog.broker.produce.batch_validation import (
    RequestValidation,
    ValidationThreads,
    takes_long,
    validate_now,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.records.compression import Codec
from tidelog.records.record import Record, encode_batch
from tidelog.replication.partition import Partition
from tidelog.storage.disk import Disk
from tidelog.storage.log.log import Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log.validation import ValidBatch
from tidelog.storage.log_config import LogConfig

NOW = 1_700_000_000_000
WAIT_S = 20.0


def heavy(mebibytes: int) -> memoryview:
    """A batch of a few kilobytes that unpacks to so much."""
    return memoryview(encode_batch([Record(timestamp=NOW, value=bytes(mebibytes << 20))], codec=Codec.GZIP))


def light() -> memoryview:
    return memoryview(encode_batch([Record(timestamp=NOW, value=b"v")], codec=Codec.GZIP))


@pytest.fixture
def open_log(tmp_path: Path) -> Iterator[Callable[..., Log]]:
    """The log of a partition, with topic options."""
    opened: list[Log] = []

    def open_it(**options: object) -> Log:
        clock = ManualClock(NOW)
        config = LogConfig(**options)  # type: ignore[arg-type]
        opened.append(Log.open(LogContext(tmp_path / "orders-0", config, clock, Disk()), clean_shutdown=True))
        return opened[-1]

    yield open_it
    for log in opened:
        log.close()


@pytest.fixture
def partition(open_log: Callable[..., Log]) -> Partition:
    log = open_log()
    return cast(Partition, SimpleNamespace(log=log, is_leader=True))


def test_what_is_light_is_judged_at_once(partition: Partition) -> None:
    request = RequestValidation([(3, partition, light())])
    assert validate_now(request)
    judged = request.judged[3]
    assert isinstance(judged, ValidBatch)
    assert judged.max_timestamp == NOW


def test_what_is_heavy_is_not(partition: Partition) -> None:
    request = RequestValidation([(0, partition, heavy(8))])
    assert not validate_now(request)
    assert not request.judged
    while not request.advance(1 << 20, in_thread=True):
        pass
    assert isinstance(request.judged[0], ValidBatch)


def test_each_batch_is_judged_by_itself(partition: Partition) -> None:
    broken = bytearray(light())
    broken[-1] ^= 1
    request = RequestValidation([(0, partition, memoryview(broken)), (1, partition, light())])
    assert validate_now(request)
    refused = request.judged[0]
    assert isinstance(refused, KafkaError)
    assert refused.code is ErrorCode.CORRUPT_MESSAGE
    assert isinstance(request.judged[1], ValidBatch)


def test_nothing_is_compressed_on_the_loop(open_log: Callable[..., Log]) -> None:
    log = open_log(compression_type="zstd")
    partition = cast(Partition, SimpleNamespace(log=log, is_leader=True))
    batch = memoryview(encode_batch([Record(timestamp=NOW, value=bytes(5000))]))
    assert takes_long(partition, batch)
    request = RequestValidation([(0, partition, batch)])
    assert not validate_now(request)
    assert request.advance(1 << 20, in_thread=True)
    judged = request.judged[0]
    assert isinstance(judged, ValidBatch)
    assert judged.size < 200


def test_a_plain_batch_is_judged_when_it_is_staged(partition: Partition) -> None:
    assert not takes_long(partition, memoryview(encode_batch([Record(timestamp=NOW, value=b"v")])))
    assert not takes_long(partition, memoryview(b""))
    assert not takes_long(partition, None)
    assert not takes_long(None, light())
    assert takes_long(partition, light())


def test_light_requests_overtake_heavy_ones(partition: Partition) -> None:
    """One thread, kept busy by requests that take long: one that takes no time is done before them."""
    order: list[str] = []
    heavy_batch = heavy(40)
    light_batch = light()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        threads = ValidationThreads(loop, count=1)
        done = asyncio.Event()

        def note(name: str) -> Callable[[Exception | None], None]:
            def told(failure: Exception | None) -> None:
                assert failure is None
                order.append(name)
                if len(order) == 4:
                    done.set()

            return told

        for each in range(3):
            threads.judge(RequestValidation([(0, partition, heavy_batch)]), note(f"heavy {each}"))
        threads.judge(RequestValidation([(0, partition, light_batch)]), note("light"))
        async with asyncio.timeout(WAIT_S):
            await done.wait()
        threads.close()

    asyncio.run(scenario())
    assert order[0] == "light"
    assert sorted(order[1:]) == ["heavy 0", "heavy 1", "heavy 2"]


def test_a_heavy_request_comes_to_its_end_however_many_light_ones_come(partition: Partition) -> None:
    """One thread, and for every light request that is done two more, until two thousand have come."""
    order: list[str] = []
    heavy_batch = heavy(40)
    light_batch = light()
    most = 2000

    async def scenario() -> None:
        threads = ValidationThreads(asyncio.get_running_loop(), count=1)
        done = asyncio.Event()
        sent = 0

        def send() -> None:
            nonlocal sent
            if sent < most:
                sent += 1
                threads.judge(RequestValidation([(0, partition, light_batch)]), light_done)

        def light_done(failure: Exception | None) -> None:
            assert failure is None
            order.append("light")
            send()
            send()
            if len(order) > most:
                done.set()

        def heavy_done(failure: Exception | None) -> None:
            assert failure is None
            order.append("heavy")
            if len(order) > most:
                done.set()

        for _ in range(10):
            send()
        threads.judge(RequestValidation([(0, partition, heavy_batch)]), heavy_done)
        async with asyncio.timeout(WAIT_S):
            await done.wait()
        threads.close()

    asyncio.run(scenario())
    assert order.index("heavy") < most / 2


def test_what_goes_wrong_in_a_thread_is_told(partition: Partition) -> None:
    async def scenario() -> Exception | None:
        loop = asyncio.get_running_loop()
        threads = ValidationThreads(loop)
        told: asyncio.Future[Exception | None] = loop.create_future()
        nobody = cast(Partition, SimpleNamespace(log=None, is_leader=True))
        threads.judge(RequestValidation([(0, nobody, light())]), told.set_result)
        async with asyncio.timeout(WAIT_S):
            failure = await told
        threads.close()
        return failure

    assert isinstance(asyncio.run(scenario()), AttributeError)


def test_closed_threads_end(partition: Partition) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        threads = ValidationThreads(loop, count=1)
        told: asyncio.Future[Exception | None] = loop.create_future()
        threads.judge(RequestValidation([(0, partition, light())]), told.set_result)
        async with asyncio.timeout(WAIT_S):
            await told
        threads.close()

    asyncio.run(scenario())
    for thread in threading.enumerate():
        if thread.name.startswith("judging"):
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_what_nobody_wants_is_given_up(partition: Partition) -> None:
    async def scenario() -> RequestValidation:
        loop = asyncio.get_running_loop()
        threads = ValidationThreads(loop, count=1)
        told: asyncio.Future[Exception | None] = loop.create_future()
        request = RequestValidation([(0, partition, heavy(8))], lambda: False)
        threads.judge(request, told.set_result)
        async with asyncio.timeout(WAIT_S):
            assert await told is None
        threads.close()
        return request

    request = asyncio.run(scenario())
    assert request.given_up
    assert not request.judged


def test_many_small_batches_are_judged_at_once(partition: Partition) -> None:
    request = RequestValidation([(number, partition, light()) for number in range(60)])
    assert validate_now(request)
    assert len(request.judged) == 60
