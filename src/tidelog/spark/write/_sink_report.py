"""What at-least-once tasks tell of the epochs that they write; exactly-once ones have it in their record.

The report has the form of an ``epoch_record``, in a group ``__tidelog-spark-queries.sink.<query>.<task>``,
beside an offset of a topic that was written to: nothing is ever decided by it. It is sent by the producer's
own thread when the rows are acknowledged, once a second at most, and the task does not wait for it; what
goes wrong is logged and forgotten. Called in executors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from concurrent.futures import CancelledError, Future

from tidelog.client._network.cluster import Cluster
from tidelog.client.admin._group_offsets import alter_group_offsets
from tidelog.client.admin.group_resources import PartitionResult
from tidelog.client.producer.producer import Producer
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.spark.report.content_digest import ContentDigest
from tidelog.spark.report.epoch_record import EpochRecord
from tidelog.spark.report.query_report import SINK_PREFIX
from tidelog.spark.write.write_message import WriteName

logger = logging.getLogger(__name__)

_LEAST_S = 1.0
_REMEMBERED = 1000
_told_at: dict[str, float] = {}
"""When a task has told something last, by its group."""


def report_sent(producer: Producer, name: WriteName, rows: int, topics: Collection[str]) -> None:
    """Tell of the rows of a task; does not wait."""
    group = f"{SINK_PREFIX}{name.app_id}.{name.task}"
    now_s = time.monotonic()
    if name.note is None or not topics or now_s - _told_at.get(group, -_LEAST_S) < _LEAST_S:
        return
    _told_at.pop(group, None)
    _told_at[group] = now_s
    while len(_told_at) > _REMEMBERED:
        del _told_at[next(iter(_told_at))]
    note = name.note.of_epoch(topics, None)
    record = EpochRecord(name.version, name.run_id, ContentDigest(rows), note=note)
    offset = OffsetAndMetadata(name.version, metadata=record.metadata)

    async def tell(cluster: Cluster) -> list[PartitionResult]:
        return await alter_group_offsets(cluster, group, {TopicPartition(min(topics), 0): offset})

    try:
        producer.ask_cluster_nowait(tell).add_done_callback(_look_at)
    except TidelogError as error:
        logger.debug("an epoch is not reported: %s", error)


def _look_at(told: Future[list[PartitionResult]]) -> None:
    try:
        for result in told.result():
            result.raise_for_error()
    except (TidelogError, CancelledError) as error:
        logger.debug("an epoch is not reported: %s", error)
