"""``tidelog perf produce``: how fast records are written, as kafka-producer-perf-test measures it.

A record's latency runs from the call of ``send`` to its acknowledgement, so that time in the producer's own
buffer counts. ``--throughput`` below what the cluster can do shows the latency without that.
"""

from __future__ import annotations

import asyncio
import signal
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.connect import client_options, parse_assignments
from tidelog.cli.failure import Failure, WrongUsage, sentence
from tidelog.cli.output import counted, examples, print_json
from tidelog.cli.perf.figures import SendFigures
from tidelog.cli.perf.payloads import Payload, from_file, numbers, random_letters
from tidelog.cli.shared_options import (
    DEFAULT_CONNECTION,
    Connection,
    JsonOutput,
    NumRecords,
    PrintMetrics,
    ProducerProperty,
    grouped,
)
from tidelog.cli.values import CodecName, unescape

if TYPE_CHECKING:
    from tidelog.client.producer.async_producer import AsyncProducer
    from tidelog.client.producer.record import RecordMetadata

EPILOG = examples(
    "tidelog perf produce orders --num-records 1000000 --record-size 100",
    "tidelog perf produce orders -n 500000 --throughput 20000 --codec zstd --acks 1",
    "tidelog perf produce orders --warmup-records 100000 --producer-property linger.ms=20 --json",
    "tidelog perf produce orders --transaction-duration-ms 500",
)

_ACKS = ("0", "1", "all", "-1")
_TOPIC_WAIT_MS = 5_000
_DRAIN_BYTES = 1 << 16
_BURST_S = 0.0005
_TRANSACTION_MS = 3000


@dataclass(frozen=True)
class ProducePlan:
    """What to send, how fast, and what to tell of it."""

    topic: str
    records: int
    payload: Payload
    throughput: float
    warmup: int
    transaction_ms: int | None
    interval_s: float
    json: bool
    print_metrics: bool


@grouped
def command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.", show_default=False)],
    num_records: NumRecords = 1_000_000,
    record_size: Annotated[
        int | None,
        typer.Option("--record-size", min=1, help="Bytes in a value.", show_default="100"),
    ] = None,
    payload_file: Annotated[
        Path | None,
        typer.Option("--payload-file", metavar="FILE", help="Send random payloads from this file."),
    ] = None,
    payload_delimiter: Annotated[
        str,
        typer.Option(
            "--payload-delimiter", metavar="TEXT", help="The delimiter of the payloads in the file."
        ),
    ] = r"\n",
    payload_monotonic: Annotated[
        bool, typer.Option("--payload-monotonic", help="Send 0, 1, 2, … as values.")
    ] = False,
    throughput: Annotated[
        float,
        typer.Option(
            "--throughput", help="The maximum number of records per second.", show_default="no limit"
        ),
    ] = -1.0,
    warmup_records: Annotated[
        int,
        typer.Option(
            "--warmup-records",
            min=0,
            help="The number of records to exclude from a second, steady-state summary.",
        ),
    ] = 0,
    acks: Annotated[
        str | None,
        typer.Option("--acks", metavar="0|1|all", help="The acknowledgement to wait for; default: all."),
    ] = None,
    codec: Annotated[
        CodecName | None, typer.Option("--codec", "-z", help="Compression; default: none.")
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="ID", help="Write in transactions.")
    ] = None,
    transaction_duration_ms: Annotated[
        int | None,
        typer.Option(
            "--transaction-duration-ms",
            min=1,
            help="Write in transactions, and commit after this many milliseconds.",
            show_default="3000 with --transactional-id",
        ),
    ] = None,
    reporting_interval: Annotated[
        int, typer.Option("--reporting-interval", metavar="MS", min=1, help="The reporting interval.")
    ] = 5000,
    print_metrics: PrintMetrics = False,
    producer_property: ProducerProperty = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> int:
    """Write records as fast as they go, or at a rate, and tell of rates and latencies. Ctrl-C ends it."""
    if acks is not None and acks not in _ACKS:
        raise WrongUsage(f"invalid --acks {acks!r}: choose 0, 1 or all")
    if warmup_records >= num_records:
        raise WrongUsage(f"--warmup-records {warmup_records} must be below --num-records {num_records}")
    if throughput == 0:
        raise WrongUsage("--throughput must be above 0; omit it for no limit")
    payload = _payload(record_size, payload_file, payload_delimiter, payload_monotonic)
    chosen = {"acks": acks, "compression.type": codec, "transactional.id": transactional_id}
    properties = dict(parse_assignments(producer_property, "--producer-property"))
    defaults: dict[str, object] = {"client.id": "perf-producer-client"}
    if transaction_duration_ms is not None:
        defaults["transactional.id"] = f"performance-producer-{uuid.uuid4()}"
    options = client_options(connection, defaults, properties, chosen)
    transactions = options.get("transactional.id") is not None
    plan = ProducePlan(
        topic,
        num_records,
        payload,
        throughput,
        warmup_records,
        (transaction_duration_ms or _TRANSACTION_MS) if transactions else None,
        reporting_interval / 1000,
        json,
        print_metrics,
    )
    return asyncio.run(ProduceRun(plan).run(options))


def _payload(size: int | None, file: Path | None, delimiter: str, monotonic: bool) -> Payload:
    if (size is not None) + (file is not None) + monotonic > 1:
        raise WrongUsage("use only one of --record-size, --payload-file and --payload-monotonic")
    if file is not None:
        return from_file(file, unescape(delimiter))
    return numbers if monotonic else random_letters(size or 100)


@dataclass
class _Burst:
    """Records that were sent at the same moment, as far as it matters: one callback for all of them."""

    run: ProduceRun
    size: int
    sent_s: float
    steady: bool

    def delivered(self, _where: RecordMetadata, error: Exception | None) -> None:
        self.run.delivered(self, error)


@dataclass
class ProduceRun:
    """One run: sends, counts what is acknowledged, prints."""

    plan: ProducePlan
    stopped: bool = False
    failed: int = 0
    first_error: Exception | None = None
    windows: list[dict[str, object]] = field(default_factory=list)
    steady: SendFigures | None = None
    figures: SendFigures = field(init=False)

    def __post_init__(self) -> None:
        self.figures = SendFigures(self.plan.records, time.monotonic())

    async def run(self, options: dict[str, object]) -> int:
        """Send everything, wait for the last acknowledgement, print the summary."""
        from tidelog.client._network.retry import Deadline
        from tidelog.client.producer.async_producer import AsyncProducer

        async with AsyncProducer(options) as producer:
            await producer.cluster.connect()
            await producer.cluster.topic(
                self.plan.topic, allow_auto_create=True, deadline=Deadline(_TOPIC_WAIT_MS)
            )
            if self.plan.transaction_ms is not None:
                await producer.init_transactions()
            if self.plan.warmup and not self.plan.json:
                _say(
                    f"Warmup first {self.plan.warmup} records. "
                    "Steady state results will print after the complete test summary."
                )
            self.figures = SendFigures(self.plan.records, time.monotonic())
            await self._send_and_report(producer)
            self._print_summary(producer)
        if self.failed:
            assert self.first_error is not None
            raise Failure(
                f"{counted(self.failed, 'record')} could not be written: {sentence(self.first_error)}"
            )
        return 130 if self.stopped else 0

    async def _send_and_report(self, producer: AsyncProducer) -> None:
        """Ctrl-C ends the sending and waits for acknowledgements; a second one waits for nothing."""
        reporter = asyncio.create_task(self._report())
        sending = asyncio.create_task(self._send_all(producer))
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self.stopped = True
            sending.cancel()
            loop.remove_signal_handler(signal.SIGINT)

        loop.add_signal_handler(signal.SIGINT, stop)
        try:
            await asyncio.wait([sending])
            if not sending.cancelled():
                await sending
            await producer.flush()
        except asyncio.CancelledError:
            await producer.close(timeout=0)
            raise
        finally:
            reporter.cancel()
            sending.cancel()

    async def _send_all(self, producer: AsyncProducer) -> None:
        plan = self.plan
        began_s = transaction_s = time.monotonic()
        undrained = in_transaction = 0
        burst: _Burst | None = None
        for number in range(plan.records):
            if self.failed:
                break
            if plan.transaction_ms is not None and not in_transaction:
                await producer.begin_transaction()
                transaction_s = time.monotonic()
            now_s = time.monotonic()
            if plan.warmup and number == plan.warmup:
                self.steady = SendFigures(plan.records - number, now_s, steady=True)
                burst = None
            value = plan.payload(number)
            if burst is None or now_s - burst.sent_s > _BURST_S or len(value) != burst.size:
                burst = _Burst(self, len(value), now_s, self.steady is not None)
            producer.send(plan.topic, value, on_delivery=burst.delivered)
            in_transaction += 1
            if plan.transaction_ms is not None and (now_s - transaction_s) * 1000 >= plan.transaction_ms:
                await producer.commit_transaction()
                in_transaction = 0
            undrained += len(value)
            ahead_s = (number + 1) / plan.throughput - (now_s - began_s) if plan.throughput > 0 else 0.0
            if undrained >= _DRAIN_BYTES or ahead_s > 0:
                undrained = 0
                await producer.drain()
                if ahead_s > 0.001:
                    await asyncio.sleep(ahead_s)
        if plan.transaction_ms is not None and in_transaction:
            await producer.commit_transaction()

    def delivered(self, burst: _Burst, error: Exception | None) -> None:
        """One record is acknowledged, or never will be."""
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error
            return
        latency_ms = (time.monotonic() - burst.sent_s) * 1000
        self.figures.add(latency_ms, burst.size)
        if burst.steady and self.steady is not None:
            self.steady.add(latency_ms, burst.size)

    async def _report(self) -> None:
        """A line every interval: of the steady state, once it is reached."""
        told_steady = False
        while True:
            await asyncio.sleep(self.plan.interval_s)
            now_s = time.monotonic()
            figures = self.steady or self.figures
            if not figures.window.records:
                continue
            window = figures.next_window(now_s)
            if self.plan.json:
                self.windows.append(window.as_json(now_s))
                continue
            if self.steady is not None and not told_steady:
                told_steady = True
                _say("In steady state.")
            _say(window.line(now_s))

    def _print_summary(self, producer: AsyncProducer) -> None:
        now_s = time.monotonic()
        figures = sorted(producer.metrics().items()) if self.plan.print_metrics else []
        metrics = {str(name): value for name, value in figures}
        if self.plan.json:
            print_json(
                {
                    **self.figures.as_json(now_s),
                    **({"steady_state": self.steady.as_json(now_s)} if self.steady else {}),
                    "windows": self.windows,
                    **({"metrics": metrics} if self.plan.print_metrics else {}),
                }
            )
            return
        _say(self.figures.line(now_s))
        if self.steady is not None:
            _say(self.steady.line(now_s))
        for name, value in metrics.items():
            _say(f"{name:60} : {value:.3f}")


def _say(line: str) -> None:
    """At once, in a pipe too: somebody watches."""
    print(line, flush=True)
