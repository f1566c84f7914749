"""What a stream does with a record that its handler cannot handle.

    Stop         stop all streams; ``StreamConsumer.wait`` raises the handler's error          (the default)
    Skip         log it and go on
    DeadLetter   send it to another topic with the reason in its headers, and go on
    Retry        call the handler again after a pause that grows, then do what ``then`` says

A record counts as handled, and is committed, only after its policy has been carried out: a dead letter is
acknowledged by all replicas first. A letter is larger than its record: where that is too large, it is written
without the record's key, value and headers, and says where the record is. Retries hold up their partition's
stream; all pauses together should stay below ``max.poll.interval.ms``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.records.record import RecordHeader
from tidelog.records.record_codec import ConsumerRecord


@dataclass(frozen=True, slots=True)
class Stop:
    """End all streams with the handler's error; the default.

    Example:
        StreamConsumer({"orders": 2}, handle, OPTIONS, on_failure=Stop())
    """


@dataclass(frozen=True, slots=True)
class Skip:
    """Leave the record out, and log a warning that names it.

    Example:
        StreamConsumer({"orders": 2}, handle, OPTIONS, on_failure=Skip())
    """


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Send the record, with its key and value as they were, to another topic.

    Args:
        topic: The name of the other topic; ``{topic}`` in it is the record's own.

    Example:
        DeadLetter("{topic}-unreadable")
    """

    topic: str = "{topic}.dead-letters"

    def topic_for(self, record: ConsumerRecord) -> str:
        """Where ``record`` goes."""
        return self.topic.replace("{topic}", record.topic)


@dataclass(frozen=True, slots=True)
class Retry:
    """Call the handler again, after a pause that doubles.

    Args:
        attempts: How many times to try again.
        then: What to do with a record that fails every time.
        backoff_ms: The first pause.
        backoff_max_ms: The longest pause.

    Example:
        Retry(3, then=DeadLetter("unreadable"))
    """

    attempts: int = 3
    backoff_ms: float = 100
    backoff_max_ms: float = 10_000
    then: Stop | Skip | DeadLetter = Stop()


FailurePolicy = Stop | Skip | DeadLetter | Retry
_REASON_CHARACTERS = 2000
"""Of an error in a letter: many an error holds all of what could not be read."""


def dead_letter_headers(
    record: ConsumerRecord, error: BaseException, attempts: int, *, left_out: bool = False
) -> Sequence[RecordHeader]:
    """The record's own headers, unless it is left out, and why and from where it came."""
    reason = str(error) or type(error).__name__
    told = {
        "dead-letter.reason": reason[:_REASON_CHARACTERS],
        "dead-letter.error": f"{type(error).__module__}.{type(error).__qualname__}",
        "dead-letter.attempts": str(attempts),
        "dead-letter.topic": record.topic,
        "dead-letter.partition": str(record.partition),
        "dead-letter.offset": str(record.offset),
        "dead-letter.timestamp": str(record.timestamp),
        **({"dead-letter.record": "left-out"} if left_out else {}),
    }
    own = () if left_out else record.headers
    # An error may tell what it has read of the record, also half a surrogate pair.
    return [*own, *((name, text.encode(errors="replace")) for name, text in told.items())]
