"""The data source in a Spark session: found by its name, typed, batch and streaming, restarted, observed."""

from __future__ import annotations

import builtins
import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import col, sum
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from tests.integration.spark_topics import fill, options, without_ids

from tidelog.ids import TopicPartition
from tidelog.spark.pipelines.session import STATE_STORE
from tidelog.spark.read.progress import bytes_read, source_metrics
from tidelog.spark.read.shared_source import VARIABLES, share_source, source_environment
from tidelog.testing.broker import LocalBroker
from tidelog.testing.broker import broker as start_broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
DEADLINE_S = 90

KAFKA_SCHEMA = (
    "key BINARY,value BINARY,topic STRING,partition INT,offset BIGINT,timestamp TIMESTAMP,timestampType INT"
)


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with start_broker() as running:
        yield running


@pytest.fixture
def topic(broker: LocalBroker) -> str:
    return broker.create_topic(partitions=2)


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., StreamingQuery]]:
    """Starts queries that collect values, all with the same checkpoint; what is left running is stopped."""
    queries: list[StreamingQuery] = []

    def run(frame: DataFrame, into: list[bytes], *, available_now: bool = True) -> StreamingQuery:
        def take(batch: DataFrame, number: int) -> None:
            into.extend(bytes(row.value) for row in batch.select("value").collect())

        writer = frame.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).foreachBatch(
            take
        )
        if not available_now:
            queries.append(writer.trigger(processingTime="50 milliseconds").start())
            return queries[-1]
        query = writer.trigger(availableNow=True).start()
        queries.append(query)
        assert query.awaitTermination(DEADLINE_S), "the query has not come to its end"
        return query

    yield run
    for query in queries:
        query.stop()


def wait_until(query: StreamingQuery, holds: Callable[[], bool]) -> None:
    """Let a query work until something holds."""
    ended = False
    deadline = datetime.datetime.now() + datetime.timedelta(seconds=DEADLINE_S)
    while not holds():
        assert not ended, f"the query has ended: {query.exception()}"
        assert datetime.datetime.now() < deadline, "what was waited for has not happened"
        ended = bool(query.awaitTermination(cast("int", 0.05)))  # fractions of seconds are taken as well


def test_a_batch_has_the_columns_and_rows_of_the_topic(
    spark: SparkSession, broker: LocalBroker, topic: str
) -> None:
    fill(broker.bootstrap_servers, topic, [b"a", None], key=b"k", timestamp_ms=1_500_000_000_123)
    fill(broker.bootstrap_servers, topic, [b"b"], partition=1, headers=[("h", b"1")])
    frame = (
        spark.read.format("tidelog").options(**options(broker, subscribe=topic, includeHeaders="true")).load()
    )
    header = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    assert (
        frame.schema.simpleString()
        == spark.createDataFrame([], f"{KAFKA_SCHEMA},{header}").schema.simpleString()
    )
    rows = frame.orderBy("partition", "offset").collect()
    assert [(row.key, row.value, row.topic, row.partition, row.offset) for row in rows] == [
        (b"k", b"a", topic, 0, 0),
        (b"k", None, topic, 0, 1),
        (None, b"b", topic, 1, 0),
    ]
    stamps = frame.select(col("timestamp").cast("double").alias("s")).where("partition = 0").collect()
    assert [row.s for row in stamps] == [1_500_000_000.123] * 2
    headers = [row.headers and [(each.key, bytes(each.value)) for each in row.headers] for row in rows]
    assert headers == [None, None, [("h", b"1")]]


def test_a_large_topic_is_read_whole(spark: SparkSession, broker: LocalBroker) -> None:
    topic = broker.create_topic(partitions=5)
    for number in range(5):
        values = [b"%d" % each for each in range(20_000)]
        fill(broker.bootstrap_servers, topic, values, partition=number, compression_type="lz4")
    frame = spark.read.format("tidelog").options(**options(broker, subscribe=topic)).load()
    total = sum(col("value").cast("string").cast("long"))
    assert frame.agg(total).collect()[0][0] == 5 * 20_000 * 19_999 // 2
    assert frame.select("partition", "offset").distinct().count() == 100_000
    assert frame.rdd.getNumPartitions() <= 8


def test_json_values_are_columns_by_ddl(spark: SparkSession, broker: LocalBroker, topic: str) -> None:
    fill(broker.bootstrap_servers, topic, [b'{"id": 5, "price": 1.25, "inner": {"x": [1, 2]}}', b"not json"])
    schema = "id BIGINT, price DECIMAL(10,2), inner STRUCT<x: ARRAY<INT>>"
    given = options(broker, subscribe=topic, valueFormat="json", valueSchema=schema)
    frame = spark.read.format("tidelog").options(**given).load()
    rows = (
        frame.orderBy("offset")
        .selectExpr("value.id", "value.price", "value.inner.x", "corruptValue")
        .collect()
    )
    assert (rows[0].id, str(rows[0].price), rows[0].x, rows[0].corruptValue) == (5, "1.25", [1, 2], None)
    assert (rows[1].id, bytes(rows[1].corruptValue)) == (None, b"not json")


def test_wrong_options_are_refused_before_a_query_starts(spark: SparkSession, broker: LocalBroker) -> None:
    with pytest.raises(PySparkException) as error:
        spark.read.format("tidelog").options(
            **options(broker, subscribe="a", startingOffset="earliest")
        ).load()
    assert "did you mean startingOffsets?" in str(error.value)
    with pytest.raises(PySparkException) as error:
        spark.readStream.format("tidelog").options(**options(broker)).load()
    assert "set one of the options subscribe, subscribePattern and assign" in str(error.value)


def test_a_query_restarted_from_its_checkpoint_reads_everything_once(
    spark: SparkSession, broker: LocalBroker, topic: str, run: Callable[..., StreamingQuery]
) -> None:
    given = options(broker, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=60)
    stream = spark.readStream.format("tidelog").options(**given).load()
    wanted: list[bytes] = []
    found: list[bytes] = []
    for run_number in range(2):
        values = [b"%d/%03d" % (run_number, each) for each in range(100)]
        fill(broker.bootstrap_servers, topic, values, partition=run_number % 2)
        wanted += values
        query = run(stream, found)
        assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [
            60,
            40,
        ]
    assert sorted(found) == sorted(wanted)
    offsets = max((query_dir(query) / "offsets").glob("[0-9]*"), key=lambda each: int(each.name))
    assert without_ids(json.loads(offsets.read_text().splitlines()[-1])) == {topic: {"0": 100, "1": 100}}


def query_dir(query: StreamingQuery) -> Path:
    """Where a query keeps its checkpoint."""
    location = query._jsq.streamingQuery().resolvedCheckpointRoot()
    return Path(location.removeprefix("file:"))


def test_what_queries_share_is_there_before_any_of_them_starts(
    spark: SparkSession, broker: LocalBroker, topic: str, run: Callable[..., StreamingQuery]
) -> None:
    fill(broker.bootstrap_servers, topic, [b"one"])
    share_source(spark)
    given = options(broker, subscribe=topic, startingOffsets="earliest")
    found: list[bytes] = []
    run(spark.readStream.format("tidelog").options(**given).load(), found)
    assert found == [b"one"]
    # Another name would be put in by queries that start side by side, and may spoil the map for all.
    assert set(source_environment(spark).keySet()) == {"PYTHONPATH", *VARIABLES}


def test_a_running_query_shows_its_backlog_picks_up_partitions_and_commits_to_its_group(
    spark: SparkSession, broker: LocalBroker, topic: str, run: Callable[..., StreamingQuery]
) -> None:
    given = options(broker, subscribe=topic, startingOffsets="earliest", commitGroup=f"g-{topic}")
    stream = spark.readStream.format("tidelog").options(**given, maxOffsetsPerTrigger="3").load()
    found: list[bytes] = []
    fill(broker.bootstrap_servers, topic, [b"%d" % each for each in range(10)])
    query = run(stream, found, available_now=False)
    wait_until(query, lambda: len(found) == 10)
    for result in broker.admin.create_partitions({topic: 3}):
        result.raise_for_error()
    fill(broker.bootstrap_servers, topic, [b"new"], partition=2)
    wait_until(query, lambda: b"new" in found)
    progress = [each.sources[0] for each in query.recentProgress if each.sources[0].numInputRows]
    assert json.loads(progress[0].latestOffset) == {topic: {"0": 10, "1": 0}}
    assert without_ids(json.loads(progress[0].endOffset)) == {topic: {"0": 3, "1": 0}}
    (first, *_) = (source_metrics(each) for each in query.recentProgress if each.numInputRows)
    assert first[0].rows == 3
    assert first[0].as_dict() == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "7",
        "avgOffsetsBehindLatest": "3.5",
    }

    def committed() -> dict[int, int]:
        found = broker.admin.list_group_offsets([f"g-{topic}"])[f"g-{topic}"]
        return {each.partition.partition: each.offset for each in found.offsets.values()}

    wait_until(query, lambda: committed() == {0: 10, 1: 0, 2: 1})
    assert sorted(found) == sorted([b"%d" % each for each in range(10)] + [b"new"])


JSON_VALUES = {
    "valueFormat": "json",
    "valueSchema": "id BIGINT, price DECIMAL(10,2), inner STRUCT<x: ARRAY<INT>, m: MAP<STRING, STRING>>",
}


@pytest.mark.parametrize("values", [{}, {"valueFormat": "string"}, JSON_VALUES])
def test_the_rows_of_a_small_micro_batch_are_those_of_a_batch_however_often_they_are_read(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path, values: dict[str, str]
) -> None:
    fill(
        broker.bootstrap_servers,
        topic,
        [b'{"id": 5, "price": 1.25, "inner": {"x": [1, null], "m": {"k": "v"}}}', b"not json", None],
        headers=[("h", b"1"), ("h", None)],
        key=b"k",
    )
    fill(broker.bootstrap_servers, topic, [b'{"id": null}'], partition=1)
    given = options(broker, subscribe=topic, includeHeaders="true", **values)
    expected = spark.read.format("tidelog").options(**given).load().orderBy("partition", "offset").collect()
    seen: list[list[Row]] = []

    def take(batch: DataFrame, number: int) -> None:
        ordered = batch.orderBy("partition", "offset")
        seen.extend((ordered.collect(), ordered.collect()))

    stream = spark.readStream.format("tidelog").options(**given, startingOffsets="earliest").load()
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(DEADLINE_S), "the query has not come to its end"
    assert seen == [expected, expected]
    if "valueSchema" in values:
        assert bytes_read(query) > 0, "tasks have read it"


def test_a_query_survives_a_broker_that_is_killed(
    spark: SparkSession, tmp_path: Path, run: Callable[..., StreamingQuery]
) -> None:
    with start_broker(topics={"t": 2}) as broker:
        given = options(broker, subscribe="t", startingOffsets="earliest")
        found: list[bytes] = []
        fill(broker.bootstrap_servers, "t", [b"1"])
        query = run(spark.readStream.format("tidelog").options(**given).load(), found, available_now=False)
        wait_until(query, lambda: found == [b"1"])
        broker.kill()
        broker.restart()
        fill(broker.bootstrap_servers, "t", [b"2"], partition=1)
        wait_until(query, lambda: found == [b"1", b"2"])
        query.stop()


def test_lost_records_fail_a_query_with_their_number(
    spark: SparkSession, broker: LocalBroker, topic: str, run: Callable[..., StreamingQuery]
) -> None:
    fill(broker.bootstrap_servers, topic, [b"%d" % each for each in range(10)])
    broker.admin.delete_records({TopicPartition(topic, 0): 7})
    starts = f'{{"{topic}":{{"0":2,"1":0}}}}'
    given = options(broker, subscribe=topic, startingOffsets=starts)
    with pytest.raises(PySparkException, match="5 offsets of"):
        run(spark.readStream.format("tidelog").options(**given).load(), [])


class CountRows(StatefulProcessor):
    """Counts the rows of each key."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._count = handle.getValueState("count", "count BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        known = self._count.get() if self._count.exists() else None
        total = (known[0] if known else 0) + builtins.sum(1 for _ in rows)
        self._count.update((total,))
        yield Row(key=key[0], total=total)

    def close(self) -> None:
        pass


def test_state_in_python_has_what_it_needs(
    spark: SparkSession, broker: LocalBroker, topic: str, tmp_path: Path
) -> None:
    fill(broker.bootstrap_servers, topic, [b"a"] * 3, key=b"k")
    given = options(broker, subscribe=topic, startingOffsets="earliest", valueFormat="string")
    keyed = spark.readStream.format("tidelog").options(**given).load().groupBy("value")
    counted = keyed.transformWithState(CountRows(), "key STRING, total BIGINT", "update", "none")
    found: list[Row] = []
    provider = "spark.sql.streaming.stateStore.providerClass"
    spark.conf.set(provider, STATE_STORE)
    try:
        writer = counted.writeStream.outputMode("update").foreachBatch(
            lambda batch, _: found.extend(batch.collect())
        )
        query = (
            writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(DEADLINE_S), "the query has not come to its end"
    finally:
        spark.conf.unset(provider)
    assert [(row.key, row.total) for row in found] == [("a", 3)]
