"""``tidelog consume``: print the records of a topic, from a chosen place on, until told to stop."""

from __future__ import annotations

import asyncio
import enum
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from tidelog.cli.connect import DEFAULT_BOOTSTRAP, Bootstrap, with_cluster
from tidelog.cli.failure import WrongUsage
from tidelog.cli.output import counted, examples, is_terminal, remark, time_text
from tidelog.cli.record_text import bytes_to_json, headers_to_json, readable
from tidelog.cli.start_offsets import StartOffset, parse_start_offset, resolve_start_offsets
from tidelog.cli.values import unescape
from tidelog.client.cluster import Cluster
from tidelog.client.fetched import ConsumerRecord
from tidelog.client.offsets import list_offsets
from tidelog.client.resources import IsolationLevel, OffsetSpec
from tidelog.client.simple_consumer import SimpleConsumer
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

EPILOG = examples(
    "tidelog consume orders --from-beginning --key --headers",
    "tidelog consume orders --offset -10 --until-end",
    "tidelog consume orders --offset @2024-05-01T12:00:00Z --max-messages 5 --json",
)

RecordWriter = Callable[[ConsumerRecord], bytes]


class Isolation(enum.StrEnum):
    """Kafka's isolation levels."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"

    @property
    def level(self) -> IsolationLevel:
        return IsolationLevel[self.name]


def command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="What to read.", show_default=False)],
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="The same as --offset earliest.")
    ] = False,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="WHERE",
            help="earliest, latest, an offset, -N for the last N of each partition, or @TIME "
            "(milliseconds or ISO). Default: latest.",
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", min=0, help="Read this partition only; may be repeated."),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after so many records.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", "-t", min=0, help="Stop after so many seconds without records."),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at the end of what is there now.")
    ] = False,
    key: Annotated[bool, typer.Option("--key", "-k", help="Print keys before values.")] = False,
    headers: Annotated[bool, typer.Option("--headers", "-H", help="Print headers before values.")] = False,
    meta: Annotated[
        bool, typer.Option("--meta", "-m", help="Print partition, offset and timestamp before values.")
    ] = False,
    separator: Annotated[
        str, typer.Option("--separator", metavar="TEXT", help=r"Between these parts; \t is a tab.")
    ] = r"\t",
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one object per line; binary data is in key_base64, value_base64."),
    ] = False,
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="Whether to read open and aborted transactions.")
    ] = Isolation.READ_UNCOMMITTED,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the records of a topic. Follows the topic until Ctrl-C, unless an option says when to stop."""
    if from_beginning and offset is not None:
        raise WrongUsage("give either --offset or --from-beginning, not both")
    start = StartOffset.earliest() if from_beginning else parse_start_offset(offset or "latest")
    as_text = text_line(key=key, headers=headers, meta=meta, separator=unescape(separator))
    reading = Reading(_json_line if json else as_text, max_messages, timeout)

    async def action(cluster: Cluster) -> None:
        partitions = await _partitions(cluster, topic, partition)
        level = isolation.level
        # An offset that was asked for must be there; any other place may move with retention.
        consumer = SimpleConsumer(
            cluster, isolation_level=level, offset_reset=None if start.is_exact else OffsetSpec.EARLIEST
        )
        await consumer.assign(await resolve_start_offsets(cluster, partitions, start, level))
        ends = None
        if until_end:
            latest = dict.fromkeys(partitions, int(OffsetSpec.LATEST))
            found = await list_offsets(cluster, latest, isolation_level=level)
            ends = {each: result.offset for each, result in found.items()}
        await reading.run(consumer, ends)

    with_cluster(bootstrap, action)
    if reading.stopped_by_signal or sys.stderr.isatty():
        remark(f"{counted(reading.count, 'record')} read from {topic}")


class Reading:
    """Polls and prints until one of the reasons to stop holds."""

    def __init__(self, write: RecordWriter, max_messages: int | None, timeout_s: float | None) -> None:
        self.count = 0
        self.stopped_by_signal = False
        self._write = write
        self._max_messages = max_messages
        self._timeout_s = timeout_s

    async def run(self, consumer: SimpleConsumer, ends: dict[TopicPartition, int] | None) -> None:
        """Print records until the count, the quiet time, ``ends`` or a signal says stop."""
        task = asyncio.create_task(self._poll(consumer, ends))
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self.stopped_by_signal = True
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)
        if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            # Readable is what the writing end of a pipe becomes when nobody is left to read the other end.
            loop.add_reader(sys.stdout.fileno(), task.cancel)
        try:
            await task
        except asyncio.CancelledError:
            if not self.stopped_by_signal:
                raise BrokenPipeError from None

    async def _poll(self, consumer: SimpleConsumer, ends: dict[TopicPartition, int] | None) -> None:
        quiet_since = time.monotonic()
        while not self._reached(consumer, ends):
            if records := await consumer.poll():
                self._print(records, ends)
                quiet_since = time.monotonic()
                if self._max_messages is not None and self.count >= self._max_messages:
                    return
            elif self._timeout_s is not None and time.monotonic() - quiet_since >= self._timeout_s:
                return

    @staticmethod
    def _reached(consumer: SimpleConsumer, ends: dict[TopicPartition, int] | None) -> bool:
        return ends is not None and all(consumer.position(each) >= end for each, end in ends.items())

    def _print(self, records: list[ConsumerRecord], ends: dict[TopicPartition, int] | None) -> None:
        if ends is not None:
            records = [
                each for each in records if each.offset < ends[TopicPartition(each.topic, each.partition)]
            ]
        if self._max_messages is not None:
            records = records[: self._max_messages - self.count]
        sys.stdout.buffer.write(b"".join(map(self._write, records)))
        sys.stdout.buffer.flush()
        self.count += len(records)


async def _partitions(cluster: Cluster, topic: str, wanted: list[int] | None) -> list[TopicPartition]:
    described = (await cluster.refresh([topic])).topics.get(topic)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if described is None else described.error
    if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise KafkaError(error, f"topic {topic!r} does not exist")
    if described is None or error:
        raise KafkaError(error, f"topic {topic!r} cannot be read now")
    for index in wanted or []:
        if index not in described.partitions:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {index}, only 0 to {len(described.partitions) - 1}",
            )
    return [TopicPartition(topic, index) for index in wanted or described.partitions]


def text_line(*, key: bool, headers: bool, meta: bool, separator: str) -> RecordWriter:
    """Prints a record as text: on a terminal unprintable bytes are shown, in a pipe they pass unchanged."""
    between = separator.encode()
    shown = _for_terminal if is_terminal() else _unchanged

    def write(record: ConsumerRecord) -> bytes:
        parts: list[bytes] = []
        if meta:
            place = f"{record.partition}{separator}{record.offset}{separator}{time_text(record.timestamp)}"
            parts.append(place.encode())
        if headers:
            pairs = (f"{name}={readable(value)}" for name, value in record.headers)
            parts.append(",".join(pairs).encode() or b"-")
        if key:
            parts.append(shown(record.key))
        parts.append(shown(record.value))
        return between.join(parts) + b"\n"

    return write


def _unchanged(data: bytes | None) -> bytes:
    return b"null" if data is None else data


def _for_terminal(data: bytes | None) -> bytes:
    return readable(data).encode()


def _json_line(record: ConsumerRecord) -> bytes:
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestamp_type": "LogAppendTime" if record.timestamp_type else "CreateTime",
        **bytes_to_json("key", record.key),
        **bytes_to_json("value", record.value),
        "headers": headers_to_json(record.headers),
    }
    return msgspec.json.encode(fields) + b"\n"
