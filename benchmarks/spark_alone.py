"""Each pipeline alone in its Spark session: events per second, and CPU per event by process.

The same session reads a log of generated events twice; the second pass counts, when the JVM and the Python
workers are warm. Rare events (logins, invitations) are generated for a larger population, so that each
pipeline gets a few hundred thousand. CPU is split into the JVM, the driver's Python, and the Python workers.
"1 core" is `local[1]` instead of `local[2]`: one task at a time, though JVM, Python worker and broker can
still use two processors; with "1 processor" all of them share one.

The first pass runs in micro-batches of 50,000 records, and its second half shows where their time goes:
"plan" is Spark's planning on the driver, "run" the pipeline's work, "commit" the checkpoint's two logs. "run"
is also shown by stage: the first reads and parses records, the second combines what shares a key, the third
judges the suspects of the two detecting pipelines. Planning between stages is the rest.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

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


class SparkStage(NamedTuple):
    """When tasks that run side by side were worked on."""

    began_ms: int
    ended_ms: int


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    count = 200_000 if quick else 500_000
    for each in work_off(contestant, root, "local[2]", count):
        name, events = each["name"], each["events"]
        figures.add(NAME, contestant, f"{name}: 2 cores", events / each["seconds"], "events/s", "higher")
        for part in spark_driver.CPU_PARTS:
            used = each[part] / events * 1e6
            figures.add(NAME, contestant, f"{name}: CPU of {part}", used, "µs/event", "lower")
        for stage, took_ms in each["stages"].items():
            figures.add(NAME, contestant, f"{name}: {stage}", took_ms, "ms", "lower")
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
        from tidelog.spark.pipelines import registry

        self._arguments = arguments
        self._session = spark_driver.session(arguments)
        self._pipelines = [registry.load(name) for name in registry.installed()]

    def run(self) -> None:
        self._generate()
        for pipeline in self._pipelines:
            query = self._done(pipeline, self._settings(f"{pipeline.name}-warm", BATCH))
            stages = _stages(_later(query), self._spark_stages(query))
            events, seconds, used = self._work_off(pipeline)
            spark_driver.say(name=pipeline.name, events=events, seconds=seconds, **used, stages=stages)
        self._session.stop()

    def _generate(self) -> None:
        from tidelog_rewards.topics import ensure_topics

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

    def _spark_stages(self, query: Any) -> list[SparkStage]:
        """The stages of a query, as Spark remembers them."""
        context = self._session.sparkContext
        tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
        jobs = (tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(str(query.runId)))
        numbers = {stage for job in jobs for stage in job.stageIds}
        told = (store.lastStageAttempt(number) for number in sorted(numbers))
        # One that was skipped has no times: another job had run it.
        return [
            SparkStage(each.submissionTime().get().getTime(), each.completionTime().get().getTime())
            for each in told
            if each.submissionTime().isDefined()
        ]

    def _settings(self, name: str, batch: int | None) -> Any:
        from tidelog.spark.settings import PipelineSettings

        return PipelineSettings(
            bootstrap_servers=self._arguments["bootstrap"],
            directory=Path(self._arguments["directory"]) / name,
            trigger="available-now",
            max_offsets_per_trigger=batch,
            format=self._arguments["format"],
        )


def _later(query: Any) -> list[dict[str, Any]]:
    """The later half of the micro-batches that had rows."""
    filled = [each for each in query.recentProgress if each["numInputRows"]]
    return filled[len(filled) // 2 :]


def _stages(batches: list[dict[str, Any]], stages: list[SparkStage]) -> dict[str, float]:
    """The median milliseconds of what a batch consists of."""
    taken = {
        name: statistics.median(sum(each["durationMs"].get(part, 0) for part in parts) for each in batches)
        for name, parts in STAGES.items()
    }
    by_batch = [sorted(stage for stage in stages if _is_of(batch, stage)) for batch in batches]
    for at in range(max(map(len, by_batch))):
        took = [found[at].ended_ms - found[at].began_ms for found in by_batch if at < len(found)]
        taken[f"run, stage {at + 1}"] = statistics.median(took)
    return taken


def _is_of(batch: dict[str, Any], stage: SparkStage) -> bool:
    began_ms = datetime.fromisoformat(batch["timestamp"]).timestamp() * 1000
    took_ms: int = batch["durationMs"]["triggerExecution"]
    return began_ms <= stage.began_ms < began_ms + took_ms


if __name__ == "__main__":
    Program(json.loads(sys.argv[1])).run()
