"""``tidelog produce``: write lines, or JSON objects, as records to a topic."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tidelog.cli.connect import client_options, parse_assignments
from tidelog.cli.failure import Failure, WrongUsage, sentence
from tidelog.cli.output import counted, examples, print_row, remark
from tidelog.cli.records.input_lines import input_lines
from tidelog.cli.records.record_text import bytes_from_json, headers_from_json
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, ProducerProperty, grouped
from tidelog.cli.values import CodecName, parse_time_ms, unescape
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.options import MAX_LONG
from tidelog.records.record import RecordHeader
from tidelog.unreadable import UNREADABLE

if TYPE_CHECKING:
    from tidelog.client.metadata import TopicMetadata
    from tidelog.client.producer.async_producer import AsyncProducer
    from tidelog.client.producer.record_future import Delivery

EPILOG = examples(
    "printf 'k1:v1\\nk2:v2\\n' | tidelog produce orders --key-separator :",
    "tidelog produce orders --file orders.jsonl --json --codec zstd",
    """echo '{"key": "k", "value": null, "partition": 2}' | tidelog produce orders --json""",
    "tidelog produce orders --command-config client.properties --producer-property linger.ms=50 < lines.txt",
)

_ACKS = ("0", "1", "all", "-1")
_TOPIC_WAIT_MS = 5_000
_DRAIN_BYTES = 1 << 16
# How large a record may be is for the topic to say; the producer's own limit would come before its answer.
_DEFAULTS = {"batch.size": 1 << 16, "max.request.size": 32 << 20}


@dataclass
class OutgoingRecord:
    """One record as a line describes it; what a line leaves open comes from the command's options."""

    value: bytes | None
    key: bytes | None = None
    headers: list[RecordHeader] = field(default_factory=list)
    partition: int | None = None
    timestamp: int | None = None


class BadLine(Exception):
    """A line that is no record; those before it are sent all the same."""


LineParser = Callable[[bytes], OutgoingRecord]


@grouped
def command(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to write.", show_default=False)],
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="Read this file instead of stdin.", show_default=False),
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Lines are objects with value, key, headers, partition and timestamp, as "
            "`tidelog consume --json` prints them; value_base64 and key_base64 hold binary data.",
        ),
    ] = False,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", metavar="TEXT", help=r"Lines are KEY TEXT VALUE; \t is a tab."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT", help="The key of every record.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="A header of every record; may be repeated."
        ),
    ] = None,
    null: Annotated[
        str | None,
        typer.Option("--null", metavar="TEXT", help="Keys and values equal to TEXT are sent as null."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Default: by key, else sticky.")
    ] = None,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", metavar="TIME", help="Milliseconds or ISO; default: now.")
    ] = None,
    codec: Annotated[
        CodecName | None, typer.Option("--codec", "-z", help="Compression; default: none.")
    ] = None,
    acks: Annotated[
        str | None,
        typer.Option(
            "--acks",
            metavar="0|1|all",
            help="What to wait for; default: all, and then a retry writes nothing twice.",
        ),
    ] = None,
    round_robin: Annotated[
        bool, typer.Option("--round-robin", help="Spread records without key one by one over all partitions.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print partition and offset of every record.")
    ] = False,
    producer_property: ProducerProperty = None,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Write records to a topic: one per line of stdin or of a file."""
    if acks is not None and acks not in _ACKS:
        raise WrongUsage(f"--acks {acks!r} is none of 0, 1, all")
    if json and key_separator is not None:
        raise WrongUsage("with --json the key is in the objects: leave --key-separator out")
    fallback = OutgoingRecord(
        None,
        None if key is None else key.encode(),
        [(name, value.encode()) for name, value in parse_assignments(header, "--header")],
        partition,
        None if timestamp is None else parse_time_ms(timestamp, "--timestamp"),
    )
    parse = _parse_json if json else line_parser(key_separator, null)
    sending = Sending(topic, fallback, print_row if verbose else None)

    chosen = {
        "acks": acks,
        "compression.type": codec,
        "partitioner.class": RoundRobin() if round_robin else None,
    }
    properties = dict(parse_assignments(producer_property, "--producer-property"))
    options = client_options(connection, _DEFAULTS, properties, chosen)
    # Lines are bytes already: serializers of files written for other programs are theirs.
    for name in ("key.serializer", "value.serializer", "key.serializer.class", "serializer.class"):
        options.pop(name, None)
    try:
        asyncio.run(_produce(options, sending, file, parse, skip_blank=json))
    except KeyboardInterrupt:
        remark(f"\n{counted(sending.acknowledged, 'record')} written to {topic}")
        raise
    remark(f"{counted(sending.acknowledged, 'record')} written to {topic}")


async def _produce(
    options: dict[str, object], sending: Sending, file: Path | None, parse: LineParser, *, skip_blank: bool
) -> None:
    from tidelog.client.producer.async_producer import AsyncProducer
    from tidelog.client.retry import Deadline

    async with AsyncProducer(options) as producer:
        # What is out of reach is said at once, not when the first record has waited long enough.
        await producer.cluster.connect()
        topic = await producer.cluster.topic(
            sending.topic, allow_auto_create=True, deadline=Deadline(_TOPIC_WAIT_MS)
        )
        if file is None and sys.stdin.isatty():
            remark("one record per line; end with Ctrl-D")
        with sys.stdin.buffer if file is None else file.open("rb") as lines:
            await sending.send_lines(producer, topic, lines.fileno(), parse, skip_blank=skip_blank)


class RoundRobin:
    """Keys by their hash; records without a key to one partition after another."""

    def __init__(self) -> None:
        self._turn = 0

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        from tidelog.client.partitioner import partition_for_key

        if key is not None:
            return partition_for_key(key, partition_count)
        turn, self._turn = self._turn, self._turn + 1
        return available[turn % len(available)] if available else turn % partition_count


class Sending:
    """Hands lines to a producer, counts what is acknowledged, and stops at the first record that fails.

    It stops, too, when what is acknowledged can no longer be reported.
    """

    def __init__(
        self, topic: str, fallback: OutgoingRecord, report: Callable[[tuple[object, ...]], None] | None
    ) -> None:
        self.topic = topic
        self.acknowledged = 0
        self._fallback = fallback
        self._report = report
        self._failed: tuple[int, BaseException] | None = None
        self._unprinted: OSError | None = None

    async def send_lines(
        self, producer: AsyncProducer, topic: TopicMetadata, fd: int, parse: LineParser, *, skip_blank: bool
    ) -> None:
        """Send every line of ``fd``, and wait until all are acknowledged."""
        number = undrained_bytes = 0
        bad_line: BadLine | None = None
        try:
            async for line in input_lines(fd):
                number += 1
                if skip_blank and not line.strip():
                    continue
                self._send(producer, topic, number, self._parsed(number, line, parse))
                undrained_bytes += len(line)
                if undrained_bytes >= _DRAIN_BYTES:
                    undrained_bytes = 0
                    await producer.drain()
                if self._failed is not None or self._unprinted is not None:
                    break
        except BadLine as error:
            bad_line = error
        finally:
            await producer.close()
        if bad_line is not None and self._failed is None:
            raise Failure(f"{bad_line} ({counted(self.acknowledged, 'record')} before it written)")
        if self._failed is not None:
            at, why = self._failed
            raise Failure(f"line {at}: {sentence(why)} ({counted(self.acknowledged, 'record')} written)")
        if self._unprinted is not None:
            raise self._unprinted

    @staticmethod
    def _parsed(number: int, line: bytes, parse: LineParser) -> OutgoingRecord:
        try:
            return parse(line)
        except ValueError as error:
            raise BadLine(f"line {number}: {error}") from None

    def _send(
        self, producer: AsyncProducer, topic: TopicMetadata, number: int, record: OutgoingRecord
    ) -> None:
        fallback = self._fallback
        partition = fallback.partition if record.partition is None else record.partition
        try:
            if partition is not None and partition not in topic.partitions:
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {self.topic!r} has no partition {partition}, "
                    f"only 0 to {len(topic.partitions) - 1}",
                )
            delivery = producer.send(
                self.topic,
                record.value,
                key=fallback.key if record.key is None else record.key,
                headers=[*record.headers, *fallback.headers],
                partition=partition,
                timestamp_ms=fallback.timestamp if record.timestamp is None else record.timestamp,
            )
        except TidelogError as error:
            self._failed = self._failed or (number, error)
            return
        delivery.add_done_callback(lambda done: self._delivered(number, done))

    def _delivered(self, number: int, done: Delivery) -> None:
        error = done.exception()
        if error is not None:
            self._failed = self._failed or (number, error)
            return
        self.acknowledged += 1
        if self._report is not None and self._unprinted is None:
            where = done.result()
            try:
                self._report((where.topic, where.partition, where.offset))
            except OSError as error:
                # The reader has gone (`| head`), or the disk is full: `send_lines` ends, not the producer.
                self._unprinted = error


def line_parser(key_separator: str | None, null: str | None) -> LineParser:
    """Reads plain lines: ``VALUE``, or ``KEY<separator>VALUE``; ``null`` stands for no key and no value."""
    separator = None if key_separator is None else unescape(key_separator).encode()
    if separator == b"":
        raise WrongUsage("--key-separator must not be empty")
    nothing = None if null is None else null.encode()

    def parse(line: bytes) -> OutgoingRecord:
        key = None
        if separator is not None:
            key, found, line = line.partition(separator)
            if not found:
                raise ValueError(f"there is no key separator {key_separator!r}")
        return OutgoingRecord(
            None if nothing is not None and line == nothing else line,
            None if nothing is not None and key == nothing else key,
        )

    return parse


def _parse_json(line: bytes) -> OutgoingRecord:
    try:
        fields = msgspec.json.decode(line)
    except UNREADABLE as error:
        raise ValueError(f"this is no JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError('every line must be an object such as {"value": "hello"}')
    if "value" not in fields and "value_base64" not in fields:
        raise ValueError('the object has no "value" (null makes a tombstone)')
    return OutgoingRecord(
        bytes_from_json("value", fields),
        bytes_from_json("key", fields),
        headers_from_json(fields.get("headers")),
        _optional_int("partition", fields),
        _timestamp(fields),
    )


def _timestamp(fields: dict[str, object]) -> int | None:
    value = _optional_int("timestamp", fields)
    if value is not None and not 0 <= value <= MAX_LONG:
        raise ValueError(f"timestamp must be milliseconds since 1970, not {value}")
    return value


def _optional_int(name: str, fields: dict[str, object]) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{name} must be a number, not {value!r}")
