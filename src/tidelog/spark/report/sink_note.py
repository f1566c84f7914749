"""What a sink adds to the record of an epoch, for people to see (``query_report``).

The driver begins it when it plans the epoch, the task adds what it has written, and ``epoch_record`` keeps it
beside the rest. Nothing of the protocol depends on it: records with other notes are equal.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

import msgspec

from tidelog.decode_errors import Int64
from tidelog.spark.report.application import Application, this_application

_EPOCHS = 16
_TOPICS = 5
_LONGEST = 100


class SinkNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who writes, and where to."""

    application: Application
    planned_ms: tuple[Int64, ...] = ()
    """When the driver planned the last epochs of this run, the newest last."""
    topics: tuple[str, ...] = ()
    """Some of them, where there are many."""
    name: str | None = None
    """The query's, if it has one."""
    is_stream: bool = True

    def of_epoch(self, topics: Iterable[str], previous: SinkNote | None) -> SinkNote:
        """With what a task has written to; ``previous`` is of the same run's last epoch."""
        earlier = () if previous is None else previous.planned_ms
        return SinkNote(
            self.application,
            (*earlier[1 - _EPOCHS :], *self.planned_ms),
            tuple(sorted(topics)[:_TOPICS]),
            self.name,
            self.is_stream,
        )


def new_note(options: Mapping[str, str], *, is_stream: bool) -> SinkNote:
    """The driver's part, of the options that Spark hands over."""
    name = next((text for written, text in options.items() if written.lower() == "queryname"), None)
    now_ms = time.time_ns() // 1_000_000
    return SinkNote(
        this_application(), (now_ms,), name=None if name is None else name[:_LONGEST], is_stream=is_stream
    )


def read_note(fields: object) -> SinkNote | None:
    """A note of a record's JSON; None where there is none that can be read."""
    try:
        return msgspec.convert(fields, SinkNote)
    except msgspec.ValidationError:
        return None
