"""Records: found, followed, exported, written, sent again elsewhere."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import os
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, BinaryIO, Literal

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from tidelog.console.api.endpoint import Call, changes, numbers_of, reads
from tidelog.console.api.event_stream import EventStream, event
from tidelog.console.api.topics_api import described_topic
from tidelog.console.auth.audit import AuditEntry, now_ms
from tidelog.console.records import export as export_file
from tidelog.console.records import redriving
from tidelog.console.records.decoding.choice import AUTOMATIC, UNDECODED, Choice, Format
from tidelog.console.records.decoding.record_decoder import RecordDecoder
from tidelog.console.records.filter_expression import FilterError
from tidelog.console.records.masking import Mask
from tidelog.console.records.redriving import letter_of
from tidelog.console.records.search import Found, Place, Progress, Search, SearchRequest, read_one
from tidelog.console.records.shown import WHOLE_BYTES, ShownRecord, shown_record
from tidelog.console.refusal import Refusal, not_found, refusal_of
from tidelog.console.settings import Role
from tidelog.ids import TopicPartition
from tidelog.records.record import RecordHeader
from tidelog.spark.dead_letters.letter import Letter

logger = logging.getLogger(__name__)

_LIMIT = 1000
_PAGE_BYTES = 64 * 1024 * 1024
_EXPORT_LIMIT = 1_000_000
_SCAN_LIMIT = 20_000_000
_REDRIVE_LIMIT = 10_000
_REDRIVE_BYTES = 64 * 1024 * 1024
_PARQUET_BYTES = 2 * 1024 * 1024 * 1024
"""Until it is sent, such a file takes room on the console's disk."""
_CHUNK_BYTES = 1024 * 1024
_LARGEST_FIELD = 8 * 1024 * 1024
_NEWS_S = 0.25


Time = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class MessageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Where to read, and what to keep; ``partitions`` are numbers separated by commas.

    Formats are what the bytes say themselves (`auto`), the bytes as they are, or what to decode them as.
    """

    place: Place = "newest"
    partitions: str = ""
    offset: int = 0
    time_ms: int = 0
    limit: int = 50
    filter: str = ""
    scan_limit: int = 1_000_000
    read_committed: bool = False
    unmasked: bool = False
    key_format: Format = "auto"
    value_format: Format = "auto"


class ExportQuery(msgspec.Struct, forbid_unknown_fields=True):
    """As for a search, and the form of the file. It has all that was asked for, or is refused or broken off.

    The newest records come the newest first; more than fit into memory come in the order of their partitions.
    """

    format: export_file.Format = "jsonl"
    place: Place = "oldest"
    partitions: str = ""
    offset: int = 0
    time_ms: int = 0
    limit: int = 10_000
    filter: str = ""
    scan_limit: int = _SCAN_LIMIT
    read_committed: bool = False
    unmasked: bool = False
    key_format: Format = "auto"
    value_format: Format = "auto"


class OneQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Whether to show what is masked, to those who may see it; and in which formats."""

    unmasked: bool = False
    key_format: Format = "auto"
    value_format: Format = "auto"


class MessagePage(msgspec.Struct, frozen=True):
    """What a search found, and how far it went."""

    records: list[ShownRecord]
    progress: Progress


class GivenHeader(msgspec.Struct, forbid_unknown_fields=True):
    """A header to write; null is a header without a value."""

    name: str
    value: str | None = None
    encoding: Literal["text", "base64"] = "text"


class NewMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A record to write; null is a key or value that is not there (a tombstone, in a compacted topic)."""

    value: str | None
    key: str | None = None
    value_encoding: Literal["text", "base64"] = "text"
    key_encoding: Literal["text", "base64"] = "text"
    headers: list[GivenHeader] = []
    partition: int | None = None
    timestamp_ms: Time | None = None


class Written(msgspec.Struct, frozen=True):
    """Where a record went."""

    topic: str
    partition: int
    offset: int


class ResentHeader(msgspec.Struct, forbid_unknown_fields=True):
    """A header of the record, by its place from 0 on, which goes as it is (`keep`); or one to write (`name`).

    What is shown of a header may be cut or masked, and is text where that can be made of it: whoever changes
    one header names the others by their places.
    """

    keep: int | None = None
    name: str | None = None
    value: str | None = None
    encoding: Literal["text", "base64"] = "text"


class ResendRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Send a record again to a topic; all its headers are kept, or it has those given, in their order."""

    partition: int
    offset: Annotated[int, msgspec.Meta(ge=0)]
    topic: str
    headers: list[ResentHeader] | None = None


class RedriveRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Dead letters to send back to the topics that their headers name; chosen as in a search.

    A filter sees fields as they are, so where some are masked it needs ``unmasked``, and somebody who may.
    """

    place: Place = "oldest"
    partitions: str = ""
    offset: int = 0
    time_ms: int = 0
    filter: str = ""
    limit: int = 100
    dry_run: bool = True
    unmasked: bool = False
    key_format: Format = "auto"
    value_format: Format = "auto"


class Redriven(msgspec.Struct, frozen=True):
    """How many went, or would go, to which topics; ``without_origin`` name none.

    ``left`` stay: sent before or too often, about the same record as another one, or about one that is gone.
    ``ended`` says why no more letters were looked at: ``end`` (there are none), ``limit`` or ``scan-limit``.
    """

    by_topic: dict[str, int]
    without_origin: int
    left: int
    dry_run: bool
    ended: str


@reads("/clusters/{cluster}/topics/{topic}/messages", "Find messages.", MessageQuery)
async def messages(call: Call, asked: MessageQuery) -> MessagePage:
    """Waits for the search to end; `messages/stream` shows how far it is."""
    if asked.place == "tail":
        raise Refusal("follow a topic with messages/stream")
    search = _search(call, asked, _LIMIT)
    found: list[ShownRecord] = []
    held_bytes = 0
    progress, choice = Progress(), _choice(asked)
    async with contextlib.aclosing(search.run()) as steps:
        async for step in steps:
            shown = [shown_record(each, choice=choice) for each in step.records]
            found += shown
            held_bytes += sum(each.held_bytes for each in shown)
            progress = step.progress
            if held_bytes > _PAGE_BYTES and not progress.ended:
                progress.ended = "scan-limit"
                break
    return MessagePage(found, progress)


@reads(
    "/clusters/{cluster}/topics/{topic}/messages/stream",
    "Find or follow messages: server-sent events `records`, `progress`, `end`, `failed`.",
    MessageQuery,
)
async def message_stream(call: Call, asked: MessageQuery) -> EventStream:
    """Whoever hangs up stops the search."""
    return EventStream(_stream(call, _search(call, asked, _LIMIT), _choice(asked)))


@reads("/clusters/{cluster}/topics/{topic}/messages/export", "Found messages as a file.", ExportQuery)
async def export(call: Call, asked: ExportQuery) -> Response:
    """Lines are sent as they are found; a Parquet file when it is whole."""
    if asked.place == "tail":
        raise Refusal("place 'tail' cannot be exported: choose another place")
    search = _search(call, asked, _EXPORT_LIMIT)
    name = "".join(
        each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in call.topic[:255]
    )
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.{asked.format}"',
        "Cache-Control": "no-store",
    }
    media_type = export_file.CONTENT_TYPES[asked.format]
    if asked.format == "parquet":
        with ExitStack() as held:
            held.enter_context(call.console.parquet_export_slots.take(call.person.account))
            file = held.enter_context(await _parquet(search))
            headers["Content-Length"] = str(os.fstat(file.fileno()).st_size)
            return _FileResponse(_chunks(file), media_type, headers, held.pop_all())
    steps = search.run()
    # What cannot be read, or not to the end, is said before a file begins, if it is known by then.
    first = await anext(steps)
    while not (first.records or first.progress.ended):
        first = await anext(steps)
    lines = _lines(first, steps, asked.format)
    return StreamingResponse(lines, media_type=media_type, headers=headers)


@reads("/clusters/{cluster}/topics/{topic}/messages/{partition}/{offset}", "One message, in full.", OneQuery)
async def message(call: Call, asked: OneQuery) -> ShownRecord:
    """Up to two megabytes of each field."""
    partition, offset = numbers_of(
        (call.path["partition"], call.path["offset"]),
        "invalid message address: expected a partition number and an offset",
    )
    place = TopicPartition(call.topic, partition)
    choice = _choice(asked)
    async with _decoder(call, choice) as decoder:
        mask = _mask(call, asked.unmasked)
        record = await read_one(call.cluster, place, offset, mask, call.person.account, decoder)
    return shown_record(record, WHOLE_BYTES, choice)


@changes(
    "POST",
    "/clusters/{cluster}/topics/{topic}/messages",
    "Produce a message.",
    NewMessage,
    action="produce",
)
async def produce(call: Call, asked: NewMessage) -> Written:
    """Waits until the cluster has it."""
    headers = [(each.name, _data(each.value, each.encoding, "a header")) for each in asked.headers]
    value = _data(asked.value, asked.value_encoding, "value")
    key = _data(asked.key, asked.key_encoding, "key")
    call.details |= {"value_bytes": len(value or b""), "partition": asked.partition}
    if asked.partition is not None:
        # A producer would wait for the partition to be made.
        described = await described_topic(call)
        if asked.partition not in {each.partition for each in described.partitions}:
            raise not_found(
                f"topic {call.topic} has no partition {asked.partition}: it has {len(described.partitions)}"
            )
    sent = call.cluster.producer.send(
        call.topic, value, key, partition=asked.partition, timestamp_ms=asked.timestamp_ms, headers=headers
    )
    written = await sent
    return Written(written.topic, written.partition, written.offset)


@changes(
    "POST",
    "/clusters/{cluster}/topics/{topic}/messages/resend",
    "Resend a message to this or another topic.",
    ResendRequest,
    action="resend",
    role=Role.VIEWER,
)
async def resend(call: Call, asked: ResendRequest) -> Written:
    """As its bytes are; needs the role operator on the topic that it goes to."""
    call.require(Role.OPERATOR, asked.topic)
    call.details |= {"from": f"{call.topic}-{asked.partition}@{asked.offset}", "to": asked.topic}
    mask = _mask(call, unmasked=True)
    place = TopicPartition(call.topic, asked.partition)
    record = await read_one(call.cluster, place, asked.offset, mask, call.person.account)
    if record.masked:
        raise Refusal("this message has masked fields, so you cannot resend it", 403, "FORBIDDEN")
    headers = record.headers
    if asked.headers is not None:
        headers = [_resent_header(each, record.headers) for each in asked.headers]
    written = await call.cluster.producer.send(asked.topic, record.value, record.key, headers=headers)
    return Written(written.topic, written.partition, written.offset)


@changes(
    "POST",
    "/clusters/{cluster}/topics/{topic}/redrive",
    "Send dead letters back to their original topics.",
    RedriveRequest,
    action="redrive",
    role=Role.VIEWER,
)
async def redrive(call: Call, asked: RedriveRequest) -> Redriven:
    """By the header `topic` of each; a dry run counts only.

    Each is sent once, those of pipelines and of our consumers whole, as `tidelog deadletters redrive` does.
    Of others, headers that tell of the failure are left out.
    """
    if asked.place == "tail":
        raise Refusal("place 'tail' cannot be redriven: choose another place")
    request = SearchRequest(
        call.topic,
        asked.place,
        _partitions(asked.partitions),
        offset=asked.offset,
        time_ms=asked.time_ms,
        limit=max(1, min(asked.limit, _REDRIVE_LIMIT)),
        filter=asked.filter,
        read_committed=True,
    )
    mask = _mask(call, unmasked=True)
    if mask:
        raise Refusal("this topic has masked fields, so you cannot redrive its messages", 403, "FORBIDDEN")
    hidden = call.console.mask(call.person, call.cluster.name, call.topic, unmasked=False)
    if asked.filter.strip() and hidden and not asked.unmasked:
        raise Refusal(
            "this topic has masked fields, which a filter could reveal: show masked fields, or "
            "select dead letters by partition, offset or time",
            403,
            "MASKED",
        )
    call.details |= {"dry_run": asked.dry_run, "limit": asked.limit}
    by_topic: Counter[str] = Counter()
    without = 0
    ended = ""
    letters: list[Letter] = []
    held_bytes = 0
    # Bytes are sent on; what they say is for the filter alone.
    decoder = _decoder(call, _choice(asked) if asked.filter else UNDECODED)
    search = _begun(call, request, mask, decoder)
    async with contextlib.aclosing(search.run()) as steps:
        async for found in steps:
            ended = found.progress.ended
            for record in found.records:
                letter = letter_of(record, call.topic)
                if letter is None:
                    without += 1
                    continue
                call.require(Role.OPERATOR, letter.home)
                letters.append(letter)
                held_bytes += record.held_bytes
            if held_bytes > _REDRIVE_BYTES and not ended:
                ended = "scan-limit"
                break
    left = 0
    try:
        # Nothing is sent before the rights for all of it are known.
        if letters:
            act = redriving.plan if asked.dry_run else redriving.send
            options = call.cluster.settings.patient_options
            left = await asyncio.to_thread(act, options, call.topic, letters, by_topic)
    finally:
        call.details["by_topic"] = dict(by_topic)  # of a redrive that fails on its way, too
    return Redriven(dict(by_topic), without, left, asked.dry_run, ended)


def _resent_header(asked: ResentHeader, given: list[RecordHeader]) -> RecordHeader:
    if asked.keep is None and asked.name is not None:
        return asked.name, _data(asked.value, asked.encoding, "a header")
    if asked.keep is None or asked.name is not None or asked.value is not None:
        raise Refusal("a header has either keep (its position) or a name and a value")
    if not 0 <= asked.keep < len(given):
        raise Refusal(f"the message has {len(given)} headers; there is no header at position {asked.keep}")
    return given[asked.keep]


async def _lines(
    first: Found, steps: AsyncGenerator[Found, None], format_: export_file.Lines
) -> AsyncIterator[bytes]:
    async with contextlib.aclosing(steps):
        yield export_file.header_line(format_) + export_file.lines(first.records, format_)
        try:
            async for found in steps:
                if found.records:
                    yield export_file.lines(found.records, format_)
        except Exception as error:
            # The answer has no end, by which whoever downloads it knows that it is not whole.
            logger.warning("an export was aborted: %s", refusal_of(error))
            raise


async def _parquet(search: Search) -> BinaryIO:
    """A file with what a search finds; it has no name any more, so that nothing of it can stay behind."""
    with tempfile.NamedTemporaryFile(prefix="tidelog-console-", suffix=".parquet") as made:
        file = export_file.ParquetFile(Path(made.name))
        async with contextlib.aclosing(search.run()) as steps:
            async for found in steps:
                if found.records:
                    await asyncio.to_thread(file.write, found.records)
                if os.fstat(made.fileno()).st_size > _PARQUET_BYTES:
                    raise Refusal(
                        f"a Parquet file is limited to {_PARQUET_BYTES} bytes: export fewer messages, "
                        "or choose JSON lines or CSV",
                        413,
                        "TOO_LARGE",
                    )
        await asyncio.to_thread(file.close)
        return await asyncio.to_thread(Path(made.name).open, "rb")


class _FileResponse(StreamingResponse):
    """A file that is there until it is sent, or nobody wants it any more."""

    def __init__(
        self, chunks: AsyncIterable[bytes], media_type: str, headers: Mapping[str, str], held: ExitStack
    ) -> None:
        super().__init__(chunks, media_type=media_type, headers=headers)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
        yield chunk


def _search(call: Call, asked: MessageQuery | ExportQuery, most: int) -> Search:
    request = SearchRequest(
        call.topic,
        asked.place,
        _partitions(asked.partitions),
        max(asked.offset, 0),
        asked.time_ms,
        max(1, min(asked.limit, most)),
        asked.filter,
        max(1, min(asked.scan_limit, _SCAN_LIMIT)),
        asked.read_committed,
        # A file looks whole, and so nothing may be missing from it; a page says what is.
        without_leaders=isinstance(asked, MessageQuery),
        is_whole=isinstance(asked, ExportQuery),
    )
    return _begun(call, request, _mask(call, asked.unmasked), _decoder(call, _choice(asked)))


def _begun(call: Call, request: SearchRequest, mask: Mask, decoder: RecordDecoder) -> Search:
    try:
        return Search(call.cluster, request, mask, decoder, call.person.account)
    except FilterError as error:
        raise Refusal(str(error), 400, "BAD_FILTER") from None


def _partitions(text: str) -> tuple[int, ...]:
    numbers = numbers_of(
        filter(None, map(str.strip, text.split(","))), "partitions must be numbers, separated by commas"
    )
    return tuple(dict.fromkeys(numbers))


def _choice(asked: MessageQuery | ExportQuery | OneQuery | RedriveRequest) -> Choice:
    return Choice(asked.key_format, asked.value_format)


def _decoder(call: Call, choice: Choice = AUTOMATIC) -> RecordDecoder:
    return RecordDecoder(call.topic, call.console.registries.get(call.cluster.name), choice)


def _mask(call: Call, unmasked: bool) -> Mask:
    name = call.cluster.name
    if unmasked and call.console.mask(call.person, name, call.topic, unmasked=False):
        # Seeing what is hidden changes nothing, but somebody may want to know.
        call.console.audit.note(
            AuditEntry(now_ms(), call.person.name, call.address, name, "unmask", call.topic, "done")
        )
    return call.console.mask(call.person, name, call.topic, unmasked=unmasked)


async def _stream(call: Call, search: Search, choice: Choice) -> AsyncIterator[bytes]:
    """The events of a search; how far it is comes some times a second, and at least now and then."""
    stopping = call.console.stopping
    told_s = 0.0
    loop = asyncio.get_running_loop()
    try:
        async with contextlib.aclosing(search.run()) as steps:
            async for found in steps:
                if stopping.is_set():
                    return
                if found.records:
                    yield event("records", [shown_record(each, choice=choice) for each in found.records])
                if found.records or loop.time() - told_s > _NEWS_S:
                    told_s = loop.time()
                    yield event("progress", found.progress)
                if found.progress.ended:
                    yield event("end", found.progress)
                    return
    except Exception as error:
        refusal = refusal_of(error)
        yield event("failed", {"error": str(refusal), "code": refusal.code})


def _data(text: str | None, encoding: str, what: str) -> bytes | None:
    if text is None:
        return None
    if encoding == "text":
        data = text.encode("utf-8", "surrogatepass")
    else:
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise Refusal(f"{what} is not valid Base64") from None
    if len(data) > _LARGEST_FIELD:
        raise Refusal(f"{what} has {len(data)} bytes; the limit is {_LARGEST_FIELD}", 413, "TOO_LARGE")
    return data


ENDPOINTS = (messages, message_stream, export, message, produce, resend, redrive)
