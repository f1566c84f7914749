"""Fetch as seen on the wire: limits, long polls and sessions, in the versions where they differ."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch, values
from tests.rigs.waiting import wait_until

from tidelog.broker.app import Broker
from tidelog.broker.handlers import fetch
from tidelog.errors import ErrorCode
from tidelog.ids import ZERO_UUID, random_uuid
from tidelog.scheduling.slices import run_to_end
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire import fetch as wire_fetch
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(new_topic: Callable[..., RawTopic], version: int) -> None:
    topic = new_topic()
    topic.produce(batch(b"a", b"b"))
    topic.produce(batch(bytes(100_000)))
    answer = topic.fetch(version=version, offset=0)
    assert (answer.error_code, answer.high_watermark, answer.last_stable_offset) == (0, 3, 3)
    assert answer.log_start_offset == (0 if version >= 5 else -1)
    assert values(answer) == [b"a", b"b", bytes(100_000)]
    assert values(topic.fetch(version=version, offset=2)) == [bytes(100_000)]


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_offsets_outside_the_log_are_out_of_range(new_topic: Callable[..., RawTopic], version: int) -> None:
    topic = new_topic()
    topic.produce(batch(b"a"))
    for offset in (2, -5):
        answer = topic.fetch(version=version, offset=offset, max_wait_ms=10_000)
        assert (answer.error_code, answer.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert topic.fetch(version=version, offset=1).error_code == 0


def test_what_is_unknown_comes_last(client: RawClient, new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic()
    nobody = FetchTopic(topic_id=random_uuid(), partitions=[FetchPartition()])
    asked = topic.fetch_topic(13, FetchPartition(partition=7), FetchPartition())
    response = client.ask(13, FetchRequest(session_epoch=-1, topics=[asked, nobody]), FetchResponse)
    found = [
        (each.error_code, each.aborted_transactions) for one in response.responses for each in one.partitions
    ]
    assert found == [
        (ErrorCode.NONE, None),
        (ErrorCode.UNKNOWN_TOPIC_ID, []),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
    ]


@pytest.mark.parametrize("epoch", [-2, -(2**31)])
def test_epochs_below_zero_are_none(new_topic: Callable[..., RawTopic], epoch: int) -> None:
    topic = new_topic()
    topic.produce(batch(b"a"))
    assert values(topic.fetch(current_leader_epoch=epoch, last_fetched_epoch=epoch)) == [b"a"]


def test_limits_hold_except_for_the_first_batch(
    client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic(partitions=3)
    for partition in range(3):
        for _ in range(3):
            topic.produce(batch(bytes(1000)), partition=partition)
    size = len(batch(bytes(1000)))
    partitions = [
        FetchPartition(partition=index, partition_max_bytes=limit)
        for index, limit in enumerate((1, 2 * size, 2 * size))
    ]
    request = FetchRequest(max_bytes=size + 10, topics=[topic.fetch_topic(13, *partitions)])
    answers = client.ask(13, request, FetchResponse).responses[0].partitions
    sizes = [len(answer.records or b"") for answer in answers]
    assert sizes == [size, 0, 0]
    request.max_bytes = 10 * size
    answers = client.ask(13, request, FetchResponse).responses[0].partitions
    assert [len(answer.records or b"") for answer in answers] == [size, 2 * size, 2 * size]


def test_fetch_max_bytes_of_the_broker_is_the_upper_limit(tmp_path: Path) -> None:
    with (
        BrokerThread(tmp_path / "data", options={"fetch.max.bytes": "2000"}) as broker,
        RawClient(broker.host, broker.port) as client,
    ):
        topic = RawTopic(client, "limited")
        for _ in range(5):
            topic.produce(batch(bytes(900)))
        assert 0 < len(topic.fetch(offset=0).records or b"") <= 2000


def test_leader_epochs_are_fenced(new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic()
    topic.produce(batch(b"a"))
    assert topic.fetch(current_leader_epoch=1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert values(topic.fetch(current_leader_epoch=0)) == [b"a"]
    diverged = topic.fetch(offset=1, last_fetched_epoch=0)
    assert (diverged.error_code, diverged.diverging_epoch.epoch) == (0, -1)


def test_fetches_in_the_name_of_a_replica_are_refused(new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic()
    assert topic.fetch(version=11, replica_id=5).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    fenced = topic.fetch(version=11, replica_id=5, current_leader_epoch=0)
    assert fenced.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


# -- waiting ------------------------------------------------------------------------------------------


def waiters(broker: BrokerThread, topic: RawTopic, partition: int = 0) -> int:
    def count(inner: Broker) -> int:
        return len(inner.partitions.get(topic.name, partition)._waiters)

    return broker.call(count)


class Poll:
    """A long poll on a connection of its own."""

    def __init__(self, broker: BrokerThread, topic: RawTopic, **fields: int) -> None:
        self._client = RawClient(broker.host, broker.port)
        self._result: list[PartitionData] = []
        self._thread = threading.Thread(target=self._run, args=(topic, fields))
        self._thread.start()
        wait_until(lambda: waiters(broker, topic) > 0 or not self._thread.is_alive())

    def _run(self, topic: RawTopic, fields: dict[str, int]) -> None:
        self._result.append(topic.fetch(client=self._client, **{"max_wait_ms": 60_000, **fields}))

    @property
    def waits(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> PartitionData:
        self._thread.join(20)
        self._client.close()
        return self._result[0]


def test_a_long_poll_is_answered_by_the_next_append(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    poll = Poll(broker, topic, min_bytes=1)
    assert poll.waits
    topic.produce(batch(b"a"))
    assert values(poll.result()) == [b"a"]
    assert waiters(broker, topic) == 0


def test_a_long_poll_waits_for_all_the_bytes_it_wants(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    poll = Poll(broker, topic, min_bytes=len(batch(bytes(100))) * 3)
    for _ in range(2):
        topic.produce(batch(bytes(100)))
    assert waiters(broker, topic) == 1
    topic.produce(batch(bytes(100)))
    assert len(values(poll.result())) == 3


def test_a_long_poll_ends_with_its_deadline(broker: BrokerThread, new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic()
    topic.produce(batch(b"a"))
    assert values(Poll(broker, topic, min_bytes=10_000, max_wait_ms=30).result()) == [b"a"]
    assert values(Poll(broker, topic, offset=1, min_bytes=1, max_wait_ms=30).result()) == []
    assert waiters(broker, topic) == 0


def test_a_long_poll_ends_with_its_topic(broker: BrokerThread, new_topic: Callable[..., RawTopic]) -> None:
    topic = new_topic()
    poll = Poll(broker, topic, min_bytes=1)
    topic.delete()
    assert poll.result().error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_long_poll_is_forgotten_when_its_client_goes(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    with RawClient(broker.host, broker.port) as leaving:
        wanted = topic.fetch_topic(13, FetchPartition(partition_max_bytes=1 << 20))
        request = FetchRequest(topics=[wanted], min_bytes=1, max_wait_ms=600_000, max_bytes=1 << 20)
        leaving.send_request(ApiKey.FETCH, 13, request)
        wait_until(lambda: waiters(broker, topic) == 1)
    wait_until(lambda: waiters(broker, topic) == 0)


def test_an_unknown_partition_does_not_end_the_wait_for_others(
    broker: BrokerThread, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    with RawClient(broker.host, broker.port) as client:
        wanted = topic.fetch_topic(
            13, FetchPartition(partition_max_bytes=1 << 20), FetchPartition(partition=9)
        )
        request = FetchRequest(topics=[wanted], min_bytes=1, max_wait_ms=600_000, max_bytes=1 << 20)
        client.send_request(ApiKey.FETCH, 13, request)
        wait_until(lambda: waiters(broker, topic) == 1)
        before = errors_told(broker)
        topic.produce(batch(b"a"))
        client.receive()
    # Read twice, told once; the session's own and the other partition's are none.
    assert errors_told(broker) - before == {"NONE": 2, "UNKNOWN_TOPIC_OR_PARTITION": 1}


def errors_told(broker: BrokerThread) -> Counter[str]:
    """How often the answers that had some error had which code."""
    return broker.call(lambda inner: Counter(inner.partitions.counts.errors.by_request["Fetch"]))


# -- sessions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [7, 12, 13, 18])
def test_a_session_carries_changes_only(
    client: RawClient, new_topic: Callable[..., RawTopic], version: int
) -> None:
    first, second = new_topic(), new_topic()
    session_id = 0

    def fetch(epoch: int, *topics: FetchTopic, forget: tuple[ForgottenTopic, ...] = ()) -> FetchResponse:
        request = FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=list(topics),
            forgotten_topics_data=list(forget),
            max_bytes=1 << 20,
            max_wait_ms=0,
        )
        return client.ask(version, request, FetchResponse)

    def at(topic: RawTopic, offset: int) -> FetchTopic:
        return topic.fetch_topic(version, FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20))

    first.produce(batch(b"a"))
    full = fetch(0, at(first, 0), at(second, 0))
    session_id = full.session_id
    assert session_id > 0
    assert len(full.responses) == 2
    moved = fetch(1, at(first, 1))
    assert (moved.error_code, moved.session_id, moved.responses) == (0, session_id, [])
    second.produce(batch(b"b"))
    names = [(topic.topic, topic.topic_id) for topic in fetch(2).responses]
    assert names == [(second.name, ZERO_UUID) if version < 13 else ("", second.id)]
    assert fetch(2).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    name, topic_id = names[0]
    assert fetch(3, forget=(ForgottenTopic(topic=name, topic_id=topic_id, partitions=[0]),)).responses == []
    assert fetch(-1).error_code == 0
    assert fetch(4).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_by_name_cannot_go_on_by_id(
    broker: BrokerThread, client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    wanted = topic.fetch_topic(12, FetchPartition())
    full = client.ask(12, FetchRequest(session_epoch=0, topics=[wanted]), FetchResponse)
    request = FetchRequest(session_id=full.session_id, session_epoch=1, max_wait_ms=0)
    before = errors_told(broker)
    assert client.ask(13, request, FetchResponse).error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert errors_told(broker) - before == {"FETCH_SESSION_TOPIC_ID_ERROR": 1}


def test_a_topic_made_anew_does_not_fit_the_session_of_the_old_one(
    client: RawClient, new_topic: Callable[..., RawTopic]
) -> None:
    topic = new_topic()
    wanted = topic.fetch_topic(13, FetchPartition())
    full = client.ask(13, FetchRequest(session_epoch=0, topics=[wanted]), FetchResponse)
    topic.delete()
    request = FetchRequest(session_id=full.session_id, session_epoch=1, max_wait_ms=0, max_bytes=1 << 20)
    gone = client.ask(13, request, FetchResponse)
    assert gone.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    RawTopic(client, topic.name)
    request.session_epoch = 2
    replaced = client.ask(13, request, FetchResponse)
    assert replaced.responses[0].partitions[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_what_is_named_many_times_or_forgotten_is_sorted_in_slices() -> None:
    wanted = wire_fetch.FetchPartition(7, -1, 0, -1, -1, 1000)
    request = parsed_request(topics=[("a", None, [wanted] * 5000)])
    assert 1 + sum(1 for _ in fetch._keys(request)) >= 5000 // 256
    request = parsed_request(forgotten_topics=[("a", None, list(range(5000)))])
    assert 1 + sum(1 for _ in fetch._keys(request)) >= 5000 // 256
    assert run_to_end(fetch._keys(request)) == ({}, [("a", index) for index in range(5000)])


def parsed_request(
    topics: Sequence[wire_fetch.FetchTopic] = (), forgotten_topics: Sequence[wire_fetch.ForgottenTopic] = ()
) -> wire_fetch.FetchRequest:
    return wire_fetch.FetchRequest(-1, -1, 0, 0, 0, 0, 0, 0, list(topics), list(forgotten_topics), "", None)
