"""Each pipeline alone in its Spark session: events per second, and whose CPU time an event takes.

A log of generated events is worked off twice, by the same session and into another directory each time; the
second time counts, when the JVM and the Python workers are warm. Events are those that the pipeline reads; of
the rarer kinds (logins, invitations) there are as many as a far larger population would send, so that each
pipeline has some hundred thousand.
CPU time is told apart: the JVM's, that of the driver's Python, and that of the Python workers, which fetch
records, parse them and do the pipeline's work. "1 core" is the same with `local[1]` in place of `local[2]`,
where one task runs at a time, but its JVM, its Python worker and the broker may still share two processors;
with "1 processor" all of them have only one.

The first time is in micro-batches of 50,000 records, and its later half shows where the time of one goes:
"plan" is what Spark does on the driver before it runs anything (asking the source for its end, planning the
query), "run" the pipeline's work in tasks, "commit" the writing of both logs of the checkpoint.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import dense_events, spark_driver
from benchmarks.contestants import scratch
from benchmarks.figures import Figures

NAME = "spark-alone"
PARTITIONS = 2
BATCH = 50_000
STAGES = {
    "plan": ("latestOffset", "getBatch", "queryPlanning"),
    "run": ("addBatch",),
    "commit": ("walCommit", "commitOffsets"),
}


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    count = 200_000 if quick else 500_000
    for each in work_off(contestant, root, "local[2]", count):
        name, events = each["name"], each["events"]
        figures.add(NAME, contestant, f"{name}: 2 cores", events / each["seconds"], "events/s", "higher")
        for part in spark_driver.CPU_PARTS:
            used = each[part] / events * 1e6
            figures.add(NAME, contestant, f"{name}: CPU of {part}", used, "µs/event", "lower")
        for stage in STAGES:
            figures.add(NAME, contestant, f"{name}: {stage}", each[stage], "ms", "lower")
    for each in work_off(contestant, root, "local[1]", count):
        rate = each["events"] / each["seconds"]
        figures.add(NAME, contestant, f"{each['name']}: 1 core", rate, "events/s", "higher")
    with one_processor():
        confined = work_off(contestant, root, "local[1]", count)
    for each in confined:
        rate = each["events"] / each["seconds"]
        figures.add(NAME, contestant, f"{each['name']}: 1 processor", rate, "events/s", "higher")


@contextmanager
def one_processor() -> Iterator[None]:
    """What is started meanwhile runs on one processor of this machine alone."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def work_off(contestant: str, root: Path, master: str, count: int) -> list[dict[str, Any]]:
    """What each pipeline did with so many events."""
    with spark_driver.broker(root) as broker, scratch(root) as directory:
        return spark_driver.run(
            "benchmarks.spark_alone",
            contestant,
            bootstrap=broker.address,
            directory=str(directory),
            master=master,
            count=count,
        )


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
            query = self._done(pipeline, self._settings(f"{pipeline.name}-warm", BATCH))
            stages = _stages(query.recentProgress)
            events, seconds, used = self._work_off(pipeline)
            spark_driver.say(name=pipeline.name, events=events, seconds=seconds, **used, **stages)
        self._session.stop()

    def _generate(self) -> None:
        from tidelog.pipelines.framework.topics import ensure_topics

        ensure_topics(self._settings("topics", None), partitions=PARTITIONS)
        dense_events.send(self._arguments["bootstrap"], self._arguments["count"])

    def _done(self, pipeline: Any, settings: Any) -> Any:
        """Run a pipeline over the whole log."""
        query = pipeline.start(self._session, settings)
        query.awaitTermination()
        return query

    def _work_off(self, pipeline: Any) -> tuple[int, float, dict[str, float]]:
        """The same as one batch; its events, the seconds, and the CPU time."""
        began, before = time.perf_counter(), spark_driver.cpu_parts()
        query = self._done(pipeline, self._settings(f"{pipeline.name}-measured", None))
        seconds, after = time.perf_counter() - began, spark_driver.cpu_parts()
        events = sum(each["numInputRows"] for each in query.recentProgress)
        return events, seconds, {part: after[part] - before[part] for part in before}

    def _settings(self, name: str, batch: int | None) -> Any:
        from tidelog.pipelines.pipeline import PipelineSettings

        return PipelineSettings(
            bootstrap_servers=self._arguments["bootstrap"],
            directory=Path(self._arguments["directory"]) / name,
            trigger="available-now",
            max_offsets_per_trigger=batch,
            format=self._arguments["format"],
        )


def _stages(batches: list[dict[str, Any]]) -> dict[str, float]:
    """The median milliseconds of each stage, of the later half of the micro-batches that had rows."""
    filled = [each["durationMs"] for each in batches if each["numInputRows"]]
    later = filled[len(filled) // 2 :]
    return {
        stage: statistics.median(sum(each.get(part, 0) for part in parts) for each in later)
        for stage, parts in STAGES.items()
    }


if __name__ == "__main__":
    Program(json.loads(sys.argv[1])).run()
