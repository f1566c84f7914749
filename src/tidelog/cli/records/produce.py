"""``tidelog produce``: write lines, or JSON objects, as records to a topic."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
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
from tidelog.client.record_reader import InputRecord, RecordReader
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.options import MAX_LONG

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
_RECORD_BYTES = 64
# How large a record may be is for the topic to say; the producer's own limit would come before its answer.
_DEFAULTS = {"batch.size": 1 << 16, "max.request.size": 32 << 20}


class BadLine(Exception):
    """A line that is no record; those before it are sent all the same."""


LineParser = Callable[[bytes], InputRecord]
NumberedRecord = tuple[str, InputRecord]
"""Where a record is in the input, and the record."""


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
        typer.Option(
            "--key-separator",
            metavar="TEXT",
            help=r"Split each line into key and value at TEXT; \t is a tab.",
        ),
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
        typer.Option("--null", metavar="TEXT", help="Send keys and values equal to TEXT as null."),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", min=0, help="The partition; default: by key, otherwise sticky."),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(
            "--timestamp",
            metavar="TIME",
            help="The record timestamp, in milliseconds or ISO format; default: now.",
        ),
    ] = None,
    codec: Annotated[
        CodecName | None, typer.Option("--codec", "-z", help="Compression; default: none.")
    ] = None,
    acks: Annotated[
        str | None,
        typer.Option(
            "--acks",
            metavar="0|1|all",
            help="The acknowledgement to wait for; default: all, with retries that never duplicate records.",
        ),
    ] = None,
    round_robin: Annotated[
        bool,
        typer.Option(
            "--round-robin", help="Distribute records without a key over all partitions, one by one."
        ),
    ] = False,
    reader: Annotated[
        str | None,
        typer.Option(
            "--reader",
            metavar="MODULE:CLASS",
            help="Read records with a Python class of your own, a subclass of "
            "tidelog.client.record_reader.RecordReader.",
        ),
    ] = None,
    reader_property: Annotated[
        list[str] | None,
        typer.Option(
            "--reader-property", metavar="NAME=VALUE", help="A property of that class; may be repeated."
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print the partition and offset of every record.")
    ] = False,
    producer_property: ProducerProperty = None,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Write records to a topic: one per line of stdin or of a file."""
    if acks is not None and acks not in _ACKS:
        raise WrongUsage(f"invalid --acks {acks!r}: choose 0, 1 or all")
    if json and key_separator is not None:
        raise WrongUsage("with --json, the key is in the objects: omit --key-separator")
    custom = _custom_reader(
        reader,
        reader_property,
        {"--json": json, "--key-separator": key_separator is not None, "--null": null is not None},
    )
    fallback = InputRecord(
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
        asyncio.run(_produce(options, sending, file, custom or parse, skip_blank=json))
    except KeyboardInterrupt:
        remark(f"\n{counted(sending.acknowledged, 'record')} written to {topic}")
        raise
    remark(f"{counted(sending.acknowledged, 'record')} written to {topic}")


async def _produce(
    options: dict[str, object],
    sending: Sending,
    file: Path | None,
    parse: LineParser | RecordReader,
    *,
    skip_blank: bool,
) -> None:
    from tidelog.client._network.retry import Deadline
    from tidelog.client.producer.async_producer import AsyncProducer

    async with AsyncProducer(options) as producer:
        # What is out of reach is said at once, not when the first record has waited long enough.
        await producer.cluster.connect()
        topic = await producer.cluster.topic(
            sending.topic, allow_auto_create=True, deadline=Deadline(_TOPIC_WAIT_MS)
        )
        if file is None and sys.stdin.isatty():
            remark("one record per line; end with Ctrl-D")
        with sys.stdin.buffer if file is None else file.open("rb") as lines:
            if isinstance(parse, RecordReader):
                await sending.send(producer, topic, _read_by(parse, lines.fileno()))
            else:
                await sending.send(producer, topic, _read_lines(lines.fileno(), parse, skip_blank=skip_blank))


def _custom_reader(
    name: str | None, properties: list[str] | None, others: Mapping[str, bool]
) -> RecordReader | None:
    """The reader that ``--reader`` names; ``others`` are options about lines, which it replaces."""
    if name is None:
        if properties:
            raise WrongUsage("--reader-property requires --reader MODULE:CLASS")
        return None
    wrong = [each for each, is_given in others.items() if is_given]
    if wrong:
        raise WrongUsage(f"{', '.join(wrong)} cannot be combined with --reader, which reads the input itself")
    from tidelog.cli.records.custom_reader import custom_reader

    return custom_reader(name, dict(parse_assignments(properties, "--reader-property")))


async def _read_lines(fd: int, parse: LineParser, *, skip_blank: bool) -> AsyncIterator[NumberedRecord]:
    number = 0
    async for line in input_lines(fd):
        number += 1
        if skip_blank and not line.strip():
            continue
        try:
            record = parse(line)
        except ValueError as error:
            raise BadLine(f"line {number}: {error}") from None
        yield f"line {number}", record


async def _read_by(reader: RecordReader, fd: int) -> AsyncIterator[NumberedRecord]:
    from tidelog.cli.records.custom_reader import ReaderError, records_of

    number = 0
    try:
        async for record in records_of(reader, fd):
            number += 1
            yield f"record {number}", record
    except ReaderError as error:
        raise BadLine(f"the reader failed after record {number}: {error}") from error


class RoundRobin:
    """Keys by their hash; records without a key to one partition after another."""

    def __init__(self) -> None:
        self._turn = 0

    def partition(
        self,
        topic: str,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        partition_count: int,
        available: Sequence[int],
    ) -> int:
        from tidelog.client.partitioner import partition_for_key

        if key_bytes is not None:
            return partition_for_key(key_bytes, partition_count)
        turn, self._turn = self._turn, self._turn + 1
        return available[turn % len(available)] if available else turn % partition_count


class Sending:
    """Hands records to a producer, counts what is acknowledged, and stops at the first record that fails.

    It stops, too, when what is acknowledged can no longer be reported.
    """

    def __init__(
        self, topic: str, fallback: InputRecord, report: Callable[[tuple[object, ...]], None] | None
    ) -> None:
        self.topic = topic
        self.acknowledged = 0
        self._fallback = fallback
        self._report = report
        self._failed: tuple[str, BaseException] | None = None
        self._unprinted: OSError | None = None

    async def send(
        self, producer: AsyncProducer, topic: TopicMetadata, records: AsyncIterator[NumberedRecord]
    ) -> None:
        """Send all ``records``, and wait until all are acknowledged."""
        undrained_bytes = 0
        bad_line: BadLine | None = None
        try:
            async for number, record in records:
                self._send(producer, topic, number, record)
                undrained_bytes += _RECORD_BYTES + len(record.value or b"") + len(record.key or b"")
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
            raise Failure(f"{bad_line} ({counted(self.acknowledged, 'record')} written before it)")
        if self._failed is not None:
            at, why = self._failed
            raise Failure(f"{at}: {sentence(why)} ({counted(self.acknowledged, 'record')} written)")
        if self._unprinted is not None:
            raise self._unprinted

    def _send(self, producer: AsyncProducer, topic: TopicMetadata, place: str, record: InputRecord) -> None:
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
            self._failed = self._failed or (place, error)
            return
        delivery.add_done_callback(lambda done: self._delivered(place, done))

    def _delivered(self, place: str, done: Delivery) -> None:
        error = done.exception()
        if error is not None:
            self._failed = self._failed or (place, error)
            return
        self.acknowledged += 1
        if self._report is not None and self._unprinted is None:
            where = done.result()
            try:
                self._report((where.topic, where.partition, where.offset))
            except OSError as error:
                # The reader has gone (`| head`), or the disk is full: `send` ends, not the producer.
                self._unprinted = error


def line_parser(key_separator: str | None, null: str | None) -> LineParser:
    """Reads plain lines: ``VALUE``, or ``KEY<separator>VALUE``; ``null`` stands for no key and no value."""
    separator = None if key_separator is None else unescape(key_separator).encode()
    if separator == b"":
        raise WrongUsage("--key-separator must not be empty")
    nothing = None if null is None else null.encode()

    def parse(line: bytes) -> InputRecord:
        key = None
        if separator is not None:
            key, found, line = line.partition(separator)
            if not found:
                raise ValueError(f"no key separator {key_separator!r} in the line")
        return InputRecord(
            None if nothing is not None and line == nothing else line,
            None if nothing is not None and key == nothing else key,
        )

    return parse


def _parse_json(line: bytes) -> InputRecord:
    try:
        fields = msgspec.json.decode(line)
    except DECODE_ERRORS as error:
        raise ValueError(f"invalid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError('every line must be an object such as {"value": "hello"}')
    if "value" not in fields and "value_base64" not in fields:
        raise ValueError('the object has no "value" (null makes a tombstone)')
    return InputRecord(
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
