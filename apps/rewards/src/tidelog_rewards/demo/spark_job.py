"""The child with Spark: one session, every pipeline's query, and reports about them on stdout.

It is told its settings as one JSON argument, and prints one JSON object per line: ``step`` while it starts,
``started``, ``progress`` (about one per micro-batch), ``restarting``, ``stopped``, ``failed`` and ``error``.
Everything else that Spark and its JVM print goes to stderr, which is a log file. SIGTERM lets each query end
its micro-batch, then stops it. A pipeline that fails does not stop the others.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import IO, TYPE_CHECKING, Any

from tidelog.errors import TidelogError
from tidelog.spark.pipelines import registry
from tidelog.spark.pipelines.runner import MAX_RESTARTS, PipelineRunner, failure_sentence, was_too_slow
from tidelog.spark.pipelines.session import (
    JAVA_OPTIONS,
    QUICK_START,
    default_options,
    spark_session,
)
from tidelog.spark.read.shared_source import share_source
from tidelog.spark.runtime.class_archive import make_archive_later
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards.demo.fork_server import serve_forks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_S = 0.5
_MARKER_POLL_S = 0.05
BATCH_END_TIMEOUT_S = 15.0
JAVA_END_TIMEOUT_S = 60.0


class Reports:
    """The way to the parent: standard output, kept for us alone."""

    def __init__(self) -> None:
        # Whatever else prints in this process or in the JVM finds stderr under the number of stdout.
        self._stream: IO[str] = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def say(self, **report: object) -> None:
        """Send one report; nobody may be there any more to read it."""
        with self._lock:
            try:
                self._stream.write(json.dumps(report, ensure_ascii=False) + "\n")
                self._stream.flush()
            except BrokenPipeError:
                os.kill(os.getpid(), signal.SIGTERM)


class SparkJob:
    """All pipelines in one session."""

    def __init__(self, arguments: Mapping[str, Any], reports: Reports, stopping: threading.Event) -> None:
        self._arguments = arguments
        self._reports = reports
        self._stopping = stopping
        self._failed: list[str] = []
        self._runners: dict[str, PipelineRunner] = {}
        self._waiting: list[str] = []
        self._batches: Counter[str] = Counter()
        self._restarts: Counter[str] = Counter()
        self._settings = PipelineSettings(
            bootstrap_servers=arguments["bootstrap_servers"],
            directory=Path(arguments["directory"]),
            trigger=arguments["trigger"],
            cassandra=arguments["cassandra"],
            keyspace=arguments["keyspace"],
            topics_exist=True,
        )

    def run(self) -> int:
        """Until told to stop, or until no pipeline is left; the exit code is 1 if one has failed."""
        self._reports.say(step="session")
        master = self._arguments["master"]
        if master.startswith("local"):
            _fork_python()
        session = spark_session(
            "tidelog demo",
            master=master,
            options={JAVA_OPTIONS: f"{default_options(master)[JAVA_OPTIONS]} {QUICK_START}"},
        )
        gateway = session.sparkContext._gateway
        assert gateway is not None, "a session in this process has one"
        try:
            loaded = {name: registry.load(name) for name in self._arguments["pipelines"]}
            watched = {name: (pipeline.group, pipeline.inputs) for name, pipeline in loaded.items()}
            self._reports.say(step="pipelines", version=session.version, pipelines=watched)
            share_source(session)
            self._wait_for_topics()
            # Those with the least to do first: they show results while the others start.
            self._waiting = list(loaded)[::-1]
            with ThreadPoolExecutor(max_workers=len(loaded), thread_name_prefix="start") as threads:
                self._run_all(
                    lambda name: threads.submit(PipelineRunner, session, self._settings, [loaded[name]])
                )
            self._stop_all()
        finally:
            self._end(session, gateway.proc)
        return 1 if self._failed else 0

    def _run_all(self, start: Callable[[str], Future[PipelineRunner]]) -> None:
        """Start the pipelines together, and follow them until told to stop, or until none is left."""
        starting: dict[str, Future[PipelineRunner]] = {}
        while (self._waiting or starting or self._runners) and not self._stopping.is_set():
            starting |= {name: start(name) for name in self._waiting}
            self._waiting.clear()
            wait(starting.values(), timeout=POLL_S if starting else 0, return_when=FIRST_COMPLETED)
            self._take_started(starting)
            if not starting:
                self._stopping.wait(POLL_S)
            self._look()
        wait(starting.values())
        self._take_started(starting)

    def _take_started(self, starting: dict[str, Future[PipelineRunner]]) -> None:
        for name in [name for name, future in starting.items() if future.done()]:
            with self._blamed_on(name):
                self._runners[name] = starting.pop(name).result()
                self._reports.say(started=name)

    def _wait_for_topics(self) -> None:
        """Which the parent creates, long before a session is there."""
        marker = Path(self._arguments["topics_marker"])
        while not marker.exists() and not self._stopping.wait(_MARKER_POLL_S):
            pass

    def _end(self, session: SparkSession, java: Popen[bytes]) -> None:
        """Stop Spark, and wait for its JVM; the next one shall start sooner."""
        session.stop()
        if java.stdin is not None:
            java.stdin.close()
        try:
            java.wait(JAVA_END_TIMEOUT_S)
        except TimeoutExpired:
            java.kill()
        make_archive_later(Path(os.environ["JAVA_HOME"]))

    def _look(self) -> None:
        """Report what has changed since the last look."""
        for name, runner in list(self._runners.items()):
            with self._blamed_on(name):
                self._report(name, runner)

    def _report(self, name: str, runner: PipelineRunner) -> None:
        (progress,) = runner.progress()
        if progress.batches > self._batches[name]:
            self._batches[name] = progress.batches
            self._reports.say(
                progress=name,
                batches=progress.batches,
                rows=progress.rows_in,
                rows_per_second=progress.rows_per_second,
                batch_ms=progress.batch_ms,
            )

    def _stop_all(self) -> None:
        """All at once, each after its own micro-batch."""

        def stop(name: str) -> None:
            with self._blamed_on(name):
                self._runners[name].stop(timeout_s=BATCH_END_TIMEOUT_S)
                self._report(name, self._runners[name])
                self._reports.say(stopped=name)

        with ThreadPoolExecutor(max_workers=max(len(self._runners), 1)) as threads:
            list(threads.map(stop, list(self._runners)))

    @contextmanager
    def _blamed_on(self, name: str) -> Iterator[None]:
        """Whatever goes wrong in here is one pipeline's: it is reported, and the others go on."""
        try:
            yield
        except Exception as error:
            reason = failure_sentence(error)
            runner = self._runners.pop(name, None)
            if runner is not None:
                runner.stop(timeout_s=0.0)
            if was_too_slow(error) and self._restarts[name] < MAX_RESTARTS and not self._stopping.is_set():
                self._restarts[name] += 1
                self._waiting.append(name)
                self._reports.say(restarting=name, reason=reason)
                return
            self._failed.append(name)
            self._reports.say(failed=name, reason=reason)


def _fork_python() -> None:
    """Have Spark's Python processes forked rather than started, unless somebody has chosen a Python."""
    if "PYSPARK_PYTHON" not in os.environ:
        # The server is forked with what is loaded here.
        importlib.import_module("pyspark.sql")
        command = serve_forks()
        if command is not None:
            os.environ["PYSPARK_PYTHON"] = str(command)


def main() -> int:
    """Run with the settings of the command line."""
    reports = Reports()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    try:
        return SparkJob(json.loads(sys.argv[1]), reports, stopping).run()
    except TidelogError as error:
        reports.say(error=str(error))
    except Exception as error:
        reports.say(error=failure_sentence(error))
        raise
    return 1


if __name__ == "__main__":
    sys.exit(main())
