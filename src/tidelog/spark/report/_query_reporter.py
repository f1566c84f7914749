"""Tells the cluster of each micro-batch, from a thread beside the one that Spark asks.

The reader notes what happens, which costs a few microseconds and never waits. The thread sends the newest
state as a commit (``query_report``): once a second at most, a moment after a micro-batch was planned, when
Spark is busy elsewhere, and every ten seconds anyway, so that others see that the query lives. There is no
queue to grow: what could not be sent is replaced by what is newer, and counted. Whatever goes wrong is the
thread's own: it is logged, the first time so that somebody sees it, and the query goes on. Brokers that
refuse the right are not asked again.

Made by ``stream_reader``; copies of a reader on executors never start the thread.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from tidelog.client._network.retry import Deadline
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import TopicPartition
from tidelog.spark.report.application import this_application
from tidelog.spark.report.query_report import (
    FORGOTTEN_MS,
    HEARTBEAT_S,
    KEPT_BATCHES,
    REPORT_PREFIX,
    SINK_PREFIX,
    BatchReport,
    QueryReport,
    decode,
    encode,
)
from tidelog.spark.report.reported_queries import read_epoch

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin

logger = logging.getLogger(__name__)

_SETTLE_S = 0.05
_LEAST_S = 1.0
_TIMEOUT_MS = 5000
_LAST_WORDS_S = 2.0
_SPARKS_PROCESS = "pyspark.sql.streaming.python_streaming_source_runner"
_ALL_AGAIN_S = 3600.0
"""How often offsets that do not move are committed again, before brokers forget them."""
_REFUSALS = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ReportOptions(Protocol):
    """The options of a source that decide what is reported, and to which cluster."""

    @property
    def commit_group(self) -> str | None: ...

    @property
    def reports_batches(self) -> bool: ...

    def client_for(self, role: str) -> dict[str, str]:
        """The client's options for a connection with this role."""


class QueryReporter:
    """What one source tells of its query."""

    def __init__(self, options: ReportOptions) -> None:
        self._options = options
        self._prepare()

    def _prepare(self) -> None:
        self.group = f"{REPORT_PREFIX}{uuid.uuid4().hex}"
        self._started_ms = 0
        self._batches: list[BatchReport] = []
        self._count = 0
        self._offsets = 0
        self._position: Mapping[TopicPartition, int] = {}
        self._latest: Mapping[TopicPartition, int] = {}
        self._open_end: Mapping[TopicPartition, int] | None = None
        self._behind: int | None = None
        self._error: str | None = None
        self._ended_ms: int | None = None
        self._undelivered = 0
        self._news = threading.Event()
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._refused = not self._options.reports_batches

    def __getstate__(self) -> object:
        return self._options

    def __setstate__(self, options: ReportOptions) -> None:
        self._options = options
        self._prepare()

    # What the reader tells; nothing here waits for a broker

    def reached(self, position: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> None:
        """The query has done all before ``position``; the logs end at ``latest``."""
        if self._refused:
            return
        self._position, self._latest = position, latest
        if self._thread is None:
            self._start()
        if self._open_end is not None and position == self._open_end:
            self._open_end = None
            with self._lock:
                last = self._batches[-1]
                took_ms = max(_now_ms() - last.planned_ms, 0)
                self._batches[-1] = BatchReport(last.planned_ms, last.offsets, took_ms)
            self._news.set()

    def planned(
        self,
        position: Mapping[TopicPartition, int],
        end: Mapping[TopicPartition, int],
        offsets: int,
    ) -> None:
        """A micro-batch of so many offsets begins."""
        if self._refused:
            return
        if not self._position:
            self._position = position
        with self._lock:
            self._batches = [*self._batches[1 - KEPT_BATCHES :], BatchReport(_now_ms(), offsets)]
            self._count += 1
            self._offsets += offsets
            self._open_end = end
            latest = self._latest
            self._behind = sum(max(latest[each] - at, 0) for each, at in end.items() if each in latest)
        if self._thread is None:
            self._start()
        self._news.set()

    def failed(self, error: BaseException) -> None:
        """The source cannot go on."""
        self._error = f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """The query ends; the last report may take two seconds."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ended_ms = _now_ms()
        self._end.set()
        self._news.set()
        thread.join(_LAST_WORDS_S)

    def _start(self) -> None:
        self._started_ms = _now_ms()
        self._close_when_terminated()
        self._thread = threading.Thread(target=self._run, name="tidelog query report", daemon=True)
        self._thread.start()

    def _close_when_terminated(self) -> None:
        """Spark ends the process of a source with SIGTERM, without a word to the reader."""
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if (
            getattr(main, "name", None) != _SPARKS_PROCESS
            or threading.current_thread() is not threading.main_thread()
        ):
            return
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._terminate)

    def _terminate(self, number: int, frame: object) -> None:
        try:
            self.close()
        finally:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    # The thread

    def _run(self) -> None:
        try:
            with self._open_admin() as admin:
                _Sender(self, admin).run()
        except Exception:
            # Of a query nothing may depend on its reports.
            logger.warning("this query is not reported any more, by a bug", exc_info=True)

    def _open_admin(self) -> Admin:
        from tidelog.client.admin.admin import Admin
        from tidelog.client.options import ADMIN

        client = self._options.client_for("report")
        known = {name: text for name, text in client.items() if name in ADMIN.options}
        timeouts = dict.fromkeys(("request.timeout.ms", "default.api.timeout.ms"), str(_TIMEOUT_MS))
        return Admin({**known, **timeouts})

    def wait_for_news(self, seconds: float) -> None:
        """Until something has happened, or for so long."""
        self._news.wait(seconds)
        self._news.clear()

    def wait_for_end(self, seconds: float) -> bool:
        """Whether the query ends within so long."""
        return self._end.wait(max(seconds, 0.0))

    @property
    def position(self) -> Mapping[TopicPartition, int]:
        return self._position

    def refuse(self) -> None:
        """Stop taking notes: nobody will read them."""
        self._refused = True

    def count_undelivered(self) -> None:
        self._undelivered += 1

    def report(self) -> QueryReport:
        """The state of things now."""
        from pyspark import __version__ as spark_version

        with self._lock:
            return QueryReport(
                _now_ms(),
                self._started_ms,
                this_application(),
                self._count,
                self._offsets,
                list(self._batches),
                self._behind,
                str(spark_version),
                self._options.commit_group,
                self._error,
                self._ended_ms,
                self._undelivered,
            )


class _Sender:
    """Sends what a reporter has noted until the query ends."""

    def __init__(self, reporter: QueryReporter, admin: Admin) -> None:
        self._reporter = reporter
        self._admin = admin
        self._sent: dict[TopicPartition, int] = {}
        self._all_again = Deadline(0)
        self._has_warned = False
        self._has_swept = False

    def run(self) -> None:
        """Return when the query has ended, or when brokers refuse."""
        reporter = self._reporter
        ended = False
        while not ended:
            reporter.wait_for_news(HEARTBEAT_S)
            ended = reporter.wait_for_end(_SETTLE_S)
            began_s = time.monotonic()
            if not self._try_to_send():
                return
            self._sweep()
            reporter.wait_for_end(_LEAST_S - (time.monotonic() - began_s))

    def _try_to_send(self) -> bool:
        """Whether there is any use in going on."""
        try:
            self._send()
        except TidelogError as error:
            self._reporter.count_undelivered()
            if _is_refusal(error):
                self._reporter.refuse()
                logger.warning(
                    "this query's micro-batches are not reported, the right is missing: allow READ on groups "
                    "whose names begin with %s, or set reportBatches=false (%s)",
                    REPORT_PREFIX,
                    error,
                )
                return False
            level = logging.DEBUG if self._has_warned else logging.INFO
            logger.log(level, "a report of this query was not delivered: %s", error)
            self._has_warned = True
        return True

    def _send(self) -> None:
        from tidelog.client.subscription.offsets import OffsetAndMetadata

        position = self._reporter.position
        if not position:
            return
        everything = self._all_again.expired
        moved = {each: at for each, at in position.items() if everything or self._sent.get(each) != at}
        carrier = min(position)
        note = encode(self._reporter.report())
        offsets: dict[TopicPartition, int | OffsetAndMetadata] = {**moved}
        offsets[carrier] = OffsetAndMetadata(position[carrier], metadata=note)
        for result in self._admin.alter_group_offsets(self._reporter.group, offsets):
            result.raise_for_error()
        self._sent.update(moved)
        if everything:
            self._all_again = Deadline(int(_ALL_AGAIN_S * 1000))

    def _sweep(self) -> None:
        """Once: delete what queries have left that ended long ago; brokers would keep it for a week."""
        if self._has_swept or not self._sent:
            return
        self._has_swept = True
        try:
            listed = self._admin.list_groups()
            names = [each.group_id for each in listed.groups if each.group_id.startswith(REPORT_PREFIX)]
            found = self._admin.list_group_offsets(names) if names else {}
            since_ms = _now_ms() - FORGOTTEN_MS
            old = [
                name
                for name, offsets in found.items()
                if 0 < _told_ms(name, [each.metadata for each in offsets.offsets.values()]) < since_ms
            ]
            for result in self._admin.delete_groups(old) if old else ():
                result.raise_for_error()
        except TidelogError as error:
            logger.debug("reports of queries that ended are left to expire: %s", error)


def _told_ms(group: str, notes: Iterable[str]) -> int:
    """When a query has told something there last; 0 if nobody can say."""
    times = [0]
    for note in notes:
        if group.startswith(SINK_PREFIX):
            record = read_epoch(0, note)
            times += record.note.planned_ms if record is not None and record.note is not None else ()
        elif (report := decode(note)) is not None:
            times.append(report.at_ms)
    return max(times)


def _is_refusal(error: TidelogError) -> bool:
    return isinstance(error, KafkaError) and error.code in _REFUSALS
