"""Rows per second from a topic to nothing, to Parquet and to another topic; the overhead of a micro-batch.

`local[2]` reads all columns of topics of two partitions; keys are numbers, values 100 B or 1 KB. "topic" is a
batch write, at least once for both. "topic, stream" is a streaming query: exactly once with Tidelog (one
transaction per task), at least once with Spark's connector; its time is the micro-batch's, its CPU includes
the query's start. The overhead is the time of a micro-batch of a hundred rows that are not written.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import spark_driver
from benchmarks.contestants import create_topic, scratch
from benchmarks.figures import Figures

NAME = "spark-source"
PARTITIONS = 2
SMALL_BATCH = 100
BATCHES = 25
WARM_BATCHES = 5


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    megabytes = 100 if quick else 400
    with spark_driver.broker(root) as broker, scratch(root) as directory:
        for topic in ("small", "small-copy", "small-stream-copy"):
            create_topic(broker, topic, PARTITIONS)
        spark_driver.fill(broker.address, "small", 100, SMALL_BATCH * (BATCHES + WARM_BATCHES))
        for size in (100, 1000):
            create_topic(broker, f"rows-{size}", PARTITIONS)
            create_topic(broker, f"copy-{size}", PARTITIONS)
            create_topic(broker, f"stream-copy-{size}", PARTITIONS)
            spark_driver.fill(broker.address, f"rows-{size}", size, megabytes * 1_000_000 // size)
        found = spark_driver.run(
            "benchmarks.spark_source", contestant, bootstrap=broker.address, directory=str(directory)
        )
    for each in found:
        if each["name"] == "overhead":
            figures.add(NAME, contestant, "micro-batch of 100 rows", each["ms"], "ms", "lower")
            continue
        figures.add(NAME, contestant, each["name"], each["rows"] / each["seconds"], "rows/s", "higher")
        cpu = each["cpu"] / each["rows"] * 1e6
        figures.add(NAME, contestant, f"{each['name']}, CPU", cpu, "µs/row", "lower")


class Program:
    """The Spark program: every measurement, for one data source."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._format = arguments["format"]
        self._servers = arguments["bootstrap"]
        self._directory = Path(arguments["directory"])
        self._session = spark_driver.session(arguments)

    def run(self) -> None:
        # The first of everything pays for the JVM's and Python's start.
        self._measure("small", "small-copy", "small-stream-copy")
        for size in (100, 1000):
            self._measure(f"rows-{size}", f"copy-{size}", f"stream-copy-{size}", f", {size} B")
        self._overhead()
        self._session.stop()

    def _measure(self, rows: str, copy: str, stream_copy: str, suffix: str = "") -> None:
        count = self._read(rows).count()
        self._time(f"nothing{suffix}", count, lambda: self._to_nothing(rows))
        self._time(f"Parquet{suffix}", count, lambda: self._to_parquet(rows))
        self._time(f"topic{suffix}", count, lambda: self._to_topic(rows, copy))
        self._time(f"topic, stream{suffix}", count, lambda: self._stream(rows, stream_copy))

    def _time(self, name: str, rows: int, work: Callable[[], float | None]) -> None:
        """Time some work, which may know better how long it took."""
        began, used = time.perf_counter(), spark_driver.cpu_seconds()
        told = work()
        seconds = told or time.perf_counter() - began
        if name.endswith(" B"):
            spark_driver.say(name=name, rows=rows, seconds=seconds, cpu=spark_driver.cpu_seconds() - used)

    def _read(self, topic: str) -> Any:
        reader = self._session.read.format(self._format).option("kafka.bootstrap.servers", self._servers)
        return reader.option("subscribe", topic).load()

    def _read_stream(self, topic: str) -> Any:
        reader = self._session.readStream.format(self._format)
        reader = reader.option("kafka.bootstrap.servers", self._servers).option("subscribe", topic)
        return reader.option("startingOffsets", "earliest")

    def _to_nothing(self, topic: str) -> None:
        self._read(topic).write.format("noop").mode("overwrite").save()

    def _to_parquet(self, topic: str) -> None:
        lake = self._directory / "lake"
        self._read(topic).write.mode("overwrite").parquet(str(lake))
        shutil.rmtree(lake)

    def _to_topic(self, topic: str, target: str) -> None:
        writer = self._read(topic).select("key", "value").write.format(self._format)
        writer.option("kafka.bootstrap.servers", self._servers).option("topic", target).mode("append").save()

    def _stream(self, topic: str, target: str) -> float:
        """Copy a topic with a streaming query; the seconds of its micro-batch, without the query's start."""
        rows = self._read_stream(topic).load().select("key", "value")
        writer = rows.writeStream.format(self._format).option("kafka.bootstrap.servers", self._servers)
        writer = writer.option("topic", target).option("checkpointLocation", str(self._directory / target))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return float(sum(each["batchDuration"] for each in query.recentProgress)) / 1000

    def _overhead(self) -> None:
        rows = self._read_stream("small").option("maxOffsetsPerTrigger", SMALL_BATCH).load()
        writer = rows.writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(self._directory / "overhead"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        took = [each["batchDuration"] for each in query.recentProgress if each["numInputRows"]]
        spark_driver.say(name="overhead", ms=statistics.median(took[WARM_BATCHES:]))


if __name__ == "__main__":
    Program(json.loads(sys.argv[1])).run()
