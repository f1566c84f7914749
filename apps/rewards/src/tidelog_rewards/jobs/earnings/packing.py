"""Records to parcels for the parts of the ledger: entries, and dead letters as they will be written.

Pure functions over Arrow batches, run in Spark's tasks: a record is parsed once, here. A parcel of entries is
a MessagePack array of rows as the ledger's tables have them, so that nobody takes them apart on the way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark.dead_letters.dead_letter import letter_batch
from tidelog.spark.sinks.partition_work import Parcel, to_bytes
from tidelog_rewards import events
from tidelog_rewards.event_parser import ParsedRows, Reason, Values, parser_of, reason_columns
from tidelog_rewards.jobs.earnings.parts import LedgerParts
from tidelog_rewards.jobs.earnings.schema import MAXIMUM_CENTS, MAXIMUM_STEPS, Credit, TaskStep
from tidelog_rewards.phones.phone_tokens import PhonesWritten
from tidelog_rewards.task_quality import TaskQuality

KINDS = (events.CREDIT, events.TASK)
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""What is needed of a record."""

CREDITS, STEPS, LETTERS, QUALITY = "credits", "steps", "letters", "quality"
"""The kinds of parcels."""

_PARSER = parser_of(KINDS)
_USER, _TIME, _SOURCE, _EVENT_ID, _CENTS, _TASK, _STEP, _STEPS = (
    _PARSER.fields.index(name)
    for name in (
        *("user_id", "event_time", "source", "event_id", "amount_cents"),
        *("task_id", "step", "steps"),
    )
)
_to_credits = msgspec.msgpack.Decoder(list[Credit]).decode
_to_steps = msgspec.msgpack.Decoder(list[TaskStep]).decode


def pack(
    parts: LedgerParts, pipeline: str, phones: PhonesWritten
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[Parcel]]:
    """Makes parcels of all that is in some batches of records."""

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[Parcel]:
        quality = TaskQuality()
        part = None
        for batch in batches:
            found = _Entries(parts)
            parsed = found.add(batch)
            _count(parsed, quality)
            for parcel in found.parcels():
                part = parcel.part
                yield parcel
            if any(parsed.reasons):
                for parcel in _letters(batch, parsed.reasons, parts, pipeline, phones):
                    part = parcel.part
                    yield parcel
        if part is not None:  # with one that has something to do in any case
            yield Parcel(part, QUALITY, quality.told())

    return packed


def _count(parsed: ParsedRows, quality: TaskQuality) -> None:
    """By itself, since a parser cannot travel with a function that is pickled."""
    quality.add_rows(_PARSER, parsed)


def pack_range(
    parts: LedgerParts, start: str, end: str
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[Parcel]]:
    """Makes parcels of the entries of a range of event time, and of nothing else."""

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[Parcel]:
        for batch in batches:
            found = _Entries(parts, start, end)
            found.add(batch)
            yield from found.parcels()

    return packed


def entries_of(parcels: Iterable[Parcel]) -> tuple[list[Credit], list[TaskStep]]:
    """The credits and the steps that are in the parcels of a part."""
    credits: list[Credit] = []
    steps: list[TaskStep] = []
    for parcel in parcels:
        if parcel.kind == CREDITS:
            credits += _to_credits(parcel.data)
        elif parcel.kind == STEPS:
            steps += _to_steps(parcel.data)
    return credits, steps


class _Entries:
    """The entries of a batch of records, by part."""

    def __init__(self, parts: LedgerParts, start: str = "", end: str = "~") -> None:
        self._part_of = parts.of
        self._start, self._end = start, end
        self._credits: defaultdict[int, list[Credit]] = defaultdict(list)
        self._steps: defaultdict[int, list[TaskStep]] = defaultdict(list)

    def add(self, batch: pa.RecordBatch) -> ParsedRows:
        """Take the events; returns all records, with the reasons why the others are none."""
        parsed = _PARSER.rows(batch.column("topic"), batch.column("value"), batch.column("timestamp"))
        times = parsed.time_texts("event_time", _TIME)
        reasons, part_of, start, end = parsed.reasons, self._part_of, self._start, self._end
        for at, (kind, values, time) in enumerate(zip(parsed.kinds, parsed.values, times, strict=True)):
            if reasons[at] is None:
                reasons[at] = impossible(values)
            if reasons[at] is None and start <= time < end:
                user = values[_USER]
                if kind is events.CREDIT:
                    self._credits[part_of(user)].append(_credit(values, user, time))
                else:
                    self._steps[part_of(user)].append(_step(values, user, time))
        return parsed

    def parcels(self) -> Iterator[Parcel]:
        """All that was taken."""
        for part, credits in self._credits.items():
            yield Parcel(part, CREDITS, msgspec.msgpack.encode(credits))
        for part, steps in self._steps.items():
            yield Parcel(part, STEPS, msgspec.msgpack.encode(steps))


def impossible(values: Values) -> Reason | None:
    """What no schema of single fields can say."""
    amount, step, steps = values[_CENTS], values[_STEP], values[_STEPS]
    if amount is not None and amount > MAXIMUM_CENTS:
        return Reason("range:amount_cents", f"field amount_cents: more than {MAXIMUM_CENTS}")
    if steps is not None and steps > MAXIMUM_STEPS:
        return Reason("range:steps", f"field steps: more than {MAXIMUM_STEPS}")
    if step is not None and steps is not None and step > steps:
        return Reason("range:step", "field step: more than field steps")
    return None


def _credit(values: Values, user: str, time: str) -> Credit:
    return Credit(user, time[:10], values[_SOURCE], values[_EVENT_ID], values[_CENTS], time)


def _step(values: Values, user: str, time: str) -> TaskStep:
    return TaskStep(user, values[_TASK], values[_STEP], time, values[_STEPS])


def _letters(
    batch: pa.RecordBatch,
    reasons: Sequence[Reason | None],
    parts: LedgerParts,
    pipeline: str,
    phones: PhonesWritten,
) -> Iterator[Parcel]:
    """Letters go by the place of their record, so that a batch has each in the same part every time."""
    codes, texts = reason_columns(reasons)
    malformed = pc.indices_nonzero(pc.is_valid(codes)).to_pylist()
    places = batch.select(["topic", "partition"]).take(pa.array(malformed)).to_pylist()
    by_part: defaultdict[int, list[int]] = defaultdict(list)
    for at, place in zip(malformed, places, strict=True):
        by_part[crc32(f"{place['topic']}/{place['partition']}".encode()) % parts.count].append(at)
    for part, rows in by_part.items():
        chosen = pa.array(rows)
        letters = letter_batch(batch.take(chosen), codes.take(chosen), texts.take(chosen), pipeline, phones)
        yield Parcel(part, LETTERS, to_bytes(letters))
