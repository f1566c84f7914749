"""``tidelog perf consume``: how fast records are read, as kafka-consumer-perf-test measures it.

It reads as a member of a group of its own and commits nothing, unless ``--group`` names one.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connect import client_options, parse_assignments
from tidelog.cli.output import examples, headings_in_pipes, is_terminal, print_json, remark
from tidelog.cli.perf.figures import READ_COLUMNS, ReadFigures, moment_text
from tidelog.cli.shared_options import (
    DEFAULT_CONNECTION,
    Connection,
    ConsumerProperty,
    JsonOutput,
    NumRecords,
    PrintMetrics,
    grouped,
)
from tidelog.client.subscription.listener import RebalanceListener
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer.async_consumer import AsyncConsumer

EPILOG = examples(
    "tidelog perf consume orders --num-records 1000000",
    "tidelog perf consume orders -n 500000 --show-detailed-stats --reporting-interval 1000",
    "tidelog perf consume orders --consumer-property fetch.min.bytes=100000 --json",
)

_POLL_S = 0.1
_METADATA_S = 30.0


@dataclass(frozen=True)
class ConsumePlan:
    """What to read, for how long, and what to tell of it."""

    topic: str
    records: int
    timeout_s: float
    interval_s: float
    detailed: bool
    header: bool
    json: bool
    print_metrics: bool


@grouped
def command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.", show_default=False)],
    num_records: NumRecords = 1_000_000,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="The consumer group.", show_default="one of its own"),
    ] = None,
    from_latest: Annotated[
        bool,
        typer.Option(
            "--from-latest", help="Start at the latest offset if the group has no committed offsets."
        ),
    ] = False,
    fetch_size: Annotated[
        int | None,
        typer.Option(
            "--fetch-size",
            min=1,
            help="The maximum number of bytes per partition and fetch.",
            show_default=str(1 << 20),
        ),
    ] = None,
    timeout: Annotated[
        int, typer.Option("--timeout", metavar="MS", min=1, help="Stop after this time without records.")
    ] = 10_000,
    show_detailed_stats: Annotated[
        bool,
        typer.Option(
            "--show-detailed-stats", help="Print a line every --reporting-interval instead of a summary."
        ),
    ] = False,
    reporting_interval: Annotated[
        int, typer.Option("--reporting-interval", metavar="MS", min=1, help="The reporting interval.")
    ] = 5000,
    hide_header: Annotated[bool, typer.Option("--hide-header", help="Omit the header line.")] = False,
    print_metrics: PrintMetrics = False,
    consumer_property: ConsumerProperty = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> int:
    """Read records as fast as they come, and tell of rates. Ctrl-C ends it."""
    defaults: dict[str, object] = {
        "client.id": "perf-consumer-client",
        "auto.offset.reset": "earliest",
        "allow.auto.create.topics": False,
        "max.partition.fetch.bytes": 1 << 20,
        "receive.buffer.bytes": 2 << 20,
        "max.poll.records": 5000,
        "check.crcs": False,
    }
    # The group of a file written for an application is that one's: measuring must not take its partitions.
    own = {"group.id": f"perf-consumer-{random.randrange(100_000)}", "enable.auto.commit": False}
    properties = {**own, **dict(parse_assignments(consumer_property, "--consumer-property"))}
    chosen = {
        "group.id": group,
        "enable.auto.commit": None if group is None else True,
        "auto.offset.reset": "latest" if from_latest else None,
        "max.partition.fetch.bytes": fetch_size,
    }
    options = client_options(connection, defaults, properties, chosen)
    plan = ConsumePlan(
        topic,
        num_records,
        timeout / 1000,
        reporting_interval / 1000,
        show_detailed_stats,
        not hide_header,
        json,
        print_metrics,
    )
    return asyncio.run(ConsumeRun(plan).run(options))


class _Joining(RebalanceListener):
    """Counts the time in which no partition was assigned."""

    def __init__(self) -> None:
        self.total_s = 0.0
        self._assigned: set[TopicPartition] = set()
        self._since_s = time.monotonic()

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        if not self._assigned:
            self.total_s += time.monotonic() - self._since_s
        self._assigned.update(partitions)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._assigned.difference_update(partitions)
        if not self._assigned:
            self._since_s = time.monotonic()


class ConsumeRun:
    """One run: reads, counts, prints."""

    def __init__(self, plan: ConsumePlan) -> None:
        self.plan = plan
        self.stopped = False
        self.records = 0
        self.bytes = 0
        self.windows: list[dict[str, object]] = []

    async def run(self, options: dict[str, object]) -> int:
        """Read until enough has come, nothing comes, or somebody stops it; then print the summary."""
        from tidelog.client.consumer.async_consumer import AsyncConsumer

        plan = self.plan
        async with AsyncConsumer(options) as consumer:
            await consumer.cluster.connect()  # what is out of reach is said at once
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stop)
            # A topic that does not exist is said at once.
            await consumer.partitions_for(plan.topic, _METADATA_S)
            if plan.header and not plan.json and (is_terminal() or headings_in_pipes()):
                first = "time, threadId" if plan.detailed else "start.time, end.time"
                print(f"{first}, {READ_COLUMNS}", flush=True)
            began_s = time.time()
            joining = _Joining()
            consumer.subscribe([plan.topic], listener=joining)
            await self._read(consumer, joining)
            ended_s = time.time()
            figures = sorted(consumer.metrics().items()) if plan.print_metrics else []
            metrics = {str(name): value for name, value in figures}
        if self.records < plan.records and not self.stopped:
            remark(
                f"read only {self.records} of {plan.records} records; no more arrived for "
                f"{plan.timeout_s * 1000:.0f} ms: increase --timeout to wait longer"
            )
        self._print_summary(ReadFigures(began_s, ended_s, self.bytes, self.records, joining.total_s), metrics)
        return 130 if self.stopped else 0

    def _stop(self) -> None:
        self.stopped = True

    async def _read(self, consumer: AsyncConsumer, joining: _Joining) -> None:
        told_s = quiet_since_s = time.time()
        told_bytes = told_records = 0
        told_joining_s = 0.0
        assigned = False
        while self.records < self.plan.records and not self.stopped:
            records = await consumer.poll(_POLL_S)
            now_s = time.time()
            if records:
                quiet_since_s = now_s
                self.records += len(records)
                self.bytes += sum(len(each.key or b"") + len(each.value or b"") for each in records)
            elif not assigned:
                # A group takes its time to assign.
                quiet_since_s, assigned = now_s, bool(consumer.assignment())
            elif now_s - quiet_since_s > self.plan.timeout_s:
                return
            if records and now_s - told_s >= self.plan.interval_s:
                window = ReadFigures(
                    told_s,
                    now_s,
                    self.bytes - told_bytes,
                    self.records - told_records,
                    joining.total_s - told_joining_s,
                )
                self._print_window(window)
                told_s, told_bytes, told_records = now_s, self.bytes, self.records
                told_joining_s = joining.total_s

    def _print_window(self, window: ReadFigures) -> None:
        if self.plan.json:
            self.windows.append(window.as_json())
        elif self.plan.detailed:
            print(f"{moment_text(window.ended_s)}, 0, {window.columns(self.bytes, self.records)}", flush=True)

    def _print_summary(self, whole: ReadFigures, metrics: dict[str, float]) -> None:
        if self.plan.json:
            extra = {"metrics": metrics} if self.plan.print_metrics else {}
            print_json({**whole.as_json(), "windows": self.windows, **extra})
            return
        if not self.plan.detailed:
            print(
                f"{moment_text(whole.began_s)}, {moment_text(whole.ended_s)}, "
                f"{whole.columns(whole.bytes, whole.records)}"
            )
        for name, value in metrics.items():
            print(f"{name:60} : {value:.3f}")
