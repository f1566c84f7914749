"""``BatchResult``: where every record of a ``send_batch`` went, or why it was not stored.

Owns twelve bytes for each record: its partition, and its offset or the number of its error. Invariant: there
is one outcome for each record that was read from the input, in the order of the input. Filled by
``batch_sender``; programs read it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, overload

from tidelog.client.errors import ClientError
from tidelog.client.producer.record import NO_PARTITION
from tidelog.ids import NO_OFFSET

_PENDING = -2
# Offsets below this are errors: -3 is the first one of ``_errors``, -4 the second.
_FIRST_ERROR = -3


@dataclass(frozen=True, slots=True)
class RecordOutcome:
    """The end of one record of a ``send_batch``.

    ``index`` is its position in the input. ``partition`` is -1 where the record failed before one was chosen.
    ``offset`` is -1 for a failed record, and for a stored one whose offset the broker did not return
    (``acks=0``). ``error`` is None for a stored record.
    """

    index: int
    partition: int
    offset: int
    error: Exception | None

    @property
    def is_stored(self) -> bool:
        """Whether the broker has stored the record."""
        return self.error is None


class BatchResult(Sequence[RecordOutcome]):
    """What ``send_batch`` returns: a sequence with one ``RecordOutcome`` for each record of the input.

    Example::

        result = producer.send_batch("orders", records)
        print(result.stored_count, result.failed_count)
        for failed in result.failures():
            print(failed.index, failed.error)
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        """The topic that the records were sent to."""
        self.failed_count = 0
        """How many records were not stored, or may not have been (a timeout)."""
        self._partitions = array("i")
        self._offsets = array("q")
        self._errors: list[Exception] = []
        self._error_numbers: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<{self.stored_count} records stored in {self.topic!r}, {self.failed_count} failed>"

    def __len__(self) -> int:
        return len(self._offsets)

    @overload
    def __getitem__(self, index: int) -> RecordOutcome: ...
    @overload
    def __getitem__(self, index: slice) -> list[RecordOutcome]: ...
    def __getitem__(self, index: int | slice) -> RecordOutcome | list[RecordOutcome]:
        if isinstance(index, slice):
            return [self._outcome(each) for each in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"there is no record {index} among {len(self)}")
        return self._outcome(at)

    @property
    def stored_count(self) -> int:
        """How many records were stored."""
        return len(self) - self.failed_count

    def failures(self) -> Iterator[RecordOutcome]:
        """The records that were not stored, in the order of the input, one by one."""
        if not self.failed_count:
            return
        for index, offset in enumerate(self._offsets):
            if offset <= _FIRST_ERROR:
                yield self._outcome(index)

    def raise_for_failures(self) -> Self:
        """Return this result if every record was stored.

        Raises ``BatchDeliveryError``, whose ``result`` is this object, if any record was not.

        Example::

            producer.send_batch("orders", records).raise_for_failures()
        """
        for first in self.failures():
            assert first.error is not None
            raise BatchDeliveryError(
                f"{self.failed_count} of {len(self)} records for topic {self.topic!r} were not stored, the "
                f"first at index {first.index}: {first.error}",
                self,
            ) from first.error
        return self

    def to_arrow(self) -> Any:
        """The outcomes as a ``pyarrow.Table`` with the columns index, partition, offset and error.

        ``error`` is text, null for stored records; ``partition`` and ``offset`` are null where unknown.
        Raises ``ImportError`` without pyarrow.
        """
        from tidelog.records.arrow import load_pyarrow

        pa = load_pyarrow()
        import pyarrow.compute as compute

        partitions = pa.array(self._partitions, pa.int32())
        offsets = pa.array(self._offsets, pa.int64())
        numbers = compute.subtract(_FIRST_ERROR, offsets)
        failed = compute.greater_equal(numbers, 0)
        texts = pa.array([str(each) for each in self._errors], pa.string())
        known = compute.if_else(failed, numbers, pa.scalar(None, pa.int64()))
        return pa.table(
            {
                "index": pa.array(range(len(self)), pa.int64()),
                "partition": compute.if_else(compute.less(partitions, 0), None, partitions),
                "offset": compute.if_else(compute.less(offsets, 0), None, offsets),
                "error": compute.take(texts, known),
            }
        )

    # Filling, for batch_sender

    def begin(self) -> int:
        """Count one more record, whose outcome is open; its index."""
        self._partitions.append(NO_PARTITION)
        self._offsets.append(_PENDING)
        return len(self._offsets) - 1

    def begin_many(self, count: int) -> int:
        """Count so many more records, whose outcomes are open; the index of the first."""
        first = len(self._offsets)
        self._partitions.extend(array("i", [NO_PARTITION]) * count)
        self._offsets.extend(array("q", [_PENDING]) * count)
        return first

    def store(self, indexes: Sequence[int], partition: int, base_offset: int) -> None:
        """Note that these records are stored one behind the other from ``base_offset`` on."""
        if not indexes:
            return
        count, first = len(indexes), indexes[0]
        known = base_offset != NO_OFFSET
        if indexes[-1] - first + 1 == count:
            self._partitions[first : first + count] = array("i", [partition]) * count
            numbers = range(base_offset, base_offset + count) if known else [NO_OFFSET] * count
            self._offsets[first : first + count] = array("q", numbers)
            return
        partitions, offsets = self._partitions, self._offsets
        for place, index in enumerate(indexes):
            partitions[index] = partition
            offsets[index] = base_offset + place if known else NO_OFFSET

    def fail(self, index: int, error: Exception, partition: int = NO_PARTITION) -> None:
        """Note that a record is not stored, or may not be."""
        number = self._error_numbers.get(id(error))
        if number is None:
            number = self._error_numbers[id(error)] = len(self._errors)
            self._errors.append(error)
        self._partitions[index] = partition
        self._offsets[index] = _FIRST_ERROR - number
        self.failed_count += 1

    def fail_pending(self, error: Exception) -> None:
        """Fail the records whose outcome is open."""
        at = 0
        for _ in range(self._offsets.count(_PENDING)):
            at = self._offsets.index(_PENDING, at)
            self.fail(at, error)

    def _outcome(self, index: int) -> RecordOutcome:
        offset = self._offsets[index]
        error = self._errors[_FIRST_ERROR - offset] if offset <= _FIRST_ERROR else None
        return RecordOutcome(index, self._partitions[index], NO_OFFSET if error else offset, error)


class BatchDeliveryError(ClientError):
    """Records of a ``send_batch`` were not stored; ``result`` has the outcome of every record."""

    def __init__(self, message: str, result: BatchResult) -> None:
        super().__init__(message)
        self.result = result


class BatchSourceError(ClientError):
    """The input of a ``send_batch`` raised an error; ``result`` has the outcomes of the records before it."""

    def __init__(self, message: str, result: BatchResult) -> None:
        super().__init__(message)
        self.result = result
