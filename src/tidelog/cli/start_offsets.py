"""Where ``consume`` starts: ``earliest``, ``latest``, an offset, the last N, or a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from tidelog.cli.failure import WrongUsage
from tidelog.cli.values import parse_time_ms
from tidelog.client.cluster import Cluster
from tidelog.client.offsets import list_offsets
from tidelog.client.resources import IsolationLevel, OffsetResult, OffsetSpec
from tidelog.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class StartOffset:
    """One of: a place that the broker knows, an offset, the last ``last`` records, or a time."""

    spec: OffsetSpec | None = None
    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None

    @classmethod
    def earliest(cls) -> Self:
        return cls(spec=OffsetSpec.EARLIEST)

    @property
    def is_exact(self) -> bool:
        """Whether one certain offset was asked for, so that another one will not do."""
        return self.offset is not None


def parse_start_offset(text: str) -> StartOffset:
    """Read the value of ``--offset``."""
    match text:
        case "earliest" | "beginning":
            return StartOffset(spec=OffsetSpec.EARLIEST)
        case "latest" | "end":
            return StartOffset(spec=OffsetSpec.LATEST)
    if text.startswith("@"):
        return StartOffset(time_ms=parse_time_ms(text[1:], "--offset"))
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit():
        raise WrongUsage(
            f"--offset {text!r} is no place: write earliest, latest, 42, -10 or @2024-05-01T12:00:00Z"
        )
    return StartOffset(last=int(digits)) if text.startswith("-") else StartOffset(offset=int(digits))


async def resolve_start_offsets(
    cluster: Cluster, partitions: Sequence[TopicPartition], start: StartOffset, isolation: IsolationLevel
) -> dict[TopicPartition, int | OffsetSpec]:
    """The offset to start from in each partition."""
    if start.offset is not None:
        return dict.fromkeys(partitions, start.offset)
    if start.spec is not None:
        return dict.fromkeys(partitions, start.spec)
    if start.time_ms is not None:
        found = await _ask(cluster, partitions, start.time_ms, isolation)
        return {
            partition: OffsetSpec.LATEST if result.offset < 0 else result.offset
            for partition, result in found.items()
        }
    first = await _ask(cluster, partitions, OffsetSpec.EARLIEST, isolation)
    end = await _ask(cluster, partitions, OffsetSpec.LATEST, isolation)
    last = start.last or 0
    return {partition: max(first[partition].offset, end[partition].offset - last) for partition in partitions}


async def _ask(
    cluster: Cluster, partitions: Sequence[TopicPartition], timestamp: int, isolation: IsolationLevel
) -> dict[TopicPartition, OffsetResult]:
    found = await list_offsets(cluster, dict.fromkeys(partitions, int(timestamp)), isolation_level=isolation)
    for result in found.values():
        result.raise_for_error()
    return found
