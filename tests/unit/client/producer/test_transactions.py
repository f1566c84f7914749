"""What a transactional producer and its coordinators say to one another, with a scripted broker as both."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.client.producer.idempotent_broker import IdempotentBroker, refuse

from tidelog.client.errors import ClientClosedError, RequestTimeoutError
from tidelog.client.producer import (
    AsyncProducer,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionStateError,
)
from tidelog.client.producer._transaction_calls import PreparedTransaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.records.batch import parse_header
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from tidelog.wire.messages.api_versions import FinalizedFeatureKey
from tidelog.wire.messages.end_txn import EndTxnResponse
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

WAIT_S = 60
E = ErrorCode
PRODUCER_ID = 70
TRANSACTIONAL = (
    ApiKey.FIND_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.PRODUCE,
)


class Script:
    """A coordinator; ``refusals`` are answered first, one per request of an API."""

    def __init__(self, broker: Any, version: int) -> None:
        self.broker = broker
        self.written = IdempotentBroker(broker)
        self.version = version
        self.epoch = 0
        self.refusals: dict[ApiKey, deque[ErrorCode]] = defaultdict(deque)
        self.silent: set[ApiKey] = set()
        handlers = broker.handlers
        handlers[ApiKey.API_VERSIONS] = self.api_versions
        for key in TRANSACTIONAL[:-1]:
            handlers[key] = self._answering(key, getattr(self, key.name.lower()))

    def _answering(self, key: ApiKey, answer: Callable[..., Any]) -> Callable[[Any, int], Any]:
        def handler(request: Any, version: int) -> Any:
            if key in self.silent:
                return None
            refusals = self.refusals[key]
            return answer(request, version, refusals.popleft() if refusals else E.NONE)

        return handler

    def api_versions(self, request: Any, version: int) -> Any:
        answer = self.broker.api_versions()
        answer.finalized_features_epoch = 1
        answer.finalized_features = [
            FinalizedFeatureKey(
                name="transaction.version", max_version_level=self.version, min_version_level=self.version
            )
        ]
        return answer

    def find_coordinator(self, request: Any, version: int, error: ErrorCode) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=7, host="127.0.0.1", port=self.broker.port, error_code=error)
                for key in request.coordinator_keys
            ]
        )

    def init_producer_id(self, request: Any, version: int, error: ErrorCode) -> InitProducerIdResponse:
        if error:
            return InitProducerIdResponse(error_code=error)
        if request.producer_id >= 0:
            assert (request.producer_id, request.producer_epoch) == (PRODUCER_ID, self.epoch)
            self.epoch += 1
        return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def add_partitions_to_txn(
        self, request: Any, version: int, error: ErrorCode
    ) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=error)
                        for each in topic.partitions
                    ],
                )
                for topic in request.v3_and_below_topics
            ]
        )

    def add_offsets_to_txn(self, request: Any, version: int, error: ErrorCode) -> AddOffsetsToTxnResponse:
        return AddOffsetsToTxnResponse(error_code=error)

    def txn_offset_commit(self, request: Any, version: int, error: ErrorCode) -> TxnOffsetCommitResponse:
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=each.partition_index, error_code=error
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def end_txn(self, request: Any, version: int, error: ErrorCode) -> EndTxnResponse:
        if error:
            return EndTxnResponse(error_code=error)
        if version < 5:
            return EndTxnResponse()
        self.epoch += 1
        return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def asked(self) -> list[tuple[str, int]]:
        """The requests that have to do with the transaction, by name and version."""
        return [(key.name, version) for key, version, _ in self.broker.seen if key in TRANSACTIONAL]

    def names(self) -> list[str]:
        return [name for name, _ in self.asked() if name != "FIND_COORDINATOR"]

    def committed(self) -> list[bool]:
        return [request.committed for _, request in self.broker.requests(ApiKey.END_TXN)]


@pytest.fixture
def v1(scripted_broker: Any) -> Script:
    return Script(scripted_broker, 1)


@pytest.fixture
def v2(scripted_broker: Any) -> Script:
    return Script(scripted_broker, 2)


@pytest.fixture(params=["v1", "v2"])
def script(request: pytest.FixtureRequest) -> Script:
    made: Script = request.getfixturevalue(request.param)
    return made


async def finish(call: Callable[[], Awaitable[object]]) -> None:
    """Make a call that must succeed, of a producer with little patience: again whenever it times out."""
    while True:
        with contextlib.suppress(RequestTimeoutError):
            await call()
            return


def run(script: Script, action: Callable[[AsyncProducer], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with script.broker:
            script.broker.add_topic("t", 2, topic_id=random_uuid())
            producer = AsyncProducer(
                bootstrap_servers=script.broker.address,
                transactional_id="id",
                linger_ms=0,
                retry_backoff_ms=1,
                retry_backoff_max_ms=5,
                **options,
            )
            try:
                async with asyncio.timeout(WAIT_S):
                    await finish(producer.init_transactions)
                    await finish(lambda: producer.partitions_for("t"))
                    await action(producer)
            finally:
                await producer.close(0)

    asyncio.run(main())


def test_version_1_announces_partitions_before_it_writes(v1: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        for _ in range(2):
            async with producer.transaction():
                await producer.send("t", b"x", partition=0)
                await producer.send("t", b"y", partition=0)

    run(v1, action)
    once = [("ADD_PARTITIONS_TO_TXN", 3), ("PRODUCE", 11), ("PRODUCE", 11), ("END_TXN", 4)]
    assert v1.asked() == [("FIND_COORDINATOR", 6), ("INIT_PRODUCER_ID", 5), *once, *once]
    assert v1.committed() == [True, True]
    epochs = {parse_header(_records(request)).producer_epoch for request in v1.written.requests}
    assert epochs == {0}


def test_version_2_writes_at_once_and_gets_a_new_epoch_every_time(v2: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        for _ in range(3):
            async with producer.transaction():
                await producer.send("t", b"x", partition=0)

    run(v2, action)
    once = [("PRODUCE", 13), ("END_TXN", 5)]
    assert v2.asked()[2:] == once * 3
    headers = [parse_header(_records(request)) for request in v2.written.requests]
    assert [(each.producer_epoch, each.base_sequence) for each in headers] == [(0, 0), (1, 0), (2, 0)]
    assert all(each.is_transactional for each in headers)


def _records(request: Any) -> bytes:
    records: bytes = request.topic_data[0].partition_data[0].records
    return records


def test_a_prepared_transaction_is_written_and_left_open_for_somebody_else(script: Script) -> None:
    prepared: list[PreparedTransaction] = []

    async def action(producer: AsyncProducer) -> None:
        await producer.begin_transaction()
        future = producer.send("t", b"x", partition=0)
        prepared.append(await producer.prepare_transaction(WAIT_S))
        assert future.done()

    run(script, action)
    assert prepared == [PreparedTransaction("id", PRODUCER_ID, 0, script.version == 2)]
    assert script.names()[-1] == "PRODUCE"
    assert script.committed() == []


def test_a_transaction_that_has_failed_cannot_be_prepared(v1: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        v1.refusals[ApiKey.ADD_PARTITIONS_TO_TXN].append(E.TOPIC_AUTHORIZATION_FAILED)
        await producer.begin_transaction()
        producer.send("t", b"x", partition=0)
        with pytest.raises(TransactionAbortableError):
            await producer.prepare_transaction(WAIT_S)

    run(v1, action)
    assert v1.committed() == []


def test_an_empty_transaction_is_nobodys_business(script: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()

    run(script, action)
    assert script.names() == ["INIT_PRODUCER_ID"]


def test_offsets_go_to_the_group_coordinator_the_way_of_their_version(v1: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")

    run(v1, action)
    assert v1.asked()[2:] == [
        ("ADD_OFFSETS_TO_TXN", 4),
        ("FIND_COORDINATOR", 6),
        ("TXN_OFFSET_COMMIT", 4),
        ("END_TXN", 4),
    ]


def test_version_2_needs_no_announcement_of_offsets(v2: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")

    run(v2, action)
    assert v2.names() == ["INIT_PRODUCER_ID", "TXN_OFFSET_COMMIT", "END_TXN"]


@pytest.mark.parametrize(
    "api",
    [ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN],
)
@pytest.mark.parametrize(
    "passing", [E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS, E.CONCURRENT_TRANSACTIONS]
)
def test_coordinators_that_move_or_are_busy_are_asked_again(
    v1: Script, api: ApiKey, passing: ErrorCode
) -> None:
    v1.refusals[api].extend([passing, passing])

    async def action(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send("t", b"x")
            await producer.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")

    run(v1, action)
    assert v1.names().count(api.name) == 3
    assert v1.committed()[-1] is True


@pytest.mark.parametrize("code", [E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH])
def test_fencing_is_fatal_wherever_it_is_heard(script: Script, code: ErrorCode) -> None:
    async def action(producer: AsyncProducer) -> None:
        await producer.begin_transaction()
        await producer.send("t", b"x")
        script.refusals[ApiKey.END_TXN].append(code)
        with pytest.raises(ProducerFencedError):
            await producer.commit_transaction()
        for call in (producer.begin_transaction, producer.abort_transaction, producer.init_transactions):
            with pytest.raises(ProducerFencedError):
                await call()
        with pytest.raises(ProducerFencedError):
            producer.send("t", b"y")

    run(script, action)


def test_a_commit_that_must_be_aborted_is_aborted_and_the_next_one_succeeds(script: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        script.refusals[ApiKey.END_TXN].append(E.TRANSACTION_ABORTABLE)
        with pytest.raises(KafkaError, match="transaction abortable"):
            async with producer.transaction():
                await producer.send("t", b"x")
        async with producer.transaction():
            await producer.send("t", b"y")

    run(script, action)
    assert script.committed() == [True, False, True]


def test_a_refused_record_spoils_its_transaction_only(script: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        await producer.begin_transaction()
        await producer.send("t", b"fine", partition=0)
        script.written.faults.append(refuse(E.INVALID_RECORD))
        with pytest.raises(KafkaError):
            await producer.send("t", b"bad", partition=0)
        with pytest.raises(TransactionAbortableError):
            producer.send("t", b"late", partition=0)
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"again", partition=0)

    run(script, action)
    assert script.committed() == [False, True]
    # Both versions go on under a new epoch: the old one might still have something under way.
    assert script.epoch == (1 if script.version == 1 else 2)


def test_partitions_that_may_not_be_written_to_abort_the_transaction(v1: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        v1.refusals[ApiKey.ADD_PARTITIONS_TO_TXN].append(E.TOPIC_AUTHORIZATION_FAILED)
        await producer.begin_transaction()
        with pytest.raises(TransactionAbortableError, match="t-0: topic authorization failed"):
            await producer.send("t", b"x", partition=0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("t", b"y", partition=0)

    run(v1, action)
    assert v1.written.log(0).values == [b"y"]


@pytest.mark.parametrize("code", [E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION, E.GROUP_AUTHORIZATION_FAILED])
def test_a_consumer_that_is_no_member_any_more_aborts_the_transaction(
    script: Script, code: ErrorCode
) -> None:
    async def action(producer: AsyncProducer) -> None:
        script.refusals[ApiKey.TXN_OFFSET_COMMIT].append(code)
        await producer.begin_transaction()
        with pytest.raises(KafkaError) as refused:
            await producer.send_offsets_to_transaction({TopicPartition("t", 0): 5}, "g")
        assert refused.value.code is code
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()

    run(script, action)


def test_an_id_that_may_not_be_used_can_be_asked_for_again(script: Script) -> None:
    async def main() -> None:
        async with script.broker:
            script.refusals[ApiKey.INIT_PRODUCER_ID].append(E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            async with AsyncProducer(
                bootstrap_servers=script.broker.address, transactional_id="id"
            ) as producer:
                with pytest.raises(KafkaError):
                    await producer.init_transactions()
                await producer.init_transactions()
                await producer.begin_transaction()

    asyncio.run(main())


def test_a_call_that_takes_too_long_goes_on_and_must_be_called_again(script: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        await producer.begin_transaction()
        await producer.send("t", b"x")
        script.silent.add(ApiKey.END_TXN)
        with pytest.raises(RequestTimeoutError, match="call it again"):
            await producer.commit_transaction()
        with pytest.raises(TransactionStateError, match="commit_transaction timed out"):
            await producer.abort_transaction()
        with pytest.raises(TransactionStateError, match="commit_transaction timed out"):
            await producer.begin_transaction()
        script.silent.clear()
        await finish(producer.commit_transaction)
        await producer.begin_transaction()

    run(script, action, max_block_ms=500, request_timeout_ms=200, delivery_timeout_ms=30_000)
    assert set(script.committed()) == {True}


def test_closing_tells_whoever_waits_for_a_call_and_cancels_nobody(script: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        await producer.begin_transaction()
        await producer.send("t", b"x")
        script.silent.add(ApiKey.END_TXN)
        committing = asyncio.create_task(producer.commit_transaction())
        while not script.committed():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.001)
        await producer.close(0)
        with pytest.raises(ClientClosedError, match="commit_transaction"):
            await committing

    run(script, action)


def test_a_block_whose_commit_takes_too_long_leaves_it_to_be_called_again(script: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        script.silent.add(ApiKey.END_TXN)
        with pytest.raises(RequestTimeoutError, match="commit_transaction has not ended"):
            async with producer.transaction():
                await producer.send("t", b"x")
        script.silent.clear()
        await finish(producer.commit_transaction)
        await producer.begin_transaction()
        await producer.send("t", b"y")
        await finish(producer.commit_transaction)

    run(script, action, max_block_ms=500, request_timeout_ms=200, delivery_timeout_ms=30_000)
    assert set(script.committed()) == {True}


def test_a_block_that_is_cancelled_while_it_commits_leaves_the_commit_to_be_called_again(
    script: Script,
) -> None:
    async def block(producer: AsyncProducer) -> None:
        async with producer.transaction():
            await producer.send("t", b"x")

    async def action(producer: AsyncProducer) -> None:
        script.silent.add(ApiKey.END_TXN)
        running = asyncio.create_task(block(producer))
        while not script.committed():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        script.silent.clear()
        await producer.commit_transaction()

    run(script, action, request_timeout_ms=200, delivery_timeout_ms=30_000)
    assert set(script.committed()) == {True}


def test_a_block_waits_for_a_call_that_does_not_end_no_longer_than_max_block_ms(v1: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        v1.silent.add(ApiKey.ADD_OFFSETS_TO_TXN)
        with pytest.raises(RequestTimeoutError, match="send_offsets_to_transaction has not ended"):
            async with producer.transaction():
                await producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g")
        v1.silent.clear()
        await finish(lambda: producer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "g"))
        await finish(producer.abort_transaction)

    run(v1, action, max_block_ms=300, request_timeout_ms=200, delivery_timeout_ms=30_000)
    assert v1.committed() == [False]


def test_closing_waits_for_a_commit_no_longer_than_max_block_ms(script: Script) -> None:
    async def action(producer: AsyncProducer) -> None:
        await producer.begin_transaction()
        await producer.send("t", b"x")
        script.silent.add(ApiKey.END_TXN)
        with pytest.raises(RequestTimeoutError):
            await producer.commit_transaction()
        await producer.close()

    run(script, action, max_block_ms=300, request_timeout_ms=200, delivery_timeout_ms=30_000)
    assert set(script.committed()) == {True}
