"""Reading from the nearest replica (KIP-392): leaders send consumers to a follower in their rack, and it
serves them up to its own high watermark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import confluent_kafka
import pytest
from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.raw_client import RawClient

from tidelog import Admin, Consumer, NewTopic, Producer
from tidelog.broker.fetch.delayed_fetch import Fetch
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.metadata.image import PartitionImage
from tidelog.records.record_codec import ConsumerRecord
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

RACKS = {1: "a", 2: "b", 3: "c"}
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
WAIT_S = 60


class Served:
    """Which broker has sent how many records' bytes to consumers."""

    def __init__(self, cluster: ClusterThread, monkeypatch: pytest.MonkeyPatch) -> None:
        brokers = {id(broker.image): broker_id for broker_id, broker in cluster.brokers.items()}
        self.bytes: dict[int, int] = dict.fromkeys(RACKS, 0)
        respond = Fetch._respond

        def counted(fetch: Fetch, answers: dict) -> object:  # type: ignore[type-arg]
            if fetch._request.replica_id < 0:
                broker = brokers[id(fetch._services.image)]
                self.bytes[broker] += sum(getattr(each[7], "length", 0) for each in answers.values())
            return respond(fetch, answers)

        monkeypatch.setattr(Fetch, "_respond", counted)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    directory = tmp_path_factory.mktemp("racks")
    with ClusterThread(
        directory, 3, options={"replica.selector.class": SELECTOR}, each=lambda id: {"broker.rack": RACKS[id]}
    ) as running:
        yield running


@pytest.fixture
def topic(cluster: ClusterThread, topic_name: Callable[[], str]) -> str:
    """A topic that broker 1 leads, with ten records that all replicas have."""
    name = topic_name()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(name, assignments={0: [1, 2, 3]})])
    write(cluster, name, 10)
    return name


def write(cluster: ClusterThread, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
        for sent in [producer.send(topic, b"%d" % number, partition=0) for number in range(count)]:
            sent.result(timeout=WAIT_S)
    cluster.wait_for(
        lambda: {cluster.partition(each, topic).log.high_watermark for each in RACKS},
        lambda seen: len(seen) == 1,
    )


def test_our_consumer_reads_from_the_follower_in_its_rack(
    cluster: ClusterThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(cluster, monkeypatch)
    with Consumer(bootstrap_servers=cluster.bootstrap, client_rack="b") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning([TopicPartition(topic, 0)])
        values: list[bytes] = []
        while len(values) < 10:
            values += [record.value for record in consumer.poll(timeout=WAIT_S)]
        write(cluster, topic, 5)
        while len(values) < 15:
            values += [record.value for record in consumer.poll(timeout=WAIT_S)]
    assert values == [b"%d" % number for number in [*range(10), *range(5)]]
    assert served.bytes[2] > 0
    assert served.bytes[1] == served.bytes[3] == 0


def test_librdkafka_reads_from_the_follower_in_its_rack(
    cluster: ClusterThread, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(cluster, monkeypatch)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "client.rack": "c", "group.id": topic}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    while len(values) < 10:
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error() is None
        values.append(message.value())
    consumer.close()
    assert values == [b"%d" % number for number in range(10)]
    assert served.bytes[3] > 0
    assert served.bytes[1] == served.bytes[2] == 0


@pytest.mark.parametrize("rack", ["a", "elsewhere"])
def test_the_leader_serves_its_own_rack_and_racks_without_a_replica(
    cluster: ClusterThread, topic: str, monkeypatch: pytest.MonkeyPatch, rack: str
) -> None:
    served = Served(cluster, monkeypatch)
    with Consumer(bootstrap_servers=cluster.bootstrap, client_rack=rack) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning([TopicPartition(topic, 0)])
        read = 0
        while read < 10:
            read += len(consumer.poll(timeout=WAIT_S))
    assert served.bytes[1] > 0
    assert served.bytes[2] == served.bytes[3] == 0


def test_a_consumer_goes_on_with_the_leader_when_its_follower_is_gone(
    cluster: ClusterThread, topic: str
) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap, client_rack="b") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning([TopicPartition(topic, 0)])
        read = 0
        while read < 10:
            read += len(consumer.poll(timeout=WAIT_S))
        cluster.stop(2)
        try:
            with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
                producer.send(topic, b"more", partition=0).result(timeout=WAIT_S)
            records: list[ConsumerRecord] = []
            while not records:
                records = consumer.poll(timeout=WAIT_S)
            assert [record.value for record in records] == [b"more"]
        finally:
            cluster.start(2)


def test_a_follower_tells_no_offsets_and_refuses_ones_beyond_its_end(
    cluster: ClusterThread, topic: str
) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap, client_rack="b", auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek(TopicPartition(topic, 0), 1000)
        with pytest.raises(Exception, match=r"1000|OFFSET_OUT_OF_RANGE"):
            consumer.poll(timeout=WAIT_S)
    with RawClient("127.0.0.1", cluster.brokers[2].advertised[0].port) as client:
        answer = ask_offset(client, 5, topic, -1)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = ask_offset(client, 5, topic, -1, replica_id=-2)
        assert (answer.error_code, answer.offset) == (ErrorCode.NONE, 10)


def ask_offset(
    client: RawClient, version: int, topic: str, timestamp: int, replica_id: int = -1
) -> ListOffsetsPartitionResponse:
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=replica_id, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])]
    )
    return client.ask(version, request, ListOffsetsResponse).topics[0].partitions[0]


def test_a_new_leader_tells_no_end_before_its_high_watermark_is_where_its_epoch_began(
    cluster: ClusterThread, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: [1, 2, 3]})])
    cluster.leader_of(topic)
    for follower in (2, 3):
        loops = cluster.brokers[follower].cluster.loops
        cluster.call(lambda loops=loops: loops.stop(TopicPartition(topic, 0)))  # type: ignore[misc]
    with Producer(bootstrap_servers=cluster.bootstrap, acks=1, enable_idempotence=False) as producer:
        producer.send(topic, b"uncommitted", partition=0).result(timeout=WAIT_S)

    def lead_anew() -> None:
        image = cluster.brokers[1].image.topics[topic].partitions[0]
        cluster.partition(1, topic).apply(
            PartitionImage(
                replicas=image.replicas,
                leader=1,
                leader_epoch=image.leader_epoch + 1,
                isr=image.isr,
                state_version=image.state_version + 1,
            )
        )

    cluster.call(lead_anew)
    with RawClient("127.0.0.1", cluster.brokers[1].advertised[0].port) as client:
        codes = {
            (version, timestamp): ask_offset(client, version, topic, timestamp).error_code
            for version in (4, 5)
            for timestamp in (-1, -2, 0)
        }
    assert codes == {
        (4, -1): ErrorCode.LEADER_NOT_AVAILABLE,
        (4, -2): ErrorCode.NONE,
        (4, 0): ErrorCode.LEADER_NOT_AVAILABLE,
        (5, -1): ErrorCode.OFFSET_NOT_AVAILABLE,
        (5, -2): ErrorCode.NONE,
        (5, 0): ErrorCode.OFFSET_NOT_AVAILABLE,
    }
