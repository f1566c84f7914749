"""What people have said about incidents: the compacted topic ``ml_alert_verdicts``.

    key     incident_id, or ``allow`` and pipeline, kind and name of a subject, with line feeds between them
    value   a :class:`Verdict` as JSON; a record without a value takes it back

``tidelog alerts`` writes it. The driver of a detecting pipeline reads it at the beginning of each batch, and
hands it to the task that tells incidents. Needs neither Spark nor Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

import msgspec

from tidelog.decode_errors import DECODE_ERRORS, Int64
from tidelog.errors import TidelogError
from tidelog_rewards.events import ALERT_VERDICTS

if TYPE_CHECKING:
    from tidelog.client import Consumer, ConsumerRecord, TopicPartition
    from tidelog.spark.settings import PipelineSettings

NEVER_US = 2**62
"""Later than anything."""
State = Literal["open", "updated", "closed", "dismissed"]
"""Of an incident."""
_END_WAIT_S = 30.0


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """One verdict: an incident is dismissed, or a subject allowed."""

    verdict: Literal["dismissed", "allowed"]
    pipeline: str
    subject_kind: str
    subject: str
    incident_id: str = ""
    until: str = ""
    """Evidence up to this moment is dismissed; empty: all of it."""
    until_us: Int64 = NEVER_US
    by: str = ""
    note: str = ""
    was: State | Literal[""] = ""
    """The state of the incident without verdicts, as it was known then; empty: nobody has written it down."""


class Verdicts(msgspec.Struct, frozen=True):
    """What people have said: incidents that are dismissed (until when), subjects that are allowed."""

    dismissed: dict[str, int] = {}
    allowed: frozenset[tuple[str, str, str]] = frozenset()
    """Pipeline, kind and name."""


def verdict_key(verdict: Verdict) -> bytes:
    """The key of a verdict's record."""
    if verdict.verdict == "dismissed":
        return verdict.incident_id.encode()
    return "\n".join(("allow", verdict.pipeline, verdict.subject_kind, verdict.subject)).encode()


def read_verdicts(settings: PipelineSettings, pipeline: str) -> Verdicts:
    """All verdicts on a pipeline that there are now.

    :raises TidelogError: the topic could not be read to its end.
    """
    options = {
        "client.id": "tidelog-alert-verdicts",
        "default.api.timeout.ms": 30_000,
        **settings.client_options,
        "bootstrap.servers": settings.bootstrap_servers,
    }
    mine = [each for each in newest_verdicts(options).values() if each.pipeline == pipeline]
    return Verdicts(
        {each.incident_id: each.until_us for each in mine if each.verdict == "dismissed"},
        frozenset(
            (each.pipeline, each.subject_kind, each.subject) for each in mine if each.verdict == "allowed"
        ),
    )


def newest_verdicts(options: Mapping[str, object]) -> dict[bytes, Verdict]:
    """All verdicts that there are now, by the keys of their records; ``options`` are a client's.

    :raises TidelogError: the topic could not be read to its end.
    """
    from tidelog.client import Consumer, TopicPartition

    found: dict[bytes, Verdict] = {}
    reading = {"isolation.level": "read_committed", "enable.auto.commit": False}
    with Consumer({**options, **reading}) as consumer:
        there = consumer.list_topics().get(ALERT_VERDICTS, ())
        partitions = [TopicPartition(ALERT_VERDICTS, each.partition) for each in there]
        for record in records_to_the_end(consumer, partitions):
            key = record.key or b""
            found.pop(key, None)
            verdict = None if record.value is None else read_verdict(record.value)
            if verdict is not None:
                found[key] = verdict
    return found


def read_verdict(value: bytes) -> Verdict | None:
    """The verdict that a record's value is; None where it is none: whoever may write may write anything."""
    try:
        return msgspec.json.decode(value, type=Verdict)
    except DECODE_ERRORS:
        return None


def records_to_the_end(consumer: Consumer, partitions: list[TopicPartition]) -> Iterator[ConsumerRecord]:
    """All records of partitions that there are now.

    :raises TidelogError: they could not be read to their end.
    """
    if not partitions:
        return
    ends = consumer.end_offsets(partitions)
    consumer.assign(partitions)
    consumer.seek_to_beginning(partitions)
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        records = consumer.poll(_END_WAIT_S)
        if not records and any(consumer.position(partition) < end for partition, end in ends.items()):
            raise TidelogError(f"the records of {partitions[0].topic} could not be read to their end")
        yield from records
