"""Dead letters back to where they came from, by the same rules as ``tidelog deadletters redrive``.

Letters of the pipelines and of ``StreamConsumer`` go through ``framework.redrive``: each record once, with a
mark in one transaction, whole even where its letter does not show it. That works with blocking clients, so
the caller runs it in a thread, and bounds the number of letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from tidelog.client import ConsumerRecord
from tidelog.console.records.raw import RawRecord
from tidelog.pipelines.framework.letter import Letter, read_letter
from tidelog.pipelines.framework.redrive import OriginalRecords, Plan, Redrive, Rules, read_marks


@dataclass(frozen=True, slots=True)
class RedriveOutcome:
    """How many records went, or would go, to which topics, and how many letters stay."""

    by_topic: dict[str, int]
    left: int
    """Sent before, sent too often, about the same record as another, or gone."""


def letter_of(record: RawRecord, topic: str) -> Letter | None:
    """The letter that a record of ``topic`` is; None where it is none of ours."""
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


def plan(options: Mapping[str, object], topic: str, letters: Sequence[Letter]) -> RedriveOutcome:
    """What would be sent."""
    with OriginalRecords(options) as records:
        planned = Plan(Rules(), read_marks(options, topic), records)
        return _outcome(planned, Counter(each.to for each in planned.sendings(letters)))


def send(options: Mapping[str, object], topic: str, letters: Sequence[Letter]) -> RedriveOutcome:
    """Send it."""
    with OriginalRecords(options) as records, Redrive(options, topic) as running:
        planned = Plan(Rules(), running.marks, records)
        return _outcome(planned, Counter(each.to for each in running.send(planned.sendings(letters))))


def _outcome(planned: Plan, by_topic: Counter[str]) -> RedriveOutcome:
    return RedriveOutcome(dict(by_topic), sum(astuple(planned.left)))
