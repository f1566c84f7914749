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
from typing import Any, NamedTuple

from foreign import toolchain
from foreign.broker_process import BrokerProcess

from benchmarks.contestants import started
from benchmarks.figures import OURS

JARS = "spark-kafka"
TIMEOUT_S = 1200
FORMATS = {"tidelog": "tidelog", "apache": "kafka"}
CPU_PARTS = ("driver", "JVM", "workers")
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
    """The one broker that both read from and write to; generated events are old, and stay nevertheless."""
    with started(OURS, root, {"log.retention.ms": "-1"}) as running:
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


class _Process(NamedTuple):
    number: int
    name: str
    own_s: float
    ended_s: float
    """Of its children that have ended."""


def cpu_seconds() -> float:
    """CPU that this process and everything below it have used."""
    return sum(cpu_parts().values())


def cpu_parts() -> dict[str, float]:
    """The same by what uses it: the driver's Python, the JVM, the Python processes that it has started."""
    below: dict[int, list[_Process]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            head, _, tail = (entry / "stat").read_text().rpartition(")")
        except OSError:
            continue
        fields = tail.split()
        times = [int(field) / _TICKS for field in fields[11:15]]
        process = _Process(int(entry.name), head.partition("(")[2], sum(times[:2]), sum(times[2:]))
        below.setdefault(int(fields[1]), []).append(process)
        if process.number == os.getpid():
            used = {"driver": process.own_s + process.ended_s, "JVM": 0.0, "workers": 0.0}
    waiting = [(each, "driver") for each in below.get(os.getpid(), [])]
    while waiting:
        process, part = waiting.pop()
        if process.name == "java":
            used["JVM"] += process.own_s
            used["workers"] += process.ended_s
            part = "workers"
        else:
            used[part] += process.own_s + process.ended_s
        waiting += [(each, part) for each in below.get(process.number, [])]
    return used


def session(arguments: dict[str, Any], **options: str) -> Any:
    """The Spark session of a program that :func:`run` started."""
    from tidelog.spark.pipelines.session import spark_session

    given = {"spark.jars": arguments["jars"]} if arguments["jars"] else {}
    warehouse = {"spark.sql.warehouse.dir": f"{arguments['directory']}/warehouse"}
    master = arguments.get("master", "local[2]")
    return spark_session("benchmark", master=master, options={**given, **warehouse, **options})


def say(**measurement: Any) -> None:
    """Report a measurement to :func:`run`."""
    print(json.dumps(measurement), flush=True)
