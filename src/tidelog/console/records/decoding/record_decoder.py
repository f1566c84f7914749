"""Decodes the records of one search: says which field has which format, gets schemas, and asks the process.

Unasked a field is decoded that names a schema (where the cluster has a registry), that is in an internal
topic, or that is no text and MsgPack or CBOR beyond doubt. What cannot be decoded keeps its bytes, with a
sentence.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Literal, NamedTuple, Self

from tidelog.console.records.decoded import DecodedField, SchemaName
from tidelog.console.records.decoding.choice import AS_BYTES, AUTOMATIC, OF_REGISTRY, TITLES, Choice, Format
from tidelog.console.records.decoding.decode_process import DecodeProcess
from tidelog.console.records.decoding.frames import Answer, Compile, Task
from tidelog.console.records.decoding.problem import DecodeProblem
from tidelog.console.records.decoding.registry import Registry, Schema, SchemaRef, Subject
from tidelog.console.records.raw import RawRecord
from tidelog.ids import INTERNAL_TOPICS

_REGISTRY_S = 30.0
"""How long a search waits for its registry, in all."""
_SCHEMAS = 200
"""So many schemas a search asks for: fields that name more do not name schemas."""
_AUTOMATIC_BYTES = 1024 * 1024
_JSON_BYTES = 64 * 1024
_JSON_TIMES = 16
_MOST_JSON_BYTES = 8 * 1024 * 1024
_BATCH_JSON_BYTES = 64 * 1024 * 1024
"""Of all fields that are read at once: a filter gets them together."""
_BATCH_TOO_LARGE = "the batch of messages is too large as JSON: read fewer messages"
_ID = struct.Struct(">xI")
_GUID_BYTES = 17
_SLOW = (
    f"the schema registry took more than {_REGISTRY_S:g} s in this search, so no more schemas are requested"
)
_TOO_MANY = f"this search has requested {_SCHEMAS} schemas, which is the limit"

Part = Literal["key", "value"]


class _Named(NamedTuple):
    """A field that names its schema."""

    ref: SchemaRef
    data: bytes
    indexes: bytes | None
    """From a header; None: ``data`` begins with them, if it is Protobuf."""


class _Place(NamedTuple):
    record: int
    part: Part


class RecordDecoder:
    """``async with`` ends its process."""

    def __init__(
        self,
        topic: str,
        registry: Registry | None,
        choice: Choice = AUTOMATIC,
        process: DecodeProcess | None = None,
    ) -> None:
        self._topic = topic
        self._is_internal = topic in INTERNAL_TOPICS
        self._registry = registry
        self._choice = choice
        self._process = process or DecodeProcess()
        self._schemas: dict[SchemaRef, Schema | str] = {}
        """Or why there is none."""
        self._asked: set[SchemaRef] = set()
        self._left_s = _REGISTRY_S
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self._process)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def decoded(self, records: Sequence[RawRecord]) -> list[RawRecord]:
        """The records, with what their keys and values say."""
        found: dict[_Place, DecodedField] = {}
        tasks: dict[_Place, Task] = {}
        named: dict[_Place, _Named] = {}
        for at, record in enumerate(records):
            for part, format_ in (("key", self._choice.key), ("value", self._choice.value)):
                self._plan(_Place(at, part), record, format_, tasks, named, found)  # type: ignore[arg-type]
        await self._get_schemas([each.ref for each in named.values()])
        for place, each in named.items():
            self._plan_named(place, each, tasks, found)
        answers = await self._process.answers(list(tasks.values())) if tasks else []
        total = 0
        for (place, task), answer in zip(tasks.items(), answers, strict=True):
            total += len(answer.json or b"")
            if answer.json is not None and total > _BATCH_JSON_BYTES:
                answer = Answer(problem=_BATCH_TOO_LARGE)
            if answer.format or answer.problem:
                found[place] = self._field(place, task, answer, named.get(place))
        if not found:
            return list(records)
        return [
            record._replace(
                decoded_key=found.get(_Place(at, "key")), decoded_value=found.get(_Place(at, "value"))
            )
            for at, record in enumerate(records)
        ]

    # What to do with a field

    def _plan(
        self,
        place: _Place,
        record: RawRecord,
        format_: Format,
        tasks: dict[_Place, Task],
        named: dict[_Place, _Named],
        found: dict[_Place, DecodedField],
    ) -> None:
        data = record.key if place.part == "key" else record.value
        if data is None or format_ in AS_BYTES:
            return
        if format_ in ("msgpack", "cbor"):
            tasks[place] = Task(format_, data, most_bytes=_most_json(data))
        elif format_ in OF_REGISTRY:
            which = self._named(place, record, data)
            if self._registry is None:
                problem = (
                    "no schema registry is configured for this cluster: set --schema-registry, or "
                    "add it to the file in --config"
                )
                found[place] = DecodedField(problem=problem)
            elif which is None:
                found[place] = DecodedField(problem="it has no schema id at its start or in a header")
            else:
                named[place] = which
        elif self._is_internal:
            of_key = record.key if place.part == "value" else None
            if place.part == "key" or of_key is not None:
                tasks[place] = Task(
                    "internal", data, topic=self._topic, of_key=of_key, most_bytes=_most_json(data)
                )
        elif self._registry is not None and (which := self._named(place, record, data)) is not None:
            named[place] = which
        elif len(data) <= _AUTOMATIC_BYTES and _may_be_binary(data) and not _is_text(data):
            tasks[place] = Task("binary", data, most_bytes=_most_json(data))

    @staticmethod
    def _named(place: _Place, record: RawRecord, data: bytes) -> _Named | None:
        for name, value in record.headers:
            if name == f"__{place.part}_schema_id" and value is not None:
                if len(value) >= _GUID_BYTES and value[0] == 1:
                    guid = str(uuid.UUID(bytes=value[1:_GUID_BYTES]))
                    return _Named(SchemaRef(guid=guid), data, value[_GUID_BYTES:])
                if len(value) >= _ID.size and value[0] == 0:
                    return _Named(SchemaRef(_ID.unpack_from(value)[0]), data, value[_ID.size :])
        # Ids begin with 1; a number of eight bytes mostly begins with five zeros.
        if len(data) >= _ID.size and data[0] == 0 and (number := _ID.unpack_from(data)[0]) > 0:
            return _Named(SchemaRef(number), data[_ID.size :], None)
        return None

    def _plan_named(
        self,
        place: _Place,
        named: _Named,
        tasks: dict[_Place, Task],
        found: dict[_Place, DecodedField],
    ) -> None:
        schema = self._schemas[named.ref]
        if isinstance(schema, str):
            found[place] = DecodedField(problem=schema)
            return
        wanted = self._choice.key if place.part == "key" else self._choice.value
        if wanted not in ("auto", schema.type):
            found[place] = DecodedField(
                problem=f"{named.ref} is {TITLES[schema.type]}, not {TITLES[wanted]}",
                schema=self._schema_name(place.part, schema, ""),
            )
            return
        key = ""
        if schema.type != "jsonschema":
            key = str(named.ref)
            self._process.add(Compile(key, schema.type, schema.text, list(schema.references)))
        tasks[place] = Task(schema.type, named.data, key, named.indexes, most_bytes=_most_json(named.data))

    async def _get_schemas(self, refs: Sequence[SchemaRef]) -> None:
        # What failed is asked for again: the registry knows whether that has sense by now.
        missing = [each for each in dict.fromkeys(refs) if not isinstance(self._schemas.get(each), Schema)]
        asked: list[SchemaRef] = []
        for ref in missing:
            if ref not in self._asked and len(self._asked) >= _SCHEMAS:
                self._schemas[ref] = _TOO_MANY
            else:
                self._asked.add(ref)
                asked.append(ref)
        if self._left_s <= 0:
            self._schemas.update(dict.fromkeys(asked, _SLOW))
            return
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        asking = {each: asyncio.create_task(self._schema(each)) for each in asked}
        try:
            if asking:
                await asyncio.wait(asking.values(), timeout=self._left_s)
        finally:
            self._left_s -= loop.time() - begun_s
            for ref, task in asking.items():
                if task.done() and not task.cancelled():
                    self._schemas[ref] = task.result()
                else:
                    task.cancel()
                    self._schemas[ref] = _SLOW

    async def _schema(self, ref: SchemaRef) -> Schema | str:
        assert self._registry is not None
        try:
            return await self._registry.schema(ref)
        except DecodeProblem as problem:
            return str(problem)

    # What came of it

    def _field(self, place: _Place, task: Task, answer: Answer, named: _Named | None) -> DecodedField:
        schema = None if named is None else self._schemas[named.ref]
        shown = None
        if isinstance(schema, Schema):
            shown = self._schema_name(place.part, schema, answer.name)
        problem = answer.problem
        if problem and task.format == "binary" and not answer.format:
            problem = f"not decoded: {problem}"
        return DecodedField(
            answer.format,
            answer.json,
            problem,
            shown,
            is_certain=task.format not in ("msgpack", "cbor"),
        )

    def _schema_name(self, part: Part, schema: Schema, name: str) -> SchemaName:
        subject = _subject_for(schema.subjects, self._topic, part, name)
        return SchemaName(
            schema.type,
            schema.ref.id,
            schema.ref.guid,
            subject.name if subject else "",
            subject.version if subject else None,
            name,
        )


def _subject_for(subjects: Sequence[Subject], topic: str, part: Part, record: str) -> Subject | None:
    """The name that is the topic's own by Confluent's strategies, if there is one.

    Any other may be that of a topic which the person must not hear of: whoever may write could name schemas
    one by one. ``orders-refunds-value`` is no name of ``orders``, so a record's name has to be the schema's
    own, without a ``-``, which names of Avro and Protobuf cannot have.
    """
    own = [f"{topic}-{part}", f"{topic}-key", f"{topic}-value"]
    if record and "-" not in record:
        own.append(f"{topic}-{record}")
    by_name = {each.name: each for each in subjects}
    return next((by_name[each] for each in own if each in by_name), None)


def _most_json(data: bytes) -> int:
    """A field may be larger as JSON, but not as much larger as it likes."""
    return min(max(_JSON_BYTES, _JSON_TIMES * len(data)), _MOST_JSON_BYTES)


def _may_be_binary(data: bytes) -> bool:
    """Whether it begins as a map or list of MsgPack or CBOR does, or as CBOR that says so."""
    return bool(data) and (0x80 <= data[0] <= 0xBF or 0xDC <= data[0] <= 0xDF or data[:3] == b"\xd9\xd9\xf7")


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
