"""The fetches of a follower within a session, as the leader answers them: news alone, and none missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch
from tests.rigs.waiting import wait_until

from tidelog.broker.app import Broker
from tidelog.broker.fetch.follower_poll import FollowerPoll
from tidelog.errors import ErrorCode
from tidelog.metadata.image import PartitionImage
from tidelog.replication.partition import Partition
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import parse_response_header
from tidelog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)

VERSION = 17
FOLLOWER = 5
PARTITIONS = 4


class Follower:
    """Broker 5, which follows all partitions of a topic."""

    def __init__(self, broker: BrokerThread, client: RawClient, topic: RawTopic) -> None:
        self.broker = broker
        self.client = client
        self.topic = topic
        self.session_id = 0
        self.epoch = 0
        self.offsets = [0] * PARTITIONS
        self.last_epochs = [-1] * PARTITIONS

    def lead(self, leader_epoch: int = 0, leader: int | None = None) -> None:
        """Have the broker lead with the follower in sync, or follow."""

        def apply(broker: Broker) -> None:
            own = broker.config.node_id
            for index in range(PARTITIONS):
                image = PartitionImage(
                    replicas=(own, FOLLOWER),
                    leader=own if leader is None else leader,
                    leader_epoch=leader_epoch,
                    isr=(own, FOLLOWER),
                )
                self.partition(broker, index).apply(image)

        self.broker.call(apply)

    def partition(self, broker: Broker, index: int) -> Partition:
        return broker.partitions.get(self.topic.name, index)

    def request(self, *asked: int, max_wait_ms: int = 10, leader_epoch: int = 0) -> FetchRequest:
        partitions = [
            FetchPartition(
                partition=index,
                current_leader_epoch=leader_epoch,
                fetch_offset=self.offsets[index],
                last_fetched_epoch=self.last_epochs[index],
                log_start_offset=0,
                partition_max_bytes=1 << 20,
            )
            for index in asked
        ]
        return FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=10 << 20,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic_id=self.topic.id, partitions=partitions)] if asked else [],
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=1),
        )

    def take(self, response: FetchResponse) -> dict[int, PartitionData]:
        assert response.error_code == ErrorCode.NONE
        self.session_id = response.session_id
        self.epoch += 1
        found = {each.partition_index: each for one in response.responses for each in one.partitions}
        for index, answer in found.items():
            if answer.records:
                self.offsets[index] += 1
                self.last_epochs[index] = 0
        return found

    def fetch(self, *asked: int, max_wait_ms: int = 10, leader_epoch: int = 0) -> dict[int, PartitionData]:
        request = self.request(*asked, max_wait_ms=max_wait_ms, leader_epoch=leader_epoch)
        return self.take(self.client.ask(VERSION, request, FetchResponse))

    def begin_waiting(self) -> None:
        """Send a fetch, and see that it waits the short way."""
        self.client.send_request(ApiKey.FETCH, VERSION, self.request(max_wait_ms=60_000))
        wait_until(lambda: (poll := self.poll()) is not None and poll._promise is not None)

    def receive(self) -> dict[int, PartitionData]:
        frame = self.client.receive()
        _, pos = parse_response_header(ApiKey.FETCH, VERSION, frame)
        return self.take(decode(FetchResponse, VERSION, frame, pos)[0])

    def produce(self, index: int) -> None:
        self.topic.produce(batch(b"value"), acks=1, partition=index)

    def poll(self) -> FollowerPoll | None:
        """Who serves the session the short way, if anybody does."""

        def find(broker: Broker) -> FollowerPoll | None:
            waiters = self.partition(broker, 0)._waiters
            return next((each for each in waiters if isinstance(each, FollowerPoll)), None)

        return self.broker.call(find)

    def begin(self) -> None:
        """Open the session, catch up with one record in each partition, and go the short way from then on."""
        self.lead()
        for index in range(PARTITIONS):
            self.produce(index)
        assert set(self.fetch(*range(PARTITIONS))) == set(range(PARTITIONS))
        self.fetch(*range(PARTITIONS))
        self.fetch()
        assert self.poll() is not None


@pytest.fixture
def follower(
    broker: BrokerThread, new_topic: Callable[..., RawTopic], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Follower]:
    # What is tested must not depend on how fast the machine is.
    monkeypatch.setattr("tidelog.broker.fetch.follower_poll._REFRESH_MS", 3_600_000.0)
    topic = new_topic(partitions=PARTITIONS)
    with RawClient(broker.host, broker.port) as connected:
        yield Follower(broker, connected, topic)


def test_an_answer_has_news_alone(follower: Follower) -> None:
    follower.begin()
    assert follower.fetch() == {}
    follower.produce(2)
    found = follower.fetch()
    assert list(found) == [2]
    assert found[2].records
    # With the next fetch the leader learns that the record is committed, and tells it.
    committed = follower.fetch(2)
    assert [(index, each.high_watermark) for index, each in committed.items()] == [(2, 2)]
    assert not committed[2].records
    assert follower.fetch() == {}


def test_a_wait_ends_with_records(follower: Follower) -> None:
    follower.begin()
    follower.begin_waiting()
    for index in (1, 3):
        follower.produce(index)
    found: set[int] = set()
    found |= set(follower.receive())
    while found != {1, 3}:
        found |= set(follower.fetch(*found, max_wait_ms=60_000))


def test_what_was_sent_and_not_taken_is_sent_again(follower: Follower) -> None:
    follower.begin()
    follower.produce(2)
    assert follower.fetch()[2].records
    follower.offsets[2] -= 1
    assert follower.fetch()[2].records


def test_what_was_asked_the_long_way_is_not_forgotten(
    follower: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower.begin()
    follower.produce(0)
    follower.fetch()
    monkeypatch.setattr("tidelog.broker.fetch.follower_poll._REFRESH_MS", -1.0)
    # The long way takes note of an older position: there is more to read from there on.
    follower.offsets[0] -= 1
    assert follower.fetch(0)[0].records
    monkeypatch.setattr("tidelog.broker.fetch.follower_poll._REFRESH_MS", 3_600_000.0)
    follower.offsets[0] -= 1
    assert follower.fetch()[0].records


@pytest.mark.parametrize("waiting", [False, True])
def test_a_leader_that_resigns_says_so(follower: Follower, waiting: bool) -> None:
    follower.begin()
    if waiting:
        follower.begin_waiting()
        follower.lead(1, FOLLOWER)
        found = follower.receive()
    else:
        follower.lead(1, FOLLOWER)
        found = follower.fetch(max_wait_ms=60_000)
    codes = {each.error_code for each in found.values()}
    assert codes == {ErrorCode.FENCED_LEADER_EPOCH}
    assert len(found) == PARTITIONS


def test_a_log_that_parts_from_the_leaders_is_told(follower: Follower) -> None:
    follower.begin()
    follower.offsets[1] = 9
    found = follower.fetch(1)
    assert (found[1].diverging_epoch.epoch, found[1].diverging_epoch.end_offset) == (0, 1)


def test_a_follower_that_is_gone_is_not_watched_for(follower: Follower) -> None:
    follower.begin()
    follower.begin_waiting()
    follower.client.close()
    wait_until(lambda: follower.poll() is None)


def test_a_session_that_ends_is_not_watched(follower: Follower) -> None:
    follower.begin()
    follower.epoch = 0
    follower.fetch(0)
    assert follower.poll() is None


def test_a_session_with_other_partitions_is_watched_anew(follower: Follower) -> None:
    follower.lead()
    follower.fetch(0, 1)
    follower.fetch()
    follower.fetch(2)
    follower.produce(2)
    assert follower.fetch()[2].records
    wait_until(lambda: follower.poll() is not None)
    assert follower.fetch(2)[2].high_watermark == 1


def test_every_partition_is_noted_now_and_then(follower: Follower, monkeypatch: pytest.MonkeyPatch) -> None:
    follower.begin()

    def noted(broker: Broker) -> float:
        known = follower.partition(broker, 3)._followers.get(FOLLOWER)
        assert known is not None
        return known.fetched_ms

    before = follower.broker.call(noted)
    follower.fetch()
    assert follower.broker.call(noted) == before
    monkeypatch.setattr("tidelog.broker.fetch.follower_poll._REFRESH_MS", -1.0)
    follower.fetch()
    assert follower.broker.call(noted) > before
