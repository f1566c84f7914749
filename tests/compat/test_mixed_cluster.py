"""A Tidelog broker in one cluster with an Apache Kafka 3.9 broker, under either's controller.

Kafka has been there for a while: topics of all codecs, one that is compacted, one with transactions, one
that was trimmed. Tidelog joins, catches up, leads with Kafka behind it, serves clients, leaves and comes
back. What consumers read and what both have on disk is compared at every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat import workload
from tests.compat.conftest import available
from tests.compat.mixed_cluster import MixedCluster, Place
from tests.compat.replica_files import differences

from tidelog import Consumer
from tidelog.ids import TopicPartition

KAFKA, TIDELOG = 1, 2
RECORDS = 50


@pytest.fixture(params=["kafka", "kafka-2.8", "tidelog"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MixedCluster]:
    """Kafka with its history and Tidelog beside it; the parameter says which of them is the controller.

    With 2.8 Kafka speaks to brokers as that version did, as long as an upgrade to 3.9 is not ended.
    """
    controller, _, protocol = request.param.partition("-")
    with available(), MixedCluster(tmp_path) as cluster:
        kafka = cluster.kafka(KAFKA, {"inter.broker.protocol.version": protocol} if protocol else {})
        workload.write(kafka.address)
        cluster.tidelog(TIDELOG)
        if controller == "tidelog":
            cluster.stop(KAFKA)
            cluster.wait(lambda: cluster.controller == TIDELOG, "Tidelog is elected")
            kafka.start()
        assert cluster.controller == {"kafka": KAFKA, "tidelog": TIDELOG}[controller]
        yield cluster


def test_tidelog_joins_catches_up_leads_serves_leaves_and_comes_back(cluster: MixedCluster) -> None:
    kafka, tidelog = cluster.brokers[KAFKA], cluster.brokers[TIDELOG]
    before = workload.read(kafka.address)
    everything = cluster.places()
    places = [place for place in everything if not place[0].startswith("__")]
    assert set(before) == set(places)
    assert ("__transaction_state", 0) in everything

    # Every partition gets a replica on Tidelog, which is to lead every other one.
    turns = {place: [[KAFKA, TIDELOG], [TIDELOG, KAFKA]][index % 2] for index, place in enumerate(everything)}
    cluster.reassign(turns)
    cluster.wait_all_in_sync()
    ours = [place for place, replicas in turns.items() if replicas[0] == TIDELOG]
    cluster.elect([place for place in ours if cluster.state(place).leader != TIDELOG])
    cluster.wait_led_by(TIDELOG, ours)
    assert workload.read(tidelog.address) == before
    assert workload.read(tidelog.address, isolation="read_uncommitted") == workload.read(
        kafka.address, isolation="read_uncommitted"
    )

    # Clients write to both; every record has a replica on the other.
    produce_everywhere(cluster, places, b"mixed")
    assert read_with_our_client(cluster, places) == {place: [b"mixed"] * RECORDS for place in places}
    wait_same_files(cluster, everything)

    # Tidelog leaves in good order: everything has a leader at once.
    after = workload.read(cluster.bootstrap)
    cluster.stop(TIDELOG)
    assert {cluster.state(place).leader for place in everything} == {KAFKA}
    assert workload.read(kafka.address) == after
    produce_everywhere(cluster, places, b"alone")

    # And comes back with what it had, to catch up.
    tidelog.start()
    cluster.wait_all_in_sync()
    cluster.elect(ours)
    cluster.wait_led_by(TIDELOG, ours)
    # So does Kafka, behind Tidelog.
    cluster.stop(KAFKA)
    assert {cluster.state(place).leader for place in everything} == {TIDELOG}
    produce_everywhere(cluster, places, b"alone")
    kafka.start()
    cluster.wait_all_in_sync()
    last = workload.read(tidelog.address)
    assert {place: records[: len(after[place])] for place, records in plainly(last).items()} == plainly(after)
    wait_same_files(cluster, everything)


def plain(places: list[Place]) -> list[Place]:
    """Without the compacted topics: each broker compacts its own replica when it likes."""
    return [place for place in places if place[0] not in (workload.COMPACTED, "__transaction_state")]


def plainly(contents: workload.Contents) -> workload.Contents:
    return {place: contents[place] for place in plain(list(contents))}


def produce_everywhere(cluster: MixedCluster, places: list[Place], value: bytes) -> None:
    producer = workload.open_producer(
        cluster.bootstrap, **{"enable.idempotence": True, "compression.codec": "lz4"}
    )
    for topic, index in places:
        for number in range(RECORDS):
            producer.produce(topic, value, key=b"%d" % number, partition=index)
    workload.flush_all(producer)


def read_with_our_client(cluster: MixedCluster, places: list[Place]) -> dict[Place, list[bytes | None]]:
    """The values of the last 50 records of partitions."""
    found: dict[Place, list[bytes | None]] = {place: [] for place in places}
    with Consumer(bootstrap_servers=cluster.bootstrap, enable_auto_commit=False) as consumer:
        names = [TopicPartition(*place) for place in places]
        consumer.assign(names)
        for name, end in consumer.end_offsets(names).items():
            consumer.seek(name, max(end - RECORDS, 0))
        for record in consumer.records(timeout=workload.TIMEOUT_S):
            found[record.topic, record.partition].append(record.value)
            if all(len(each) == RECORDS for each in found.values()):
                break
    return found


def wait_same_files(cluster: MixedCluster, places: list[Place]) -> None:
    """Wait until both have the same bytes: followers are a little behind."""
    kafka, tidelog = cluster.brokers[KAFKA].data_dir, cluster.brokers[TIDELOG].data_dir
    cluster.wait(
        lambda: not differences(kafka, tidelog, plain(places)),
        "the replicas have the same files",
        explain=lambda: differences(kafka, tidelog, plain(places)),
    )
