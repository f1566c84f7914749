"""Cost of a row when its topic has 1, 10 and 100 partitions: the same rows, read by two tasks, not written.

With Tidelog's source one task reads several partitions; Spark's connector starts a task for each. Both pay
for a connection and a few requests per partition, so compare how the cost grows.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import spark_driver
from benchmarks.contestants import create_topic, scratch
from benchmarks.figures import Figures

NAME = "spark-partitions"
PARTITIONS = (1, 10, 100)
SIZE = 100


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    rows = 1_000_000 if quick else 4_000_000
    with spark_driver.broker(root) as broker, scratch(root) as directory:
        for partitions in PARTITIONS:
            create_topic(broker, f"rows-{partitions}", partitions)
            spark_driver.fill(broker.address, f"rows-{partitions}", SIZE, rows)
        found = spark_driver.run(
            "benchmarks.spark_partitions", contestant, bootstrap=broker.address, directory=str(directory)
        )
    for each in found:
        name = f"{each['partitions']} partition{'s' if each['partitions'] > 1 else ''}"
        figures.add(NAME, contestant, name, each["seconds"] / each["rows"] * 1e6, "µs/row", "lower")
        figures.add(NAME, contestant, f"{name}, CPU", each["cpu"] / each["rows"] * 1e6, "µs/row", "lower")


def run(arguments: dict[str, Any]) -> None:
    """The Spark program."""
    session = spark_driver.session(arguments)

    def read(partitions: int) -> Any:
        reader = session.read.format(arguments["format"])
        reader = reader.option("kafka.bootstrap.servers", arguments["bootstrap"])
        return reader.option("subscribe", f"rows-{partitions}").load()

    for partitions in PARTITIONS:
        rows = read(partitions).count()
        read(partitions).write.format("noop").mode("overwrite").save()
        began, used = time.perf_counter(), spark_driver.cpu_seconds()
        read(partitions).write.format("noop").mode("overwrite").save()
        seconds, cpu = time.perf_counter() - began, spark_driver.cpu_seconds() - used
        spark_driver.say(partitions=partitions, rows=rows, seconds=seconds, cpu=cpu)
    session.stop()


if __name__ == "__main__":
    run(json.loads(sys.argv[1]))
