"""What the Spark benchmarks share: a topic full of records, a Spark program in a process of its own, its CPU.

The contestants are two data sources, `format("tidelog")` and Spark's own JVM connector (`format("kafka")`,
the column "Apache Kafka"), on the same Tidelog broker, in a Spark session each, one after the other. CPU is
that of everything that Spark runs, the driver, its JVM and all Python workers; the broker's is not in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.compat import toolchain
from tests.compat.broker_process import BrokerProcess

from benchmarks.contestants import started
from benchmarks.figures import OURS

JARS = "spark-kafka"
TIMEOUT_S = 1200
FORMATS = {"tidelog": "tidelog", "apache": "kafka"}
_TICKS = os.sysconf("SC_CLK_TCK")


def run(module: str, contestant: str, **arguments: Any) -> list[dict[str, Any]]:
    """Run a Spark program and give what it printed: one JSON object per measurement."""
    told = {"format": FORMATS[contestant], "jars": jars(contestant), **arguments}
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(told)],
        capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{module} failed:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def jars(contestant: str) -> str:
    """The jars of Spark's connector, where it is the contestant."""
    if contestant == OURS:
        return ""
    directory = Path(toolchain.classpath(JARS)).parent
    return ",".join(map(str, sorted(directory.glob("*.jar"))))


@contextmanager
def broker(root: Path) -> Iterator[BrokerProcess]:
    """The one broker that both read from and write to."""
    with started(OURS, root) as running:
        yield running


def fill(bootstrap: str, topic: str, size: int, count: int) -> None:
    """Write ``count`` values of ``size`` bytes with keys, evenly over the topic's partitions."""
    import pyarrow as pa

    from tidelog import Producer

    portion = 20_000
    with Producer(bootstrap_servers=bootstrap, batch_size=262_144, linger_ms=20) as producer:
        for start in range(0, count, portion):
            numbers = range(start, min(start + portion, count))
            table = pa.table(
                {
                    "key": pa.array([b"%d" % number for number in numbers], pa.binary()),
                    "value": pa.array([b"%0*d" % (size, number) for number in numbers], pa.binary()),
                }
            )
            producer.send_arrow(table, topic)
        producer.flush()


def cpu_seconds() -> float:
    """CPU that this process and everything below it have used."""
    below: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        below.setdefault(int(fields[1]), []).append(int(entry.name))
        used[int(entry.name)] = sum(map(int, fields[11:15])) / _TICKS
    total, waiting = 0.0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        total += used.get(process, 0.0)
        waiting += below.get(process, [])
    return total


def session(arguments: dict[str, Any], **options: str) -> Any:
    """The Spark session of a program that :func:`run` started."""
    from tidelog.pipelines.session import spark_session

    given = {"spark.jars": arguments["jars"]} if arguments["jars"] else {}
    warehouse = {"spark.sql.warehouse.dir": f"{arguments['directory']}/warehouse"}
    return spark_session("benchmark", master="local[2]", options={**given, **warehouse, **options})


def say(**measurement: Any) -> None:
    """Report a measurement to :func:`run`."""
    print(json.dumps(measurement), flush=True)
