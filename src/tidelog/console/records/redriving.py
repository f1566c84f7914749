"""Dead letters back to where they came from, by the same rules as ``tidelog deadletters redrive``.

Letters of the pipelines and of ``StreamConsumer`` go through ``framework.redrive``: each record once, with a
mark in one transaction, whole even where its letter does not show it. Letters of others, which name their
topic in a header, go with them; what they do not tell is where the record was, so the mark is for the letter.
That works with blocking clients, so the caller runs it in a thread, and bounds the number of letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple

from tidelog.client import ConsumerRecord
from tidelog.console.records.raw import RawRecord
from tidelog.ids import NO_TIMESTAMP
from tidelog.spark.dead_letters.letter import Letter, Place, read_letter
from tidelog.spark.dead_letters.redrive import Mark, OriginalRecords, Plan, Redrive, Rules, read_marks

_OF_THE_FAILURE = ("topic", "partition", "offset", "reason", "pipeline")
"""Headers of others that tell of the failure, and are not sent."""


def letter_of(record: RawRecord, topic: str) -> Letter | None:
    """The letter that a record of ``topic`` is, ours or one that names its topic; None where it is none."""
    return _of_ours(record, topic) or _of_others(record, topic)


def _of_ours(record: RawRecord, topic: str) -> Letter | None:
    return read_letter(
        ConsumerRecord(
            topic,
            record.partition,
            record.offset,
            record.timestamp_ms,
            0,
            record.key,
            record.value,
            tuple(record.headers),
        )
    )


def _of_others(record: RawRecord, topic: str) -> Letter | None:
    try:
        origin = (dict(record.headers).get("topic") or b"").decode()
    except UnicodeDecodeError:
        return None
    if not origin:
        return None
    return Letter(
        record.partition,
        record.offset,
        record.timestamp_ms,
        None,
        Place(topic, record.partition, record.offset),
        NO_TIMESTAMP,
        "",
        "",
        record.key,
        record.value,
        [each for each in record.headers if each[0] not in _OF_THE_FAILURE],
        origin=origin,
    )


def plan(options: Mapping[str, object], topic: str, letters: Sequence[Letter], by_topic: Counter[str]) -> int:
    """Count what would be sent to which topic; how many letters would stay.

    Those were sent before or too often, are about the same record as another, or about one that is gone.
    """
    with OriginalRecords(options) as records:
        planned = Plan(Rules(), _marks_of(letters, read_marks(options, topic)), records)
        by_topic.update(each.to for each in planned.sendings(letters))
        return sum(astuple(planned.left))


def send(options: Mapping[str, object], topic: str, letters: Sequence[Letter], by_topic: Counter[str]) -> int:
    """Send it, and count what is committed as it goes; the same."""
    with OriginalRecords(options) as records, Redrive(options, topic) as running:
        planned = Plan(Rules(), _marks_of(letters, running.marks), records)
        for each in running.send(planned.sendings(letters)):
            by_topic[each.to] += 1
        return sum(astuple(planned.left))


def _marks_of(letters: Sequence[Letter], marks: Mapping[Place, Mark]) -> Mapping[Place, Mark]:
    """Without marks of letters of others that a topic deleted since had where these are now."""
    newer = {
        each.place
        for each in letters
        if each.origin is not None and each.place in marks and marks[each.place].at_ms < each.refused_at_ms
    }
    return {place: mark for place, mark in marks.items() if place not in newer}
