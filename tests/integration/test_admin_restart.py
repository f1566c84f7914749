"""What was acknowledged to an admin client is there after a restart, also after one without a goodbye."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from tidelog.testing.broker_process import BrokerProcess


def _values(admin: KafkaAdminClient, kind: ConfigResourceType, name: str) -> dict[str, str]:
    described = admin.describe_configs([ConfigResource(kind, name)], config_filter="all")
    ((configs,),) = (each.values() for each in described.values())
    return {option: entry["value"] for option, entry in configs.items()}


def _topics(admin: KafkaAdminClient) -> dict[str, tuple[str, int]]:
    return {topic["name"]: (topic["topic_id"], len(topic["partitions"])) for topic in admin.describe_topics()}


@pytest.mark.parametrize("goodbye", [True, False], ids=["stop", "kill"])
def test_a_restart_keeps_topics_partitions_configs_and_log_starts(tmp_path: Path, goodbye: bool) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics({"kept": {"num_partitions": 2}, "gone": {"num_partitions": 3}, "again": {}})
        admin.create_partitions({"kept": 4})
        admin.alter_configs(
            [
                ConfigResource(ConfigResourceType.TOPIC, "kept", {"retention.ms": "86400001"}),
                ConfigResource(ConfigResourceType.BROKER, "1", {"message.max.bytes": "2000000"}),
            ]
        )
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for _ in range(10):
            producer.send("kept", b"value", partition=3)
        producer.send("again", b"value", partition=0)
        producer.close()
        admin.delete_topics(["gone", "again"])
        admin.create_topics(["again"])
        if goodbye:
            admin.delete_records({TopicPartition("kept", 3): 4})
        before = _topics(admin)
        cluster_id = admin.describe_cluster()["cluster_id"]
        admin.close()
        if not goodbye:
            broker.kill()
        broker.restart()

        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        assert _topics(admin) == before
        assert before.keys() == {"kept", "again"}
        assert before["kept"][1] == 4
        assert admin.describe_cluster()["cluster_id"] == cluster_id
        topic = _values(admin, ConfigResourceType.TOPIC, "kept")
        assert (topic["retention.ms"], topic["max.message.bytes"]) == ("86400001", "2000000")
        assert _offsets(admin, "kept", 3) == (4 if goodbye else 0, 10)
        assert _offsets(admin, "again", 0) == (0, 0)
        admin.close()


def _offsets(admin: KafkaAdminClient, topic: str, index: int) -> tuple[int, int]:
    partition = TopicPartition(topic, index)

    def offset(spec: int) -> Any:
        return admin.list_partition_offsets({partition: spec})[partition].offset

    return offset(-2), offset(-1)


def test_a_directory_without_our_metadata_is_served_from_what_lies_in_it(tmp_path: Path) -> None:
    """As if Apache Kafka had written it: partitions are there, the store is not."""
    data = tmp_path / "data"
    with BrokerProcess(data) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        admin.create_topics({"orders": {"num_partitions": 3}})
        topic_id = _topics(admin)["orders"][0]
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
        for n in range(5):
            producer.send("orders", str(n).encode(), partition=2)
        producer.close()
        admin.close()
        broker.stop()
        for path in data.glob("tidelog-metadata.*"):
            path.unlink()
        broker.start()

        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
        assert _topics(admin) == {"orders": (topic_id, 3)}
        admin.close()
        consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("orders", 2)])
        values: list[bytes] = []
        while len(values) < 5:
            polled = consumer.poll(timeout_ms=20_000)
            assert polled, "records that were on disk were not served"
            values += [record.value for records in polled.values() for record in records]
        consumer.close()
        assert values == [b"0", b"1", b"2", b"3", b"4"]
