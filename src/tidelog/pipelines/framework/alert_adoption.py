"""Takes over a checkpoint of a detecting pipeline that earlier releases have left, with another state.

There the windows of these pipelines were state of Spark's aggregations, and the graph of invitations a log of
the driver's; later tasks kept rows that served fixed windows. None of it has what the rules of now ask for;
but all of that is in the topic. So the state is computed anew from the log: the records up to where the
checkpoint stands, as far back as incidents of now are judged by. Nothing is reported of it: it was, when it
came. Then Spark's state is put away, for Spark refuses a checkpoint that has the state of an operator which a
query has no more.

A checkpoint that was left in the middle of a micro-batch is refused: what that batch has written was computed
by another release, and cannot be compared. Called by ``alert_job``, on the driver, before the query starts.
"""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tidelog.pipelines.framework.alert_evidence import Window
from tidelog.pipelines.framework.alert_state import StateError, has_layout, open_layout
from tidelog.pipelines.framework.alert_tasks import Batch, BatchTask, answers_of, followed_up, merged
from tidelog.pipelines.framework.batch_terms import BatchTerms, RuledDetector, RulesT
from tidelog.pipelines.framework.phone_tokens import PhonesOfSettings
from tidelog.pipelines.framework.source import (
    EARLY_SLACK,
    connector_options,
    with_headers,
    with_packed_headers,
)
from tidelog.pipelines.framework.status import last_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelog.pipelines.pipeline import Pipeline, PipelineSettings

_LEFTOVERS = ("state", "rings")
"""What earlier releases kept in a checkpoint."""


def adopt(
    session: SparkSession,
    settings: PipelineSettings,
    pipeline: Pipeline,
    detector: RuledDetector[RulesT],
    state: Path,
) -> None:
    """Make the state of a checkpoint that has none of ours; there is nothing to do for a new one."""
    checkpoint = settings.checkpoint(detector.name)
    done = last_commit(checkpoint)
    if not has_layout(state, detector.schema):
        if done is not None:
            _compute(session, settings, pipeline, detector, done[0], state)
        elif (checkpoint / "offsets" / "0").exists():
            raise StateError(_unfinished(checkpoint, 0))
    for name in _LEFTOVERS:
        if (checkpoint / name).exists():
            shutil.rmtree(checkpoint / name)


def _compute(
    session: SparkSession,
    settings: PipelineSettings,
    pipeline: Pipeline,
    detector: RuledDetector[RulesT],
    batch_id: int,
    state: Path,
) -> None:
    checkpoint = settings.checkpoint(detector.name)
    if (checkpoint / "offsets" / str(batch_id + 1)).exists():
        raise StateError(_unfinished(checkpoint, batch_id + 1))
    watermark_us, offsets = _progress(checkpoint, batch_id)
    unfinished = state.with_name(f"{state.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    layout = open_layout(unfinished, detector.schema, settings.state_partitions)
    context = Window(watermark_us, watermark_us).with_context(detector.memory_us)
    oldest_us = context.start_us - EARLY_SLACK // timedelta(microseconds=1)
    options = {
        **connector_options(settings),
        "subscribe": ",".join(pipeline.inputs),
        "startingTimestamp": str(max(0, oldest_us // 1000)),
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsets": offsets,
        "kafka.isolation.level": "read_committed",
        **with_headers(settings),
        "failOnDataLoss": "false",
    }
    raw = with_packed_headers(session.read.format(settings.format).options(**options).load())
    terms = BatchTerms(settings, detector, unfinished).of(batch_id)
    ruled = detector.ruled(terms.rules)
    batch = Batch(batch_id, 0, watermark_us - ruled.memory_us)
    phones = PhonesOfSettings(settings).now()
    task = BatchTask(ruled, unfinished, layout.buckets, batch, terms.told(ruled, watermark_us), phones)
    answers_of(merged(raw, task, min(layout.buckets, session.sparkContext.defaultParallelism)))
    # Incidents of before are remembered, lest they be reported as new.
    answers_of(followed_up(session, task))
    # Should it end here, the state is missing, and computed again.
    shutil.rmtree(state, ignore_errors=True)
    unfinished.replace(state)


def _progress(checkpoint: Path, batch_id: int) -> tuple[int, str]:
    """The watermark after a batch, and the offsets that it ends at, as Spark has written them down."""
    commit: Any = msgspec.json.decode((checkpoint / "commits" / str(batch_id)).read_bytes().splitlines()[1])
    offsets = (checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
    return commit["nextBatchWatermarkMs"] * 1000, offsets[-1]


def _unfinished(checkpoint: Path, batch_id: int) -> str:
    return (
        f"{checkpoint} was left by an earlier release in the middle of micro-batch {batch_id}: have that "
        "release end it (`tidelog pipeline run … --once`), or move the directory away and start with "
        "--starting-offsets earliest (alerts have the same keys again) or latest, and let `tidelog pipeline "
        "backfill` look at what lies in between"
    )
