"""Quotas on a running broker, as a client on a socket sees them."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import GeneratorType
from typing import Any, NamedTuple

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch
from tests.rigs.waiting import wait_until

from tidelog.broker.fetch import delayed_fetch
from tidelog.broker.handlers import fetch, produce
from tidelog.errors import ErrorCode
from tidelog.replication.partition import Partition
from tidelog.scheduling.slices import Slices
from tidelog.scheduling.slow_lane import SlowLane
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidelog.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NewTopic = Callable[..., RawTopic]
PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"


@pytest.fixture
def limited(
    broker: BrokerThread, client: RawClient, request: pytest.FixtureRequest
) -> Iterator[Callable[..., RawClient]]:
    """A client of its own id with quotas, which end with the test."""
    opened: list[RawClient] = []

    def open_(**quotas: float) -> RawClient:
        name = f"{request.node.name}-{len(opened)}"
        alter(client, name, quotas)
        opened.append(RawClient(broker.host, broker.port, client_id=name))
        return opened[-1]

    yield open_
    for each in opened:
        assert each.client_id is not None
        alter(client, each.client_id, {})
        each.close()


def alter(client: RawClient, client_id: str, quotas: dict[str, float]) -> None:
    kinds = (PRODUCE, FETCH, "request_percentage", "controller_mutation_rate")
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[OpData(key=kind, value=quotas.get(kind, 0.0), remove=kind not in quotas) for kind in kinds],
    )
    (result,) = client.ask(1, AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse).entries
    assert result.error_code == 0


def produce_request(topic: RawTopic, records: bytes, acks: int = -1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic.name, partition_data=[data])]
    )


def fetch_request(topic: RawTopic, max_bytes: int = 40_000, *, session_epoch: int = -1) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_bytes=1 << 20,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic.name, partitions=[wanted])],
    )


def is_muted(client: RawClient) -> bool:
    """Whether the broker leaves a request unanswered that it otherwise answers at once."""
    client.send_request(ApiKey.API_VERSIONS, 3, ApiVersionsRequest())
    readable, _, _ = select.select([client.sock], [], [], 0.3)
    return not readable


def throttled(broker: BrokerThread, client: RawClient) -> bool:
    """Whether the broker has a client pause."""
    port = client.sock.getsockname()[1]
    return broker.call(
        lambda running: any(each.throttled for each in running.network.connections if each.peer[1] == port)
    )


@pytest.mark.parametrize("version", [3, 12])
def test_a_producer_beyond_its_quota_is_answered_at_once_and_not_read_from(
    limited: Callable[..., RawClient], new_topic: NewTopic, version: int
) -> None:
    topic = new_topic()
    producer = limited(producer_byte_rate=100)
    answer = producer.ask(version, produce_request(topic, batch(bytes(5000))), ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0
    # A little more than 5000 bytes at 100 a second, less the ten seconds that come for nothing.
    assert 40_000 <= answer.throttle_time_ms <= 45_000
    assert is_muted(producer)
    others = limited()
    assert others.ask(9, produce_request(topic, batch(bytes(5000))), ProduceResponse).throttle_time_ms == 0


def test_a_producer_that_wants_no_answer_is_not_read_from_either(
    broker: BrokerThread, limited: Callable[..., RawClient], new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer = limited(producer_byte_rate=100)
    producer.send_request(ApiKey.PRODUCE, 9, produce_request(topic, batch(bytes(5000)), acks=0))
    wait_until(lambda: throttled(broker, producer))
    assert is_muted(producer)


def test_the_pause_ends(limited: Callable[..., RawClient], new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = limited(producer_byte_rate=5000)
    # 100 ms: what is beyond ten seconds' worth, at 5000 bytes a second.
    pause_ms = producer.ask(9, produce_request(topic, batch(bytes(50_400))), ProduceResponse).throttle_time_ms
    assert 50 <= pause_ms <= 200
    producer.ask(3, ApiVersionsRequest(), ApiVersionsResponse)


@pytest.mark.parametrize("version", [4, 12])
def test_a_consumer_beyond_its_quota_gets_nothing_until_it_has_paused(
    limited: Callable[..., RawClient], new_topic: NewTopic, version: int
) -> None:
    topic = new_topic()
    for _ in range(6):
        topic.produce(batch(bytes(1000)))
    consumer = limited(consumer_byte_rate=300)
    first = consumer.ask(version, fetch_request(topic, 2500), FetchResponse)
    assert len(first.responses[0].partitions[0].records or b"") == 2500
    assert first.throttle_time_ms == 0
    second = consumer.ask(version, fetch_request(topic, 2500), FetchResponse)
    assert second.responses == []
    assert second.throttle_time_ms > 0
    assert is_muted(consumer)


def test_no_answer_has_more_than_a_quota_gives_at_once(
    limited: Callable[..., RawClient], new_topic: NewTopic
) -> None:
    topic = new_topic()
    for _ in range(6):
        topic.produce(batch(bytes(1000)))
    consumer = limited(consumer_byte_rate=300)
    answers = [consumer.ask(12, fetch_request(topic), FetchResponse) for _ in range(2)]
    # With what is around the records the first is a little too much, and the second comes a moment later.
    sizes = [len(each.responses[0].partitions[0].records or b"") for each in answers if each.responses]
    assert sizes == [3000]


def test_a_throttled_fetch_does_not_move_its_session(
    limited: Callable[..., RawClient], new_topic: NewTopic
) -> None:
    topic = new_topic()
    consumer = limited(consumer_byte_rate=5000)
    opened = consumer.ask(12, fetch_request(topic, session_epoch=0), FetchResponse)
    assert opened.session_id
    assert opened.throttle_time_ms == 0
    for _ in range(6):
        topic.produce(batch(bytes(9_000)))
    follow = FetchRequest(max_bytes=1 << 20, session_id=opened.session_id, session_epoch=1)
    assert consumer.ask(12, follow, FetchResponse).responses
    follow.session_epoch = 2
    throttled = consumer.ask(12, follow, FetchResponse)
    assert (throttled.session_id, throttled.responses) == (opened.session_id, [])
    assert throttled.throttle_time_ms > 0
    # Whoever asks for a session and is throttled gets none.
    refused = limited(consumer_byte_rate=1)
    assert refused.ask(12, fetch_request(topic), FetchResponse).responses, "one batch comes through"
    nothing = refused.ask(12, fetch_request(topic, session_epoch=0), FetchResponse)
    assert (nothing.session_id, nothing.responses) == (0, [])


def test_who_takes_too_much_time_pauses_for_a_window_at_most(limited: Callable[..., RawClient]) -> None:
    client = limited(request_percentage=1e-6)
    assert client.ask(3, ApiVersionsRequest(), ApiVersionsResponse).throttle_time_ms == 1000
    assert is_muted(client)


def test_who_takes_little_time_is_not_held_up(limited: Callable[..., RawClient], new_topic: NewTopic) -> None:
    topic = new_topic()
    client = limited(request_percentage=99)
    assert client.ask(3, ApiVersionsRequest(), ApiVersionsResponse).throttle_time_ms == 0
    assert client.ask(9, produce_request(topic, batch(bytes(100))), ProduceResponse).throttle_time_ms == 0
    assert client.ask(12, fetch_request(topic), FetchResponse).throttle_time_ms == 0


class Steps(NamedTuple):
    """Of work in the slow lane, by what it does."""

    timed: set[str]
    untimed: set[str]


@pytest.fixture
def steps(broker: BrokerThread, monkeypatch: pytest.MonkeyPatch) -> Steps:
    """The steps that somebody pays for, and those that nobody does."""
    found = Steps(set(), set())
    quotas = broker.call(lambda running: running.quotas)
    run = SlowLane.run

    def watched(work: GeneratorType[None, None, object]) -> Slices[object]:
        while True:
            is_timed = quotas.request is not None and quotas.request._began_s is not None
            (found.timed if is_timed else found.untimed).add(work.__name__)
            try:
                next(work)
            except StopIteration as end:
                return end.value
            yield

    async def watching(lane: SlowLane, work: GeneratorType[None, None, object], *is_wanted: Any) -> object:
        return await run(lane, watched(work), *is_wanted)

    monkeypatch.setattr(SlowLane, "run", watching)
    return found


def test_the_time_of_long_fetches_counts(
    limited: Callable[..., RawClient],
    new_topic: NewTopic,
    steps: Steps,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic()
    topic.produce(batch(b"x"))
    consumer = limited(request_percentage=99)
    steps.untimed.clear()  # of the request that has set the quota
    monkeypatch.setattr(delayed_fetch, "_AT_ONCE", -1)
    monkeypatch.setattr(fetch, "_LONG_FRAME_BYTES", 0)
    assert consumer.ask(12, fetch_request(topic), FetchResponse).responses
    waiting = fetch_request(topic)
    waiting.min_bytes, waiting.max_wait_ms = 10_000, 50
    assert consumer.ask(12, waiting, FetchResponse).responses
    assert steps.timed >= {"parse_in_slices", "_keys", "_read", "_respond", "_watch", "_unwatch"}
    assert steps.untimed == set()


def test_the_time_of_wide_produces_counts(
    limited: Callable[..., RawClient], new_topic: NewTopic, steps: Steps
) -> None:
    request = produce_request(new_topic(), batch(b"x"))
    request.topic_data[0].partition_data = [
        PartitionProduceData(index=index, records=batch(b"v")) for index in range(1000)
    ]
    producer = limited(request_percentage=99)
    steps.untimed.clear()  # of the request that has set the quota
    answer = producer.ask(9, request, ProduceResponse)
    assert len(answer.responses[0].partition_responses) == 1000
    assert steps.timed >= {"parse_produce_in_slices", "stage_in_slices", "settle_in_slices"}
    assert steps.untimed == set()


@pytest.mark.parametrize("configs", [{}, {"flush_messages": "1"}], ids=["at once", "after a sync"])
def test_the_time_to_write_and_to_answer_counts(
    broker: BrokerThread,
    limited: Callable[..., RawClient],
    new_topic: NewTopic,
    monkeypatch: pytest.MonkeyPatch,
    configs: dict[str, str],
) -> None:
    topic = new_topic(**configs)
    producer = limited(request_percentage=99)
    seen: dict[str, bool] = {}

    def noted(name: str, work: Callable[..., object]) -> Callable[..., object]:
        def noting(*args: object, **named: object) -> object:
            request_time = broker._broker.quotas.request  # type: ignore[union-attr]
            assert request_time is not None
            seen[name] = request_time._began_s is not None
            return work(*args, **named)

        return noting

    monkeypatch.setattr(Partition, "write_staged", noted("write", Partition.write_staged))
    name = "parse_short_produce"
    monkeypatch.setattr(produce, name, noted("read", getattr(produce, name)))
    monkeypatch.setattr(produce.StagedProduce, "settle", noted("answer", produce.StagedProduce.settle))
    assert producer.ask(9, produce_request(topic, batch(b"x")), ProduceResponse).responses
    assert seen == {"read": True, "write": True, "answer": True}


def _create(client: RawClient, version: int, name: str, partitions: int) -> CreateTopicsResponse:
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return client.ask(version, CreateTopicsRequest(topics=[wanted], timeout_ms=5000), CreateTopicsResponse)


def test_changes_of_the_cluster_are_refused_by_versions_that_know_of_it(
    limited: Callable[..., RawClient], new_topic: NewTopic, request: pytest.FixtureRequest
) -> None:
    topic = new_topic()
    admin = limited(controller_mutation_rate=0.1)
    first = _create(admin, 7, f"{topic.name}-a", 3)
    assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 0)
    exceeded = ErrorCode.THROTTLING_QUOTA_EXCEEDED
    exists = _create(admin, 7, f"{topic.name}-a", 3)
    assert exists.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS, "that costs nothing"
    assert exists.throttle_time_ms == 0
    second = _create(admin, 7, f"{topic.name}-b", 1)
    assert second.topics[0].error_code == exceeded
    assert 10_000 < second.throttle_time_ms <= 19_000
    assert is_muted(admin)


@pytest.mark.parametrize("strict", [True, False])
def test_partitions_and_deletions_count_too(
    limited: Callable[..., RawClient], new_topic: NewTopic, broker: BrokerThread, strict: bool
) -> None:
    topic = new_topic(3)
    deleter = limited(controller_mutation_rate=0.1)
    assert _create(deleter, 7, f"{topic.name}-a", 4).throttle_time_ms == 0
    with RawClient(broker.host, broker.port, client_id=deleter.client_id) as again:
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic.name, count=4, assignments=None)]
        )
        more.timeout_ms = 5000
        added = again.ask(3 if strict else 1, more, CreatePartitionsResponse)
        code = ErrorCode.THROTTLING_QUOTA_EXCEEDED if strict else ErrorCode.NONE
        assert added.results[0].error_code == code
        assert added.throttle_time_ms > 0
    with RawClient(broker.host, broker.port, client_id=deleter.client_id) as again:
        names = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=5000)
        if not strict:
            names = DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=5000)
        gone = again.ask(6 if strict else 4, names, DeleteTopicsResponse)
        assert gone.responses[0].error_code == code
        assert gone.throttle_time_ms > 0


def test_a_client_that_goes_while_it_pauses_is_forgotten(
    broker: BrokerThread, limited: Callable[..., RawClient], new_topic: NewTopic
) -> None:
    topic = new_topic()
    producer = limited(producer_byte_rate=1)
    producer.ask(9, produce_request(topic, batch(bytes(1000))), ProduceResponse)
    assert throttled(broker, producer)
    port = producer.sock.getsockname()[1]
    producer.close()
    wait_until(
        lambda: broker.call(
            lambda running: all(each.peer[1] != port for each in running.network.connections)
        ),
    )


def test_an_address_that_makes_connections_too_fast_is_turned_away(
    broker: BrokerThread, client: RawClient
) -> None:
    source = "127.0.0.9"

    def limit(rate: float | None) -> None:
        op = OpData(key="connection_creation_rate", value=rate or 0.0, remove=rate is None)
        parts = [EntityData(entity_type="ip", entity_name=source)]
        request = AlterClientQuotasRequest(
            entries=[AlterClientQuotasRequestEntryData(entity=parts, ops=[op])]
        )
        (result,) = client.ask(1, request, AlterClientQuotasResponse).entries
        assert result.error_code == 0, result

    limit(1.0)
    with ExitStack() as opened:
        made = [opened.enter_context(RawClient(broker.host, broker.port, source=source)) for _ in range(11)]
        for each in made[:10]:
            each.ask(3, ApiVersionsRequest(), ApiVersionsResponse)
        assert made[10].is_closed()
        with RawClient(broker.host, broker.port) as elsewhere:
            elsewhere.ask(3, ApiVersionsRequest(), ApiVersionsResponse)
    limit(None)
    with RawClient(broker.host, broker.port, source=source) as again:
        again.ask(3, ApiVersionsRequest(), ApiVersionsResponse)
