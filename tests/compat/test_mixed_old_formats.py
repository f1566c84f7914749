"""Apache Kafka 3.9 that still writes message formats 0 and 1, and Tidelog beside it, behind it and before it.

With an inter-broker protocol below 3.0, Kafka 3.9 heeds `log.message.format.version`: it turns what clients
send into the old format before it is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat import workload
from tests.compat.conftest import available
from tests.compat.mixed_cluster import KAFKA, TIDELOG, MixedCluster, Place
from tests.compat.replica_files import batches

from tidelog.records.batch import iter_batches

CODECS = ("none", "gzip", "snappy", "lz4")
PLACES: list[Place] = [(f"old-{codec}", 0) for codec in CODECS]
RECORDS = 300
SMALL = {"segment.bytes": str(48 << 10), "index.interval.bytes": "512"}


@pytest.fixture(params=[("0.9.0", 0), ("0.10.2", 1)], ids=["format-0", "format-1"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MixedCluster]:
    """Kafka with old records, and Tidelog that has just joined."""
    version, magic = request.param
    old = {"inter.broker.protocol.version": "2.8", "log.message.format.version": version}
    with available(), MixedCluster(tmp_path) as cluster:
        kafka = cluster.kafka(KAFKA, old)
        admin = AdminClient({"bootstrap.servers": kafka.address})
        topics = [NewTopic(topic, 1, 1, config=SMALL) for topic, _ in PLACES]
        for done in admin.create_topics(topics).values():
            done.result(workload.TIMEOUT_S)
        produce(kafka.address, b"old")
        assert formats(kafka.data_dir) == {magic}
        cluster.tidelog(TIDELOG)
        yield cluster


def produce(address: str, value: bytes) -> None:
    for topic, index in PLACES:
        codec = topic.removeprefix("old-")
        # As the old format has them, batches must not be larger than a segment.
        settings = {"compression.codec": codec, "batch.num.messages": 30}
        producer = workload.open_producer(address, **settings)
        for number in range(RECORDS):
            producer.produce(topic, value * 20, key=b"%d" % number, partition=index)
        workload.flush_all(producer)


def formats(data_dir: Path) -> set[int]:
    """The magics of everything that is stored of the topics."""
    logs = [path for topic, index in PLACES for path in (data_dir / f"{topic}-{index}").glob("*.log")]
    return {header.magic for path in logs for _, header in iter_batches(path.read_bytes())}


def wait_same_files(cluster: MixedCluster) -> None:
    """Wait for the same bytes; Kafka 3.9 keeps no leader epochs of topics in an old format."""

    def different() -> list[Place]:
        one, other = (cluster.brokers[each].data_dir for each in (KAFKA, TIDELOG))
        return [
            place
            for place in PLACES
            if batches(one / "{}-{}".format(*place)) != batches(other / "{}-{}".format(*place))
        ]

    cluster.wait(lambda: not different(), "both have the same files", different)


def test_tidelog_follows_leads_and_recovers_logs_that_kafka_wrote_in_an_old_format(
    cluster: MixedCluster,
) -> None:
    kafka, tidelog = cluster.brokers[KAFKA], cluster.brokers[TIDELOG]
    old = formats(kafka.data_dir)

    # Behind Kafka: what is there, and what is still written in the old format.
    cluster.reassign({place: [KAFKA, TIDELOG] for place in PLACES})
    cluster.wait_in_sync([TIDELOG], PLACES)
    produce(kafka.address, b"still old")
    wait_same_files(cluster)
    assert formats(tidelog.data_dir) == old
    before = workload.read(kafka.address, PLACES)
    assert {place: len(records) for place, records in before.items()} == dict.fromkeys(PLACES, 2 * RECORDS)

    # Alone, after a crash, with every segment checked.
    cluster.stop(KAFKA)
    cluster.wait_led_by(TIDELOG, PLACES)
    assert workload.read(tidelog.address, PLACES) == before
    tidelog.kill()
    tidelog.start()
    cluster.wait_led_by(TIDELOG, PLACES)
    assert workload.read(tidelog.address, PLACES) == before

    # Before Kafka: batches of format 2 follow.
    produce(tidelog.address, b"new")
    assert formats(tidelog.data_dir) == old | {2}
    kafka.start()
    cluster.wait_all_in_sync(PLACES)
    wait_same_files(cluster)
    after = workload.read(tidelog.address, PLACES)
    assert {place: records[: 2 * RECORDS] for place, records in after.items()} == before
    cluster.lead(KAFKA, PLACES)
    assert workload.read(kafka.address, PLACES) == after
