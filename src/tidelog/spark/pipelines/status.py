"""How the pipelines stand, seen from outside: lag of their groups, checkpoints, running notes, dead letters.

Needs no Spark. Everything is read: the cluster through the admin client and a consumer without a group, the
directory through its files. Used by ``tidelog pipeline status`` and by the live view of ``make run``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import ErrorCode
from tidelog.spark.dead_letters.letter import DEAD_LETTERS
from tidelog.spark.pipelines.status_file import RunStatus, is_running, read_status

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.group_resources import GroupLag
    from tidelog.client.consumer.consumer import Consumer
    from tidelog.spark.pipelines.pipeline import Pipeline
    from tidelog.spark.settings import PipelineSettings

COUNTED_DEAD_LETTERS = 1_000_000
"""Dead letters are counted by reading them, the newest so many at most."""
_COUNTED_NAMES = 1000
_POLL_S = 1.0
_COUNT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """One pipeline as it stands; None is for what nobody knows."""

    pipeline: str
    running: bool
    pid: int | None
    lag: int | None
    """Records that its group has still to read; None before its first micro-batch."""
    last_batch: int | None
    last_batch_age_s: float | None
    rows_per_second: float | None
    """Of the running process."""
    rows_in: int | None
    state_rows: int | None
    late: int | None
    """Events that came too late to count, since the process started."""
    dropped: int | None
    """Searches that were given up, since the process started."""
    checkpoint: Path
    dead_letters: int | None
    note: RunStatus | None = None
    """All figures of the running process."""


def pipeline_statuses(settings: PipelineSettings, pipelines: Sequence[Pipeline]) -> list[PipelineStatus]:
    """Ask the cluster and look into the directory."""
    from tidelog.client import Admin

    options = client_options(settings)
    with Admin(options) as admin:
        lags = group_lags(admin, pipelines)
        letters = count_dead_letters(admin, settings)
    return [_status(settings, each, lags.get(each.name), letters) for each in pipelines]


def client_options(settings: PipelineSettings) -> dict[str, object]:
    """The options of a client that looks at what ``settings`` name."""
    return {
        "client.id": "tidelog-pipeline-status",
        "default.api.timeout.ms": 30_000,
        **settings.client_options,
        "bootstrap.servers": settings.bootstrap_servers,
    }


def group_lags(admin: Admin, pipelines: Iterable[Pipeline]) -> dict[str, int]:
    """How many records each pipeline has still to read; those that have committed nothing are left out."""
    names = {pipeline.group: pipeline.name for pipeline in pipelines}
    described = admin.describe_group_lag(list(names))
    return {names[group]: lag for group, each in described.items() if (lag := _lag(each)) is not None}


def _lag(described: GroupLag) -> int | None:
    known = [row.lag for row in described.partitions if row.lag is not None]
    return sum(known) if known else None


def last_commit(checkpoint: Path) -> tuple[int, float] | None:
    """The last micro-batch that a checkpoint calls done, and when it was written (seconds of the epoch)."""
    try:
        done = [path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()]
        latest = max(done, key=lambda path: int(path.name), default=None)
        return None if latest is None else (int(latest.name), latest.stat().st_mtime)
    except FileNotFoundError:
        return None


def count_dead_letters(admin: Admin, settings: PipelineSettings) -> Counter[str] | None:
    """Dead letters by pipeline; None where the topic is not there yet."""
    from tidelog.client import Consumer

    described = admin.describe_topics([DEAD_LETTERS])[DEAD_LETTERS]
    if described.error is not None and described.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None
    described.raise_for_error()
    with Consumer(_letter_reader(settings)) as consumer:
        return _count(consumer, [(DEAD_LETTERS, each.partition) for each in described.partitions])


class DeadLetterCounts:
    """Counts dead letters by pipeline, those that come included; reads each once."""

    def __init__(self, settings: PipelineSettings) -> None:
        self._settings = settings
        self._consumer: Consumer | None = None
        self._counted: Counter[str] = Counter()

    def look(self, admin: Admin) -> Counter[str] | None:
        """How many there are now, of those that were there before the newest; None: there is no topic."""
        from tidelog.client import Consumer

        if self._consumer is None:
            described = admin.describe_topics([DEAD_LETTERS])[DEAD_LETTERS]
            if described.error is not None:
                return None
            self._consumer = Consumer(_letter_reader(self._settings))
            _assign(self._consumer, [(DEAD_LETTERS, each.partition) for each in described.partitions])
        _read_to_the_end(self._consumer, self._counted)
        return Counter(self._counted)

    def close(self) -> None:
        """Read no more."""
        if self._consumer is not None:
            self._consumer.close()


def _letter_reader(settings: PipelineSettings) -> dict[str, object]:
    return {**client_options(settings), "isolation.level": "read_committed", "enable.auto.commit": False}


def _count(consumer: Consumer, partitions: list[tuple[str, int]]) -> Counter[str]:
    _assign(consumer, partitions)
    counted: Counter[str] = Counter()
    _read_to_the_end(consumer, counted)
    return counted


def _assign(consumer: Consumer, partitions: list[tuple[str, int]]) -> None:
    consumer.assign(partitions)
    assigned = sorted(consumer.assignment())
    ends = consumer.end_offsets(assigned)
    begins = consumer.beginning_offsets(assigned)
    for partition in assigned:
        share = COUNTED_DEAD_LETTERS // len(assigned)
        consumer.seek(partition, max(begins[partition], ends[partition] - share))


def _read_to_the_end(consumer: Consumer, counted: Counter[str]) -> None:
    assigned = sorted(consumer.assignment())
    ends = consumer.end_offsets(assigned)
    deadline = time.monotonic() + _COUNT_TIMEOUT_S
    while any(consumer.position(each) < ends[each] for each in assigned) and time.monotonic() < deadline:
        for record in consumer.poll(_POLL_S):
            # The first: behind ours are the record's own headers.
            told = next((value for header, value in record.headers if header == "pipeline"), None)
            name = (told or b"?").decode(errors="replace")
            # Whoever may write there may write any names.
            counted[name if name in counted or len(counted) < _COUNTED_NAMES else "?"] += 1


def _status(
    settings: PipelineSettings, pipeline: Pipeline, lag: int | None, letters: Mapping[str, int] | None
) -> PipelineStatus:
    checkpoint = settings.checkpoint(pipeline.name)
    commit = last_commit(checkpoint)
    running = is_running(settings.directory, pipeline.name)
    note = read_status(settings.directory, pipeline.name) if running else None
    return PipelineStatus(
        pipeline=pipeline.name,
        running=running,
        pid=note.pid if note else None,
        lag=lag,
        last_batch=commit[0] if commit else None,
        last_batch_age_s=max(0.0, round(time.time() - commit[1], 1)) if commit else None,
        rows_per_second=note.rows_per_second if note else None,
        rows_in=note.rows_in if note else None,
        state_rows=note.state_rows if note else None,
        late=note.late if note else None,
        dropped=note.dropped if note else None,
        checkpoint=checkpoint,
        dead_letters=None if letters is None else letters.get(pipeline.name, 0),
        note=note,
    )
