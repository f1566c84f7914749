"""The interface of a record reader of your own, which ``tidelog produce --reader MODULE:CLASS`` loads.

    class Csv(RecordReader):
        def read(self, stream: BinaryIO) -> Iterator[InputRecord]:
            for key, value in csv.reader(io.TextIOWrapper(stream, newline="")):
                yield InputRecord(value.encode(), key=key.encode())

Kafka's console producer calls it a RecordReader, too. It runs in a thread of the command, which sends what it
yields; ``cli/records/custom_reader`` calls it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from tidelog.records.record import RecordHeader


@dataclass
class InputRecord:
    """One record to send; what it leaves open comes from the options of the command."""

    value: bytes | None
    key: bytes | None = None
    headers: list[RecordHeader] = field(default_factory=list)
    """Pairs of a name and bytes."""
    partition: int | None = None
    timestamp: int | None = None
    """Milliseconds since 1970."""


class RecordReader(ABC):
    """Turns the input of ``tidelog produce`` into records; derive from it and define ``read``."""

    def configure(self, properties: Mapping[str, str]) -> None:  # noqa: B027  # optional
        """Take over what ``--reader-property NAME=VALUE`` sets; called once, before ``read``.

        An exception ends the command with its text.
        """

    @abstractmethod
    def read(self, stream: BinaryIO) -> Iterator[InputRecord]:
        """The records in ``stream``, which is stdin or the file that ``--file`` names.

        An exception ends the command; records that were yielded before it are sent.
        """

    def close(self) -> None:  # noqa: B027  # optional
        """Give resources back; called when nothing more is read."""
