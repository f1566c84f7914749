"""Spark's own Kafka connector against Tidelog, and the same jobs with `format("tidelog")`: equal results.

One Spark session has both data sources; a job changes nothing but its format's name. The broker is Tidelog.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from foreign import toolchain
from tests.compat.conftest import available
from tests.integration.pipeline_traffic import ledger_rows, table_rows
from tests.integration.spark_topics import without_ids

from tidelog import Consumer, Producer
from tidelog.spark.pipelines import registry
from tidelog.spark.pipelines.session import spark_session
from tidelog.spark.read.progress import source_metrics
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks import open_lake
from tidelog.spark.write.topic_batches import topic_batches
from tidelog.testing import LocalBroker
from tidelog.testing import broker as local_broker
from tidelog_rewards import events
from tidelog_rewards.jobs.collect.schema import table_of
from tidelog_rewards.phones.phone_keys import FILE_NAME, ensure_keys
from tidelog_rewards.settings import PhoneSettings, RewardsSettings
from tidelog_rewards.topics import ensure_topics

FORMATS = ("kafka", "tidelog")
BASE_MS = 1_700_000_000_000

Options = Mapping[str, str]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with available():
        toolchain.program("java")
        jars = sorted(Path(toolchain.classpath("spark-kafka")).parent.glob("*.jar"))
    options = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    session = spark_session("compat", master="local[2]", options=options)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def running() -> Iterator[LocalBroker]:
    with local_broker() as server:
        yield server


@pytest.fixture(scope="module")
def rows(running: LocalBroker) -> str:
    """A topic with everything that a record may have, over three partitions."""
    topic = running.create_topic("rows", partitions=3)
    with Producer(bootstrap_servers=running.bootstrap_servers, compression_type="lz4") as producer:
        for number in range(600):
            producer.send(
                topic,
                None if number % 50 == 0 else b"value %d" % number,
                key=None if number % 7 == 0 else b"key %d" % (number % 20),
                partition=number % 3,
                timestamp_ms=BASE_MS + number * 1000,
                headers=[("number", b"%d" % number), ("number", None)] if number % 2 else [],
            )
        producer.flush()
    return topic


def read(spark: Any, name: str, running: LocalBroker, options: Options) -> Any:
    reader = spark.read.format(name).option("kafka.bootstrap.servers", running.bootstrap_servers)
    return reader.options(**options).load()


def read_stream(spark: Any, name: str, running: LocalBroker, options: Options) -> Any:
    reader = spark.readStream.format(name).option("kafka.bootstrap.servers", running.bootstrap_servers)
    return reader.options(**options).load()


def in_order(frame: Any) -> list[Any]:
    return list(frame.orderBy("topic", "partition", "offset").collect())


def records(running: LocalBroker, topic: str) -> list[list[tuple[Any, ...]]]:
    """What a topic holds, by partition."""
    with Consumer(
        bootstrap_servers=running.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        partitions = [(topic, each.partition) for each in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        found: list[list[tuple[Any, ...]]] = [[] for _ in partitions]
        for record in consumer.records(timeout=3):
            headers = [tuple(each) for each in record.headers]
            found[record.partition].append((record.key, record.value, headers))
    return found


BOUNDS = {"0": 20, "1": 0, "2": 150}


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "rows"},
        {"subscribe": "rows", "includeHeaders": "true"},
        {"subscribePattern": "ro.s", "startingOffsets": "earliest", "endingOffsets": "latest"},
        {"assign": '{"rows": [0, 2]}', "includeHeaders": "true"},
        {
            "subscribe": "rows",
            "startingOffsets": json.dumps({"rows": BOUNDS}),
            "endingOffsets": json.dumps({"rows": {"0": 50, "1": 60, "2": -1}}),
        },
        {
            "subscribe": "rows",
            "startingTimestamp": str(BASE_MS + 100_500),
            "endingTimestamp": str(BASE_MS + 400_000),
        },
        {
            "subscribe": "rows",
            "startingOffsetsByTimestamp": json.dumps(
                {"rows": {"0": BASE_MS, "1": BASE_MS + 200_000, "2": BASE_MS + 300_000}}
            ),
        },
        {"subscribe": "rows", "minPartitions": "7"},
    ],
    ids=lambda options: "+".join(sorted(options)),
)
def test_a_batch_reads_the_same_rows(spark: Any, running: LocalBroker, rows: str, options: Options) -> None:
    theirs, ours = (read(spark, name, running, options) for name in FORMATS)
    assert [(field.name, field.dataType) for field in theirs.schema] == [
        (field.name, field.dataType) for field in ours.schema
    ]
    expected = in_order(theirs)
    assert len(expected) > 0
    assert in_order(ours) == expected


def test_a_batch_writes_the_same_records(spark: Any, running: LocalBroker) -> None:
    frame = spark.range(500).selectExpr(
        "if(id % 9 = 0, null, concat('k', id % 40)) as key",
        "concat('v', id) as value",
        "if(id % 3 = 0, array(named_struct('key', 'h', 'value', cast('x' as binary))), null) as headers",
    )
    keyed = frame.where("key is not null").coalesce(1)
    found = {}
    for name in FORMATS:
        topic = running.create_topic(partitions=4)
        writer = keyed.write.format(name).option("kafka.bootstrap.servers", running.bootstrap_servers)
        writer.option("topic", topic).option("includeHeaders", "true").mode("append").save()
        found[name] = records(running, topic)
    assert sum(map(len, found["kafka"])) == 444
    assert found["tidelog"] == found["kafka"]


def test_topic_and_partition_columns_say_where_a_row_goes(spark: Any, running: LocalBroker) -> None:
    found = {}
    for name in FORMATS:
        topics = [running.create_topic(partitions=3) for _ in range(2)]
        frame = spark.range(60).selectExpr(
            f"if(id % 2 = 0, '{topics[0]}', '{topics[1]}') as topic",
            "cast(id % 3 as int) as partition",
            "cast(id as string) as value",
        )
        writer = frame.coalesce(1).write.format(name)
        writer.option("kafka.bootstrap.servers", running.bootstrap_servers).mode("append").save()
        found[name] = [records(running, topic) for topic in topics]
    assert [len(partition) for partition in found["kafka"][0]] == [10, 10, 10]
    assert found["tidelog"] == found["kafka"]


def test_a_stream_reads_the_same_rows_in_the_same_micro_batches(
    spark: Any, running: LocalBroker, rows: str, tmp_path: Path
) -> None:
    options = {"subscribe": rows, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "150"}
    progress, seen, behind = {}, {}, {}
    for name in FORMATS:
        frame = read_stream(spark, name, running, {**options, "includeHeaders": "true"})
        writer = frame.writeStream.format("memory").queryName(f"seen_{name}")
        writer = writer.option("checkpointLocation", str(tmp_path / name))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
        batches = [each for each in query.recentProgress if each["numInputRows"]]
        progress[name] = [
            (each["numInputRows"], without_ids(json.loads(each["sources"][0]["endOffset"])))
            for each in batches
        ]
        # What the one reports by itself is computed for the other.
        behind[name] = [
            dict(each["sources"][0]["metrics"]) if name == "kafka" else source_metrics(each)[0].as_dict()
            for each in batches
        ]
        seen[name] = in_order(spark.table(f"seen_{name}"))
    assert [rows for rows, _ in progress["kafka"]] == [150, 150, 150, 150]
    assert progress["tidelog"] == progress["kafka"]
    assert seen["tidelog"] == seen["kafka"]
    assert behind["tidelog"] == behind["kafka"]


def copy(
    spark: Any, name: str, running: LocalBroker, source: str, target: str, checkpoint: Path, **extra: str
) -> int:
    """One run of a job that copies a topic; gives the number of rows that it read."""
    options = {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": "true"}
    frame = read_stream(spark, name, running, options).select("key", "value", "headers", "partition")
    writer = frame.writeStream.format(name)
    writer = writer.option("kafka.bootstrap.servers", running.bootstrap_servers)
    writer = writer.options(topic=target, checkpointLocation=str(checkpoint), **extra)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(120)
    assert query.exception() is None
    return sum(each["numInputRows"] for each in query.recentProgress)


def test_a_stream_writes_the_same_records(
    spark: Any, running: LocalBroker, rows: str, tmp_path: Path
) -> None:
    found = {}
    for name in FORMATS:
        topic = running.create_topic(partitions=3)
        assert copy(spark, name, running, rows, topic, tmp_path / name) == 600
        found[name] = records(running, topic)
    assert sum(map(len, found["kafka"])) == 600
    assert found["tidelog"] == found["kafka"]


@pytest.mark.parametrize(("first", "second"), [FORMATS, FORMATS[::-1]])
def test_a_job_goes_on_from_the_checkpoint_of_the_other_data_source(
    spark: Any, running: LocalBroker, tmp_path: Path, first: str, second: str
) -> None:
    source = running.create_topic(partitions=2)
    with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        for name, numbers in ((first, range(100)), (second, range(100, 130))):
            for number in numbers:
                producer.send(source, b"%d" % number, partition=number % 2)
            producer.flush()
            options = {"subscribe": source, "startingOffsets": "earliest"}
            frame = read_stream(spark, name, running, options).select("value", "partition")
            seen: list[int] = []

            def take(batch: Any, _: int, seen: list[int] = seen) -> None:
                seen += [int(row.value) for row in batch.collect()]

            writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "job"))
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination(120)
            assert sorted(seen) == list(numbers), name


@pytest.mark.parametrize("mode", ["complete", "update"])
def test_aggregates_are_written_alike(spark: Any, running: LocalBroker, tmp_path: Path, mode: str) -> None:
    # One partition: how a limit is shared out among several is each connector's own affair.
    source = running.create_topic(partitions=1)
    with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        for number in range(600):
            producer.send(source, b"", key=None if number % 7 == 0 else b"key %d" % (number % 20))
    found = {}
    for name in FORMATS:
        topic = running.create_topic(partitions=1)
        options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "250"}
        counts = read_stream(spark, name, running, options).groupBy("key").count()
        frame = counts.selectExpr("key", "cast(count AS string) value")
        target = {"kafka.bootstrap.servers": running.bootstrap_servers, "topic": topic}
        writer = frame.writeStream.outputMode(mode).option("checkpointLocation", str(tmp_path / name))
        if name == "tidelog" and mode == "update":
            writer = writer.foreachBatch(topic_batches(target))
        else:
            writer = writer.format(name).options(**target)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination(120)
        assert query.exception() is None
        found[name] = sorted(records(running, topic)[0], key=repr)
    assert found["kafka"]
    assert found["tidelog"] == found["kafka"]


def test_a_sink_takes_over_a_checkpoint_of_the_other_only_when_told_to(
    spark: Any, running: LocalBroker, tmp_path: Path
) -> None:
    source, target = running.create_topic(partitions=2), running.create_topic(partitions=2)
    checkpoint = tmp_path / "job"

    def send(numbers: range) -> None:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            for number in numbers:
                producer.send(source, b"%d" % number, partition=number % 2)

    send(range(100))
    assert copy(spark, "kafka", running, source, target, checkpoint) == 100
    send(range(100, 130))
    with pytest.raises(Exception, match="failOnMissingEpoch"):
        copy(spark, "tidelog", running, source, target, checkpoint)
    copy(spark, "tidelog", running, source, target, checkpoint, failOnMissingEpoch="false")
    send(range(130, 140))
    copy(spark, "tidelog", running, source, target, checkpoint)
    written = [int(value) for partition in records(running, target) for _, value, _ in partition]
    assert sorted(written) == list(range(140))


def pipelines_once(spark: Any, name: str, directory: Path) -> dict[str, Counter[Any]]:
    """Run all pipelines over the same generated events on a broker of their own; what came out."""
    keys = directory / FILE_NAME
    ensure_keys(keys)  # the same for both: tokens and seals are made of them
    with local_broker() as server:
        settings = PipelineSettings(
            bootstrap_servers=server.bootstrap_servers,
            directory=directory / name,
            trigger="available-now",
            format=name,
            extensions=(RewardsSettings(PhoneSettings(keys=keys)),),
        )
        ensure_topics(settings, partitions=2)
        generate = (
            "events",
            "generate",
            "--fast",
            "--quiet",
            "--count",
            "6000",
            "--seed",
            "3",
            "--rate",
            "200",
        )
        command = [sys.executable, "-m", "tidelog", *generate, "--start", "2026-01-05T10:00:00Z"]
        subprocess.run([*command, "-b", server.bootstrap_servers], check=True, timeout=120)
        for pipeline in registry.installed():
            query = registry.load(pipeline).start(spark, settings)
            query.awaitTermination(240)
            assert query.exception() is None, pipeline
        found: dict[str, Counter[Any]] = {}
        for topic in events.OUTPUTS:
            told = [record for partition in records(server, topic) for record in partition]
            found[topic] = Counter(map(repr, told))
    for kind in events.LOGS:
        frame = open_lake(settings).read(spark, table_of(kind), once=False)
        found[f"lake {kind.name}"] = Counter(row.event_id for row in frame.select("event_id").collect())
    found["table user_earnings"] = Counter(ledger_rows(settings, "user_earnings")["user_earnings"])
    found["table user_regions"] = Counter(table_rows(settings.tables, "user_regions")["user_regions"])
    return found


def test_all_pipelines_give_the_same_results_with_either_data_source(spark: Any, tmp_path: Path) -> None:
    theirs, ours = (pipelines_once(spark, name, tmp_path) for name in FORMATS)
    assert theirs["table user_earnings"]
    assert theirs[events.USER_REGIONS]
    assert theirs[events.DEAD_LETTERS]
    for output, expected in theirs.items():
        assert ours[output] == expected, output
