"""Where ``consume`` starts: ``earliest``, ``latest``, an offset, the last N, or a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.cli.failure import WrongUsage
from tidelog.cli.values import parse_time_ms
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.consumer.async_consumer import AsyncConsumer


@dataclass(frozen=True, slots=True)
class StartOffset:
    """One of: the first or (with none of these) the next record, an offset, the last records, a time."""

    earliest: bool = False
    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None

    @property
    def is_exact(self) -> bool:
        """Whether one certain offset was asked for, so that another one will not do."""
        return self.offset is not None

    @property
    def reset_policy(self) -> str | None:
        """What ``auto.offset.reset`` says the same, if anything does."""
        if self.earliest:
            return "earliest"
        return "latest" if self == LATEST else None


EARLIEST = StartOffset(earliest=True)
LATEST = StartOffset()


def parse_start_offset(text: str) -> StartOffset:
    """Read the value of ``--offset``."""
    match text:
        case "earliest" | "beginning":
            return EARLIEST
        case "latest" | "end":
            return LATEST
    if text.startswith("@"):
        return StartOffset(time_ms=parse_time_ms(text[1:], "--offset"))
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit():
        raise WrongUsage(
            f"invalid --offset {text!r}: write earliest, latest, 42, -10 or @2024-05-01T12:00:00Z"
        )
    return StartOffset(last=int(digits)) if text.startswith("-") else StartOffset(offset=int(digits))


async def resolve_start_offsets(
    consumer: AsyncConsumer, partitions: Sequence[TopicPartition], start: StartOffset
) -> dict[TopicPartition, int]:
    """The offset to start from in each partition."""
    if start.earliest:
        return await consumer.beginning_offsets(partitions)
    ends = await consumer.end_offsets(partitions)
    if start.time_ms is not None:
        found = await consumer.offsets_for_times(dict.fromkeys(partitions, start.time_ms))
        return {
            partition: ends[partition] if result is None else result.offset
            for partition, result in found.items()
        }
    if start == LATEST:
        return ends
    first = await consumer.beginning_offsets(partitions)
    if start.offset is not None:
        for partition in partitions:
            _check_offset(partition, start.offset, first[partition], ends[partition])
        return dict.fromkeys(partitions, start.offset)
    last = start.last or 0
    return {partition: max(first[partition], ends[partition] - last) for partition in partitions}


def _check_offset(partition: TopicPartition, offset: int, first: int, end: int) -> None:
    if not first <= offset <= end:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"partition {partition} has offsets {first} to {end}, not {offset}",
        )
