"""A micro-batch of a detecting pipeline as Spark's tasks work it off: none of it on the driver.

1. *Sort out.* Tasks of the source parse records and put what the detector remembers of an event, and letters
   for records that are none, into buckets. A bucket's share of an Arrow batch is one row for Spark, so that
   the JVM moves some bytes from here to there, and knows of no event.
2. *Merge.* A task takes the new rows of a bucket together with its state (``alert_state``), has the detector
   say who is to be judged, writes the state after the batch, and writes letters, in a transaction of its own
   that also records the batch's number.
3. *Follow up*, in the batches that need it: subjects that have got enough events to be looked at are judged
   by one more task, which sees the state of all buckets after the batch. It keeps the incidents, and writes
   what has changed in them (``incidents``).

The first two are one Spark job, which reads a topic once. The driver plans it, and is told a few numbers.

Which rows are in which bucket is decided by the rows alone, and what a bucket reports by its state and its
rows. So every attempt of a batch writes the same records in the same transaction, on however many cores, and
the sink, which knows a batch by its number, takes them once.

Called by ``alert_job``. The functions here run in Spark's Python workers unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from tidelog.spark.dead_letters.dead_letter import letter_batch
from tidelog.spark.dead_letters.letter_spill import LetterSpill
from tidelog.spark.pipelines.quality import Quality, quality_of
from tidelog.spark.sinks.partition_work import with_rows
from tidelog.spark.sinks.record_sink import RECORD_SCHEMA
from tidelog_rewards.detection.alert_evidence import Window
from tidelog_rewards.detection.alert_state import (
    KEY,
    KeyedState,
    StateReader,
    buckets_of,
    left_behind,
)
from tidelog_rewards.detection.incidents import (
    Change,
    IncidentBook,
    IncidentRow,
    Judged,
    Terms,
    hour_of,
    without_numbers,
)
from tidelog_rewards.event_parser import parser_of
from tidelog_rewards.events import INCIDENTS, EventKind
from tidelog_rewards.parsing import RECORD_COLUMNS
from tidelog_rewards.phones.phone_tokens import PhonesWritten
from tidelog_rewards.task_quality import TaskQuality

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.spark.write.write_options import WriteOptions

_SHARE = "bucket int, newest_us bigint, events binary, letters binary, quality binary"
_SHARE_SCHEMA = pa.schema(
    {
        "bucket": pa.int32(),
        "newest_us": pa.int64(),
        "events": pa.binary(),
        "letters": pa.binary(),
        "quality": pa.binary(),
    }
)
_RESULT = (
    "answer string, topic string, key binary, value binary, headers array<struct<key: string, value: binary>>"
)
_RESULT_SCHEMA = pa.schema([pa.field("answer", pa.string()), *RECORD_SCHEMA])


class Answer(msgspec.Struct, frozen=True):
    """What the driver is told of a bucket, or of what was followed up."""

    bucket: int
    events: int = 0
    newest_us: int = 0
    """The time of the newest event, no later than its record's timestamp."""
    rows: int = 0
    """In the state, after the batch."""
    late: int = 0
    dropped: int = 0
    alerts: int = 0
    letters: int = 0
    follow_ups: int = 0
    quality: Quality | None = None
    """Of what the source's tasks have read."""
    incidents: tuple[IncidentRow, ...] = ()
    """Rows for the table; subjects, no events."""
    closes_us: int = 0
    """When the next incident closes; 0 of a bucket."""


class Found(NamedTuple):
    """What a detector makes of the new rows of a bucket."""

    kept: pa.Table
    """What the state takes over."""
    times_us: pa.ChunkedArray
    """Of the new events that the bucket counts; each is counted in one."""
    late: int = 0
    """Of these, events that came too late to count."""
    follow_ups: tuple[bytes, ...] = ()
    """Subjects that are to be judged, by the task that sees all buckets; any bytes."""


class Findings(NamedTuple):
    """What came of follow-ups."""

    judged: list[Judged]
    dropped: int = 0
    """Searches that were given up."""


class Batch(NamedTuple):
    """Which micro-batch it is, and what is late in it."""

    batch_id: int
    watermark_us: int
    """What happened before this is late."""
    linked_us: int = 0
    """What happened before this links no device to an address any more, and nobody to a ring: it is
    forgotten, though a range of time, or a file of the state that was not swallowed yet, still has it."""

    @property
    def since_us(self) -> int:
        """The points of hours from here on can still change."""
        return hour_of(self.watermark_us) if self.watermark_us > 0 else 0


@dataclass(frozen=True)
class Bucket:
    """The state of a bucket before a batch, and the rows that have come."""

    new: pa.Table
    state: KeyedState
    batch: Batch

    @property
    def batch_id(self) -> int:
        return self.batch.batch_id

    @property
    def watermark_us(self) -> int:
        return self.batch.watermark_us

    def frequent(self, fresh: pa.Table, least: int) -> pa.Array:
        """The keys of ``fresh`` rows, which are new, that at least so many rows have, old and new."""
        keys = pc.unique(fresh[KEY])
        new = self.new[KEY].filter(pc.is_in(self.new[KEY], value_set=keys))
        counted = pc.value_counts(pa.chunked_array([*self.state.held(keys), *new.chunks], pa.uint64()))
        return counted.field("values").filter(pc.greater_equal(counted.field("counts"), least))


RowsOf = Callable[[Iterable[int]], pa.Table]
"""The rows of keys, in whatever bucket, after a batch."""


class Detector(Protocol):
    """The rules of a pipeline; travels pickled to the tasks."""

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> EventKind: ...

    @property
    def topic(self) -> str:
        """Where alerts go."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of a row: those of ``alert_state``, then its own."""

    @property
    def watermark_delay_us(self) -> int:
        """So long after the newest event others may come."""

    @property
    def memory_us(self) -> int:
        """So long before the watermark an event may lie that still counts."""

    @property
    def quiet_us(self) -> int:
        """So long after its last evidence an incident is closed."""

    @property
    def allow(self) -> Mapping[str, Sequence[str]]:
        """Subjects that the rules call honest, by their kind."""

    def rows(self, parsed: pa.StructArray, partitions: pa.Array, offsets: pa.Array) -> pa.Table:
        """What is remembered of parsed events, which are null where a record was none."""

    def detect(self, bucket: Bucket) -> Found:
        """What the state takes of the new rows of a bucket, and who is to be judged by them."""

    def judge(self, left: list[bytes], rows_of: RowsOf, book: IncidentBook, batch: Batch) -> Findings:
        """The subjects that all buckets have left, by all that is known of them after the batch."""


@dataclass(frozen=True)
class AlertSink:
    """Writes what tasks have found, exactly once."""

    options: WriteOptions
    app_id: str
    run_id: str

    def write(self, records: Iterable[pa.RecordBatch], task: int, batch_id: int) -> None:
        """Write the records of a task, unless they are there already; with none there is nothing to do."""
        if (filled := with_rows(records)) is None:
            return
        from tidelog.spark.write.epoch_task import write_exactly_once
        from tidelog.spark.write.write_message import WriteName

        name = WriteName(self.app_id, batch_id, self.run_id, task, streaming=False, same_tasks=True)
        write_exactly_once(filled, self.options, name)


@dataclass(frozen=True)
class BatchTask:
    """All that a task needs to know of a micro-batch; made on the driver."""

    detector: Detector
    state: Path
    buckets: int
    batch: Batch
    terms: Terms
    phones: PhonesWritten
    sink: AlertSink | None = None
    """None: the records are given back as rows."""
    within: Window | None = None
    """Only incidents with evidence of this time are told, and letters of records of this time; None: all."""

    def sort_out(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Records to a row for each bucket."""
        quality = TaskQuality()
        for batch in batches:
            parsed = parser_of((self.detector.kind,), self.detector.kind).columns(
                batch.column("topic"), batch.column("value"), batch.column("timestamp")
            )
            found = self.detector.rows(parsed, batch.column("partition"), batch.column("offset"))
            rows = self._around(found)
            quality.add(self.detector.kind, parsed)
            yield _shares(
                _newest_us(parsed.field("event_time"), batch.column("timestamp")),
                _split(rows, buckets_of(rows[KEY].combine_chunks(), self.buckets), self.buckets),
                self._letters(self._told_of(parsed.field("code"), batch), parsed.field("reason"), batch),
            )
        # A bucket behind the last one, without a state.
        told = {"bucket": self.buckets, "quality": quality.told()}
        yield pa.RecordBatch.from_pylist([told], schema=_SHARE_SCHEMA)

    def _around(self, rows: pa.Table) -> pa.Table:
        """The rows that have to do with the range of time, if there is one."""
        if self.within is None:
            return rows
        start_us, end_us = self.within.with_context(self.detector.memory_us)
        return rows.filter(
            pc.and_(pc.greater_equal(rows["time_us"], start_us), pc.less(rows["time_us"], end_us))
        )

    def _told_of(self, codes: pa.Array, batch: pa.RecordBatch) -> pa.Array:
        within = self.within
        if within is None:
            return codes
        times_us = batch.column("timestamp").cast(pa.int64())
        inside = pc.and_(pc.greater_equal(times_us, within.start_us), pc.less(times_us, within.end_us))
        return pc.if_else(inside, codes, pa.scalar(None, pa.string()))

    def _letters(
        self, codes: pa.Array, reasons: pa.Array, batch: pa.RecordBatch
    ) -> dict[int, pa.RecordBatch]:
        """Letters by bucket, which the place of a record decides."""
        if codes.null_count == len(codes):
            return {}
        told = letter_batch(batch, codes, reasons, self.detector.name, self.phones)
        partitions = batch.column("partition").filter(pc.is_valid(codes)).cast(pa.uint64())
        return _split(pa.Table.from_batches([told]), buckets_of(partitions, self.buckets), self.buckets)

    def merge(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of buckets to a row for each bucket with its answer."""
        events: dict[int, list[pa.RecordBatch]] = {}
        newest_us: dict[int, int] = {}
        quality: list[bytes] = []
        with LetterSpill() as told:
            for batch in batches:
                for share in batch.to_pylist():
                    bucket = share["bucket"]
                    if share["quality"] is not None:
                        quality.append(share["quality"])
                        continue
                    events.setdefault(bucket, [])
                    newest_us[bucket] = max(newest_us.get(bucket, 0), share["newest_us"])
                    if share["events"] is not None:
                        events[bucket].append(_unpacked(share["events"], self.detector.schema))
                    if share["letters"] is not None:
                        told.add(bucket, share["letters"])
            for bucket in sorted(events):
                new = pa.Table.from_batches(events[bucket], self.detector.schema)
                yield from self._merge_bucket(bucket, new, told, newest_us[bucket])
        if quality:
            yield from self._told(Answer(self.buckets, quality=quality_of(quality)), ())

    def _merge_bucket(
        self, bucket: int, new: pa.Table, told: LetterSpill, newest_us: int
    ) -> Iterator[pa.RecordBatch]:
        state = KeyedState(self.state, bucket, self.batch.batch_id, self.detector.schema)
        found = self.detector.detect(Bucket(new, state, self.batch))
        rows = state.commit(found.kept, self.batch.watermark_us, newest_us)
        state.leave(found.follow_ups)
        answer = Answer(
            bucket,
            self._counted(found.times_us),
            max(newest_us, state.newest_us),
            rows,
            found.late,
            letters=sum(letters.num_rows for letters in _letters_of(told, bucket)),
            follow_ups=len(found.follow_ups),
        )
        yield from self._told(answer, _letters_of(told, bucket))

    def _counted(self, times_us: pa.ChunkedArray) -> int:
        within = self.within
        if within is None:
            return len(times_us)
        inside = pc.and_(pc.greater_equal(times_us, within.start_us), pc.less(times_us, within.end_us))
        return int(pc.sum(inside).as_py() or 0)

    def follow_up(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Judge what all buckets have left, as the task behind the last bucket; its input is nothing."""
        for _ in batches:
            pass
        left = left_behind(self.state, self.buckets, self.batch.batch_id)
        reader = StateReader(self.state, self.buckets, self.batch.batch_id, self.detector.schema)
        book = IncidentBook(self.state, self.batch.batch_id)
        found = self.detector.judge(sorted(left), reader.rows_of, book, self.batch)
        told = (each for each in found.judged if self._is_told(each))
        judged = [without_numbers(each, self.phones) for each in told]
        changes = book.update(judged, self.batch.since_us, self.terms)
        answer = Answer(
            self.buckets,
            alerts=len(changes),
            dropped=found.dropped,
            incidents=tuple(change.row for change in changes),
            closes_us=book.commit(self.batch.watermark_us),
        )
        yield from self._told(answer, alert_table(changes, self.detector.topic).to_batches())

    def _is_told(self, judged: Judged) -> bool:
        within = self.within
        return within is None or any(
            within.start_us <= point.time_us < within.end_us for point in judged.points
        )

    def _told(self, answer: Answer, records: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.sink is not None:
            self.sink.write(records, answer.bucket, self.batch.batch_id)
            records = ()
        text = msgspec.json.encode(answer).decode()
        yield pa.RecordBatch.from_pylist([{"answer": text}], schema=_RESULT_SCHEMA)
        for batch in records:
            nothing = pa.nulls(batch.num_rows, pa.string())
            yield pa.RecordBatch.from_arrays([nothing, *batch.columns], schema=_RESULT_SCHEMA)


def merged(raw: DataFrame, task: BatchTask, tasks: int) -> DataFrame:
    """Records of a batch to answers, and to records where there is no sink; on the driver."""
    shares = map_in_arrow(raw.select(*RECORD_COLUMNS), task.sort_out, _SHARE)
    at_home = shares.repartitionById(tasks, F.col("bucket") % tasks)
    return map_in_arrow(at_home, task.merge, _RESULT)


def followed_up(session: SparkSession, task: BatchTask) -> DataFrame:
    """What comes of the follow-ups of a batch; on the driver."""
    return map_in_arrow(session.range(0, 1, 1, 1), task.follow_up, _RESULT)


def answers_of(results: DataFrame) -> list[Answer]:
    """Run it, and have the answers; on the driver."""
    told = results.where(F.col("answer").isNotNull()).select("answer").collect()
    return [msgspec.json.decode(row.answer, type=Answer) for row in told]


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """``DataFrame.mapInArrow``, which asks for pandas without a use for it; on the driver."""
    udf = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = udf(*(frame[name] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)


def alert_table(changes: Iterable[Change], topic: str) -> pa.Table:
    """Changes of incidents as records: a history in the pipeline's topic, the newest in that of incidents."""
    rows = [
        {"topic": each, "key": change.key, "value": change.value}
        for change in sorted(changes, key=lambda change: change.key)
        for each in (topic, INCIDENTS)
    ]
    return pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)


def _split(rows: pa.Table, homes: pa.Array, buckets: int) -> dict[int, pa.RecordBatch]:
    """The rows of each bucket that has some."""
    shares = {}
    for bucket in range(buckets):
        share = rows.filter(pc.equal(homes, pa.scalar(bucket, pa.uint64())))
        if share.num_rows:
            shares[bucket] = share.combine_chunks().to_batches()[0]
    return shares


def _newest_us(event_times: pa.Array, timestamps: pa.Array) -> int:
    """The time of the newest event; of one that is ahead of its record, the record's.

    Watermarks follow it, and one clock that runs ahead must not make everybody else's events late.
    """
    times_us = event_times.cast(pa.int64())
    passed_us = pc.min_element_wise(times_us, timestamps.cast(pa.int64()))
    return pc.max(passed_us.filter(pc.is_valid(times_us))).as_py() or 0


def _shares(
    newest_us: int, events: dict[int, pa.RecordBatch], told: dict[int, pa.RecordBatch]
) -> pa.RecordBatch:
    """A row for each bucket; ``newest_us`` is that of all events from which they come."""
    homes = sorted({*events, *told})
    # No later than the bucket's own: the rows of a backfill are cut to its range.
    newest = [
        min(newest_us, pc.max(events[home]["time_us"]).as_py()) if home in events else 0 for home in homes
    ]
    columns = [
        pa.array(homes, pa.int32()),
        pa.array(newest, pa.int64()),
        *(
            pa.array(
                [each[home].serialize().to_pybytes() if home in each else None for home in homes], pa.binary()
            )
            for each in (events, told)
        ),
        pa.nulls(len(homes), pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_SHARE_SCHEMA)


def _letters_of(told: LetterSpill, bucket: int) -> Iterator[pa.RecordBatch]:
    return (_unpacked(packed, RECORD_SCHEMA) for packed in told.of(bucket))


def _unpacked(share: bytes, schema: pa.Schema) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(share), schema)
