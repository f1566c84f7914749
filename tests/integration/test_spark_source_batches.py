"""Batch reading with a real broker, called as Spark calls it: columns, places in the log, transactions."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType
from tests.integration.spark_topics import Stream, fill, options, read_batch, schema_of

from tidelog.client._offsets import list_offsets
from tidelog.client._ranges import range_fetcher
from tidelog.client._ranges.fetch_link import link_for
from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.client.errors import (
    BrokerUnreachableError,
    ClientError,
    ConnectionLostError,
    RequestTimeoutError,
)
from tidelog.client.producer.producer import Producer
from tidelog.errors import ConfigError, KafkaError
from tidelog.ids import TopicPartition
from tidelog.spark.read import _offset_reader as offset_reader
from tidelog.spark.read._batch_reader import TidelogReader
from tidelog.spark.read._data_loss import DataLossError
from tidelog.spark.read._offset_reader import OffsetReader
from tidelog.spark.read._range_reader import read_ranges
from tidelog.spark.read._source_options import source_options
from tidelog.spark.read.packed_headers import unpacked
from tidelog.spark.runtime.silence import NoBrokerError
from tidelog.spark.write._write_task import write_at_least_once
from tidelog.spark.write.epoch_task import write_exactly_once
from tidelog.spark.write.write_message import WriteName
from tidelog.spark.write.write_options import write_options
from tidelog.testing.broker import LocalBroker
from tidelog.testing.broker import broker as start_broker

TopicName = Callable[[], str]


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with start_broker() as running:
        yield running


@pytest.fixture
def topic(broker: LocalBroker) -> str:
    return broker.create_topic(partitions=3)


def values(table: pa.Table) -> list[bytes | None]:
    return sorted(table.column("value").to_pylist(), key=lambda value: value or b"")


def numbered(count: int, prefix: bytes = b"") -> list[bytes]:
    return [prefix + b"%05d" % number for number in range(count)]


def test_rows_have_the_columns_of_sparks_kafka_connector(broker: LocalBroker, topic: str) -> None:
    fill(broker.bootstrap_servers, topic, [b"v"], partition=1, key=b"k", timestamp_ms=1_500_000_000_123)
    given = options(broker, subscribe=topic)
    table = read_batch(given)
    assert table.schema.equals(to_arrow_schema(schema_of(given), timezone="UTC"))
    assert table.to_pylist() == [
        {
            "key": b"k",
            "value": b"v",
            "topic": topic,
            "partition": 1,
            "offset": 0,
            "timestamp": datetime.datetime.fromtimestamp(1_500_000_000.123, datetime.UTC),
            "timestampType": 0,
        }
    ]


def test_headers_may_be_bytes(broker: LocalBroker, topic: str) -> None:
    fill(broker.bootstrap_servers, topic, [b"1"], headers=[("a", b"x"), ("a", None)])
    fill(broker.bootstrap_servers, topic, [b"2"])
    given = options(broker, subscribe=topic, includeHeaders="true", headersFormat="packed")
    table = read_batch(given)
    assert table.schema.equals(to_arrow_schema(schema_of(given), timezone="UTC"))
    headers = dict(zip(table.column("value").to_pylist(), table.column("headers").to_pylist(), strict=True))
    assert unpacked(headers[b"1"]) == [("a", b"x"), ("a", None)]
    assert headers[b"2"] is None


def test_headers_come_where_they_are_asked_for(broker: LocalBroker, topic: str) -> None:
    fill(broker.bootstrap_servers, topic, [b"1"], headers=[("a", b"x"), ("a", None)])
    fill(broker.bootstrap_servers, topic, [b"2"])
    given = options(broker, subscribe=topic, includeHeaders="true")
    table = read_batch(given)
    assert table.schema.equals(to_arrow_schema(schema_of(given), timezone="UTC"))
    headers = dict(zip(table.column("value").to_pylist(), table.column("headers").to_pylist(), strict=True))
    assert headers == {b"1": [{"key": "a", "value": b"x"}, {"key": "a", "value": None}], b"2": None}


def test_nulls_and_empty_values_are_told_apart(broker: LocalBroker, topic: str) -> None:
    fill(broker.bootstrap_servers, topic, [None, b"", b"x"])
    table = read_batch(options(broker, subscribe=topic))
    assert table.column("value").to_pylist() == [None, b"", b"x"]
    assert table.column("key").to_pylist() == [None] * 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(broker: LocalBroker, topic: str, codec: str) -> None:
    wanted = numbered(2000, b"x" * 50)
    fill(broker.bootstrap_servers, topic, wanted, compression_type=codec)
    assert read_batch(options(broker, subscribe=topic)).column("value").to_pylist() == wanted


def test_times_of_the_broker_have_their_own_type(broker: LocalBroker) -> None:
    topic = broker.create_topic(configs={"message.timestamp.type": "LogAppendTime"})
    fill(broker.bootstrap_servers, topic, [b"v"], timestamp_ms=1000)
    (row,) = read_batch(options(broker, subscribe=topic)).to_pylist()
    assert row["timestampType"] == 1
    assert row["timestamp"].year > 2000


def test_values_can_be_strings(broker: LocalBroker, topic: str) -> None:
    fill(broker.bootstrap_servers, topic, ["größer".encode(), None])
    given = options(broker, subscribe=topic, valueFormat="string")
    table = read_batch(given)
    assert table.schema.equals(to_arrow_schema(schema_of(given), timezone="UTC"))
    assert table.column("value").to_pylist() == ["größer", None]


JSON_SCHEMA = (
    '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}},'
    '{"name":"tags","type":{"type":"array","elementType":"string","containsNull":true},"nullable":true,'
    '"metadata":{}},{"name":"at","type":"timestamp","nullable":true,"metadata":{}}]}'
)


def test_values_can_be_json_and_what_is_not_keeps_its_bytes(broker: LocalBroker, topic: str) -> None:
    good = b'{"id": 7, "tags": ["a", null], "at": "2024-05-06T07:08:09Z", "more": 1}'
    bad = [b"{", b'{"id": "7"}', b'{"id": 3000000000}', b"\xff"]
    fill(broker.bootstrap_servers, topic, [good, b"{}", None, *bad])
    given = options(broker, subscribe=topic, valueFormat="json", valueSchema=JSON_SCHEMA)
    table = read_batch(given)
    assert table.schema.equals(to_arrow_schema(schema_of(given), timezone="UTC"))
    at = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
    empty = {"id": None, "tags": None, "at": None}
    wanted = [{"id": 7, "tags": ["a", None], "at": at}, empty, None, *[None] * 4]
    assert table.column("value").to_pylist() == wanted
    assert table.column("corruptValue").to_pylist() == [None, None, None, *bad]


# What is read


def test_several_topics_are_read(broker: LocalBroker) -> None:
    first, second = broker.create_topic(), broker.create_topic()
    fill(broker.bootstrap_servers, first, [b"1"])
    fill(broker.bootstrap_servers, second, [b"2"])
    assert values(read_batch(options(broker, subscribe=f"{first},{second}"))) == [b"1", b"2"]


def test_a_pattern_takes_topics_whose_whole_name_matches(broker: LocalBroker) -> None:
    for name in ("log-a", "log-b", "my-log-a"):
        broker.create_topic(name)
        fill(broker.bootstrap_servers, name, [name.encode()])
    assert values(read_batch(options(broker, subscribePattern="log-."))) == [b"log-a", b"log-b"]


def test_columns_of_the_jobs_own_are_refused(broker: LocalBroker, topic: str) -> None:
    with pytest.raises(ConfigError, match=r"leave schema\(\) out"):
        TidelogReader(options(broker, subscribe=topic), StructType([StructField("value", StringType())]))


def test_assigned_partitions_alone_are_read(broker: LocalBroker, topic: str) -> None:
    for number in range(3):
        fill(broker.bootstrap_servers, topic, [b"%d" % number], partition=number)
    assert values(read_batch(options(broker, assign=f'{{"{topic}":[0,2]}}'))) == [b"0", b"2"]


def test_a_topic_that_does_not_exist_is_named(broker: LocalBroker) -> None:
    with pytest.raises(KafkaError, match="'nothing' does not exist"):
        read_batch(options(broker, subscribe="nothing", **{"fetchOffset.numRetries": 0}))


def test_an_assigned_partition_that_does_not_exist_is_named(broker: LocalBroker, topic: str) -> None:
    with pytest.raises(ConfigError, match=f"{topic}-7, which does not exist"):
        read_batch(options(broker, assign=f'{{"{topic}":[7]}}'))


# From where to where


def test_offsets_bound_a_batch(broker: LocalBroker, topic: str) -> None:
    for number in range(3):
        fill(broker.bootstrap_servers, topic, numbered(10, b"%d/" % number), partition=number)
    starts = f'{{"{topic}":{{"0":8,"1":-2,"2":4}}}}'
    ends = f'{{"{topic}":{{"0":-1,"1":2,"2":6}}}}'
    table = read_batch(options(broker, subscribe=topic, startingOffsets=starts, endingOffsets=ends))
    assert values(table) == [
        b"0/00008", b"0/00009", b"1/00000", b"1/00001", b"2/00004", b"2/00005",
    ]  # fmt: skip


def test_every_partition_needs_a_place(broker: LocalBroker, topic: str) -> None:
    with pytest.raises(ConfigError, match=f"startingOffsets names no place for {topic}-1"):
        read_batch(options(broker, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":8}}}}'))


def test_a_place_for_a_partition_that_is_not_read_is_refused(broker: LocalBroker, topic: str) -> None:
    starts = f'{{"{topic}":{{"0":0,"1":0,"2":0,"3":0}}}}'
    with pytest.raises(ConfigError, match=f"names {topic}-3, which is not among"):
        read_batch(options(broker, subscribe=topic, startingOffsets=starts))


@pytest.fixture
def timed(broker: LocalBroker) -> str:
    """A topic with a record each second from 1,000 s on."""
    topic = broker.create_topic(partitions=2)
    for number in range(10):
        stamp = (1000 + number) * 1000
        fill(broker.bootstrap_servers, topic, [b"%d" % number], timestamp_ms=stamp, partition=number % 2)
    return topic


def test_timestamps_bound_a_batch(broker: LocalBroker, timed: str) -> None:
    table = read_batch(
        options(broker, subscribe=timed, startingTimestamp=1_003_000, endingTimestamp=1_007_000)
    )
    assert values(table) == [b"3", b"4", b"5", b"6"]


def test_timestamps_can_differ_between_partitions(broker: LocalBroker, timed: str) -> None:
    starts = f'{{"{timed}":{{"0":1004000,"1":1009000}}}}'
    ends = f'{{"{timed}":{{"0":1006000,"1":99000000}}}}'
    given = {"startingOffsetsByTimestamp": starts, "endingOffsetsByTimestamp": ends}
    assert values(read_batch(options(broker, subscribe=timed, **given))) == [b"4", b"9"]


def test_a_starting_timestamp_without_a_match_is_an_error_or_the_end(broker: LocalBroker, timed: str) -> None:
    given = options(broker, subscribe=timed, startingTimestamp=1_009_000)
    with pytest.raises(ConfigError, match=f"no record of {timed}-0 is as young"):
        read_batch(given)
    assert values(read_batch({**given, "startingOffsetsByTimestampStrategy": "latest"})) == [b"9"]


def test_an_empty_topic_gives_an_empty_batch(broker: LocalBroker, topic: str) -> None:
    assert read_batch(options(broker, subscribe=topic)).num_rows == 0


def test_a_start_behind_the_end_of_the_log_is_refused(broker: LocalBroker, topic: str) -> None:
    starts = f'{{"{topic}":{{"0":5,"1":0,"2":0}}}}'
    with pytest.raises(ConfigError, match="from offset 5 to 0"):
        read_batch(options(broker, subscribe=topic, startingOffsets=starts))


# Tasks


def test_many_partitions_are_read_by_few_tasks(broker: LocalBroker) -> None:
    topic = broker.create_topic(partitions=40)
    for number in range(40):
        fill(broker.bootstrap_servers, topic, numbered(3, b"%02d/" % number), partition=number)
    given = options(broker, subscribe=topic)
    assert len(TidelogReader(given, schema_of(given)).partitions()) == 1
    table = read_batch(given)
    assert values(table) == sorted(b"%02d/%05d" % (number, each) for number in range(40) for each in range(3))


@pytest.mark.parametrize(
    ("name", "number", "tasks"), [("minPartitions", 7, 7), ("maxRecordsPerPartition", 300, 4)]
)
def test_a_partition_is_split_where_that_is_asked_for(
    broker: LocalBroker, topic: str, name: str, number: int, tasks: int
) -> None:
    wanted = numbered(1000)
    fill(broker.bootstrap_servers, topic, wanted)
    given = options(broker, subscribe=topic, **{name: number})
    assert len(TidelogReader(given, schema_of(given)).partitions()) == tasks
    assert values(read_batch(given)) == wanted


def test_large_and_many_batches_are_read_in_order(broker: LocalBroker, topic: str) -> None:
    wanted = numbered(30_000, b"y" * 700)
    fill(broker.bootstrap_servers, topic, wanted, linger_ms=5)
    small = {"kafka.fetch.max.bytes": "300000", "kafka.max.partition.fetch.bytes": "100000"}
    table = read_batch({**options(broker, subscribe=topic), **small})
    assert table.column("value").to_pylist() == wanted
    assert table.column("offset").to_pylist() == list(range(30_000))


# Transactions, compaction, data loss


def write_transactions(broker: LocalBroker, topic: str) -> None:
    """Committed and aborted transactions in turn, and one that stays open."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(6):
            producer.begin_transaction()
            for part in range(3):
                producer.send(topic, b"%d/%d" % (number, part), partition=0)
            producer.flush()
            producer.abort_transaction() if number % 2 else producer.commit_transaction()
    fill(broker.bootstrap_servers, topic, [b"plain"])


def test_readers_of_committed_records_see_no_aborted_ones(broker: LocalBroker, topic: str) -> None:
    write_transactions(broker, topic)
    everything = [b"%d/%d" % (number, part) for number in range(6) for part in range(3)]
    assert values(read_batch(options(broker, subscribe=topic))) == [*everything, b"plain"]
    committed = [each for each in everything if each[0] in b"024"]
    given = options(broker, subscribe=topic, kafka_isolation_level="read_committed")
    assert values(read_batch(given)) == [*committed, b"plain"]
    assert values(read_batch({**given, "minPartitions": "9"})) == [*committed, b"plain"]


def test_readers_of_committed_records_stop_before_an_open_transaction(
    broker: LocalBroker, topic: str
) -> None:
    fill(broker.bootstrap_servers, topic, [b"before"])
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0)
        producer.flush()
        fill(broker.bootstrap_servers, topic, [b"behind"])
        given = options(broker, subscribe=topic, kafka_isolation_level="read_committed")
        assert values(read_batch(given)) == [b"before"]
        producer.commit_transaction()
    assert values(read_batch(given)) == [b"before", b"behind", b"open"]


def test_a_compacted_log_is_read_over_its_gaps() -> None:
    cleaning = {"log.cleaner.backoff.ms": 50, "log.initial.task.delay.ms": 0}
    configs = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01"}
    with start_broker(options=cleaning) as broker:
        topic = broker.create_topic(configs=configs)
        for number in range(60):
            for key in (b"a", b"b"):
                fill(broker.bootstrap_servers, topic, [b"%s%d" % (key, number) + bytes(20_000)], key=key)
        given = options(broker, subscribe=topic, minPartitions=3)
        deadline = time.monotonic() + 30
        while (table := read_batch(given)).num_rows > 70 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert table.num_rows <= 70, "the log was not compacted"
        found = table.column("offset").to_pylist()
        assert found == sorted(set(found))
        assert found[-1] == 119
        assert {b"a59", b"b59"} <= {value.rstrip(bytes(1)) for value in table.column("value").to_pylist()}


def lose_records(broker: LocalBroker, topic: str) -> dict[str, str]:
    """A topic of ten records, the first four of which are gone, and options that ask for all of them."""
    fill(broker.bootstrap_servers, topic, numbered(10))
    for result in broker.admin.delete_records({TopicPartition(topic, 0): 4}).values():
        result.raise_for_error()
    starts = f'{{"{topic}":{{"0":1,"1":-2,"2":-2}}}}'
    return options(broker, subscribe=topic, startingOffsets=starts)


def test_records_that_are_gone_fail_the_query_with_their_number(broker: LocalBroker, topic: str) -> None:
    given = lose_records(broker, topic)
    with pytest.raises(
        DataLossError, match=f"3 offsets of {topic}-0, from 1 on, are gone: the log begins at 4"
    ):
        read_batch(given)


def test_a_query_that_may_lose_records_goes_on_behind_them(
    broker: LocalBroker, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = lose_records(broker, topic)
    assert values(read_batch({**given, "failOnDataLoss": "false"})) == numbered(10)[4:]
    assert f"3 offsets of {topic}-0, from 1 on, are gone" in caplog.text


@pytest.mark.parametrize("silence", [BrokerUnreachableError, ConnectionLostError, RequestTimeoutError])
def test_what_one_partition_has_brought_is_kept_where_nobody_says_what_another_has_lost(
    broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch, silence: type[ClientError]
) -> None:
    given = {**lose_records(broker, topic), "failOnDataLoss": "false"}
    fill(broker.bootstrap_servers, topic, numbered(5, b"kept"), partition=1)
    silent = [silence("nobody answers")]

    async def listed(*args: Any, **more: Any) -> Any:
        if silent:
            raise silent.pop()
        return await list_offsets(*args, **more)

    monkeypatch.setattr(range_fetcher, "list_offsets", listed)
    ranges = [OffsetRange(topic, 1, 0, 5), OffsetRange(topic, 0, 1, 10)]
    found = list(read_ranges(ranges, source_options(given, streaming=False), schema_of(given)))
    assert not silent
    assert values(pa.Table.from_batches(found)) == sorted([*numbered(10)[4:], *numbered(5, b"kept")])


def test_a_range_that_is_gone_altogether_is_counted_to_its_end(broker: LocalBroker, topic: str) -> None:
    given = lose_records(broker, topic)
    ends = f'{{"{topic}":{{"0":3,"1":-1,"2":-1}}}}'
    with pytest.raises(DataLossError, match="2 offsets of"):
        read_batch({**given, "endingOffsets": ends})


@pytest.fixture
def remade(broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Deletes the topic and makes it again, with more records than the old one had."""
    monkeypatch.setattr(range_fetcher, "_GONE_AFTER_MS", 50)

    def remake() -> None:
        broker.admin.delete_topics([topic])
        broker.create_topic(topic, partitions=3)
        fill(broker.bootstrap_servers, topic, numbered(20, b"new"))

    return remake


def test_a_topic_made_anew_after_the_batch_was_planned_is_not_read_for_the_old_one(
    broker: LocalBroker, topic: str, remade: Callable[[], None]
) -> None:
    fill(broker.bootstrap_servers, topic, numbered(10))
    given = options(broker, subscribe=topic)
    reader = TidelogReader(given, schema_of(given))
    (task,) = reader.partitions()
    remade()
    with pytest.raises(DataLossError, match=r"10 offsets .* the topic was deleted and made anew; set failOn"):
        list(reader.read(task))


def test_offsets_that_were_copied_with_their_topics_id_are_held_against_it(
    broker: LocalBroker, topic: str, remade: Callable[[], None]
) -> None:
    fill(broker.bootstrap_servers, topic, numbered(10))
    stream = Stream(options(broker, subscribe=topic))
    stream.close()
    given = options(broker, subscribe=topic, startingOffsets=json.dumps(stream.start))
    fill(broker.bootstrap_servers, topic, [b"after"])
    assert values(read_batch(given)) == [b"after"]
    remade()
    with pytest.raises(
        ConfigError, match=f"startingOffsets has offsets of a topic '{topic}' that was deleted"
    ):
        read_batch(given)


# Executors and brokers


def test_a_job_without_any_broker_fails_with_the_options_that_mend_it(broker: LocalBroker) -> None:
    with start_broker() as gone:
        given = {**options(gone, subscribe="t"), "brokerTimeoutMs": "300"}
    with pytest.raises(NoBrokerError, match=r"answered for 0\.3 s .* kafka\.bootstrap\.servers=127"):
        read_batch(given)


def test_a_task_whose_brokers_are_all_gone_does_not_wait_as_for_a_leader() -> None:
    with start_broker(topics={"t": 1}) as broker:
        fill(broker.bootstrap_servers, "t", numbered(10))
        given = {**options(broker, subscribe="t"), "brokerTimeoutMs": "300"}
        reader = TidelogReader(given, schema_of(given))
        (task,) = reader.partitions()
        broker.kill()
        with pytest.raises(NoBrokerError, match="no broker has answered"):
            list(reader.read(task))


def test_a_leader_that_is_away_is_waited_for_while_other_brokers_answer(
    broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker.bootstrap_servers, topic, numbered(3))
    answer, silent = OffsetReader._list_once, [RequestTimeoutError("the leader is away")]

    def listed(reader: OffsetReader, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        if silent:
            raise silent.pop()
        return answer(reader, specs)

    monkeypatch.setattr(OffsetReader, "_list_once", listed)
    assert values(read_batch(options(broker, subscribe=topic))) == numbered(3)
    assert not silent


@pytest.fixture
def overlooked(monkeypatch: pytest.MonkeyPatch) -> list[TopicPartition]:
    """Partitions that brokers do not know when they are asked for offsets, each as often as it is in it."""
    answer, unknown = OffsetReader._list_once, list[TopicPartition]()

    def listed(reader: OffsetReader, specs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = answer(reader, specs)
        for each in list(found):
            if each in unknown:
                unknown.remove(each)
                del found[each]
        return found

    monkeypatch.setattr(OffsetReader, "_list_once", listed)
    return unknown


@pytest.mark.parametrize("starts", ["earliest", "json", "time"])
def test_a_partition_that_a_broker_does_not_know_at_first_is_read(
    broker: LocalBroker, topic: str, overlooked: list[TopicPartition], starts: str
) -> None:
    for partition in range(3):
        fill(broker.bootstrap_servers, topic, numbered(3), partition=partition)
    begin = {
        "earliest": {"startingOffsets": "earliest"},
        "json": {"startingOffsets": f'{{"{topic}":{{"0":-2,"1":-2,"2":-2}}}}'},
        "time": {"startingTimestamp": "1"},
    }[starts]
    overlooked += [TopicPartition(topic, 1), TopicPartition(topic, 2), TopicPartition(topic, 1)]
    assert values(read_batch(options(broker, subscribe=topic, **begin))) == sorted(numbered(3) * 3)
    assert not overlooked


@pytest.mark.parametrize("starts", ["earliest", "json", "time"])
def test_a_partition_that_stays_unknown_while_a_batch_is_planned_is_data_loss(
    broker: LocalBroker,
    topic: str,
    overlooked: list[TopicPartition],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    starts: str,
) -> None:
    monkeypatch.setattr(offset_reader, "_GONE_AFTER_MS", 0)
    for partition in range(2):
        fill(broker.bootstrap_servers, topic, numbered(3), partition=partition)
    begin = {
        "earliest": {"startingOffsets": "earliest"},
        "json": {"startingOffsets": f'{{"{topic}":{{"0":-2,"1":-2,"2":-2}}}}'},
        "time": {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "latest"},
    }[starts]
    given = options(broker, subscribe=topic, **begin)
    overlooked += [TopicPartition(topic, 1)]
    with pytest.raises(DataLossError, match=f"partition {topic}-1 was deleted while the batch was planned"):
        read_batch(given)
    overlooked += [TopicPartition(topic, 1)]
    assert values(read_batch({**given, "failOnDataLoss": "false"})) == numbered(3)
    assert f"partition {topic}-1 was deleted" in caplog.text


def test_the_end_of_a_micro_batch_has_a_partition_that_a_broker_does_not_know_at_first(
    broker: LocalBroker, topic: str, overlooked: list[TopicPartition]
) -> None:
    with Stream(options(broker, subscribe=topic, startingOffsets="earliest")) as stream:
        fill(broker.bootstrap_servers, topic, numbered(3), partition=1)
        overlooked += [TopicPartition(topic, 1)] * 2
        assert stream.step() == numbered(3)
        assert not overlooked


@pytest.mark.parametrize("more", [{}, {"txnAppId": "a", "txnVersion": "1"}])
def test_a_sink_without_any_broker_says_so(more: dict[str, str]) -> None:
    with start_broker() as gone:
        raw = {**options(gone, topic="t"), "brokerTimeoutMs": "300", **more}
    given = write_options(raw, streaming=False)
    name = WriteName("a", 1, "run", 0, streaming=False)
    with pytest.raises(NoBrokerError, match="no broker has answered"):
        write_exactly_once([], given, name) if more else write_at_least_once([], given)


def test_a_task_goes_on_when_its_broker_is_killed_and_comes_back() -> None:
    wanted = numbered(20_000, b"z" * 200)
    with start_broker(topics={"t": 1}) as broker:
        fill(broker.bootstrap_servers, "t", wanted, acks="all")
        small = {"kafka.fetch.max.bytes": "200000", "kafka.max.partition.fetch.bytes": "200000"}
        given = {**options(broker, subscribe="t"), **small}
        reader = TidelogReader(given, schema_of(given))
        (task,) = reader.partitions()
        batches = reader.read(task)
        found = next(batches).column("value").to_pylist()
        assert len(found) < len(wanted)
        broker.kill()
        broker.restart()
        for batch in batches:
            found += batch.column("value").to_pylist()
    assert found == wanted


def test_a_short_range_of_a_long_log_is_not_paid_for_with_the_whole_log(
    broker: LocalBroker, topic: str
) -> None:
    fill(broker.bootstrap_servers, topic, numbered(40_000, b"w" * 500))
    ends = f'{{"{topic}":{{"0":3,"1":-1,"2":-1}}}}'
    given = options(broker, subscribe=topic, groupIdPrefix=topic)
    for _ in range(5):
        read_batch({**given, "endingOffsets": ends})
    link = link_for(source_options(given).client_for("executor"))
    before = link.cluster.metrics.snapshot()["incoming-byte-total"]
    assert read_batch({**given, "endingOffsets": ends}).num_rows == 3
    assert link.cluster.metrics.snapshot()["incoming-byte-total"] - before < 300_000
