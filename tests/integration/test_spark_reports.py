"""What queries tell of themselves, with a real broker: sources as Spark calls them, sinks task by task."""

from __future__ import annotations

import pickle
import socket
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.integration.spark_topics import Stream, fill, options, schema_of
from tests.rigs.waiting import wait_until

from tidelog.client.admin.admin import Admin
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.spark.read._source_options import source_options
from tidelog.spark.read._stream_reader import TidelogStreamReader
from tidelog.spark.report import _query_reporter as query_reporter
from tidelog.spark.report._query_reporter import QueryReporter
from tidelog.spark.report.application import this_application
from tidelog.spark.report.query_report import (
    FORGOTTEN_MS,
    MOST_BYTES,
    REPORT_PREFIX,
    BatchReport,
    QueryReport,
    decode,
    encode,
)
from tidelog.spark.report.reported_queries import (
    ReportedQuery,
    ReportedSource,
    is_spark_group,
    reported_queries,
)
from tidelog.spark.report.sink_note import new_note
from tidelog.spark.write._batch_writer import finish_write
from tidelog.spark.write._write_task import write_at_least_once
from tidelog.spark.write.epoch_task import write_exactly_once
from tidelog.spark.write.write_message import WriteName
from tidelog.spark.write.write_options import write_options
from tidelog.testing.broker import LocalBroker
from tidelog.testing.broker import broker as start_broker
from tidelog.testing.broker_thread import BrokerThread


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with start_broker() as running:
        yield running


@pytest.fixture
def topic(broker: LocalBroker) -> str:
    return broker.create_topic(partitions=2)


def told(bootstrap: str) -> list[ReportedQuery]:
    """The queries that whoever lists groups finds."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        names = [each.group_id for each in admin.list_groups().groups if is_spark_group(each.group_id)]
        found = admin.list_group_offsets(names) if names else {}
    return reported_queries(
        {
            name: {each: offset.offset for each, offset in group.offsets.items()}
            for name, group in found.items()
        },
        {
            name: [each.metadata for each in group.offsets.values() if each.metadata]
            for name, group in found.items()
        },
        _now_ms(),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def source_of(broker: LocalBroker, topic: str) -> ReportedSource | None:
    for each in told(broker.bootstrap_servers):
        if each.source is not None and any(place.topic == topic for place in each.source.position):
            return each.source
    return None


def test_a_source_tells_its_batches_and_its_end_without_any_option(broker: LocalBroker, topic: str) -> None:
    fill(broker.bootstrap_servers, topic, [b"x"] * 30)
    fill(broker.bootstrap_servers, topic, [b"y"] * 10, partition=1)
    with Stream(options(broker, subscribe=topic, startingOffsets="earliest", commitGroup="g")) as stream:
        assert len(stream.step()) == 40
        fill(broker.bootstrap_servers, topic, [b"z"] * 5)
        assert len(stream.step()) == 5
        assert stream.step() == []

        def is_told() -> bool:
            found = source_of(broker, topic)
            done = [each for each in found.report.recent if each.took_ms is not None] if found else []
            return [each.offsets for each in done] == [40, 5]

        wait_until(is_told, "a report of both micro-batches")
        found = source_of(broker, topic)
        assert found is not None
        assert found.is_running(found.report.at_ms)
        assert found.position == {TopicPartition(topic, 0): 35, TopicPartition(topic, 1): 10}
        assert (found.report.batches, found.report.offsets, found.report.behind) == (2, 45, 0)
        assert (found.report.commit_group, found.report.error) == ("g", None)
        assert found.report.application == this_application()
        assert found.last_batch is not None
        assert found.offsets_per_second(found.report.at_ms) > 0
    ended = source_of(broker, topic)
    assert ended is not None
    assert ended.report.ended_ms is not None
    assert not ended.is_running(ended.report.at_ms)


def test_an_error_of_the_source_is_in_its_last_report(broker: LocalBroker, topic: str) -> None:
    fill(broker.bootstrap_servers, topic, [b"x"])
    with Stream(options(broker, subscribe=topic, startingOffsets="earliest")) as stream:
        assert stream.step() == [b"x"]
        with pytest.raises(TidelogError):
            stream.reader.partitions({topic: {"0": 5, "1": 0}}, {topic: {"0": 1, "1": 0}})
    found = source_of(broker, topic)
    assert found is not None
    assert found.report.error is not None
    assert "DataLossError" in found.report.error


def test_nothing_is_told_where_nobody_wants_it(broker: LocalBroker, topic: str) -> None:
    fill(broker.bootstrap_servers, topic, [b"x"])
    given = options(broker, subscribe=topic, startingOffsets="earliest", reportBatches=False)
    with Stream(given) as stream:
        assert stream.step() == [b"x"]
    assert source_of(broker, topic) is None


def test_a_batch_does_not_wait_for_a_broker_that_is_stalled(
    broker: LocalBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_reporter, "_TIMEOUT_MS", 300_000)
    fill(broker.bootstrap_servers, topic, [b"x"] * 3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        given = options(broker, subscribe=topic, startingOffsets="earliest")
        nowhere = options(f"127.0.0.1:{silent.getsockname()[1]}", subscribe=topic)
        with Stream(given) as stream:
            stream.reader._reporter = QueryReporter(source_options(nowhere, streaming=True))
            assert stream.step() == [b"x"] * 3
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                # The report waits for an answer that does not come; micro-batches go on meanwhile.
                for number in range(5):
                    fill(broker.bootstrap_servers, topic, [b"%d" % number])
                    assert stream.step() == [b"%d" % number]
                report = stream.reader._reporter.report()
                assert (report.batches, report.undelivered, report.ended_ms) == (6, 0, None)


def test_a_right_that_is_refused_is_logged_once_and_the_query_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rights = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with BrokerThread(tmp_path / "data", options=rights) as guarded:
        with Admin(bootstrap_servers=guarded.bootstrap) as admin:
            pattern = ResourcePattern(ResourceType.GROUP, REPORT_PREFIX, PatternType.PREFIXED)
            rule = AclBinding(pattern, AclEntry("User:ANONYMOUS", "*", Operation.READ, Permission.DENY))
            for result in admin.create_acls([rule]):
                result.raise_for_error()
        fill(guarded.bootstrap, "refused", [b"x"])
        given = options(guarded.bootstrap, subscribe="refused", startingOffsets="earliest")
        with Stream(given) as stream, caplog.at_level("WARNING", "tidelog.spark.report._query_reporter"):
            assert stream.step() == [b"x"]
            wait_until(lambda: caplog.records, "a warning")
            fill(guarded.bootstrap, "refused", [b"y"])
            assert stream.step() == [b"y"]
            assert stream.reader._reporter.report().batches == 1  # no more notes are taken
    (warning,) = [each.getMessage() for each in caplog.records]
    assert "allow READ on groups" in warning
    assert "reportBatches=false" in warning


def test_reports_of_queries_that_ended_long_ago_are_deleted_by_the_next(
    broker: LocalBroker, topic: str
) -> None:
    fill(broker.bootstrap_servers, topic, [b"x"])
    old, young = (f"{REPORT_PREFIX}{uuid.uuid4().hex}" for _ in range(2))
    now_ms = _now_ms()
    for group, at_ms in ((old, now_ms - FORGOTTEN_MS - 60_000), (young, now_ms - 60_000)):
        note = encode(QueryReport(at_ms, at_ms, this_application()))
        broker.admin.alter_group_offsets(
            group, {TopicPartition(topic, 0): OffsetAndMetadata(0, metadata=note)}
        )
    with Stream(options(broker, subscribe=topic, startingOffsets="earliest")) as stream:
        stream.step()
        wait_until(lambda: old not in _groups(broker), "the old report to go")
        assert young in _groups(broker)


def _groups(broker: LocalBroker) -> set[str]:
    return {each.group_id for each in broker.admin.list_groups().groups}


def test_readers_are_pickled_without_what_they_tell(broker: LocalBroker, topic: str) -> None:
    given = options(broker, subscribe=topic, startingOffsets="earliest")
    reader = TidelogStreamReader(given, schema_of(given))
    copy = pickle.loads(pickle.dumps(reader))
    assert copy._reporter.report().batches == 0


def test_a_sink_tells_its_epochs_with_its_record(broker: LocalBroker, topic: str) -> None:
    raw = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": topic, "queryName": "copies"}
    given = write_options(raw, streaming=True)
    query = str(uuid.uuid4())
    planned: list[int] = []
    for epoch in range(3):
        note = new_note(raw, is_stream=True)
        planned += note.planned_ms
        name = WriteName(query, epoch, "run", 0, streaming=True, note=note)
        rows = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]})
        finish_write([write_exactly_once([rows], given, name)], given, commit=True)
    (found,) = [each for each in told(broker.bootstrap_servers) if each.query_id == query]
    (sink,) = found.sinks
    assert (found.name, found.source, sink.epoch, sink.rows, sink.run_id) == ("copies", None, 2, 2, "run")
    assert sink.note is not None
    assert (sink.note.topics, list(sink.note.planned_ms)) == ((topic,), planned)
    assert found.is_running(planned[-1])


def test_a_sink_that_writes_at_least_once_tells_its_epochs_beside_its_rows(
    broker: LocalBroker, topic: str
) -> None:
    raw = options(broker, topic=topic, queryName="often", deliveryGuarantee="at-least-once")
    given = write_options(raw, streaming=True)
    query = str(uuid.uuid4())
    name = WriteName(query, 6, "run", 0, streaming=True, note=new_note(raw, is_stream=True))
    rows = pa.RecordBatch.from_pydict({"value": [b"a", b"b", b"c"]})
    assert write_at_least_once([rows], given, name).rows == 3

    def found() -> list[ReportedQuery]:
        return [each for each in told(broker.bootstrap_servers) if each.query_id == query]

    wait_until(found, "a report of the epoch")
    ((sink,),) = (each.sinks for each in found())
    assert (sink.epoch, sink.rows, sink.run_id) == (6, 3, "run")
    assert sink.note is not None
    assert sink.note.topics == (topic,)


def test_a_note_is_never_longer_than_brokers_take() -> None:
    batches = [BatchReport(1_800_000_000_000 + each, 10**15, 10**9) for each in range(200)]
    report = QueryReport(1, 2, this_application(), 200, 10**18, batches, error="x" * 5000)
    text = encode(report)
    assert len(text.encode()) <= MOST_BYTES
    read = decode(text)
    assert read is not None
    assert read.batches == 200
    assert read.recent == batches[-len(read.recent) :]
    assert decode("{}") is None
    assert decode("no JSON") is None
