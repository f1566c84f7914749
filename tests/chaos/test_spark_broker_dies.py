"""Spark on three brokers, one of which is killed in the middle: it reads and writes on through the others.

Batches and streams, reading and writing, through leaders on different brokers, with `minPartitions`.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.cluster.cluster_process import ForegroundCommand, local_cluster
from tests.integration.command_line import CommandLine
from tests.integration.sink_output import committed_records
from tests.integration.spark_session import spark as spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

PARTITIONS = 6
ROWS = 3000
ROWS_PER_BATCH = 250
TASKS = 9
WAIT_S = 240.0


def wait_for(holds: Callable[[], bool], query: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline, query.lastProgress
        time.sleep(0.05)


def rows_read(query: Any) -> int:
    return sum(each["numInputRows"] for each in query.recentProgress)


def write(spark: SparkSession, bootstrap: str, first: int, end: int) -> None:
    frame = spark.range(first, end).selectExpr("concat('key ', id % 60) key", "cast(id as string) value")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": "input"}
    frame.write.format("tidelog").options(**options).mode("append").save()


def read(spark: SparkSession, bootstrap: str, **more: str) -> Any:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "input", **more}
    return spark.read.format("tidelog").options(**options).load()


def lags(tidelog: CommandLine, group: str) -> set[int]:
    (described,) = tidelog.json("groups", "describe", group)
    return {each["lag"] for each in described["partitions"]}


def kill_broker(cluster: ForegroundCommand, number: int) -> None:
    (broker,) = cluster.members(f"broker-{number}.properties")
    assert broker.signal(signal.SIGKILL)


def test_batches_and_streams_go_on_when_a_broker_dies(spark: SparkSession, tmp_path: Path) -> None:
    with local_cluster(tmp_path / "cluster", "--set", "zookeeper.session.timeout.ms=4000") as cluster:
        bootstrap = cluster.value("bootstrap.servers")
        tidelog = CommandLine(bootstrap)
        for topic in ("input", "output"):
            tidelog.ok("topics", "create", topic, "--partitions", str(PARTITIONS))
        (described,) = tidelog.json("topics", "describe", "input")
        assert {each["leader"] for each in described["partitions"]} == {1, 2, 3}

        write(spark, bootstrap, 0, ROWS)
        found = read(spark, bootstrap, minPartitions=str(TASKS))
        assert found.rdd.getNumPartitions() >= TASKS
        numbers = found.selectExpr("cast(cast(value as string) as long) number")
        assert sorted(row.number for row in numbers.collect()) == list(range(ROWS))

        source = spark.readStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
        source = source.options(
            subscribe="input", startingOffsets="earliest", commitGroup="copies", minPartitions="4"
        )
        copies = source.option("maxOffsetsPerTrigger", ROWS_PER_BATCH).load().select("key", "value")
        sink = copies.writeStream.format("tidelog").option("kafka.bootstrap.servers", bootstrap)
        sink = sink.options(topic="output", checkpointLocation=str(tmp_path / "checkpoint"))
        query = sink.start()
        try:
            wait_for(lambda: rows_read(query) >= 2 * ROWS_PER_BATCH, query)
            kill_broker(cluster, 2)
            assert rows_read(query) < ROWS
            # The brokers that are left take what is written meanwhile, and give it.
            write(spark, bootstrap, ROWS, 2 * ROWS)
            assert read(spark, bootstrap).count() == 2 * ROWS
            wait_for(lambda: rows_read(query) >= 2 * ROWS, query)
            # Spark lets the source commit a micro-batch when it plans the next one.
            wait_for(lambda: lags(tidelog, "copies") == {0}, query)
        finally:
            query.stop()
        assert query.exception() is None
        output = committed_records(bootstrap, "output")
        assert Counter(each.value for each in output) == Counter(b"%d" % row for row in range(2 * ROWS))
        places = {each.key: each.partition for each in output}
        assert all(places[each.key] == each.partition for each in output)
