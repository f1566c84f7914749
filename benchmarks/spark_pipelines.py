"""All five pipelines in one Spark session: events per second of a full log, and lag at a steady rate.

"worked off" counts from the start of the queries until all have read a waiting log to its end. Another log of
the same length is read first, in the same session, to warm up the JVM. "steady" sends 20,000 prepared events
per second while the queries run every two seconds, and sums the lag of the five groups once per second; an
event counts once for each pipeline that reads it. Growth compares the last third of the time with the first.
Broker, sender and Spark share the machine. The JVM's settings are those of `tidelog pipeline run`. The
contestants are two data sources, Tidelog's and Spark's Kafka connector.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from foreign.broker_process import BrokerProcess

from benchmarks import spark_driver
from benchmarks.contestants import scratch
from benchmarks.figures import Figures

NAME = "spark-pipelines"
RATE = 20_000
PARTITIONS = 2
WARM_UP_S = 20


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    count, seconds = (100_000, 40) if quick else (1_000_000, 90)
    with spark_driver.broker(root) as broker, scratch(root) as directory:
        _prepare(broker, directory)
        found = spark_driver.run(
            "benchmarks.spark_pipelines",
            contestant,
            bootstrap=broker.address,
            directory=str(directory),
            count=count,
            seconds=seconds,
        )
    whole = next(each for each in found if each["name"] == "worked off")
    figures.add(NAME, contestant, "worked off", count / whole["seconds"], "events/s", "higher")
    figures.add(NAME, contestant, "worked off, CPU", whole["cpu"] / count * 1e6, "µs/event", "lower")
    steady = next((each for each in found if each["name"] == "steady"), None)
    if steady is not None:
        figures.add(NAME, contestant, f"lag at {RATE:,}/s, median", steady["median"], "records", "lower")
        figures.add(NAME, contestant, f"lag at {RATE:,}/s, at most", steady["most"], "records", "lower")
        figures.add(NAME, contestant, f"lag at {RATE:,}/s, growth", steady["growth"], "records/s", "lower")
        sent = steady["sent"] / steady["seconds"]
        figures.add(NAME, contestant, "events sent meanwhile", sent, "events/s", "higher")
        figures.add(NAME, contestant, "events sent late, at most", steady["late"] * 1000, "ms", "lower")


def _prepare(broker: BrokerProcess, directory: Path) -> None:
    from tidelog.spark.settings import PipelineSettings
    from tidelog_rewards.topics import ensure_topics

    ensure_topics(PipelineSettings(broker.address, directory), partitions=PARTITIONS)


def _generator(bootstrap: str, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "tidelog", "events", "generate", "--quiet"]
    return [*command, "--bootstrap-server", bootstrap, *arguments]


class Program:
    """The Spark program."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        from tidelog.spark.pipelines import registry
        from tidelog.spark.settings import PipelineSettings

        self._bootstrap = arguments["bootstrap"]
        self._seconds = arguments["seconds"]
        self._count = arguments["count"]
        self._session = spark_driver.session(arguments)
        self._pipelines = [registry.load(name) for name in registry.installed()]
        self._settings = PipelineSettings(
            bootstrap_servers=self._bootstrap,
            directory=Path(arguments["directory"]) / "pipelines",
            trigger="available-now",
            format=arguments["format"],
        )

    def run(self) -> None:
        self._work_off(seed=1)
        seconds, cpu = self._work_off(seed=2)
        spark_driver.say(name="worked off", seconds=seconds, cpu=cpu)
        if self._settings.format == "tidelog":
            # Spark's own connector commits no offsets, so that nobody could tell its lag.
            self._steady()
        self._session.stop()

    def _work_off(self, seed: int) -> tuple[float, float]:
        """Generate events, then run all pipelines until they have read them; seconds and CPU."""
        command = _generator(self._bootstrap, "--count", str(self._count), "--fast", "--seed", str(seed))
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        began, used = time.perf_counter(), spark_driver.cpu_seconds()
        queries = [pipeline.start(self._session, self._settings) for pipeline in self._pipelines]
        for query in queries:
            query.awaitTermination()
        return time.perf_counter() - began, spark_driver.cpu_seconds() - used

    def _steady(self) -> None:
        from tidelog import Admin

        settings = replace(self._settings, trigger="2 seconds")
        groups = [pipeline.group for pipeline in self._pipelines]
        seconds = WARM_UP_S + self._seconds
        sender = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.steady_events", self._bootstrap, str(RATE), str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert sender.stdin is not None
        assert sender.stdout is not None
        if sender.stdout.readline() != "ready\n":
            raise RuntimeError("there are no events to send")
        queries = [pipeline.start(self._session, settings) for pipeline in self._pipelines]
        sender.stdin.write("\n")
        sender.stdin.flush()
        began = time.perf_counter()
        lags: list[int] = []
        with Admin(bootstrap_servers=self._bootstrap) as admin:
            while (elapsed := time.perf_counter() - began) < seconds:
                if elapsed > WARM_UP_S:
                    lags.append(sum(lag.total for lag in admin.describe_group_lag(groups).values()))
                time.sleep(1)
        answer, _ = sender.communicate(timeout=60)
        if sender.returncode:
            raise RuntimeError("events could not be written, so the lag is not of what was to be sent")
        told = json.loads(answer)
        for query in queries:
            query.stop()
        spark_driver.say(
            name="steady",
            median=statistics.median(lags),
            most=max(lags),
            growth=_growth(lags),
            sent=told["sent"],
            seconds=told["seconds"],
            late=told["late"],
        )


def _growth(lags: list[int]) -> float:
    """By how many records a second the lag has grown, from the first third of the time to the last."""
    third = len(lags) // 3
    return (statistics.mean(lags[-third:]) - statistics.mean(lags[:third])) / (len(lags) - third)


if __name__ == "__main__":
    Program(json.loads(sys.argv[1])).run()
