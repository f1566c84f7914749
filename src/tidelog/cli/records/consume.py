"""``tidelog consume``: print the records of a topic, from a chosen place on, until told to stop.

Without ``--group`` partitions are assigned by hand and nothing is committed. As a member of a group it reads
what the group gives it and commits what it has printed.
"""

from __future__ import annotations

import asyncio
import enum
import os
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidelog.cli.connect import client_options, parse_assignments
from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.output import counted, examples, is_terminal, printable, remark, time_text
from tidelog.cli.records.record_text import bytes_to_json, headers_to_json, readable
from tidelog.cli.records.start_offsets import EARLIEST, StartOffset, parse_start_offset, resolve_start_offsets
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, ConsumerProperty, grouped
from tidelog.cli.values import unescape
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer.async_consumer import AsyncConsumer
    from tidelog.records.record_codec import ConsumerRecord

EPILOG = examples(
    "tidelog consume orders --from-beginning --key --headers",
    "tidelog consume orders --offset -10 --until-end",
    "tidelog consume orders --offset @2024-05-01T12:00:00Z --max-messages 5 --json",
    "tidelog consume orders --group billing --from-beginning --isolation-level read_committed",
)

_POLL_S = 0.5
_PATIENCE_S = 60.0
_DEFAULTS = {"allow.auto.create.topics": False, "max.poll.records": 5000}

RecordWriter = Callable[["ConsumerRecord"], bytes]


class Isolation(enum.StrEnum):
    """Kafka's isolation levels."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


@grouped
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
        typer.Option("--partition", "-p", min=0, help="Read only this partition; may be repeated."),
    ] = None,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", "-n", min=1, help="Stop after this number of records.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", min=0, help="Stop after this many seconds without records."),
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", "-e", help="Stop at the current end of the topic.")
    ] = False,
    key: Annotated[bool, typer.Option("--key", "-k", help="Print the key before the value.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Print the headers before the value.")] = False,
    meta: Annotated[
        bool, typer.Option("--meta", help="Print partition, offset and timestamp before the value.")
    ] = False,
    separator: Annotated[
        str,
        typer.Option("--separator", metavar="TEXT", help=r"The separator between these parts; \t is a tab."),
    ] = r"\t",
    json: Annotated[
        bool,
        typer.Option("--json", help="Print one object per line; binary data is in key_base64, value_base64."),
    ] = False,
    isolation: Annotated[
        Isolation | None,
        typer.Option(
            "--isolation",
            "--isolation-level",
            help="Whether to include records of open and aborted transactions; default: read_uncommitted.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Read as a member of this group, from its committed offsets, and commit what is printed.",
        ),
    ] = None,
    consumer_property: ConsumerProperty = None,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Print the records of a topic. Follows the topic until Ctrl-C, unless an option says when to stop."""
    if from_beginning and offset is not None:
        raise WrongUsage("use either --offset or --from-beginning, not both")
    start = EARLIEST if from_beginning else parse_start_offset(offset or "latest")
    chosen = {"isolation.level": isolation, "group.id": group}
    properties = dict(parse_assignments(consumer_property, "--consumer-property"))
    options = client_options(connection, _DEFAULTS, properties, chosen)
    # Records are printed as bytes: deserializers of files written for other programs are theirs.
    for name in ("key.deserializer", "value.deserializer"):
        options.pop(name, None)
    if group is None:
        # Groups of files written for other programs are theirs: reading by hand must not commit there. An
        # offset that was asked for must be there; any other place may move with retention.
        for name in ("group.id", "enable.auto.commit", "auto.commit.enable"):
            options.pop(name, None)
        options["auto.offset.reset"] = "none" if start.is_exact else "earliest"
    else:
        _start_in_group(options, start, partition, from_options=offset is not None or from_beginning)
    as_text = text_line(key=key, headers=headers, meta=meta, separator=unescape(separator))
    reading = Reading(_json_line if json else as_text, max_messages, timeout)
    asyncio.run(_consume(options, reading, topic, partition, start, until_end=until_end))
    if reading.stopped_by_signal or sys.stderr.isatty():
        remark(f"{counted(reading.count, 'record')} read from {topic}")


def _start_in_group(
    options: dict[str, object], start: StartOffset, partitions: list[int] | None, *, from_options: bool
) -> None:
    if partitions:
        raise WrongUsage("a group assigns partitions itself: use either --partition or --group")
    if start.reset_policy is None:
        raise WrongUsage(
            "a group starts from its committed offsets: --group allows only --offset earliest and "
            "latest, for partitions without one; run `tidelog groups reset-offsets` to move them"
        )
    if from_options:
        options["auto.offset.reset"] = start.reset_policy


async def _consume(
    options: dict[str, object],
    reading: Reading,
    topic: str,
    wanted: list[int] | None,
    start: StartOffset,
    *,
    until_end: bool,
) -> None:
    from tidelog.client.consumer.async_consumer import AsyncConsumer

    in_group = "group.id" in options
    async with AsyncConsumer(options) as consumer:
        # What is out of reach is said at once, not retried.
        await consumer.cluster.connect()
        partitions = await _partitions(consumer, topic, wanted)
        ends = await consumer.end_offsets(partitions) if until_end else None
        if in_group:
            consumer.subscribe([topic])
        else:
            offsets = await resolve_start_offsets(consumer, partitions, start)
            consumer.assign(partitions)
            for each, offset in offsets.items():
                consumer.seek(each, offset)
        await reading.run(consumer, ends, in_group=in_group)


class Reading:
    """Polls and prints until one of the reasons to stop holds."""

    def __init__(self, write: RecordWriter, max_messages: int | None, timeout_s: float | None) -> None:
        self.count = 0
        self.stopped_by_signal = False
        self._write = write
        self._max_messages = max_messages
        self._timeout_s = timeout_s

    async def run(
        self, consumer: AsyncConsumer, ends: dict[TopicPartition, int] | None, *, in_group: bool
    ) -> None:
        """Print records until the count, the quiet time, ``ends`` or a signal says stop."""
        task = asyncio.create_task(self._poll(consumer, ends, in_group=in_group))
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

    async def _poll(
        self, consumer: AsyncConsumer, ends: dict[TopicPartition, int] | None, *, in_group: bool
    ) -> None:
        quiet_since = time.monotonic()
        while not await self._reached(consumer, ends):
            left = None if self._max_messages is None else self._max_messages - self.count
            wait_s = _POLL_S
            if self._timeout_s is not None:
                wait_s = min(wait_s, max(quiet_since + self._timeout_s - time.monotonic(), 0))
            if records := await consumer.poll(wait_s, left):
                # What a group's member has polled it will commit: so it prints all of it.
                self._print(consumer, records, None if in_group else ends)
                quiet_since = time.monotonic()
                if self._max_messages is not None and self.count >= self._max_messages:
                    return
            elif not consumer.assignment():
                quiet_since = time.monotonic()  # a group takes its time to assign
            elif self._timeout_s is not None and time.monotonic() - quiet_since >= self._timeout_s:
                return
            self._check_trouble(consumer)

    @staticmethod
    async def _reached(consumer: AsyncConsumer, ends: dict[TopicPartition, int] | None) -> bool:
        mine = consumer.assignment()
        if ends is None or not mine:
            return False
        return all([await consumer.position(each) >= ends.get(each, 0) for each in mine])

    @staticmethod
    def _check_trouble(consumer: AsyncConsumer) -> None:
        trouble = consumer.ongoing_error()
        if trouble is not None and trouble[0] > _PATIENCE_S:
            raise Failure(f"no records could be read for {trouble[0]:.0f} s: {trouble[1]}")

    def _print(
        self,
        consumer: AsyncConsumer,
        records: list[ConsumerRecord],
        ends: dict[TopicPartition, int] | None,
    ) -> None:
        shown = records
        if ends is not None:
            shown = [
                each for each in records if each.offset < ends[TopicPartition(each.topic, each.partition)]
            ]
        try:
            sys.stdout.buffer.write(b"".join(map(self._write, shown)))
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # They were not printed, so they must not be committed when the consumer closes.
            for each in reversed(records):
                consumer.seek(TopicPartition(each.topic, each.partition), each.offset)
            raise BrokenPipeError from None  # without a number, by which typer would call it a failure
        self.count += len(shown)


async def _partitions(consumer: AsyncConsumer, topic: str, wanted: list[int] | None) -> list[TopicPartition]:
    known = {each.partition for each in await consumer.partitions_for(topic, _PATIENCE_S / 2)}
    for index in wanted or []:
        if index not in known:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic!r} has no partition {index}, only 0 to {len(known) - 1}",
            )
    return [TopicPartition(topic, index) for index in wanted or sorted(known)]


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
            pairs = (f"{printable(name)}={readable(value)}" for name, value in record.headers)
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
