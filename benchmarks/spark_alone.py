"""Each pipeline alone in its Spark session: events per second, and whose CPU time an event takes.

A log of generated events is worked off twice, by the same session and into another directory each time; the
second time counts, when the JVM and the Python workers are warm. Events are those that the pipeline reads.
CPU time is told apart: the JVM's, that of the driver's Python, and that of the Python workers, which fetch
records, parse them and do the pipeline's work. The contestants are the data sources.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import spark_driver
from benchmarks.contestants import scratch
from benchmarks.figures import Figures

NAME = "spark-alone"
PARTITIONS = 2


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with spark_driver.broker(root) as broker, scratch(root) as directory:
        found = spark_driver.run(
            "benchmarks.spark_alone",
            contestant,
            bootstrap=broker.address,
            directory=str(directory),
            count=200_000 if quick else 1_000_000,
        )
    for each in found:
        name, events = each["name"], each["events"]
        figures.add(NAME, contestant, name, events / each["seconds"], "events/s", "higher")
        for part in spark_driver.CPU_PARTS:
            used = each[part] / events * 1e6
            figures.add(NAME, contestant, f"{name}, CPU: {part}", used, "µs/event", "lower")


class Program:
    """The Spark program."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        from tidelog.pipelines import registry

        self._arguments = arguments
        self._session = spark_driver.session(arguments)
        self._pipelines = [registry.load(name) for name in registry.PIPELINES]

    def run(self) -> None:
        self._generate()
        for pipeline in self._pipelines:
            self._work_off(pipeline, "warm")
            events, seconds, used = self._work_off(pipeline, "measured")
            spark_driver.say(name=pipeline.name, events=events, seconds=seconds, **used)
        self._session.stop()

    def _generate(self) -> None:
        from tidelog.pipelines.framework.topics import ensure_topics

        bootstrap, count = self._arguments["bootstrap"], self._arguments["count"]
        ensure_topics(self._settings("topics"), partitions=PARTITIONS)
        command = [sys.executable, "-m", "tidelog", "events", "generate", "--quiet", "--fast"]
        command += ["--bootstrap-server", bootstrap, "--count", str(count), "--seed", "5"]
        subprocess.run(command, check=True, capture_output=True, timeout=600)

    def _work_off(self, pipeline: Any, name: str) -> tuple[int, float, dict[str, float]]:
        """Run a pipeline over the whole log; its events, the seconds, and the CPU time."""
        began, before = time.perf_counter(), spark_driver.cpu_parts()
        query = pipeline.start(self._session, self._settings(f"{pipeline.name}-{name}"))
        query.awaitTermination()
        seconds, after = time.perf_counter() - began, spark_driver.cpu_parts()
        events = sum(each["numInputRows"] for each in query.recentProgress)
        return events, seconds, {part: after[part] - before[part] for part in before}

    def _settings(self, name: str) -> Any:
        from tidelog.pipelines.pipeline import PipelineSettings

        return PipelineSettings(
            bootstrap_servers=self._arguments["bootstrap"],
            directory=Path(self._arguments["directory"]) / name,
            trigger="available-now",
            format=self._arguments["format"],
        )


if __name__ == "__main__":
    Program(json.loads(sys.argv[1])).run()
