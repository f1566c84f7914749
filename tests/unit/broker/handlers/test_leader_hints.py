"""Who leads a partition, told to clients that ask the wrong broker (KIP-951), as seen on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic, batch
from tests.rigs.waiting import wait_until

from tidelog.broker.app import Broker
from tidelog.config.listeners import Listener
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.metadata.image import PartitionImage, TopicImage
from tidelog.metadata.znodes.znodes import BrokerRegistration
from tidelog.testing.broker_thread import BrokerThread
from tidelog.wire.api import ApiKey
from tidelog.wire.codec import decode
from tidelog.wire.headers import parse_response_header
from tidelog.wire.messages import fetch, produce

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
Hints = list[tuple[int, int, int]]


class Scene:
    """A topic whose partitions 0 and 1 this broker holds, and 2 to 299 not: brokers 7, 8 and 9 lead."""

    def __init__(self, broker: BrokerThread, client: RawClient) -> None:
        self.broker = broker
        self.client = client
        self.topic = RawTopic(client, "t", 2)
        broker.call(self._introduce)
        self.lead(0, 7)
        self.lead(1, 8)

    def _introduce(self, broker: Broker) -> None:
        for other in (7, 8, 9):
            endpoints = (Listener("PLAINTEXT", f"host{other}", 9000 + other, "PLAINTEXT"),)
            broker.image.put_broker(BrokerRegistration(broker_id=other, endpoints=endpoints))
        known = broker.image.topics["t"]
        elsewhere = PartitionImage(replicas=(9,), leader=9, leader_epoch=4, isr=(9,))
        others = dict.fromkeys(range(2, 300), elsewhere)
        broker.image.install(TopicImage("t", known.id, {**known.partitions, **others}))

    def lead(self, index: int, leader: int) -> None:
        """Have broker ``leader`` lead in epoch 3; -1 is the broker that is asked, with 7 as its follower."""

        def apply(broker: Broker) -> None:
            own = broker.config.node_id
            who = own if leader < 0 else leader
            state = PartitionImage(replicas=(own, 7, 8), leader=who, leader_epoch=3, isr=(own, 7))
            broker.partitions.get("t", index).apply(state)

        self.broker.call(apply)

    def give_away(self, index: int) -> None:
        """Broker 9 has all of the replicas from now on."""

        def apply(broker: Broker) -> None:
            known = broker.image.topics["t"]
            elsewhere = PartitionImage(replicas=(9,), leader=9, leader_epoch=4, isr=(9,))
            broker.image.install(TopicImage("t", known.id, {**known.partitions, index: elsewhere}))
            broker.partitions.unassign(TopicPartition("t", index), delete=True)

        self.broker.call(apply)

    def produce_request(self, version: int, *indexes: int) -> produce.ProduceRequest:
        request = self.topic.produce_request(version=version)
        request.topic_data[0].partition_data = [
            produce.PartitionProduceData(index=index, records=batch(b"a")) for index in indexes
        ]
        return request

    def receive_produced(self, version: int) -> produce.ProduceResponse:
        frame = self.client.receive()
        _, pos = parse_response_header(ApiKey.PRODUCE, version, frame)
        response, _ = decode(produce.ProduceResponse, version, frame, pos)
        return response


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with BrokerThread(tmp_path / "data") as broker, RawClient(broker.host, broker.port) as client:
        yield Scene(broker, client)


def fetched_hints(response: fetch.FetchResponse) -> Hints:
    return [
        (each.error_code, each.current_leader.leader_id, each.current_leader.leader_epoch)
        for topic in response.responses
        for each in topic.partitions
    ]


def produced_hints(response: produce.ProduceResponse) -> Hints:
    return [
        (each.error_code, each.current_leader.leader_id, each.current_leader.leader_epoch)
        for topic in response.responses
        for each in topic.partition_responses
    ]


def addresses(response: fetch.FetchResponse | produce.ProduceResponse) -> list[tuple[int, str, int]]:
    return sorted((each.node_id, each.host, each.port) for each in response.node_endpoints)


ALL_ADDRESSES = [(7, "host7", 9007), (8, "host8", 9008), (9, "host9", 9009)]


@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_a_fetch_is_told_all_leaders_with_their_addresses(scene: Scene, session_epoch: int) -> None:
    wanted = [fetch.FetchPartition(partition=index, current_leader_epoch=2) for index in (0, 1, 2)]
    topic = scene.topic.fetch_topic(16, *wanted)
    request = fetch.FetchRequest(session_epoch=session_epoch, topics=[topic])
    response = scene.client.ask(16, request, fetch.FetchResponse)
    fenced = ErrorCode.FENCED_LEADER_EPOCH
    assert fetched_hints(response) == [(fenced, 7, 3), (fenced, 8, 3), (NOT_LEADER, 9, 4)]
    assert addresses(response) == ALL_ADDRESSES


def test_a_fetch_of_an_unknown_partition_is_told_no_leader(scene: Scene) -> None:
    topic = scene.topic.fetch_topic(16, fetch.FetchPartition(partition=500))
    request = fetch.FetchRequest(session_epoch=-1, topics=[topic])
    response = scene.client.ask(16, request, fetch.FetchResponse)
    assert fetched_hints(response) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)]
    assert addresses(response) == []


@pytest.mark.parametrize("version", [10, 13])
def test_a_producer_is_told_all_leaders_with_their_addresses(scene: Scene, version: int) -> None:
    request = scene.produce_request(version, 0, 1, 2)
    response = scene.client.ask(version, request, produce.ProduceResponse)
    assert produced_hints(response) == [(NOT_LEADER, 7, 3), (NOT_LEADER, 8, 3), (NOT_LEADER, 9, 4)]
    assert addresses(response) == ALL_ADDRESSES


def test_so_is_the_producer_of_a_wide_request(scene: Scene) -> None:
    request = scene.produce_request(10, *range(300))
    response = scene.client.ask(10, request, produce.ProduceResponse)
    told = [(NOT_LEADER, 7, 3), (NOT_LEADER, 8, 3), *[(NOT_LEADER, 9, 4)] * 298]
    assert produced_hints(response) == told
    assert addresses(response) == ALL_ADDRESSES


@pytest.mark.parametrize("version", [10, 13])
def test_a_producer_that_waits_is_told_who_leads_from_now_on(scene: Scene, version: int) -> None:
    for index in (0, 1):
        scene.lead(index, -1)
    scene.client.send_request(ApiKey.PRODUCE, version, scene.produce_request(version, 0, 1))
    wait_until(
        lambda: scene.broker.call(
            lambda broker: all(broker.partitions.get("t", index)._waiters for index in (0, 1))
        )
    )
    scene.lead(0, 8)
    scene.give_away(1)
    response = scene.receive_produced(version)
    assert produced_hints(response) == [(NOT_LEADER, 8, 3), (NOT_LEADER, 9, 4)]
    assert addresses(response) == ALL_ADDRESSES[1:]
