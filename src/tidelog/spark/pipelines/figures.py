"""What jobs count that Spark does not know of: the state that tasks keep, and what was left out of it.

Jobs add to the figures of their pipeline as batches end; ``pipelines.runner``, in the same process, puts them
into the note that ``tidelog pipeline status`` reads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tidelog.spark.pipelines.quality import NOTHING, Quality


class Counted(Protocol):
    """What is told of a part of the state after a batch."""

    @property
    def bucket(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def late(self) -> int: ...

    @property
    def dropped(self) -> int: ...


@dataclass
class Figures:
    """The figures of a pipeline since its process started."""

    rows_by_bucket: dict[int, int] = field(default_factory=dict)
    late: int = 0
    """Events that came too late to count in the windows of now."""
    dropped: int = 0
    """Searches that were given up since they became too large."""
    watermark_us: int | None = None
    """What is older, in event time, is late; None where there is no such thing."""
    quality: Quality = NOTHING
    """Of all that was read."""
    batch_quality: Quality = NOTHING
    """Of the last micro-batch."""

    @property
    def state_rows(self) -> int:
        """Rows that tasks keep."""
        return sum(self.rows_by_bucket.values())


_lock = threading.Lock()
_figures: dict[tuple[Path, str], Figures] = {}


def count_detections(directory: Path, pipeline: str, answers: Iterable[Counted], watermark_us: int) -> None:
    """Add what the tasks of a batch have told."""
    with _lock:
        figures = _figures.setdefault((directory.absolute(), pipeline), Figures())
        for answer in answers:
            figures.rows_by_bucket[answer.bucket] = answer.rows
            figures.late += answer.late
            figures.dropped += answer.dropped
        figures.watermark_us = watermark_us


def count_quality(directory: Path, pipeline: str, quality: Quality) -> None:
    """Add what the tasks of a batch have counted."""
    with _lock:
        figures = _figures.setdefault((directory.absolute(), pipeline), Figures())
        figures.quality += quality
        figures.batch_quality = quality


def figures_of(directory: Path, pipeline: str) -> Figures:
    """The figures of a pipeline that runs in this process; all zero where none were counted."""
    with _lock:
        return _figures.get((directory.absolute(), pipeline), Figures())
