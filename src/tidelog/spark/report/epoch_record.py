"""What the brokers remember of a task's last write, and under which names.

A *write* is named by an application, a version (a stream's query id and epoch) and the number of a task. Each
task of an application has a transactional id and a consumer group of the same name, in which a committed
offset is the last version that it has written; the offset's metadata says what. Nobody ever joins such a
group. The offset is committed for the only partition of ``EPOCH_TOPIC``, which holds no records: brokers take
offsets for partitions that exist only, and an output topic may not be there to begin with or be deleted.

    run              the execution that wrote it: a stream's run id, or one made up for each batch write
    rows, checksum   of what was written, see ``write_digest``
    claimed          a later run has put its name here, before it wrote anything: tasks of the run that wrote
                     the record no longer commit by themselves
    note             for people: who writes where to, see ``sink_note``; never compared

Used by ``epoch_task`` and ``epoch_commit``; decision 0007 gives the reasons.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from tidelog.decode_errors import Int64
from tidelog.ids import TopicPartition
from tidelog.spark.report.content_digest import ContentDigest

if TYPE_CHECKING:
    from tidelog.spark.report.sink_note import SinkNote

EPOCH_TOPIC = "__tidelog_spark_epochs"
EPOCH_PARTITION = TopicPartition(EPOCH_TOPIC, 0)
GROUP_PREFIX = "__tidelog-spark-epochs."
_FORMAT = 1
_TASK_DIGITS = 10
"""Spark counts tasks with 32 bits."""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The last write of one task."""

    version: int
    run_id: str
    content: ContentDigest
    claimed: bool = False
    note: SinkNote | None = field(default=None, compare=False)

    def claimed_by(self, run_id: str) -> EpochRecord:
        """The same write under the name of a later run."""
        return replace(self, run_id=run_id, claimed=True)

    @property
    def metadata(self) -> str:
        """What stands beside the offset."""
        fields: dict[str, object] = {
            "format": _FORMAT,
            "run": self.run_id,
            "rows": self.content.rows,
            "checksum": self.content.text,
        }
        if self.claimed:
            fields["claimed"] = True
        if self.note is not None:
            fields["note"] = msgspec.to_builtins(self.note)
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def read(cls, version: int, metadata: str) -> EpochRecord:
        """The record that a committed offset and its metadata are; raises ``ValueError`` if they are none."""
        try:
            found = msgspec.json.decode(metadata, type=_Format)
            if found.format != _FORMAT:
                raise ValueError(f"format {found.format} is of a newer Tidelog")
            fields = msgspec.json.decode(metadata, type=_Fields)
        except RecursionError:
            raise ValueError("it is nested without end") from None
        content = ContentDigest.of(fields.rows, fields.checksum)
        note = None
        if fields.note is not None:
            # The driver commits in a process of its own, which looks at no notes and need not load them.
            from tidelog.spark.report.sink_note import read_note

            note = read_note(fields.note)
        return cls(version, fields.run, content, fields.claimed, note)


class _Format(msgspec.Struct):
    format: int


class _Fields(msgspec.Struct):
    run: str
    rows: Int64
    checksum: str
    claimed: bool = False
    note: Any = None


def task_name(app_id: str, task: int) -> str:
    """The transactional id and the group of a task."""
    return f"{GROUP_PREFIX}{app_id}.{task}"


def task_number(app_id: str, name: str) -> int | None:
    """The task whose group is called ``name``; None where it is of another application."""
    prefix = f"{GROUP_PREFIX}{app_id}."
    number = name.removeprefix(prefix)
    # Anybody may name a group so; Python refuses to read thousands of digits.
    is_number = number.isascii() and number.isdecimal() and len(number) <= _TASK_DIGITS
    return int(number) if name.startswith(prefix) and is_number else None
