"""The handlers of transactional requests in every version, on a coordinator without a broker."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Generator
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from tests.unit.coordinator.transaction.scene import ORDERS, TX, Scene, added

from tidelog.broker.access.authorization import OPEN
from tidelog.broker.context import RequestContext
from tidelog.broker.exchange.services import bind
from tidelog.broker.handlers import add_partitions_to_txn
from tidelog.broker.responses import refuse_each
from tidelog.clock import SystemClock
from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices, run_to_end
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.security.session import Session
from tidelog.wire.api import API_TABLE
from tidelog.wire.codec import decode, encode
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.end_txn import EndTxnRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.list_transactions import ListTransactionsRequest
from tidelog.wire.schema import Payload

T = TypeVar("T")
S = TransactionState
E = ErrorCode


def ask(scene: Scene, module: str, version: int, request: Payload) -> Any:
    """Send a request through its bytes to its handler, and give the answer as a client reads it."""
    handler = importlib.import_module(f"tidelog.broker.handlers.{module}")
    api = API_TABLE[handler.API]
    assert (api.min_version, api.max_version) == handler.VERSIONS
    received, _ = decode(api.request, version, encode(request, version))
    services = SimpleNamespace(
        coordinators=SimpleNamespace(
            transactions=scene.coordinator, groups=SimpleNamespace(partition_for=lambda group_id: 0)
        ),
        transactions=scene.coordinator,
        authorization=OPEN,
        lane=SlowLane(SystemClock()),
    )
    connection: Any = SimpleNamespace(session=Session("127.0.0.1"), producer_ids=())
    context = RequestContext(connection, version, 1, "test")
    try:
        answer = bind(handler.handle, services)(context, received)
        if isinstance(answer, Generator):
            answer = run_to_end(answer)
        response = answer.result() if isinstance(answer, Promise) else answer
    except KafkaError as error:
        refuse = getattr(handler, "refuse", partial(refuse_each, api.response))
        response = refuse(received, error)
    return decode(api.response, version, encode(response, version))[0]


def topics(*names: TopicPartition) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name.topic, partitions=[name.partition]) for name in names]


def codes(results: list[Any]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.partition_error_code
        for topic in results
        for each in topic.results_by_partition
    }


# InitProducerId


@pytest.mark.parametrize("version", range(7))
def test_producers_with_and_without_a_transactional_id_begin(version: int) -> None:
    scene = Scene()
    idempotent = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
    answer = ask(scene, "init_producer_id", version, idempotent)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (E.NONE, 1000, 0)
    transactional = InitProducerIdRequest(transactional_id=TX, transaction_timeout_ms=1000)
    for epoch in (0, 1):
        answer = ask(scene, "init_producer_id", version, transactional)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (E.NONE, 1001, epoch)


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_a_fenced_producer_learns_it_in_the_words_of_its_version(version: int) -> None:
    scene = Scene()
    producer = scene.initialized()
    scene.initialized()
    request = InitProducerIdRequest(
        transactional_id=TX,
        transaction_timeout_ms=1000,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
    answer = ask(scene, "init_producer_id", version, request)
    assert answer.error_code == (E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH)
    assert (answer.producer_id, answer.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (5, -1)])
def test_half_a_producer_is_an_invalid_request(producer_id: int, epoch: int) -> None:
    for transactional_id in (TX, None):
        request = InitProducerIdRequest(
            transactional_id=transactional_id, producer_id=producer_id, producer_epoch=epoch
        )
        assert ask(Scene(), "init_producer_id", 5, request).error_code == E.INVALID_REQUEST


def test_two_phase_commit_and_prepared_transactions_are_refused() -> None:
    request = InitProducerIdRequest(transactional_id=TX, transaction_timeout_ms=1000, enable2_pc=True)
    answer = ask(Scene(), "init_producer_id", 6, request)
    assert answer.error_code == E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    request = InitProducerIdRequest(transactional_id=TX, transaction_timeout_ms=1000, keep_prepared_txn=True)
    assert ask(Scene(), "init_producer_id", 6, request).error_code == E.UNSUPPORTED_VERSION


# AddPartitionsToTxn, AddOffsetsToTxn


def client_request(producer: Producer, *names: TopicPartition) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TX,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=topics(*names),
    )


@pytest.mark.parametrize("version", range(4))
def test_a_client_adds_partitions(version: int) -> None:
    scene = Scene()
    producer = scene.initialized()
    answer = ask(scene, "add_partitions_to_txn", version, client_request(producer, *ORDERS[:2]))
    assert codes(answer.results_by_topic_v3_and_below) == dict.fromkeys(ORDERS[:2], E.NONE)
    assert scene.get().partitions == set(ORDERS[:2])
    zombie = Producer(producer.producer_id, producer.epoch - 1)
    answer = ask(scene, "add_partitions_to_txn", version, client_request(zombie, *ORDERS))
    fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    assert codes(answer.results_by_topic_v3_and_below) == dict.fromkeys(ORDERS, fenced)


@pytest.mark.parametrize("version", range(4))
def test_a_client_is_told_which_partitions_it_cannot_add(version: int) -> None:
    scene = Scene()
    internal, missing = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0), TopicPartition("nowhere", 3)
    request = client_request(scene.initialized(), ORDERS[0], internal, missing)
    answer = ask(scene, "add_partitions_to_txn", version, request)
    assert codes(answer.results_by_topic_v3_and_below) == {
        ORDERS[0]: E.OPERATION_NOT_ATTEMPTED,
        internal: E.TOPIC_AUTHORIZATION_FAILED,
        missing: E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert scene.state() is S.EMPTY


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_adds_and_verifies_partitions_of_many_transactions(version: int) -> None:
    scene = Scene()
    first, second = scene.initialized("first"), scene.initialized("second")
    added(scene.add(second, [ORDERS[0]], "second"))
    transactions = [
        AddPartitionsToTxnTransaction(
            transactional_id="first",
            producer_id=first.producer_id,
            producer_epoch=first.epoch,
            topics=topics(*ORDERS[:2]),
        ),
        AddPartitionsToTxnTransaction(
            transactional_id="second",
            producer_id=second.producer_id,
            producer_epoch=second.epoch,
            verify_only=True,
            topics=topics(*ORDERS[:2]),
        ),
        AddPartitionsToTxnTransaction(transactional_id="third", verify_only=True, topics=topics(ORDERS[0])),
    ]
    request = AddPartitionsToTxnRequest(transactions=transactions)
    answer = ask(scene, "add_partitions_to_txn", version, request)
    assert isinstance(answer, AddPartitionsToTxnResponse)
    assert answer.error_code == E.NONE
    found = {each.transactional_id: codes(each.topic_results) for each in answer.results_by_transaction}
    assert found == {
        "first": dict.fromkeys(ORDERS[:2], E.NONE),
        "second": {ORDERS[0]: E.NONE, ORDERS[1]: E.TRANSACTION_ABORTABLE},
        "third": {ORDERS[0]: E.INVALID_PRODUCER_ID_MAPPING},
    }


@pytest.mark.parametrize("version", range(6))
def test_a_refusal_of_the_whole_request_fits_its_version(version: int) -> None:
    handler = importlib.import_module("tidelog.broker.handlers.add_partitions_to_txn")
    request = client_request(Producer(1, 1), ORDERS[0]) if version < 4 else AddPartitionsToTxnRequest()
    refused = handler.refuse(request, KafkaError(E.UNKNOWN_SERVER_ERROR))
    answer = decode(AddPartitionsToTxnResponse, version, encode(refused, version))[0]
    if version < 4:
        assert codes(answer.results_by_topic_v3_and_below) == {ORDERS[0]: E.UNKNOWN_SERVER_ERROR}
    else:
        assert answer.error_code == E.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("version", range(5))
def test_offsets_add_the_groups_partition(version: int) -> None:
    scene = Scene()
    producer = scene.initialized()
    request = AddOffsetsToTxnRequest(
        transactional_id=TX, producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id="g"
    )
    assert ask(scene, "add_offsets_to_txn", version, request).error_code == E.NONE
    assert scene.get().partitions == {TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)}
    request.producer_epoch += 1
    fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    assert ask(scene, "add_offsets_to_txn", version, request).error_code == fenced


# EndTxn


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_ended(version: int, commit: bool) -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    request = EndTxnRequest(
        transactional_id=TX,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=commit,
    )
    for _ in range(2):
        answer = ask(scene, "end_txn", version, request)
        expected = (producer.producer_id, producer.epoch + 1) if version >= 5 else (-1, -1)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (E.NONE, *expected)
    assert scene.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    request.producer_epoch = 9
    fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    assert ask(scene, "end_txn", version, request).error_code == fenced


# DescribeTransactions, ListTransactions


def test_transactions_are_described_each_by_itself() -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    request = DescribeTransactionsRequest(transactional_ids=[TX, "nobody", ""])
    found, nobody, empty = ask(scene, "describe_transactions", 0, request).transaction_states
    assert (found.error_code, found.transaction_state, found.producer_id) == (
        E.NONE,
        "Ongoing",
        producer.producer_id,
    )
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("orders", [0, 1])]
    assert (nobody.transactional_id, nobody.error_code) == ("nobody", E.TRANSACTIONAL_ID_NOT_FOUND)
    assert (empty.transactional_id, empty.error_code) == ("", E.INVALID_REQUEST)


@pytest.mark.parametrize("version", range(3))
def test_transactions_are_listed(version: int) -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    request = ListTransactionsRequest(state_filters=["Ongoing", "Sleepy"])
    answer = ask(scene, "list_transactions", version, request)
    assert answer.error_code == E.NONE
    assert answer.unknown_state_filters == ["Sleepy"]
    (found,) = answer.transaction_states
    assert (found.transactional_id, found.producer_id, found.transaction_state) == (
        TX,
        producer.producer_id,
        "Ongoing",
    )


def test_durations_and_patterns_come_with_later_versions() -> None:
    scene = Scene()
    scene.in_state(S.ONGOING)
    assert (
        ask(scene, "list_transactions", 1, ListTransactionsRequest(duration_filter=0)).transaction_states
        == []
    )
    request = ListTransactionsRequest(transactional_id_pattern="[")
    assert ask(scene, "list_transactions", 2, request).error_code == E.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize("version", [3, 5])
@pytest.mark.parametrize("partition", [0, 99])
def test_very_many_partitions_are_looked_at_and_answered_in_steps(version: int, partition: int) -> None:
    scene = Scene()
    producer = scene.initialized()
    count = 3000
    named = [AddPartitionsToTxnTopic(name="orders", partitions=[partition] * count)]
    request = (
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TX,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=named,
        )
        if version < 4
        else AddPartitionsToTxnRequest(
            transactions=[
                AddPartitionsToTxnTransaction(
                    transactional_id=TX,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    topics=named,
                )
            ]
        )
    )
    connection: Any = SimpleNamespace(session=Session("127.0.0.1"))
    context = RequestContext(connection, version, 1, "test")
    steps = 0

    def counted(work: Slices[T]) -> Slices[T]:
        nonlocal steps
        while True:
            try:
                next(work)
            except StopIteration as end:
                return cast("T", end.value)
            steps += 1
            yield

    class CountingLane(SlowLane):
        async def run(self, work: Slices[T], is_wanted: Callable[[], bool] = lambda: True) -> T:
            return await super().run(counted(work), is_wanted)

    async def answered() -> Any:
        lane = CountingLane(SystemClock())
        handled = await lane.run(
            add_partitions_to_txn.handle(context, request, scene.coordinator, OPEN, lane)
        )
        return handled if isinstance(handled, AddPartitionsToTxnResponse) else await handled

    answer = asyncio.run(answered())
    # To read their names, and to answer.
    assert steps > 2 * count
    results = (
        answer.results_by_topic_v3_and_below
        if version < 4
        else answer.results_by_transaction[0].topic_results
    )
    code = E.NONE if partition == 0 else E.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.partition_error_code for each in results[0].results_by_partition] == [code] * count
