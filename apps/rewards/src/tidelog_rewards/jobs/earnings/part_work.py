"""What the task of a part does with a micro-batch: entries into the ledger, states and letters to topics.

The order of things makes it exact, whoever dies when (``record_sink`` and ``ledger`` give the parts of it):

1. Take over the part's transactional id. An earlier attempt, of this run or another, writes no more.
2. Merge. Entries that are there change nothing, and what follows is computed from the set of entries.
3. Write the states of all users that the batch names, and its dead letters, in one transaction that also
   says that the batch was written.

A crash before the end of 3 leaves entries without states: the batch comes again and writes them. A crash
behind it leaves nothing to do: the batch that comes again merges what is there, and adds no record. The turn
at the ledger is held from the merge until the records are in the log, so that a backfill beside the stream
cannot put an older state behind a newer one; where the ledger cannot hold others off, states are read once
more when they are written, and written again if they are others by then.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from tidelog.spark.dead_letters.letter_spill import LetterSpill
from tidelog.spark.pipelines.quality import Quality, quality_of
from tidelog.spark.sinks.partition_work import Batches, Parcel, Work, from_bytes
from tidelog.spark.sinks.record_sink import RECORD_SCHEMA, RecordSink
from tidelog.spark.write.write_message import WriteOutcome, WrittenTask
from tidelog_rewards.jobs.earnings.cassandra_ledger import USERS_PER_CHUNK, CassandraLedger
from tidelog_rewards.jobs.earnings.key_spill import KeySpill, Touched
from tidelog_rewards.jobs.earnings.ledger import Ledger, open_ledger
from tidelog_rewards.jobs.earnings.packing import LETTERS, QUALITY, entries_of
from tidelog_rewards.jobs.earnings.parts import LedgerParts
from tidelog_rewards.jobs.earnings.publisher import StatePublisher
from tidelog_rewards.jobs.earnings.schema import TOPIC, Credit, TaskStep, UserEarnings, state_json

if TYPE_CHECKING:
    from tidelog.spark.settings import PipelineSettings

Unpack = Callable[[int, Iterator[Parcel]], Iterable[str]]

STATES_PER_BATCH = 10_000
KEYS_PER_PARCEL = 10_000
MERGED_PARCELS = 16
"""A backfill merges so many parcels at a time."""


@dataclass(frozen=True, slots=True)
class BatchWork:
    """The work on a micro-batch; made on the driver, done by the task of each part."""

    settings: PipelineSettings
    parts: LedgerParts
    sink: RecordSink
    group: str

    def __call__(self, part: int, parcels: Iterator[Parcel]) -> Iterator[str]:
        """Work off the parcels of a part; the answer is read by :meth:`finish`."""
        counted: list[bytes] = []
        with LetterSpill() as letters:
            credits, steps = entries_of(self._entries(part, parcels, counted, letters))
            written = self.take(part, credits, steps, letters.of(part))
        quality = [each.decode() for each in counted]
        yield json.dumps([self.sink.told(written), quality])

    def _entries(
        self, part: int, parcels: Iterable[Parcel], counted: list[bytes], letters: LetterSpill
    ) -> Iterator[Parcel]:
        """The parcels of entries, which are merged before any letter is written; others are put aside."""
        for parcel in parcels:
            if parcel.kind == QUALITY:
                counted.append(parcel.data)
            elif parcel.kind == LETTERS:
                letters.add(part, parcel.data)
            else:
                yield parcel

    def take(
        self, part: int, credits: Sequence[Credit], steps: Sequence[TaskStep], letters: Iterable[bytes] = ()
    ) -> WrittenTask:
        """Work off entries and letters of a part; returns what the sink is to be told."""
        ledger = open_ledger(self.settings, self.parts, part)
        states: list[UserEarnings] = []

        def records(turn: ExitStack) -> Iterator[pa.RecordBatch]:
            turn.enter_context(ledger.turn())
            states.extend(ledger.merge(credits, steps))
            yield from state_batches(states)
            for packed in letters:
                yield from from_bytes(packed)

        with ExitStack() as turn:
            written = self.sink.write(part, records(turn))
        if not ledger.excludes_others:
            newer = states if written.outcome is WriteOutcome.FOUND else ledger.newer_than(states)
            with StatePublisher(self.settings, f"{self.group}.{part}") as publisher:
                publisher.publish_newest(newer, ledger)
        return written

    def finish(self, answers: Sequence[str]) -> Quality:
        """The driver's part, with the answers of all tasks; returns what they have counted."""
        told = [json.loads(answer) for answer in answers]
        self.sink.finish([answer for answer, _ in told])
        return quality_of(each for _, counted in told for each in counted)


def merge_entries(settings: PipelineSettings, parts: LedgerParts) -> Unpack:
    """The work of a backfill on entries: into the ledger, as they come; answers with their number."""

    def merge(part: int, parcels: Iterator[Parcel]) -> Iterator[str]:
        ledger = open_ledger(settings, parts, part)
        merged = 0
        waiting: list[Parcel] = []
        for parcel in parcels:
            waiting.append(parcel)
            if len(waiting) == MERGED_PARCELS:
                merged += _merge(ledger, waiting)
                waiting = []
        yield str(merged + _merge(ledger, waiting))

    return merge


def _merge(ledger: Ledger, parcels: Sequence[Parcel]) -> int:
    credits, steps = entries_of(parcels)
    if credits or steps:
        ledger.merge(credits, steps)
    return len(credits) + len(steps)


def publish_parts(settings: PipelineSettings, parts: LedgerParts, group: str, start: str, end: str) -> Work:
    """The work of a backfill on parts in files, named by ``id``: :func:`publish_anew` for each."""

    def publish(numbers: Iterator[pa.Table]) -> str:
        chosen = [part for table in numbers for part in table["id"].to_pylist()]
        return str(sum(publish_anew(settings, parts, group, part, (start, end)) for part in chosen))

    return publish


def publish_anew(
    settings: PipelineSettings, parts: LedgerParts, group: str, part: int, days: tuple[str, str]
) -> int:
    """Derive what a range of time bears on in a part, publish the users concerned, return how many."""
    ledger = open_ledger(settings, parts, part)
    published = 0
    with StatePublisher(settings, f"{group}-backfill.{part}") as publisher, ledger.turn():
        for states in ledger.recompute(*days):
            published += len(states)
            publisher.publish_newest(states, ledger)
    return published


def pack_touched(
    settings: PipelineSettings, parts: LedgerParts, start: str, end: str
) -> Callable[[Batches], Iterator[Parcel]]:
    """The work of a backfill on slices of Cassandra's ring, named by ``id``: keys for the parts."""

    def packed(batches: Batches) -> Iterator[Parcel]:
        ledger = CassandraLedger(settings)
        numbers = [number for batch in batches for number in batch.column("id").to_pylist()]
        found = (key for number in numbers for key in ledger.touched(start, end, number, parts.count))
        while chunk := list(islice(found, KEYS_PER_PARCEL)):
            by_part: defaultdict[int, list[Touched]] = defaultdict(list)
            for key in chunk:
                by_part[parts.of(key.user_id)].append(key)
            for part, keys in by_part.items():
                yield Parcel(part, "touched", msgspec.msgpack.encode(keys))

    return packed


def publish_touched(settings: PipelineSettings, group: str) -> Unpack:
    """The work of a backfill on the keys of a part: derive them anew, publish, answer with the number."""

    def publish(part: int, parcels: Iterator[Parcel]) -> Iterator[str]:
        ledger = CassandraLedger(settings)
        published = 0
        with KeySpill() as spill, StatePublisher(settings, f"{group}-backfill.{part}") as publisher:
            for parcel in parcels:
                spill.add(msgspec.msgpack.decode(parcel.data, type=list[Touched]))
            for days, tasks in spill.chunks(USERS_PER_CHUNK):
                states = ledger.derive(days, tasks)
                published += len(states)
                publisher.publish_newest(states, ledger)
        yield str(published)

    return publish


def state_batches(states: Sequence[UserEarnings]) -> Iterator[pa.RecordBatch]:
    """States as records of the topic."""
    for first in range(0, len(states), STATES_PER_BATCH):
        chosen = states[first : first + STATES_PER_BATCH]
        columns = [
            pa.repeat(pa.scalar(TOPIC), len(chosen)),
            pa.array([state.user_id.encode() for state in chosen], pa.binary()),
            pa.array([state_json(state) for state in chosen], pa.binary()),
            pa.nulls(len(chosen), RECORD_SCHEMA.field("headers").type),
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)
