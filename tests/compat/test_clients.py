"""Foreign clients, all through the same operations: what one writes it reads, what it asks it is told."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from foreign.broker_process import BrokerProcess
from tests.compat.clients import CLIENTS
from tests.compat.driver import Client, Driver, OperationFailed, b64

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NOW = int(time.time() * 1000)

Json = Any


def record(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamp: int = NOW,
) -> Json:
    pairs = [[name, b64(data)] for name, data in headers or []]
    return {"key": b64(key), "value": b64(value), "headers": pairs, "timestamp": timestamp}


def contents(records: list[Json]) -> list[Json]:
    return [{name: each[name] for name in ("key", "value", "headers", "timestamp")} for each in records]


def numbered(count: int, tag: str = "value") -> list[Json]:
    return [
        record(b"key-%d" % i, b"%s-%d " % (tag.encode(), i) * 20, timestamp=NOW + i) for i in range(count)
    ]


def create(driver: Driver, topic: str, partitions: int = 1, configs: dict[str, str] | None = None) -> None:
    """A new topic, ready for requests: Metadata may know it a moment before its leader does."""
    driver("create_topic", topic=topic, partitions=partitions, replication=1, configs=configs or {})
    deadline = time.monotonic() + 15
    while True:
        try:
            for partition in range(partitions):
                driver("position", topic=topic, partition=partition, at="latest")
            return
        except OperationFailed:
            if time.monotonic() > deadline:
                raise


def settled(call: Callable[[], Any], condition: Callable[[Any], bool]) -> Any:
    """What `call` returns once the condition holds: admin changes travel, in a cluster."""
    deadline = time.monotonic() + 15
    while True:
        result = call()
        if condition(result) or time.monotonic() > deadline:
            return result


@pytest.mark.needs("produce")
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("acks", "idempotent"), [("0", False), ("1", False), ("all", False), ("all", True)])
def test_records_come_back_as_they_were_written(
    driver: Driver, topic: str, codec: str, acks: str, idempotent: bool
) -> None:
    create(driver, topic)
    written = numbered(30)
    offsets = driver(
        "produce", topic=topic, partition=0, acks=acks, codec=codec, idempotent=idempotent, records=written
    )
    assert offsets == ([-1] * 30 if acks == "0" else list(range(30)))
    back = driver("consume", topic=topic, partition=0, offset="earliest", count=30)
    assert [each["offset"] for each in back] == list(range(30))
    assert contents(back) == written


@pytest.mark.needs("consume")
def test_a_consumer_may_start_in_the_middle_of_a_batch(driver: Driver, topic: str) -> None:
    create(driver, topic)
    written = numbered(50)
    driver("produce", topic=topic, partition=0, acks="all", codec="lz4", records=written)
    back = driver("consume", topic=topic, partition=0, offset=17, count=33)
    assert [each["offset"] for each in back] == list(range(17, 50))
    assert contents(back) == written[17:]


@pytest.mark.needs("consume")
def test_nothing_is_read_at_the_end_of_the_log(driver: Driver, topic: str) -> None:
    create(driver, topic)
    driver("produce", topic=topic, partition=0, acks="all", codec="none", records=numbered(3))
    assert driver("consume", topic=topic, partition=0, offset="latest", count=1, timeout_ms=1500) == []


@pytest.mark.needs("nulls")
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_null_and_empty_keys_and_values_stay_apart(driver: Driver, topic: str, codec: str) -> None:
    create(driver, topic)
    written = [record(None, b"v"), record(b"k", None), record(None, None), record(b"k", b"")]
    driver("produce", topic=topic, partition=0, acks="all", codec=codec, records=written)
    assert contents(driver("consume", topic=topic, partition=0, offset=0, count=4)) == written


@pytest.mark.needs("headers")
def test_headers_come_back_in_order(driver: Driver, topic: str) -> None:
    create(driver, topic)
    written = [record(b"k", b"v", [("zebra", b"1"), ("apple", b"\x00\xff"), ("ключ", b"")])]
    driver("produce", topic=topic, partition=0, acks="all", codec="none", records=written)
    assert contents(driver("consume", topic=topic, partition=0, offset=0, count=1)) == written


@pytest.mark.needs("odd_headers")
def test_headers_may_be_null_and_repeat_their_names(driver: Driver, topic: str) -> None:
    create(driver, topic)
    written = [record(b"k", b"v", [("same", b"1"), ("same", b"2"), ("none", None)])]
    driver("produce", topic=topic, partition=0, acks="all", codec="gzip", records=written)
    assert contents(driver("consume", topic=topic, partition=0, offset=0, count=1)) == written


@pytest.mark.needs("large")
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_a_record_of_one_megabyte_passes(driver: Driver, topic: str, codec: str) -> None:
    create(driver, topic, configs={"max.message.bytes": "2097152"})
    pattern = bytes(range(256)) * 4096
    written = [record(b"big", pattern), record(b"small", b"after")]
    driver("produce", topic=topic, partition=0, acks="all", codec=codec, records=written)
    assert contents(driver("consume", topic=topic, partition=0, offset=0, count=2)) == written


@pytest.mark.needs("large")
def test_a_batch_beyond_the_topics_limit_is_refused(driver: Driver, topic: str) -> None:
    create(driver, topic, configs={"max.message.bytes": "10000"})
    with pytest.raises(OperationFailed) as refused:
        driver(
            "produce",
            topic=topic,
            partition=0,
            acks="all",
            codec="none",
            records=[record(None, bytes(20_000))],
        )
    assert refused.value.name == "MESSAGE_TOO_LARGE"
    assert driver("position", topic=topic, partition=0, at="latest")["offset"] == 0


@pytest.mark.needs("timestamps")
def test_the_broker_stamps_records_where_the_topic_says_so(driver: Driver, topic: str) -> None:
    create(driver, topic, configs={"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    driver(
        "produce",
        topic=topic,
        partition=0,
        acks="all",
        codec="gzip",
        records=[record(None, b"v", timestamp=1)],
    )
    (back,) = driver("consume", topic=topic, partition=0, offset=0, count=1)
    assert before <= back["timestamp"] <= int(time.time() * 1000)
    assert back.get("timestamp_type", "LogAppendTime") == "LogAppendTime"


@pytest.mark.needs("position")
def test_offsets_are_found_at_the_ends_and_by_time(driver: Driver, topic: str) -> None:
    create(driver, topic)
    for batch in range(3):
        records = [record(None, b"v", timestamp=NOW + 1000 * batch + i) for i in range(10)]
        driver("produce", topic=topic, partition=0, acks="all", codec="none", records=records)

    def at(where: str | int) -> int:
        offset: int = driver("position", topic=topic, partition=0, at=where)["offset"]
        return offset

    assert at("earliest") == 0
    assert at("latest") == 30
    assert at(NOW - 5000) == 0
    assert at(NOW + 1000) == 10
    assert at(NOW + 1004) == 14
    assert at(NOW + 1500) == 20
    assert at(NOW + 9000) in (-1, 30)  # none; some clients turn that into the end


@pytest.mark.needs("max_timestamp")
def test_the_largest_timestamp_need_not_be_the_last(driver: Driver, topic: str) -> None:
    create(driver, topic)
    for codec, times in (("none", [10, 40, 20]), ("zstd", [60, 90, 30]), ("none", [5])):
        records = [record(None, b"v", timestamp=NOW + each) for each in times]
        driver("produce", topic=topic, partition=0, acks="all", codec=codec, records=records)
    found = driver("position", topic=topic, partition=0, at="max_timestamp")
    assert (found["offset"], found["timestamp"]) == (4, NOW + 90)


@pytest.mark.needs("stream")
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_thousands_of_records_keep_their_order_in_each_partition(
    driver: Driver, topic: str, codec: str
) -> None:
    create(driver, topic, partitions=4)
    outcome = driver(
        "stream", topic=topic, partitions=4, count=5000, size=300, acks="all", codec=codec, idempotent=True
    )
    assert outcome == {"received": 5000, "ordered": True}


@pytest.mark.needs("out_of_range")
def test_an_offset_beyond_the_end_is_out_of_range(driver: Driver, topic: str) -> None:
    create(driver, topic)
    driver("produce", topic=topic, partition=0, acks="all", codec="none", records=numbered(3))
    with pytest.raises(OperationFailed, match=r"(?i)out.of.range|OFFSET_OUT_OF_RANGE"):
        driver("consume", topic=topic, partition=0, offset=1000, count=1)


@pytest.mark.needs("topics")
def test_a_topic_lives_from_creation_to_deletion(driver: Driver, topic: str) -> None:
    create(driver, topic, partitions=3)
    described = driver("describe_topic", topic=topic)
    assert [each["index"] for each in described["partitions"]] == [0, 1, 2]
    assert all(each["replicas"] == each["isr"] == [each["leader"]] for each in described["partitions"])
    assert topic in driver("list_topics")
    with pytest.raises(OperationFailed) as refused:
        driver("create_topic", topic=topic, partitions=3, replication=1)
    assert refused.value.name == "TOPIC_ALREADY_EXISTS"
    driver("delete_topic", topic=topic)
    assert topic not in settled(lambda: driver("list_topics"), lambda names: topic not in names)
    with pytest.raises(OperationFailed) as unknown:
        driver("delete_topic", topic=topic)
    assert unknown.value.name == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.needs("topics")
@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic": "no/slashes"}, "INVALID_TOPIC_EXCEPTION"),
        ({"partitions": 0}, "INVALID_PARTITIONS"),
        ({"replication": 3}, "INVALID_REPLICATION_FACTOR"),
        ({"configs": {"retention.ms": "soon"}}, "INVALID_CONFIG"),
        ({"configs": {"no.such.option": "1"}}, "INVALID_CONFIG"),
    ],
)
def test_a_bad_topic_is_refused_with_kafkas_error(
    driver: Driver, topic: str, fields: Json, error: str
) -> None:
    with pytest.raises(OperationFailed) as refused:
        driver("create_topic", **{"topic": topic, "partitions": 1, "replication": 1, **fields})
    assert refused.value.name == error
    assert topic not in driver("list_topics")


@pytest.mark.needs("topic_id")
def test_a_topic_keeps_its_id(driver: Driver, topic: str) -> None:
    created = driver("create_topic", topic=topic, partitions=1, replication=1)
    described = settled(lambda: driver("describe_topic", topic=topic), lambda found: bool(found["topic_id"]))
    assert len(described["topic_id"]) == 22
    assert created.get("topic_id", described["topic_id"]) == described["topic_id"]


@pytest.mark.needs("validate_only")
def test_validation_creates_nothing(driver: Driver, topic: str) -> None:
    driver("create_topic", topic=topic, partitions=1, replication=1, validate_only=True)
    assert topic not in driver("list_topics")


@pytest.mark.needs("create_partitions")
def test_a_topic_grows_and_never_shrinks(driver: Driver, topic: str) -> None:
    create(driver, topic, partitions=2)
    driver("create_partitions", topic=topic, total=5)
    described = settled(
        lambda: driver("describe_topic", topic=topic), lambda found: len(found["partitions"]) == 5
    )
    assert len(described["partitions"]) == 5
    with pytest.raises(OperationFailed) as refused:
        driver("create_partitions", topic=topic, total=3)
    assert refused.value.name == "INVALID_PARTITIONS"


@pytest.mark.needs("describe_configs")
def test_topic_configs_name_their_source(driver: Driver, topic: str) -> None:
    create(driver, topic, configs={"retention.ms": "123456"})
    configs = driver("describe_configs", resource="topic", name=topic)
    assert configs["retention.ms"]["value"] == "123456"
    assert configs["retention.ms"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert configs["segment.bytes"]["value"] == "1073741824"
    assert configs["segment.bytes"]["source"] == "DEFAULT_CONFIG"
    assert configs["cleanup.policy"]["value"] == "delete"


@pytest.mark.needs("describe_configs")
def test_broker_configs_name_their_source(driver: Driver, broker: BrokerProcess) -> None:
    configs = driver("describe_configs", resource="broker", name=str(broker.node_id))
    assert configs["log.cleaner.backoff.ms"]["value"] == "200"
    assert configs["log.cleaner.backoff.ms"]["source"] == "STATIC_BROKER_CONFIG"
    assert configs["log.segment.bytes"]["source"] == "DEFAULT_CONFIG"


@pytest.mark.needs("alter_configs")
def test_topic_configs_are_set_extended_and_deleted(driver: Driver, topic: str) -> None:
    create(driver, topic)

    def change(expected: tuple[str, str], **fields: Json) -> None:
        driver("alter_configs", resource="topic", name=topic, **fields)
        configs = settled(
            lambda: driver("describe_configs", resource="topic", name=topic),
            lambda found: found[expected[0]]["value"] == expected[1],
        )
        assert configs[expected[0]]["value"] == expected[1]

    change(("retention.ms", "77777"), set={"retention.ms": "77777"})
    change(("cleanup.policy", "delete,compact"), append={"cleanup.policy": "compact"})
    change(("cleanup.policy", "compact"), subtract={"cleanup.policy": "delete"})
    change(("retention.ms", "604800000"), delete=["retention.ms"])
    with pytest.raises(OperationFailed) as refused:
        driver("alter_configs", resource="topic", name=topic, set={"retention.ms": "-7"})
    assert refused.value.name == "INVALID_CONFIG"
    with pytest.raises(OperationFailed) as unknown:
        driver("alter_configs", resource="topic", name="never-" + topic, set={"retention.ms": "1"})
    assert unknown.value.name == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.needs("replace_configs")
def test_the_older_alteration_replaces_all_configs(driver: Driver, topic: str) -> None:
    create(driver, topic, configs={"retention.ms": "123456"})
    driver("replace_configs", resource="topic", name=topic, set={"max.message.bytes": "5000"})
    configs = settled(
        lambda: driver("describe_configs", resource="topic", name=topic),
        lambda found: found["max.message.bytes"]["value"] == "5000",
    )
    assert configs["max.message.bytes"]["value"] == "5000"
    assert configs["retention.ms"]["value"] == "604800000"


@pytest.mark.needs("broker_configs")
def test_a_broker_config_changes_while_it_runs(driver: Driver, broker: BrokerProcess) -> None:
    def change(expected: str, source: str, **fields: Json) -> None:
        name = str(broker.node_id)
        driver("alter_configs", resource="broker", name=name, **fields)
        configs = settled(
            lambda: driver("describe_configs", resource="broker", name=name),
            lambda found: found["log.retention.ms"]["value"] == expected,
        )
        assert configs["log.retention.ms"]["value"] == expected
        assert configs["log.retention.ms"]["source"] == source

    change("86400000", "DYNAMIC_BROKER_CONFIG", set={"log.retention.ms": "86400000"})
    driver("alter_configs", resource="broker", name=str(broker.node_id), delete=["log.retention.ms"])


@pytest.mark.needs("delete_records")
def test_deleted_records_are_gone_and_the_log_starts_later(driver: Driver, topic: str) -> None:
    create(driver, topic)
    driver("produce", topic=topic, partition=0, acks="all", codec="none", records=numbered(20))
    deleted = driver("delete_records", topic=topic, partition=0, before=8)
    assert deleted.get("low_watermark", 8) == 8
    assert driver("position", topic=topic, partition=0, at="earliest")["offset"] == 8
    back = driver("consume", topic=topic, partition=0, offset="earliest", count=12)
    assert [each["offset"] for each in back] == list(range(8, 20))
    with pytest.raises(OperationFailed, match=r"(?i)out.of.range|OFFSET_OUT_OF_RANGE"):
        driver("consume", topic=topic, partition=0, offset=3, count=1)
    with pytest.raises(OperationFailed):  # kafkajs keeps the broker's error to itself
        driver("delete_records", topic=topic, partition=0, before=500)
    assert driver("position", topic=topic, partition=0, at="earliest")["offset"] == 8


@pytest.mark.needs("cluster")
def test_the_cluster_names_its_broker(driver: Driver, broker: BrokerProcess) -> None:
    cluster = driver("cluster")
    assert cluster["controller"] == broker.node_id
    (node,) = cluster["nodes"]
    assert node["id"] == broker.node_id
    assert node.get("address", f"{node.get('host')}:{node.get('port')}") == broker.address
    assert len(cluster.get("cluster_id", "x" * 22)) == 22


@pytest.mark.needs("features")
def test_features_are_listed(driver: Driver) -> None:
    features = driver("features")
    assert set(features["finalized"]) <= set(features["supported"])


@pytest.mark.needs("describe_log_dirs")
def test_log_directories_tell_sizes(driver: Driver, broker: BrokerProcess, topic: str) -> None:
    create(driver, topic)
    driver("produce", topic=topic, partition=0, acks="all", codec="none", records=numbered(20))
    (directory,) = driver("describe_log_dirs", broker=broker.node_id).values()
    assert directory["error"] is None
    replica = directory["replicas"][f"{topic}-0"]
    segment = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    assert replica == {"size": segment.stat().st_size, "lag": 0, "future": False}
    assert directory.get("total_bytes", 1) > 0


@pytest.mark.needs("describe_producers")
def test_an_idempotent_producer_leaves_its_state(driver: Driver, topic: str) -> None:
    create(driver, topic)
    driver("produce", topic=topic, partition=0, acks="all", codec="none", records=numbered(4))
    assert driver("describe_producers", topic=topic, partition=0) == []
    driver(
        "produce", topic=topic, partition=0, acks="all", codec="none", idempotent=True, records=numbered(4)
    )
    (state,) = driver("describe_producers", topic=topic, partition=0)
    assert (state["last_sequence"], state["transaction_start"]) == (3, -1)
    assert state["producer_id"] >= 0
    assert state["last_timestamp"] == NOW + 3


@pytest.mark.needs("elect_leaders")
def test_the_preferred_leader_needs_no_election(driver: Driver, topic: str) -> None:
    create(driver, topic)
    with pytest.raises(OperationFailed) as refused:
        driver("elect_leaders", topic=topic, partition=0)
    assert refused.value.name == "ELECTION_NOT_NEEDED"


@pytest.mark.needs("move_log_dir")
def test_a_partition_moves_only_to_a_directory_of_the_broker(
    driver: Driver, broker: BrokerProcess, topic: str
) -> None:
    create(driver, topic)
    here, nowhere = str(broker.data_dir), "/no/such/directory"
    driver("move_log_dir", topic=topic, partition=0, broker=broker.node_id, path=here)
    with pytest.raises(OperationFailed) as refused:
        driver("move_log_dir", topic=topic, partition=0, broker=broker.node_id, path=nowhere)
    assert refused.value.name == "LOG_DIR_NOT_FOUND"


@pytest.mark.needs("epoch_end")
def test_a_leader_epoch_ends_at_the_end_of_the_log(driver: Driver, topic: str) -> None:
    create(driver, topic)
    driver("produce", topic=topic, partition=0, acks="all", codec="none", records=numbered(6))
    assert driver("epoch_end", topic=topic, partition=0, epoch=0) == {"epoch": 0, "offset": 6}


@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_every_client_wrote(
    drivers: Callable[[Client], Driver], topic: str, codec: str
) -> None:
    everyone = [drivers(client) for client in CLIENTS]
    create(everyone[0], topic)
    written: list[Json] = []
    for driver in everyone:
        records = numbered(10, tag=driver.client.name)
        driver("produce", topic=topic, partition=0, acks="all", codec=codec, records=records)
        written += records
    for driver in everyone:
        back = driver("consume", topic=topic, partition=0, offset="earliest", count=len(written))
        assert contents(back) == written, driver.client.name
