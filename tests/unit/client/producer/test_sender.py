from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.client.producer.idempotent_broker import (
    Fault,
    IdempotentBroker,
    PartitionLog,
    refuse,
    write_but_say,
)

from tidelog.client.errors import RequestTimeoutError
from tidelog.client.producer import AsyncProducer, TransactionStateError
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import random_uuid
from tidelog.records.batch import parse_header
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
)

WAIT_S = 20
PASSING = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CORRUPT_MESSAGE,
]
OPTIONS = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 5, "reconnect_backoff_ms": 1, "linger_ms": 0}


def run(
    broker: Any, action: Callable[[AsyncProducer], Awaitable[None]], partitions: int = 1, **options: Any
) -> None:
    async def main() -> None:
        async with broker:
            if not broker.topics:
                broker.add_topic("t", partitions, topic_id=random_uuid())
            async with AsyncProducer(bootstrap_servers=broker.address, **{**OPTIONS, **options}) as producer:
                async with asyncio.timeout(WAIT_S):
                    await action(producer)

    asyncio.run(main())


@pytest.fixture
def broker(scripted_broker: Any) -> Any:
    return scripted_broker


@pytest.fixture
def written(broker: Any) -> IdempotentBroker:
    return IdempotentBroker(broker)


async def send_numbers(producer: AsyncProducer, count: int) -> list[int]:
    """Send 0, 1, 2, …, each in a batch of its own; their offsets."""
    await producer.send("t", b"0")
    results = await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(1, count)))
    return [0, *(result.offset for result in results)]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % n for n in range(count)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_order_holds_when_one_of_five_under_way_is_refused_for_a_while(
    broker: Any, written: IdempotentBroker, code: ErrorCode
) -> None:
    async def action(producer: AsyncProducer) -> None:
        written.faults.extend([None, refuse(code), None, refuse(code), None])
        assert await send_numbers(producer, 30) == list(range(30))

    run(broker, action, batch_size=1)
    assert written.log().values == numbers(30)


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND])
def test_what_was_written_in_spite_of_an_error_is_not_written_twice(
    broker: Any, written: IdempotentBroker, code: ErrorCode
) -> None:
    async def action(producer: AsyncProducer) -> None:
        written.faults.extend([None, write_but_say(code), None, write_but_say(code)])
        assert await send_numbers(producer, 20) == list(range(20))

    run(broker, action, batch_size=1)
    assert written.log().values == numbers(20)


@pytest.mark.parametrize("seed", range(16))
def test_random_faults_lose_reorder_and_double_nothing(
    broker: Any, written: IdempotentBroker, seed: int
) -> None:
    """Refusals, errors after the write, batches too large and lost answers, in any order."""
    rng = random.Random(seed)
    limit_bytes = rng.choice([150, 300, 1 << 20])
    cuts = [rng.random() < 0.06 for _ in range(200)]

    def limited(fault: Fault | None) -> Fault:
        def check(log: PartitionLog, records: bytes) -> Any:
            if len(records) > limit_bytes:
                return ErrorCode.MESSAGE_TOO_LARGE
            return None if fault is None else fault(log, records)

        return check

    def maybe_cut() -> None:
        if cuts and cuts.pop():
            raise ConnectionResetError

    for _ in range(200):
        kind = rng.random()
        code = rng.choice(PASSING)
        written.faults.append(
            limited(None if kind < 0.5 else refuse(code) if kind < 0.8 else write_but_say(code))
        )
    written.faults.extend([limited(None)] * 3000)
    written.before_answer = maybe_cut

    async def action(producer: AsyncProducer) -> None:
        futures = []
        for number in range(120):
            futures.append(producer.send("t", b"%d" % number, partition=number % 3))
            if rng.random() < 0.1:
                await futures[-1]
        await asyncio.gather(*futures)

    run(broker, action, partitions=3, batch_size=rng.choice([1, 100, 400, 2000]))
    for partition in range(3):
        assert written.log(partition).values == [b"%d" % n for n in range(partition, 120, 3)]


def test_a_lost_connection_is_opened_again_and_nothing_is_doubled(
    broker: Any, written: IdempotentBroker
) -> None:
    cuts = [3, 9, 17]

    async def action(producer: AsyncProducer) -> None:
        def before_answer() -> None:
            if cuts and len(written.log().records) >= cuts[0]:
                # Written, but the answer never leaves.
                cuts.pop(0)
                raise ConnectionResetError

        written.before_answer = before_answer
        assert await send_numbers(producer, 30) == list(range(30))

    run(broker, action, batch_size=1)
    assert written.log().values == numbers(30)
    assert broker.connections >= 4


def test_with_one_request_in_flight_order_holds_without_sequence_numbers(
    broker: Any, written: IdempotentBroker
) -> None:
    async def action(producer: AsyncProducer) -> None:
        written.faults.extend([None, refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 5)
        assert await send_numbers(producer, 20) == list(range(20))

    run(
        broker,
        action,
        batch_size=1,
        enable_idempotence=False,
        max_in_flight_requests_per_connection=1,
    )
    assert written.log().values == numbers(20)
    header = parse_header(written.requests[0].topic_data[0].partition_data[0].records or b"")
    assert (header.producer_id, header.base_sequence) == (-1, -1)
    assert broker.requests(ApiKey.INIT_PRODUCER_ID) == []


def test_at_most_so_many_requests_are_under_way_as_allowed(broker: Any, written: IdempotentBroker) -> None:
    async def action(producer: AsyncProducer) -> None:
        most = 0
        futures = [producer.send("t", b"x" * 50, partition=n % 8) for n in range(200)]
        while not all(future.done() for future in futures):
            most = max(most, producer.sender.in_flight_requests)
            await asyncio.sleep(0)
        assert most == 2

    run(broker, action, partitions=8, batch_size=1, max_in_flight_requests_per_connection=2)


def test_a_hole_in_the_sequence_is_mended_by_a_new_epoch(broker: Any, written: IdempotentBroker) -> None:
    async def action(producer: AsyncProducer) -> None:
        await producer.send("t", b"0")
        written.log().producers.clear()
        written.log().producers[41] = (0, deque([(70, 80, 0)], maxlen=5))
        results = await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(1, 10)))
        assert [result.offset for result in results] == list(range(1, 10))

    run(broker, action, batch_size=1)
    assert written.log().values == numbers(10)
    assert written.log().producers[41][0] == 1


def test_an_unknown_producer_is_introduced_again(broker: Any, written: IdempotentBroker) -> None:
    async def action(producer: AsyncProducer) -> None:
        await producer.send("t", b"0")
        unknown = PartitionProduceResponse(
            error_code=ErrorCode.UNKNOWN_PRODUCER_ID, base_offset=-1, log_start_offset=5
        )
        written.log().producers.clear()
        written.faults.append(lambda log, records: unknown)
        assert (await producer.send("t", b"1")).offset == 1

    run(broker, action)
    assert written.log().producers[41][0] == 1


def test_a_fenced_epoch_is_the_end_of_the_producer(broker: Any, written: IdempotentBroker) -> None:
    async def action(producer: AsyncProducer) -> None:
        await producer.send("t", b"0")
        written.faults.append(refuse(ErrorCode.PRODUCER_FENCED))
        with pytest.raises(KafkaError) as fenced:
            await producer.send("t", b"1")
        assert fenced.value.code is ErrorCode.PRODUCER_FENCED
        with pytest.raises(KafkaError):
            producer.send("t", b"2")

    run(broker, action)


def test_a_batch_that_is_too_large_is_sent_in_parts(broker: Any, written: IdempotentBroker) -> None:
    def limited(log: PartitionLog, records: bytes) -> ErrorCode | None:
        return ErrorCode.MESSAGE_TOO_LARGE if len(records) > 600 else None

    async def action(producer: AsyncProducer) -> None:
        await producer.send("t", b"0")
        written.faults.extend([limited] * 100)
        futures = [producer.send("t", b"%d" % n) for n in range(1, 300)]
        assert [(await future).offset for future in futures] == list(range(1, 300))

    run(broker, action, batch_size=4000, linger_ms=5)
    assert written.log().values == numbers(300)


def test_one_record_too_large_fails_with_the_mend(broker: Any, written: IdempotentBroker) -> None:
    async def action(producer: AsyncProducer) -> None:
        written.faults.append(refuse(ErrorCode.MESSAGE_TOO_LARGE))
        with pytest.raises(KafkaError, match=r"max\.message\.bytes"):
            await producer.send("t", b"0")
        assert (await producer.send("t", b"1")).offset == 0

    run(broker, action)


def test_refused_records_are_named_one_by_one(broker: Any, written: IdempotentBroker) -> None:
    refusal = PartitionProduceResponse(
        error_code=ErrorCode.INVALID_RECORD,
        base_offset=-1,
        record_errors=[BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")],
        error_message="one or more records were rejected",
    )

    async def action(producer: AsyncProducer) -> None:
        await producer.partitions_for("t")
        written.faults.append(lambda log, records: refusal)
        futures = [producer.send("t", b"%d" % n) for n in range(3)]
        results = await asyncio.gather(*futures, return_exceptions=True)
        assert [str(result) for result in results] == [
            str(results[0]),
            str(KafkaError(ErrorCode.INVALID_RECORD, "no key")),
            str(results[0]),
        ]
        assert "another record of the same batch" in str(results[0])

    run(broker, action, linger_ms=20)


def test_records_expire_where_no_leader_comes(broker: Any, written: IdempotentBroker) -> None:
    broker.add_topic("t", 1)
    broker.topics[0].partitions[0].leader_id = -1

    async def action(producer: AsyncProducer) -> None:
        with pytest.raises(RequestTimeoutError, match=r"delivery\.timeout\.ms=300.*no leader"):
            await producer.send("t", b"0")

    run(broker, action, delivery_timeout_ms=300, request_timeout_ms=200)


def test_retries_end_when_they_are_used_up(broker: Any, written: IdempotentBroker) -> None:
    async def action(producer: AsyncProducer) -> None:
        written.faults.extend([refuse(ErrorCode.NOT_ENOUGH_REPLICAS)] * 10)
        with pytest.raises(KafkaError) as refused:
            await producer.send("t", b"0")
        assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert len(written.requests) == 3

    run(broker, action, retries=2)


def test_acks_0_waits_for_nothing(broker: Any, written: IdempotentBroker) -> None:
    async def action(producer: AsyncProducer) -> None:
        results = [await producer.send("t", b"%d" % n) for n in range(5)]
        assert [result.offset for result in results] == [-1] * 5
        while len(written.log().records) < 5:  # noqa: ASYNC110 (nobody tells when acks is 0)
            await asyncio.sleep(0)

    run(broker, action, acks="0")
    assert written.log().values == numbers(5)


def test_a_newer_leader_in_the_answer_is_taken_over(broker: Any, written: IdempotentBroker) -> None:
    moved = PartitionProduceResponse(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
        base_offset=-1,
        current_leader=LeaderIdAndEpoch(leader_id=7, leader_epoch=5),
    )

    async def action(producer: AsyncProducer) -> None:
        await producer.send("t", b"0")
        written.faults.append(lambda log, records: moved)
        assert (await producer.send("t", b"1")).offset == 1
        assert producer.cluster.metadata.topics["t"].partitions[0].leader_epoch == 5

    # A back-off this long would show: the news of a leader ends it (KIP-951).
    run(broker, action, retry_backoff_ms=15_000, retry_backoff_max_ms=15_000)


@pytest.mark.parametrize(("offered", "used"), [((3, 7), 7), ((0, 9), 9), ((3, 12), 12), ((3, 13), 13)])
def test_older_brokers_are_spoken_to_in_their_versions(
    broker: Any, written: IdempotentBroker, offered: tuple[int, int], used: int
) -> None:
    broker.versions[ApiKey.PRODUCE] = offered

    async def action(producer: AsyncProducer) -> None:
        assert (await producer.send("t", b"0")).offset == 0

    run(broker, action)
    assert set(written.versions) == {used}


def test_a_topic_without_id_is_named_in_version_12(broker: Any, written: IdempotentBroker) -> None:
    broker.add_topic("t", 1)

    async def action(producer: AsyncProducer) -> None:
        assert (await producer.send("t", b"0")).offset == 0

    run(broker, action)
    assert written.versions == [12]


def test_transactional_calls_need_a_transactional_id(broker: Any, written: IdempotentBroker) -> None:
    async def action(producer: AsyncProducer) -> None:
        for call in (producer.init_transactions, producer.begin_transaction, producer.commit_transaction):
            with pytest.raises(TransactionStateError):
                await call()

    run(broker, action)
