"""``tidelog produce``: write lines, or JSON objects, as records to a topic."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from tidelog.cli.connect import DEFAULT_BOOTSTRAP, Bootstrap, parse_assignments, with_cluster
from tidelog.cli.failure import Failure, WrongUsage, sentence
from tidelog.cli.input_lines import input_lines
from tidelog.cli.output import counted, examples, print_row, remark
from tidelog.cli.record_text import bytes_from_json, headers_from_json
from tidelog.cli.values import CodecName, parse_time_ms, unescape
from tidelog.client.cluster import Cluster
from tidelog.client.partitioner import RoundRobinPartitioner, StickyPartitioner
from tidelog.client.simple_producer import RecordMetadata, SimpleProducer
from tidelog.records.record import RecordHeader

EPILOG = examples(
    "printf 'k1:v1\\nk2:v2\\n' | tidelog produce orders --key-separator :",
    "tidelog produce orders --file orders.jsonl --json --codec zstd",
    """echo '{"key": "k", "value": null, "partition": 2}' | tidelog produce orders --json""",
)

_ACKS = {"0": 0, "1": 1, "all": -1, "-1": -1}


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
        typer.Option("--key-separator", "-k", metavar="TEXT", help=r"Lines are KEY TEXT VALUE; \t is a tab."),
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
    codec: Annotated[CodecName, typer.Option("--codec", "-z", help="Compression.")] = CodecName.NONE,
    acks: Annotated[str, typer.Option("--acks", "-a", metavar="0|1|all", help="What to wait for.")] = "all",
    round_robin: Annotated[
        bool, typer.Option("--round-robin", help="Spread records without key one by one over all partitions.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print partition and offset of every record.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write records to a topic: one per line of stdin or of a file."""
    if acks not in _ACKS:
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

    async def action(cluster: Cluster) -> None:
        producer = SimpleProducer(
            cluster,
            acks=_ACKS[acks],
            codec=codec.codec,
            partitioner=RoundRobinPartitioner if round_robin else StickyPartitioner,
        )
        if file is None and sys.stdin.isatty():
            remark("one record per line; end with Ctrl-D")
        with sys.stdin.buffer if file is None else file.open("rb") as lines:
            await sending.send_lines(producer, lines.fileno(), parse, skip_blank=json)

    try:
        with_cluster(bootstrap, action)
    except KeyboardInterrupt:
        remark(f"\n{counted(sending.acknowledged, 'record')} written to {topic}")
        raise
    remark(f"{counted(sending.acknowledged, 'record')} written to {topic}")


class Sending:
    """Hands lines to a producer, counts what is acknowledged, and stops at the first record that fails."""

    def __init__(
        self, topic: str, fallback: OutgoingRecord, report: Callable[[tuple[object, ...]], None] | None
    ) -> None:
        self.acknowledged = 0
        self._topic = topic
        self._fallback = fallback
        self._report = report
        self._failed: tuple[int, BaseException] | None = None

    async def send_lines(
        self, producer: SimpleProducer, fd: int, parse: LineParser, *, skip_blank: bool
    ) -> None:
        """Send every line of ``fd``, and wait until all are acknowledged."""
        number = 0
        bad_line: BadLine | None = None
        try:
            async for line in input_lines(fd):
                number += 1
                if skip_blank and not line.strip():
                    continue
                await self._send(producer, number, self._parsed(number, line, parse))
                if self._failed is not None:
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

    @staticmethod
    def _parsed(number: int, line: bytes, parse: LineParser) -> OutgoingRecord:
        try:
            return parse(line)
        except ValueError as error:
            raise BadLine(f"line {number}: {error}") from None

    async def _send(self, producer: SimpleProducer, number: int, record: OutgoingRecord) -> None:
        fallback = self._fallback
        delivered = await producer.send(
            self._topic,
            record.value,
            key=fallback.key if record.key is None else record.key,
            headers=[*record.headers, *fallback.headers],
            partition=fallback.partition if record.partition is None else record.partition,
            timestamp=fallback.timestamp if record.timestamp is None else record.timestamp,
        )
        delivered.add_done_callback(lambda done: self._delivered(number, done))

    def _delivered(self, number: int, done: asyncio.Future[RecordMetadata]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._failed = self._failed or (number, error)
            return
        self.acknowledged += 1
        if self._report is not None:
            where = done.result()
            self._report((where.partition.topic, where.partition.partition, where.offset))


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
    except msgspec.DecodeError as error:
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
        _optional_int("timestamp", fields),
    )


def _optional_int(name: str, fields: dict[str, object]) -> int | None:
    value = fields.get(name)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{name} must be a number, not {value!r}")
