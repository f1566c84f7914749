"""At-least-once writing, and the way of rows into a producer that both guarantees share.

A Python worker keeps its producer from task to task: connections and metadata stay, and all rows of a task
are acknowledged before it ends. Called by the writers, in executors.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from tidelog.client.producer.producer import Producer
from tidelog.spark.runtime.silence import reach
from tidelog.spark.write._write_columns import Part, parts
from tidelog.spark.write.write_message import SentRows, WriteName
from tidelog.spark.write.write_options import WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.client.producer._send_batch.table_writer import TableFuture

_producers: dict[tuple[int, tuple[tuple[str, str], ...]], Producer] = {}
"""By process, because a forked worker cannot use its parent's, and options."""
_MAX_PRODUCERS = 8
"""A worker that serves streams for weeks sees one token after the other."""


def write_at_least_once(
    batches: Iterable[pa.RecordBatch], options: WriteOptions, name: WriteName | None = None
) -> SentRows:
    """Write all rows; they are acknowledged when this returns. What has a name is reported."""
    settings = options.producer_options()
    key = (os.getpid(), tuple(sorted(settings.items())))
    producer = _producers.pop(key, None) or Producer(settings)
    _producers[key] = producer
    while len(_producers) > _MAX_PRODUCERS:
        oldest = next(iter(_producers))
        unused = _producers.pop(oldest)
        if oldest[0] == os.getpid():
            unused.close(0)
    rows = 0
    topics: set[str] = set()
    try:
        bootstrap = {"bootstrap.servers": settings["bootstrap.servers"]}
        producer.ask_cluster(
            lambda cluster: reach(cluster, [], bootstrap, options.broker_timeout_ms), "the brokers"
        )
        sending = Sending(producer)
        for part in all_parts(batches, options):
            sending.send(part)
            rows += part.rows.num_rows
            topics.add(part.topic)
        sending.wait()
    except BaseException:
        # What has failed once may have failed for good.
        del _producers[key]
        producer.close(0)
        raise
    if name is not None and name.note is not None:
        from tidelog.spark.write._sink_report import report_sent

        report_sent(producer, name, rows, topics)
    return SentRows(rows)


def all_parts(batches: Iterable[pa.RecordBatch], options: WriteOptions) -> Iterator[Part]:
    """The rows of a task, by topic and partition."""
    for batch in batches:
        yield from parts(batch, options.topic)


class Sending:
    """The rows on their way through one producer; an error among them comes out at the next call."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._under_way: deque[TableFuture] = deque()

    def send(self, part: Part) -> None:
        """Buffer the rows of ``part``, waiting for room."""
        self._under_way.append(self._producer.send_arrow(part.rows, part.topic, partition=part.partition))
        while self._under_way and self._under_way[0].done():
            self._under_way.popleft().result(0)

    def wait(self) -> None:
        """Wait until all are acknowledged."""
        self._producer.flush()
        while self._under_way:
            self._under_way.popleft().result()
