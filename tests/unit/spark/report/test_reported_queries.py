"""Sources and sinks are put together to queries by application and time; ended runs make room."""

from __future__ import annotations

import pytest

from tidelog.ids import TopicPartition
from tidelog.spark.report.application import Application
from tidelog.spark.report.content_digest import ContentDigest
from tidelog.spark.report.epoch_record import EPOCH_PARTITION, EpochRecord, task_name
from tidelog.spark.report.query_report import (
    FORGOTTEN_MS,
    REPORT_PREFIX,
    SILENT_MS,
    BatchReport,
    QueryReport,
    encode,
)
from tidelog.spark.report.reported_queries import ReportedQuery, reported_queries
from tidelog.spark.report.sink_note import SinkNote

NOW = 1_800_000_000_000
ONE, OTHER = Application("1", "h", "one"), Application("2", "h", "other")


class Groups:
    """The groups of a cluster, as they are listed."""

    def __init__(self) -> None:
        self.committed: dict[str, dict[TopicPartition, int]] = {}
        self.notes: dict[str, list[str]] = {}

    def source(
        self,
        name: str,
        *batches: BatchReport,
        application: Application = ONE,
        at_ms: int = NOW,
        ended: bool = False,
        topic: str = "orders",
        offset: int = 5,
    ) -> None:
        group = f"{REPORT_PREFIX}{name}"
        report = QueryReport(
            at_ms,
            NOW - 60_000,
            application,
            len(batches),
            recent=list(batches),
            ended_ms=at_ms if ended else None,
        )
        self.committed[group] = {TopicPartition(topic, 0): offset}
        self.notes[group] = [encode(report)]

    def sink(
        self,
        query: str,
        epoch: int,
        *planned_ms: int,
        rows: int = 1,
        task: int = 0,
        application: Application = ONE,
        is_stream: bool = True,
        name: str | None = None,
    ) -> None:
        group = task_name(query, task)
        note = SinkNote(application, planned_ms, (f"to-{query}",), name, is_stream)
        self.committed[group] = {EPOCH_PARTITION: epoch}
        self.notes[group] = [EpochRecord(epoch, "run", ContentDigest(rows), note=note).metadata]

    def queries(self, now_ms: int = NOW) -> list[ReportedQuery]:
        return reported_queries(self.committed, self.notes, now_ms)

    def pairs(self) -> set[tuple[str | None, tuple[str, ...]]]:
        return {
            (
                each.source.group.removeprefix(REPORT_PREFIX) if each.source else None,
                tuple(sink.app_id for sink in each.sinks),
            )
            for each in self.queries()
        }


def test_a_sink_belongs_to_the_source_in_whose_batches_its_epochs_were_planned() -> None:
    groups = Groups()
    groups.source("a", BatchReport(NOW - 9000, 5, 1000), BatchReport(NOW - 5000, 5, 1000), topic="a")
    groups.source("b", BatchReport(NOW - 7000, 5, 1000), BatchReport(NOW - 3000, 5, 1000), topic="b")
    groups.sink("for-b", 7, NOW - 6990, NOW - 2990)
    groups.sink("for-a", 3, NOW - 8990, NOW - 4990)
    assert groups.pairs() == {("a", ("for-a",)), ("b", ("for-b",))}


def test_of_sources_that_are_always_busy_the_one_that_planned_just_before_is_taken() -> None:
    groups = Groups()
    groups.source("a", *(BatchReport(NOW - at, 5, 1000) for at in (4000, 3000, 2000, 1000)), topic="a")
    groups.source("b", *(BatchReport(NOW - at, 5, 1000) for at in (3500, 2500, 1500, 500)), topic="b")
    groups.sink("for-b", 7, *(NOW - at for at in (3480, 2480, 1480)))
    groups.sink("for-a", 7, *(NOW - at for at in (3980, 2980, 1980)))
    assert groups.pairs() == {("a", ("for-a",)), ("b", ("for-b",))}


def test_sinks_of_other_applications_and_other_times_stand_alone() -> None:
    groups = Groups()
    groups.source("a", BatchReport(NOW - 9000, 5, 1000), BatchReport(NOW - 5000, 5, 1000))
    groups.sink("elsewhere", 1, NOW - 8990, application=OTHER)
    groups.sink("between", 1, NOW - 7000)
    assert groups.pairs() == {("a", ()), (None, ("elsewhere",)), (None, ("between",))}


def test_the_only_source_and_sink_go_together_where_times_do_not_tell() -> None:
    groups = Groups()
    groups.source("a", BatchReport(NOW - 1000, 5, 100))
    groups.sink("q", 1, NOW - 50_000)
    assert groups.pairs() == {("a", ("q",))}
    groups.sink("p", 1, NOW - 40_000)
    assert groups.pairs() == {("a", ()), (None, ("p",)), (None, ("q",))}


def test_batches_that_a_query_writes_itself_may_go_to_several_sinks() -> None:
    groups = Groups()
    groups.source("a", BatchReport(NOW - 9000, 5, 1000))
    groups.sink("first", 1, NOW - 8900, is_stream=False)
    groups.sink("second", 1, NOW - 8800, is_stream=False)
    assert groups.pairs() == {("a", ("first", "second"))}


def test_an_epoch_is_that_of_all_tasks_which_have_written_it() -> None:
    groups = Groups()
    for task, (epoch, rows) in enumerate(((4, 10), (4, 5), (3, 100))):
        groups.sink("q", epoch, NOW - 100, rows=rows, task=task, name="totals")
    (query,) = groups.queries()
    (sink,) = query.sinks
    assert (query.name, query.query_id, sink.epoch, sink.rows, sink.tasks) == ("totals", "q", 4, 15, 2)


def test_a_query_runs_while_it_reports_and_is_forgotten_after_a_day() -> None:
    groups = Groups()
    groups.source("a", BatchReport(NOW - 2000, 50, 1000), BatchReport(NOW - 1000, 50))
    (query,) = groups.queries()
    assert query.is_running(NOW + SILENT_MS - 1)
    assert not query.is_running(NOW + SILENT_MS)
    assert query.source is not None
    assert query.source.last_batch == BatchReport(NOW - 2000, 50, 1000)
    assert query.source.offsets_per_second(NOW) == 100 / 60
    assert query.source.offsets_per_second(NOW + SILENT_MS) == 0
    assert groups.queries(NOW + FORGOTTEN_MS) == [query]
    assert groups.queries(NOW + FORGOTTEN_MS + 1) == []


def test_an_ended_run_makes_room_for_the_next_of_the_same_query_and_for_no_other() -> None:
    groups = Groups()
    groups.source("old", at_ms=NOW - 5000, ended=True)
    groups.source("new")
    groups.source("other", at_ms=NOW - 5000, ended=True, topic="payments")
    assert {pair[0] for pair in groups.pairs()} == {"new", "other"}
    groups.source("beside")  # two that run are two
    assert {pair[0] for pair in groups.pairs()} == {"new", "beside", "other"}


def test_what_is_no_report_is_passed_over() -> None:
    groups = Groups()
    groups.source("a")
    groups.notes[f"{REPORT_PREFIX}b"] = ["no JSON", '{"format":2}']
    groups.notes[task_name("q", 0)] = ["{}"]
    groups.committed[task_name("q", 0)] = {EPOCH_PARTITION: 3}
    assert groups.pairs() == {("a", ())}


NO_NOTES = [
    "",
    "{",
    "[1]",
    "[" * 100_000,
    '{"format":' + "[" * 100_000,
    '{"format":1}',
    '{"format":2,"run":"r","rows":1,"checksum":"00"}',
    '{"format":1,"run":"r","rows":[1],"checksum":"00000000000000000000000000000000"}',
    '{"format":1,"run":"r","rows":true,"checksum":"00000000000000000000000000000000"}',
    '{"format":1,"run":["r"],"rows":1,"checksum":"00000000000000000000000000000000"}',
    '{"format":1,"run":"r","rows":1,"checksum":7}',
    '{"format":1,"run":"r","rows":1,"checksum":"no digits"}',
    '{"format":1,"run":"r","rows":1,"checksum":"00000000000000000000000000000000","claimed":[]}',
    '{"at_ms":1,"started_ms":"x"}',
    "\ud800",
]


@pytest.mark.parametrize("note", NO_NOTES, ids=lambda each: each[:40])
def test_what_others_have_written_into_groups_is_no_query(note: str) -> None:
    groups = Groups()
    groups.source("a", BatchReport(NOW - 1000, 5, 100))
    groups.sink("for-a", 7, NOW - 990)
    for name in (f"{REPORT_PREFIX}other", task_name("for-a", 1), task_name("other", 0)):
        groups.committed[name] = {EPOCH_PARTITION: 7}
        groups.notes[name] = [note]
    assert groups.pairs() == {("a", ("for-a",))}


def test_times_that_no_clock_has_are_no_note() -> None:
    groups = Groups()
    groups.source("a", BatchReport(NOW - 1000, 5, 100), at_ms=10**400)
    groups.sink("for-a", 7, 10**399)
    assert groups.queries() == []
