"""The order of things in ``tidelog demo``: everything starts at once, and ends in the order of the data.

Broker and Spark start together (Spark needs some seconds), topics and events follow as soon as the broker is
ready, the queries as soon as Spark is. At the end the generator stops first, the pipelines work off what is
left, the queries stop between two micro-batches, then the broker shuts down. A second Ctrl-C skips all that.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any

from rich.console import Console

from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.processes.children import Child
from tidelog.spark.cassandra_options import ContactPoints
from tidelog.spark.pipelines import registry
from tidelog.spark.settings import PipelineSettings
from tidelog_rewards import events
from tidelog_rewards.demo import directory, summary
from tidelog_rewards.demo.cassandra_tables import TableFigures, read_tables
from tidelog_rewards.demo.directory import DemoError
from tidelog_rewards.demo.display import Display
from tidelog_rewards.demo.results import Results
from tidelog_rewards.demo.settings import PARTITIONS, DemoSettings
from tidelog_rewards.demo.truth import Truth
from tidelog_rewards.demo.view import Flow, PipelineFigures, Step, View, Watched
from tidelog_rewards.topics import ensure_topics

EVENTS_JOB = "tidelog_rewards.demo.events_job"
SPARK_JOB = "tidelog_rewards.demo.spark_job"
CONSOLE_NEEDS = ("starlette", "uvicorn", "httpx", "fastavro", "proto_schema_parser", "cbor2")
DRAIN_S = 10.0
CASSANDRA_DRAIN_S = 60.0
"""It shares the cores of this machine, as a rule."""
SAMPLED_S = 1.3
"""After this time the observer has looked once more."""
SPARK_STOP_S = 90.0
INTERRUPTED = 130
_READY = "Tidelog is ready on "
_CONSOLE_READY = "The console is ready at "
_QUIET_BROKER = (
    # One small machine: a handful of partitions for groups and transactions is plenty, and starts sooner.
    "offsets.topic.num.partitions=4",
    "transaction.state.log.num.partitions=4",
    # The first member of a group reads at once.
    "group.initial.rebalance.delay.ms=0",
)


_CONSOLE_CONFIG = """\
# The app sends phone numbers as they are; the console shows them to who asks.
[[masks]]
topics = ["ml_*"]
fields = ["phone", "*_phone"]
shown_to = "viewer"
"""


def run(settings: DemoSettings, console: Console) -> int:
    """Run the main job; returns the exit code."""
    unknown = [name for name in settings.pipelines if name not in registry.installed()]
    if unknown:
        raise DemoError(f"there is no pipeline {unknown[0]}: choose from {', '.join(registry.installed())}")
    if settings.cassandra is not None:
        ContactPoints.parse(settings.cassandra)
    with directory.prepared(settings):
        return asyncio.run(Demo(settings, console).run())


class Demo:
    """One run."""

    def __init__(self, settings: DemoSettings, console: Console) -> None:
        self._settings = settings
        self._console = console
        self._names = list(settings.pipelines or registry.installed())
        self._watched: dict[str, Watched] = {}
        self._steps = {
            name: Step(label)
            for name, label in (
                ("broker", "the broker"),
                ("topics", "the topics"),
                ("events", "events"),
                ("session", "Java and Spark"),
                ("pipelines", "the pipelines"),
                ("batch", "the first results"),
            )
        }
        self._view = View(
            steps=list(self._steps.values()),
            inputs={kind.topic: Flow() for kind in events.KINDS},
            outputs={topic: Flow() for topic in events.OUTPUTS},
            pipelines={name: PipelineFigures(name) for name in self._names},
            rate_wanted=settings.rate,
            seconds=settings.seconds,
            directory=str(settings.directory),
        )
        self._number = directory.next_number(settings)
        self._keyspace = directory.keyspace(settings)
        self._tables: TableFigures | None = None
        truth = [settings.truth(number + 1) for number in range(self._number)]
        self._results = Results(self._view, Truth(truth))
        self._broker = Child("broker", settings.log("broker"))
        self._generator = Child("events", settings.log("events"))
        self._spark = Child("spark", settings.log("spark"))
        self._page = Child("console", settings.log("console"))
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._ending = False
        self._problem = ""
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> int:
        """From the first line to the summary."""
        self._listen_to_signals()
        try:
            async with Display(self._view, self._console):
                await self._start()
                await self._until_the_end()
                await self._end()
        finally:
            for child in (self._page, self._generator, self._spark, self._broker):
                child.kill()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        return self._conclude()

    # -- beginning

    async def _start(self) -> None:
        try:
            port = directory.choose_port(self._settings.port)
        except DemoError as error:
            self._give_up(str(error))
            return
        self._view.address = f"127.0.0.1:{port}"
        self._in_background(self._serve(port))
        self._in_background(self._compute())

    async def _serve(self, port: int) -> None:
        """The broker's life: it is ready, topics and events follow, and it must not end before we say so."""
        step = self._steps["broker"]
        step.begin()
        data = str(self._settings.broker_data)
        options = [text for option in _QUIET_BROKER for text in ("--set", option)]
        await self._broker.start(
            "tidelog", ["start", "--listen", f"127.0.0.1:{port}", "--data-dir", data, *options]
        )
        async for line in self._broker.lines():
            if line.startswith(_READY):
                taken = port != (self._settings.port or directory.PREFERRED_PORT)
                why = f", since {directory.PREFERRED_PORT} is taken" if taken else ""
                step.end(f"{self._view.address}{why}")
                self._in_background(self._feed())
        if not self._ending:
            step.end(failed=True)
            self._give_up(f"the broker has ended: {self._broker.last_words()} (log: {self._broker.log})")

    async def _feed(self) -> None:
        """Topics, then events, then a watch over both."""
        # The client takes a while to load: not before Spark's JVM is on its way.
        from tidelog_rewards.demo.observer import Observer

        step = self._steps["topics"]
        step.begin()
        await asyncio.to_thread(ensure_topics, self._pipeline_settings(), partitions=PARTITIONS)
        self._settings.topics_marker.touch()
        topics = [*self._view.inputs, *self._view.outputs]
        step.end(f"{len(topics)} topics of {PARTITIONS} partitions")
        partitions = [TopicPartition(topic, number) for topic in topics for number in range(PARTITIONS)]
        observer = Observer(self._view, self._results, self._watched)
        self._in_background(observer.run(self._view.address, partitions))
        await self._generate()

    async def _generate(self) -> None:
        step = self._steps["events"]
        step.begin(f"{self._settings.rate:,} a second")
        arguments = {
            "bootstrap_servers": self._view.address,
            "rate": self._settings.rate,
            "seed": self._settings.seed + self._number - 1,
            "truth": str(self._settings.truth(self._number)),
        }
        await self._generator.start(EVENTS_JOB, [json.dumps(arguments)])
        step.end()
        async for _ in self._generator.lines():
            pass
        if not self._ending:
            words = self._generator.last_words()
            self._give_up(f"no more events come: {words} (log: {self._generator.log})")

    async def _compute(self) -> None:
        """Spark's life: what it reports goes into the view."""
        self._steps["session"].begin("the JVM takes some seconds")
        arguments = {
            "bootstrap_servers": self._view.address,
            "directory": str(self._settings.directory),
            "topics_marker": str(self._settings.topics_marker),
            "trigger": self._settings.trigger,
            "master": self._settings.master,
            "pipelines": self._names,
            "cassandra": self._settings.cassandra,
            "keyspace": self._keyspace,
        }
        # Spark's Python processes are forked from this one, and Spark wants one seed in all of them.
        await self._spark.start(SPARK_JOB, [json.dumps(arguments)], {"PYTHONHASHSEED": "0"})
        async for report in self._spark.reports():
            self._take(report)
        code = await self._spark.wait()
        if not self._ending and not self._problem:
            failed = self._view.failed()
            words = failed[0].problem if failed else self._spark.last_words()
            self._give_up(f"Spark has ended with code {code}: {words} (log: {self._spark.log})")

    async def _show_in_a_browser(self) -> None:
        """The console's life; a run does without where it is not installed or does not start."""
        if any(find_spec(name) is None for name in CONSOLE_NEEDS):
            self._view.notes.append('for a look in a browser: pip install "tidelog[console]"')
            return
        self._settings.console_config.write_text(_CONSOLE_CONFIG)
        port = directory.choose_port(None, directory.CONSOLE_PORT)
        options = {
            "--listen": f"127.0.0.1:{port}",
            "--bootstrap-server": self._view.address,
            "--config": str(self._settings.console_config),
            "--pipelines": str(self._settings.directory),
            "--data-dir": str(self._settings.directory / "console"),
        }
        words = [word for option in options.items() for word in option]
        await self._page.start("tidelog", ["console", *words])
        async for line in self._page.lines():
            if line.startswith(_CONSOLE_READY):
                self._view.console = line.removeprefix(_CONSOLE_READY)
                self._view.notes.append(f"in a browser: {self._view.console}")
        if not self._ending:
            self._view.console = ""
            self._view.notes.append(f"the console has ended: {self._page.last_words()}")

    def _take(self, report: dict[str, Any]) -> None:
        """One report of the Spark child."""
        match report:
            case {"step": "pipelines"}:
                self._steps["session"].end(f"Spark {report['version']}")
                self._steps["pipelines"].begin()
                for name, (group, inputs) in report["pipelines"].items():
                    self._watched[name] = Watched(group, frozenset(inputs))
                for row in self._view.pipelines.values():
                    row.state = "starting"
            case {"started": str(name)}:
                self._view.pipelines[name].state = "running"
                states = [row.state for row in self._view.pipelines.values()]
                if "starting" not in states:
                    self._steps["pipelines"].end()
                    self._steps["batch"].begin()
            case {"progress": str(name)}:
                self._take_progress(self._view.pipelines[name], report)
            case {"restarting": str(name)}:
                self._view.pipelines[name].state = "starting"
            case {"stopped": str(name)}:
                self._view.pipelines[name].state = "stopped"
            case {"failed": str(name), "reason": reason}:
                row = self._view.pipelines[name]
                row.state, row.problem = "failed", str(reason)
            case {"error": reason}:
                self._steps["session"].end(failed=True)
                self._give_up(f"Spark cannot work: {reason} (log: {self._spark.log})")

    def _take_progress(self, row: PipelineFigures, report: dict[str, Any]) -> None:
        row.batches = report["batches"]
        row.rows = report["rows"]
        row.batch_ms = report["batch_ms"]
        row.rows_per_second = report["rows_per_second"]
        unseen = [each for each in self._view.pipelines.values() if not each.rows and each.state != "failed"]
        if self._view.live_after_s is None and not unseen:
            self._steps["batch"].end()
            self._view.live_after_s = self._view.elapsed_s
            # Not before: it would take its share of a small machine while all the rest starts.
            self._in_background(self._show_in_a_browser())

    # -- the end

    async def _until_the_end(self) -> None:
        seconds = self._settings.seconds
        left = None if seconds is None else max(seconds - self._view.elapsed_s, 0)
        try:
            async with asyncio.timeout(left):
                await self._stop.wait()
        except TimeoutError:
            self._stop.set()

    async def _end(self) -> None:
        """In the order of the data, unless somebody is in a hurry."""
        self._ending = True
        orderly = asyncio.create_task(self._end_in_order())
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait({orderly, hurry}, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not orderly.done():
            orderly.cancel()
        elif orderly.exception() is not None:
            raise orderly.exception() or AssertionError
        self._view.ended = self._view.began + self._view.elapsed_s

    async def _end_in_order(self) -> None:
        view = self._view
        view.stopping = "ending: no new events"
        await self._generator.stop()
        if view.is_live and not self._problem:
            view.stopping = "ending: the pipelines work off what is left"
            await self._drain()
        if any(row.state == "running" for row in view.pipelines.values()):
            view.stopping = "ending: Spark stops after its micro-batches"
            await self._spark.stop(SPARK_STOP_S)
        else:
            # It is still starting: there is nothing that it could end well, and it would not hear us.
            self._spark.kill()
        read = -1
        while self._broker.is_running and view.is_live and read != view.records_out.total:
            # One more round of the observer, until nothing new has come.
            read = view.records_out.total
            await asyncio.sleep(SAMPLED_S)
        if self._settings.cassandra is not None and view.is_live and not self._problem:
            view.stopping = "ending: the tables are read from Cassandra"
            try:
                self._tables = await asyncio.to_thread(read_tables, self._settings.cassandra, self._keyspace)
            except TidelogError as error:
                self._problem = str(error)
        view.stopping = "ending: the broker shuts down"
        await self._page.stop()
        await self._broker.stop()

    async def _drain(self) -> None:
        """Wait until no pipeline has anything left to read, for some seconds at most."""
        drain_s = DRAIN_S if self._settings.cassandra is None else CASSANDRA_DRAIN_S
        deadline = asyncio.get_running_loop().time() + drain_s
        left: int | None = 1
        while left and asyncio.get_running_loop().time() < deadline:
            # Lags are sampled once a second: what they say at first may be from before the last event.
            await asyncio.sleep(SAMPLED_S)
            left = self._view.total_lag

    def _conclude(self) -> int:
        """The summary and the exit code."""
        if self._hurry.is_set():
            return INTERRUPTED
        failed = self._view.failed()
        if not self._problem and failed:
            self._problem = f"the pipeline {failed[0].problem} (log: {self._spark.log})"
        if self._view.events_in.total:
            self._results.refresh(final=True)
            proofs = self._results.proofs()
            if self._tables is not None:
                proofs += self._tables.sentences(self._results.paid())
            summary.show(self._view, self._settings, self._console, proofs)
        if self._problem:
            raise DemoError(self._problem)
        return 0

    # -- floor

    def _pipeline_settings(self) -> PipelineSettings:
        return PipelineSettings(
            bootstrap_servers=self._view.address,
            directory=self._settings.directory,
            trigger=self._settings.trigger,
        )

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        async def watched() -> None:
            try:
                await work
            except TidelogError as error:
                if not self._ending:
                    self._give_up(str(error))
            except Exception as error:
                # A mistake of ours: said at once, instead of figures that stand still.
                self._give_up(f"the demo itself has failed: {error!r}")
                raise

        self._tasks.append(asyncio.create_task(watched()))

    def _give_up(self, problem: str) -> None:
        self._problem = self._problem or problem
        self._stop.set()

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()

        def on_signal(number: signal.Signals) -> None:
            if self._stop.is_set() and number is signal.SIGINT:
                self._hurry.set()
            self._stop.set()

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, on_signal, number)
