"""What a streaming query's sources have read, and how far they are behind: rows, bytes, offsets.

Spark 4.3 has no place for the metrics of Python sources in its progress (``SourceProgress.metrics`` is always
empty). It has the offsets: the last ones of the log (``latestOffset``), and those that a micro-batch has come
to (``endOffset``). :func:`source_metrics` makes of them what Spark's Kafka connector reports by itself, under
the same names, for a listener or for ``query.lastProgress``; :func:`bytes_read` asks the last plan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.spark.read._offsets import PartitionOffsets, from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

_NOTHING = frozenset({None, "", "None", "null"})
_RECEIVED = "pythonDataReceived"
"""Spark's metric of what came from the Python workers of a scan."""


@dataclass(frozen=True, slots=True)
class SourceMetrics:
    """One source in one micro-batch."""

    description: str
    rows: int
    rows_per_second: float
    min_offsets_behind_latest: int
    max_offsets_behind_latest: int
    avg_offsets_behind_latest: float
    offsets_behind_latest: int
    """Of all partitions together."""

    def as_dict(self) -> dict[str, str]:
        """Names and texts as in the progress of Spark's Kafka connector."""
        return {
            "minOffsetsBehindLatest": str(self.min_offsets_behind_latest),
            "maxOffsetsBehindLatest": str(self.max_offsets_behind_latest),
            "avgOffsetsBehindLatest": str(self.avg_offsets_behind_latest),
        }


def source_metrics(progress: StreamingQueryProgress | Mapping[str, Any]) -> list[SourceMetrics]:
    """The sources of a micro-batch that have told their latest offsets, in order."""
    found = []
    for source in progress["sources"]:
        behind = _behind(source["endOffset"], source["latestOffset"])
        if behind:
            found.append(
                SourceMetrics(
                    source["description"],
                    source["numInputRows"],
                    source["inputRowsPerSecond"],
                    min(behind),
                    max(behind),
                    sum(behind) / len(behind),
                    sum(behind),
                )
            )
    return found


def bytes_read(query: StreamingQuery) -> int:
    """How many bytes the last micro-batch's tasks have taken over from Python, as Arrow.

    Small micro-batches are read beside the driver and bring none here.
    """
    execution = query._jsq.streamingQuery().lastExecution()
    return 0 if execution is None else sum(_received(execution.executedPlan()))


def _behind(end: str | None, latest: str | None) -> list[int]:
    """By how many offsets each partition ends before the log."""
    ends, last = _offsets(end), _offsets(latest)
    return [max(last[each] - offset, 0) for each, offset in ends.items() if each in last]


def _offsets(text: str | None) -> PartitionOffsets:
    # PySpark makes text of everything, of nothing as well.
    return {} if text in _NOTHING else from_json(json.loads(text or "{}")).offsets


def _received(node: Any) -> Iterator[int]:
    """What the scans at and below a node of a physical plan have received."""
    name = node.getClass().getSimpleName()
    if name == "AdaptiveSparkPlanExec":
        yield from _received(node.executedPlan())
    elif name.endswith("QueryStageExec"):
        yield from _received(node.plan())
    elif name == "MicroBatchScanExec":
        metrics = node.metrics()
        if metrics.contains(_RECEIVED):
            yield metrics.apply(_RECEIVED).value()
    children = node.children()
    for index in range(children.size()):
        yield from _received(children.apply(index))
