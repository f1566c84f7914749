"""The rows of small micro-batches, read beside the driver while Spark writes down the batch's offsets.

A task that runs Python costs Spark some 40 ms however few rows it has; a task whose rows are there already
costs a few. PySpark hands rows over together with the plan for its own *simple* readers: they become a block
that the task reads, and where that block is lost the task runs Python and reads the log after all.

Invariant: the tasks of a micro-batch and their rows are the same whether rows were prefetched or not; nothing
but time depends on it. So whatever goes wrong here (a broker that is away, records that are gone, too many
bytes) is left to the task, which waits longer, counts what is lost, and fails as it always did. Used by
``spark.read._stream_reader``, in the one process that plans a query.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import StructType

from tidelog.client._ranges.offset_range import OffsetRange
from tidelog.errors import TidelogError
from tidelog.spark.read._planning import Task
from tidelog.spark.read._source_options import SourceOptions

if TYPE_CHECKING:
    from tidelog.client._ranges.fetch_link import FetchLink

logger = logging.getLogger(__name__)

MAX_OFFSETS = 1024
"""Of more, a task in Python costs less: Spark copies and serializes prefetched rows one by one."""
MAX_BYTES = 1 << 20
"""What the driver's block manager is to hold for a query at most."""
PATIENCE_MS = 1000
"""How long a broker may take to answer; the task is more patient."""
PAUSE = 16
"""For how many micro-batches nothing is tried after one that had too many bytes or failed."""


class _Attempt(NamedTuple):
    task: Task
    batches: Future[list[Any] | None]


class Prefetcher:
    """Reads ahead for one query, over a connection that is kept from micro-batch to micro-batch."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        # A loss is to be counted by the task: once, and in its place.
        self._options = replace(
            options,
            fail_on_data_loss=True,
            poll_timeout_ms=min(PATIENCE_MS, options.poll_timeout_ms),
            broker_timeout_ms=min(PATIENCE_MS, options.broker_timeout_ms),
        )
        self._schema = schema
        self._link: FetchLink | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._attempt: _Attempt | None = None
        self._pause = 0

    def is_worth(self, ranges: Iterable[OffsetRange]) -> bool:
        """Whether there is something to read, little enough, and of types that Spark takes along."""
        # Spark cannot copy rows with arrays that hold nulls (IllegalStateException), which JSON may bring.
        if self._options.value_format == "json":
            return False
        return 0 < sum(each.size for each in ranges) <= MAX_OFFSETS

    def begin(self, task: Task) -> None:
        """Read what will probably be the one task of the next micro-batch; does not wait."""
        if self._pause:
            self._pause -= 1
            return
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "tidelog prefetch")
        self._attempt = _Attempt(task, self._thread.submit(self._read, task))

    def take(self, task: Task) -> list[Any] | None:
        """The rows of ``task`` as Arrow record batches; None where the task has to read them itself."""
        attempt, self._attempt = self._attempt, None
        if attempt is None or attempt.task != task:
            return None
        batches = attempt.batches.result()
        if batches is None:
            self._pause = PAUSE
        return batches or None

    def close(self) -> None:
        """Let go of the connection."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)
            self._thread = None
        if self._link is not None:
            self._link.close()
            self._link = None
        self._attempt = None

    def _read(self, task: Task) -> list[Any] | None:
        # Copies of a reader on executors do not come here, and load what they need themselves.
        from tidelog.client._ranges.fetch_link import FetchLink
        from tidelog.spark.read._range_reader import read_ranges

        batches: list[Any] = []
        size_bytes = 0
        try:
            if self._link is None:
                self._link = FetchLink(self._options.client_for("driver"))
            for batch in read_ranges(task, self._options, self._schema, self._link):
                size_bytes += batch.nbytes
                if size_bytes > MAX_BYTES:
                    return None
                batches.append(batch)
        except Exception as error:
            unexpected = not isinstance(error, TidelogError)
            logger.info("rows are left to their task to read: %s", error, exc_info=unexpected)
            return None
        return batches
