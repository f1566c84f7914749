"""Sends the records of dead letters again, each once, and remembers which.

A record goes out in one transaction with a *mark* that it did, in the compacted topic ``<letters>-redriven``,
keyed by the record's place. There is one transactional id for a topic of letters: who begins ends whatever an
earlier redrive had under way, then reads the marks, then sends what has none. So a redrive that is killed
loses nothing and doubles nothing for readers of committed records, two at once cannot both send a record, and
several letters about one record, of several pipelines, send it once.

The record goes with key, value, headers and timestamp as they were, to its own partition where it goes to its
own topic, and with the header ``tidelog-redriven``: how often it was sent again. A letter about it carries
that header, too, so that a record which is refused every time comes to :attr:`Rules.max_redrives` and stays.
A record that was too large for its letter is read where it was; if it is gone from there, it is left. So is
one that is sealed, unless the key that sealed it is there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec

from tidelog.client.options import ADMIN, PRODUCER
from tidelog.decode_errors import DECODE_ERRORS, Int64
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import NO_TIMESTAMP
from tidelog.spark.dead_letters.letter import (
    REDRIVEN,
    Letter,
    Opener,
    Place,
    SealError,
    carried_bytes,
    opened,
    place_of,
    redrives_of,
)
from tidelog.spark.dead_letters.letter_reader import (
    open_consumer,
    options_for,
    partitions_of,
    read_record,
    read_to_the_end,
)

if TYPE_CHECKING:
    from tidelog.client import Admin, Consumer, Delivery
    from tidelog.client.metadata import PartitionMetadata
    from tidelog.records.record import RecordHeader

TRANSACTION_RECORDS = 500
TRANSACTION_BYTES = 8 << 20
MAX_REDRIVES = 3
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


class Mark(msgspec.Struct, frozen=True):
    """That a record was sent again; the value of a record of marks, as JSON."""

    times: Int64
    """How often, all told."""
    to: str
    at_ms: Int64


@dataclass(frozen=True, slots=True)
class Rules:
    """What is sent where."""

    to: str | None = None
    """None: each record to its own topic."""
    again: bool = False
    """Records that were sent before, too."""
    max_redrives: int = MAX_REDRIVES
    """A record that was sent so often stays where it is."""
    limit: int | None = None


class Sending(NamedTuple):
    """A record that is to be sent again."""

    letter: Letter
    to: str
    times: int
    """How often with this one."""

    @property
    def headers(self) -> list[RecordHeader]:
        """The record's own, and our one."""
        own = [each for each in self.letter.headers if redrives_of(each) is None]
        return [*own, (REDRIVEN, b"%d" % self.times)]

    @property
    def size(self) -> int:
        """About how many bytes."""
        return carried_bytes(self.letter.key, self.letter.value, self.headers)


@dataclass(slots=True)
class Left:
    """How many letters send nothing, and why."""

    sent_before: int = 0
    too_often: int = 0
    same_record: int = 0
    """Another letter sends it."""
    gone: int = 0
    """The record is sealed or was too large for its letter, and is not in its topic any more."""


@dataclass(slots=True)
class Plan:
    """Goes through letters and says what is to be sent."""

    rules: Rules
    marks: Mapping[Place, Mark]
    records: OriginalRecords
    left: Left = field(default_factory=Left)
    _chosen: set[Place] = field(default_factory=set)

    def sendings(self, letters: Iterable[Letter]) -> Iterator[Sending]:
        """What is to be sent, as far as the limit goes."""
        limit = self.rules.limit
        for letter in letters:
            if limit is not None and len(self._chosen) >= limit:
                return
            if letter.place in self._chosen:
                self.left.same_record += 1
            elif letter.place in self.marks and not self.rules.again:
                self.left.sent_before += 1
            elif self._times(letter) >= self.rules.max_redrives:
                self.left.too_often += 1
            elif (whole := self.records.whole(letter)) is None:
                self.left.gone += 1
            # A letter that has left its record out does not have the header that counts, either.
            elif (times := self._times(whole)) >= self.rules.max_redrives:
                self.left.too_often += 1
            else:
                self._chosen.add(letter.place)
                yield Sending(whole, self.rules.to or letter.home, times + 1)

    def _times(self, letter: Letter) -> int:
        """How often the record was sent again, as far as a letter and the marks know."""
        mark = self.marks.get(letter.place)
        return max(letter.redrives, 0 if mark is None else mark.times)


class OriginalRecords:
    """Finds the records that their letters do not show, in a seal or where they were; closed by ``with``."""

    def __init__(self, options: Mapping[str, object], opener: Opener | None = None) -> None:
        """``opener`` opens seals; without it, sealed records are read where they were."""
        self._options = options
        self._opener = opener
        self._consumer: Consumer | None = None
        self._topics: Mapping[str, Sequence[PartitionMetadata]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def whole(self, letter: Letter) -> Letter | None:
        """The letter with its record in it; None where that is gone."""
        if letter.seal is not None and self._opener is not None:
            # One whose key was taken out of the file, or that somebody has made up, is as if we had no keys.
            with suppress(SealError):
                return opened(letter, self._opener)
        if not letter.left_out and letter.seal is None:
            return letter
        if self._consumer is None:
            self._consumer = open_consumer(self._options)
            self._topics = self._consumer.list_topics()
        place = letter.place
        if place.partition not in {each.partition for each in self._topics.get(place.topic, ())}:
            return None
        found = read_record(self._consumer, place)
        # Of a topic that was deleted and made anew another record is there now.
        if found is None or letter.timestamp_ms not in (NO_TIMESTAMP, found.timestamp):
            return None
        return replace(
            letter, key=found.key, value=found.value, headers=found.headers, left_out=False, seal=None
        )


class Destinations:
    """The topics that records go to: each is asked for once."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._partitions: dict[str, int] = {}

    def partition(self, sending: Sending) -> int | None:
        """The partition of a record: its own in its own topic, else whichever its key has (None)."""
        count = self._count(sending.to)
        own = sending.letter.place
        return own.partition if sending.to == own.topic and own.partition < count else None

    def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            described = self._admin.describe_topics([topic])[topic]
            if described.error is not None and described.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise TidelogError(
                    f"topic {topic!r}, where records of these letters go, is not there: create it, "
                    "or name another one with --to"
                )
            described.raise_for_error()
            self._partitions[topic] = len(described.partitions)
        return self._partitions[topic]


class Redrive:
    """One redrive of a topic of letters; holds the right to it from ``with`` to its end."""

    def __init__(self, options: Mapping[str, object], letters: str) -> None:
        self._options = options
        self._letters = letters
        self._open = ExitStack()
        self.marks: dict[Place, Mark] = {}

    def __enter__(self) -> Self:
        from tidelog.client import Admin, Producer

        own = {
            "transactional.id": f"tidelog-redrive-{self._letters}",
            "enable.idempotence": True,
            "acks": "all",
        }
        with ExitStack() as opening:
            admin = opening.enter_context(Admin(options_for(ADMIN, self._options)))
            _create_marks(admin, marks_topic(self._letters))
            self._destinations = Destinations(admin)
            # At its end whatever is open is aborted.
            self._producer = opening.enter_context(Producer({**options_for(PRODUCER, self._options), **own}))
            self._producer.init_transactions()
            # What another one had under way is over by now: these are all marks that there are.
            self.marks = read_marks(self._options, self._letters)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open.close()

    def send(self, sendings: Iterable[Sending]) -> Iterator[Sending]:
        """Send, some hundreds in a transaction; gives back what is committed."""
        waiting: list[Sending] = []
        size = 0
        for each in sendings:
            waiting.append(each)
            size += each.size
            if len(waiting) == TRANSACTION_RECORDS or size > TRANSACTION_BYTES:
                yield from self._transaction(waiting)
                waiting, size = [], 0
        if waiting:
            yield from self._transaction(waiting)

    def _transaction(self, sendings: Sequence[Sending]) -> Sequence[Sending]:
        try:
            with self._producer.transaction() as producer:
                deliveries = [self._send(each) for each in sendings]
                producer.flush()
                for each, delivery in zip(sendings, deliveries, strict=True):
                    _check(each, delivery.exception(0))
        except TidelogError as error:
            if not _is_fencing(error):
                raise
            raise TidelogError(
                f"another redrive of {self._letters} has begun, so this one has ended: what it had not "
                "committed is left to the other"
            ) from error
        return sendings

    def _send(self, sending: Sending) -> Delivery:
        letter = sending.letter
        # Not before the letter, whatever the clocks say: that is how one of a topic made anew is known.
        at_ms = max(time.time_ns() // 1_000_000, letter.refused_at_ms)
        mark = Mark(sending.times, sending.to, at_ms)
        self._producer.send(marks_topic(self._letters), msgspec.json.encode(mark), str(letter.place).encode())
        return self._producer.send(
            sending.to,
            letter.value,
            letter.key,
            partition=self._destinations.partition(sending),
            timestamp_ms=letter.timestamp_ms if letter.timestamp_ms >= 0 else None,
            headers=sending.headers,
        )


def marks_topic(letters: str) -> str:
    """Where the marks of a topic of letters are."""
    return f"{letters}-redriven"


def read_marks(options: Mapping[str, object], letters: str) -> dict[Place, Mark]:
    """Which records were sent again; none where nobody ever did."""
    marks: dict[Place, Mark] = {}
    consumer = open_consumer(options)
    with consumer:
        topic = marks_topic(letters)
        if topic not in consumer.list_topics():
            return {}
        starts = consumer.beginning_offsets(partitions_of(consumer, topic))
        for record in read_to_the_end(consumer, starts):
            place, mark = read_place(record.key), read_mark(record.value)
            if place is not None and mark is not None:
                marks[place] = mark
    return marks


def read_place(key: bytes | None) -> Place | None:
    """The place that the key of a mark names; None where it names none."""
    topic, _, numbers = (key or b"").partition(b"/")
    partition, _, offset = numbers.partition(b"/")
    return place_of(topic, partition, offset)


def read_mark(value: bytes | None) -> Mark | None:
    """The mark that a record's value is; None where it is none: whoever may write may write anything."""
    try:
        return msgspec.json.decode(value or b"", type=Mark)
    except DECODE_ERRORS:
        return None


def _create_marks(admin: Admin, topic: str) -> None:
    """Make the topic of marks where it is missing."""
    from tidelog.client import NewTopic

    if topic in {each.name for each in admin.list_topics()}:
        return
    configs: dict[str, str | None] = {"cleanup.policy": "compact"}
    [made] = admin.create_topics([NewTopic(topic, 1, -1, configs=configs)])
    if made.error is not None and made.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise made.error


def _is_fencing(error: BaseException | None) -> bool:
    """Whether an error, or what led to it, says that another producer has taken over."""
    while error is not None:
        if isinstance(error, KafkaError) and error.code in _FENCED:
            return True
        error = error.__cause__
    return False


def _check(sending: Sending, error: Exception | None) -> None:
    if error is not None:
        raise TidelogError(
            f"the record of letter {sending.letter.name} could not be written to {sending.to}, and with it "
            f"none of its transaction was: {error}"
        ) from error
