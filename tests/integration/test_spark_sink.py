"""``format("tidelog")`` as a sink: what DataFrames and streaming queries write, once, twice and never."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import substring
from pyspark.sql.streaming import DataStreamWriter
from tests.integration.sink_output import committed_records, committed_values
from tests.integration.spark_topics import fill
from tests.integration.test_spark_reports import told
from tests.rigs.waiting import wait_until

from tidelog.spark.report.reported_queries import ReportedQuery
from tidelog.spark.write.topic_batches import topic_batches
from tidelog.testing import LocalBroker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

_numbers = itertools.count()
LINES_PER_FILE = 40


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with broker() as running:
        yield running


@pytest.fixture
def topic(cluster: LocalBroker) -> str:
    name = f"sink-{next(_numbers)}"
    cluster.create_topics({name: 3})
    return name


def _save(frame: DataFrame, cluster: LocalBroker, mode: str = "append", **options: object) -> None:
    writer = frame.write.format("tidelog").option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    writer.options(**{name: str(value) for name, value in options.items()}).mode(mode).save()


class Job:
    """A streaming query over the lines of the files in a directory; each file is an epoch."""

    def __init__(self, spark: SparkSession, cluster: LocalBroker, topic: str, directory: Path) -> None:
        self._spark, self._cluster, self._topic = spark, cluster, topic
        self._files, self.checkpoint = directory / "files", directory / "checkpoint"
        self._files.mkdir()
        self.lines: list[str] = []

    def add_file(self) -> None:
        first = len(self.lines)
        new = [f"line {number:04}" for number in range(first, first + LINES_PER_FILE)]
        self.lines += new
        path = self._files / f"{first:04}.txt"
        path.write_text("\n".join(new) + "\n")
        os.utime(path, (first, first))  # Spark takes files by their time, which two may share

    def run(self, tasks: int = 2, mode: str = "append", **options: str) -> None:
        """Work off what is there, in ``tasks`` tasks."""
        writer = self._rows(tasks).writeStream.outputMode(mode)
        self._start(writer.format("tidelog").options(**self._options(options)))

    def run_batches(self, app_id: str, tasks: int = 2) -> None:
        """The same, in ``foreachBatch``."""
        options = self._options({"txnAppId": app_id})

        def save(frame: DataFrame, epoch: int) -> None:
            frame.write.format("tidelog").options(**options).option("txnVersion", epoch).mode("append").save()

        self._start(self._rows(tasks).writeStream.foreachBatch(save))

    def run_totals(self, mode: str) -> None:
        """Count the lines by all of them but the last digit."""
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._files))
        totals = lines.groupBy(substring("value", 1, 8).alias("key")).count()
        writer = totals.selectExpr("key", "concat(key, ':', count) value").writeStream.outputMode(mode)
        if mode == "update":
            self._start(writer.foreachBatch(topic_batches(self._options({}))))
        else:
            self._start(writer.format("tidelog").options(**self._options({})))

    def forget_last_epoch(self) -> None:
        """Have the checkpoint look as if the driver had died before it noted that the epoch is done."""
        commits = self.checkpoint / "commits"
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
        for file in (commits / str(last), commits / f".{last}.crc"):
            file.unlink(missing_ok=True)

    @property
    def output(self) -> list[str]:
        return committed_values(self._cluster.bootstrap_servers, self._topic)

    def _rows(self, tasks: int) -> DataFrame:
        lines = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._files))
        return lines.repartition(tasks, "value")

    def _options(self, more: dict[str, str]) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._cluster.bootstrap_servers, "topic": self._topic, **more}

    def _start(self, writer: DataStreamWriter) -> None:
        stored = writer.option("checkpointLocation", str(self.checkpoint))
        query = stored.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(200)
        finally:
            query.stop()


@pytest.fixture
def job(spark: SparkSession, cluster: LocalBroker, topic: str, tmp_path: Path) -> Job:
    return Job(spark, cluster, topic, tmp_path)


# -- batches


def test_rows_become_records_with_all_that_their_columns_say(
    spark: SparkSession, cluster: LocalBroker, topic: str
) -> None:
    frame = spark.sql(
        f"""
        select '{topic}' topic, 'k1' key, 'v1' value, 2 partition,
               array(named_struct('key', 'h', 'value', cast('x' as binary))) headers
        union all select '{topic}', null, 'v2', 0, null
        union all select '{topic}', 'k3', null, 1, array()
        """
    )
    _save(frame, cluster)
    found = sorted(committed_records(cluster.bootstrap_servers, topic))
    assert found == [(0, None, b"v2", None), (1, b"k3", None, None), (2, b"k1", b"v1", [("h", b"x")])]


def test_rows_of_one_frame_go_to_several_topics_and_keys_to_javas_partitions(
    spark: SparkSession, cluster: LocalBroker, topic: str
) -> None:
    other = f"{topic}-other"
    cluster.create_topics({other: 1})
    frame = spark.range(100).selectExpr(
        "cast(id as string) key",
        "cast(cast(id as string) as binary) value",
        f"if(id % 3 = 0, '{other}', '{topic}') topic",
        "id offset",
    )
    _save(frame, cluster)
    keys = {
        int(each.key or b""): each.partition for each in committed_records(cluster.bootstrap_servers, topic)
    }
    assert sorted(keys) == [number for number in range(100) if number % 3]
    assert {keys[number] for number in (1, 2, 4, 5, 7, 8)} == {0, 1, 2}
    assert len(committed_records(cluster.bootstrap_servers, other)) == 34


def test_option_topic_wins_over_the_column(spark: SparkSession, cluster: LocalBroker, topic: str) -> None:
    _save(spark.sql("select 'nowhere' topic, 'v' value"), cluster, topic=topic)
    assert committed_values(cluster.bootstrap_servers, topic) == ["v"]


@pytest.mark.parametrize(
    ("query", "options", "told"),
    [
        ("select 'k' key", {"topic": "t"}, "column value is required"),
        ("select 1 value", {"topic": "t"}, "the column value is int"),
        ("select 'v' value", {}, "set the option topic"),
        ("select 'v' value, cast(null as string) topic", {}, "topic is null in some rows"),
        ("select 'v' value", {"topic": "t", "topics": "t"}, "did you mean topic"),
        ("select 'v' value", {"topic": "t", "kafka.key.serializer": "x"}, "cannot be set"),
        ("select 'v' value", {"topic": "t", "txnAppId": "a"}, "txnVersion"),
    ],
)
def test_what_cannot_be_written_is_refused_in_a_sentence(
    spark: SparkSession, cluster: LocalBroker, query: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(PySparkException, match=told):
        _save(spark.sql(query), cluster, **options)


def test_topic_cannot_be_overwritten(spark: SparkSession, cluster: LocalBroker, topic: str) -> None:
    with pytest.raises(PySparkException, match="appended to only"):
        _save(spark.sql("select 'v' value"), cluster, mode="overwrite", topic=topic)


def test_version_of_a_batch_is_written_once(spark: SparkSession, cluster: LocalBroker, topic: str) -> None:
    frame = spark.range(0, 50, 1, 3).selectExpr("cast(id as string) value")
    for version in (1, 1, 2, 2):
        _save(frame, cluster, topic=topic, txnAppId=topic, txnVersion=version)
    assert committed_values(cluster.bootstrap_servers, topic) == sorted(2 * [str(n) for n in range(50)])


def test_version_of_a_batch_in_another_number_of_tasks_is_refused_and_changes_nothing(
    spark: SparkSession, cluster: LocalBroker, topic: str
) -> None:
    for tasks in (3, 2, 5):
        frame = spark.range(0, 50, 1, tasks).selectExpr("cast(id as string) value")
        if tasks == 3:
            _save(frame, cluster, topic=topic, txnAppId=topic, txnVersion=1)
        else:
            with pytest.raises(PySparkException, match="parallelism"):
                _save(frame, cluster, topic=topic, txnAppId=topic, txnVersion=1)
    assert committed_values(cluster.bootstrap_servers, topic) == sorted(str(n) for n in range(50))


def test_named_batch_of_which_a_task_fails_leaves_nothing_behind(
    spark: SparkSession, cluster: LocalBroker, topic: str
) -> None:
    good = spark.range(0, 50, 1, 2).selectExpr("cast(id as string) value")
    bad = good.selectExpr("if(value = '40', raise_error('planted'), value) value")
    with pytest.raises(PySparkException, match="planted"):
        _save(bad, cluster, topic=topic, txnAppId=topic, txnVersion=1)
    assert committed_values(cluster.bootstrap_servers, topic) == []
    _save(good, cluster, topic=topic, txnAppId=topic, txnVersion=1)
    assert len(committed_values(cluster.bootstrap_servers, topic)) == 50


# -- streams


def test_stream_is_written_whole(job: Job) -> None:
    for _ in range(3):
        job.add_file()
    job.run()
    assert job.output == job.lines


def test_replayed_epoch_of_a_stream_adds_nothing(job: Job) -> None:
    for _ in range(3):
        job.add_file()
        job.run()
        job.forget_last_epoch()
    job.add_file()
    job.run()
    assert job.output == job.lines


def test_replayed_epoch_is_doubled_if_at_least_once_is_asked_for(job: Job) -> None:
    """That the test above can fail: the same, with the other guarantee."""
    job.add_file()
    job.run(deliveryGuarantee="at-least-once")
    job.forget_last_epoch()
    job.run(deliveryGuarantee="at-least-once")
    assert job.output == sorted(2 * job.lines)


def test_replayed_epoch_in_another_number_of_tasks_is_refused_and_can_be_mended(job: Job) -> None:
    for _ in range(2):
        job.add_file()
        job.run(tasks=3)
    job.forget_last_epoch()
    for tasks in (2, 4):
        with pytest.raises(PySparkException, match="parallelism"):
            job.run(tasks=tasks)
        assert job.output == job.lines
    job.add_file()
    job.run(tasks=3)
    job.add_file()
    job.run(tasks=5)
    assert job.output == job.lines


@pytest.mark.parametrize(("mode", "second"), [("complete", 8), ("update", 4)])
def test_aggregates_are_written_whole_or_where_they_changed_and_once(
    job: Job, mode: str, second: int
) -> None:
    for _ in range(2):
        job.add_file()
    job.run_totals(mode)
    groups = [f"line {number:03}:10" for number in range(8)]
    assert job.output == sorted(groups[:4] + groups[8 - second :])
    job.forget_last_epoch()
    job.run_totals(mode)
    assert job.output == sorted(groups[:4] + groups[8 - second :])


def test_update_mode_is_refused_by_spark_itself(job: Job) -> None:
    """When this fails, Spark has learned to let Python data sources take updates: see ``topic_batches``."""
    job.add_file()
    with pytest.raises(PySparkException, match="does not support Update mode"):
        job.run(mode="update")


def test_replayed_batch_with_a_name_and_a_version_adds_nothing(job: Job, topic: str) -> None:
    for _ in range(2):
        job.add_file()
        job.run_batches(topic)
        job.forget_last_epoch()
    job.run_batches(topic)
    assert job.output == job.lines


def test_query_with_a_fresh_checkpoint_writes_anew(job: Job) -> None:
    job.add_file()
    job.run()
    job.checkpoint = job.checkpoint.with_name("fresh")
    job.run()
    assert job.output == sorted(2 * job.lines)


def test_checkpoint_of_another_sink_is_taken_over_only_if_told_so(job: Job) -> None:
    job.add_file()
    job.run(deliveryGuarantee="at-least-once")
    job.add_file()
    with pytest.raises(PySparkException, match="failOnMissingEpoch=false"):
        job.run()
    job.run(failOnMissingEpoch="false")
    job.add_file()
    job.run()
    assert job.output == job.lines


def test_a_query_is_told_of_as_one_by_its_source_and_its_sink(
    spark: SparkSession, cluster: LocalBroker, topic: str, tmp_path: Path
) -> None:
    source = f"{topic}-source"
    cluster.create_topics({source: 2})
    fill(cluster.bootstrap_servers, source, [b"%d" % number for number in range(50)])
    broker_option = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    rows = spark.readStream.format("tidelog").options(
        **broker_option, subscribe=source, startingOffsets="earliest"
    )
    written = rows.load().select("value").writeStream.queryName(f"copy-{topic}").format("tidelog")
    query = written.options(**broker_option, topic=topic, checkpointLocation=str(tmp_path / "checkpoint"))
    running = query.start()
    try:

        def ours() -> list[ReportedQuery]:
            return [each for each in told(cluster.bootstrap_servers) if each.name == f"copy-{topic}"]

        def is_told() -> bool:
            return any(each.source and each.source.last_batch and each.sinks for each in ours())

        wait_until(is_told, "a report of the source, with its sink")
        (found,) = ours()
        assert found.query_id == running.id
        assert found.source is not None
        assert found.source.report.offsets == 50
        assert found.application is not None
        # Of the first application of the JVM, which other tests may have started.
        assert found.application.name in ("tidelog tests", "tests")
        assert [(each.epoch, each.rows, each.run_id) for each in found.sinks] == [(0, 50, running.runId)]
        assert found.sinks[0].note is not None
        assert found.sinks[0].note.topics == (topic,)
    finally:
        running.stop()
