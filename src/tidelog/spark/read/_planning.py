"""From offsets to Spark tasks: pure arithmetic on offset ranges.

Spark's Kafka connector makes one task of each partition of the log. A task of a Python data source costs some
30 ms, so here a task reads several partitions, about one task for each core; ``minPartitions`` and
``maxRecordsPerPartition`` make more of them, splitting large partitions as the connector does. Without these
options the records of one partition stay in one task, in order.

Invariant: every offset of the ranges given is in exactly one task, and the same arguments give the same
tasks: the exactly-once sink recognizes a replayed batch by that. Called by the readers on the driver.
"""

from __future__ import annotations

import heapq
import itertools
import os
from collections.abc import Iterable, Mapping, Sequence

from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.ids import TopicPartition
from tidelog.spark.read._offsets import PartitionOffsets

_WORTH_A_TASK = 4096
"""With fewer offsets than this a further task costs more than it brings."""


Task = tuple[OffsetRange, ...]


def available_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def plan_tasks(
    ranges: Iterable[OffsetRange],
    cores: int,
    *,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[Task]:
    """The tasks that read ``ranges``: as many as ``cores``, or ``min_partitions`` if that is given."""
    pieces = sorted(each for each in ranges if each.size > 0)
    total = sum(piece.size for piece in pieces)
    wanted = min_partitions or min(cores, -(-total // _WORTH_A_TASK))
    if max_records is not None:
        pieces = [part for piece in pieces for part in split(piece, -(-piece.size // max_records))]
    if min_partitions is not None and len(pieces) < min_partitions:
        pieces = _split_in_proportion(pieces, min_partitions)
    return _group(pieces, max(wanted, 1), max_records)


def split(piece: OffsetRange, parts: int) -> list[OffsetRange]:
    """A range in ``parts`` of nearly the same size, in order."""
    edges = [piece.start + piece.size * index // parts for index in range(parts + 1)]
    return [piece._replace(start=begin, end=end) for begin, end in itertools.pairwise(edges) if end > begin]


def _split_in_proportion(pieces: Sequence[OffsetRange], parts: int) -> list[OffsetRange]:
    """Split the larger pieces until there are ``parts`` of them, if there are so many offsets."""
    counts = [1] * len(pieces)
    # The piece whose parts are largest is split further; ties go to the first.
    largest = [(-piece.size, index) for index, piece in enumerate(pieces)]
    heapq.heapify(largest)
    for _ in range(parts - len(pieces)):
        if not largest:
            break
        _, index = heapq.heappop(largest)
        counts[index] += 1
        if counts[index] < pieces[index].size:
            heapq.heappush(largest, (-(pieces[index].size // counts[index]), index))
    return [part for piece, count in zip(pieces, counts, strict=True) for part in split(piece, count)]


def _group(pieces: Sequence[OffsetRange], wanted: int, max_records: int | None) -> list[Task]:
    """Pieces in ``wanted`` tasks of nearly the same size, or more where ``max_records`` needs them."""
    wanted = min(wanted, len(pieces))
    tasks: list[list[OffsetRange]] = [[] for _ in range(wanted)]
    emptiest = [(0, index) for index in range(wanted)]
    for piece in sorted(pieces, key=lambda each: (-each.size, each)):
        size, index = emptiest[0]
        if max_records is not None and tasks[index] and size + piece.size > max_records:
            # If the emptiest has no room, none has.
            index = len(tasks)
            tasks.append([piece])
            heapq.heappush(emptiest, (piece.size, index))
            continue
        tasks[index].append(piece)
        heapq.heapreplace(emptiest, (size + piece.size, index))
    return [tuple(sorted(task)) for task in sorted(tasks)]


def rate_limit(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> PartitionOffsets:
    """Ends that are at most ``limit`` offsets behind ``starts`` in all, shared out by backlog.

    Every partition with a backlog moves on by at least one offset; where ``limit`` is too small for that,
    they take turns. Partitions without a start are left out.
    """
    backlog = {each: ends[each] - starts[each] for each in sorted(ends) if each in starts}
    open_backlog = {each: size for each, size in backlog.items() if size > 0}
    total = sum(open_backlog.values())
    if total <= limit:
        return {each: ends[each] for each in backlog}
    limited = {each: min(starts[each], ends[each]) for each in backlog}
    turn = list(open_backlog)
    if limit < len(turn):
        first = sum(starts[each] for each in turn) % len(turn)
        for each in (turn + turn)[first : first + limit]:
            limited[each] += 1
        return limited
    rest = limit - len(turn)
    shares = {each: 1 + rest * (size - 1) // (total - len(turn)) for each, size in open_backlog.items()}
    spare = limit - sum(shares.values())
    # What rounding has left over goes to the longest backlogs.
    for each in sorted(shares, key=lambda each: -open_backlog[each]):
        more = min(spare, open_backlog[each] - shares[each])
        spare -= more
        limited[each] = starts[each] + shares[each] + more
    return limited
