"""Tables in a real Cassandra: the contract of table sinks, and collect from a broker into it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from foreign.cassandra import Cassandra
from tests.compat.conftest import available
from tests.contract.table_sinks import CHANGING, FULL, SPARSE, ChangingTables, frame, kept
from tests.rigs.collect_events import TODAY, event, letters, run, send
from tests.rigs.pipelines_session import pipelines_session

from tidelog.spark.pipelines.pipeline import TimeRange
from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks import open_event_tables, open_lake
from tidelog.spark.sinks.cassandra import CassandraTables
from tidelog.spark.sinks.cassandra_connection import CassandraCluster, connect
from tidelog.spark.sinks.table import Batch, TableError
from tidelog.testing import broker
from tidelog_rewards import events
from tidelog_rewards.jobs.collect.schema import table_of
from tidelog_rewards.pipelines import COLLECT as PIPELINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def cassandra(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cassandra]:
    node = Cassandra(tmp_path_factory.mktemp("cassandra"))
    with available():
        node.start()
    yield node
    node.stop()


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return pipelines_session()


@pytest.fixture
def keyspace(cassandra: Cassandra) -> Iterator[str]:
    name = f"k{uuid.uuid4().hex[:12]}"
    yield name
    session = connect(CassandraCluster.at(cassandra.contact_points)).session
    session.execute(f"DROP KEYSPACE IF EXISTS {name}", timeout=60)


class TestCassandra(ChangingTables):
    @pytest.fixture
    def sink(self, cassandra: Cassandra, keyspace: str) -> CassandraTables:
        return CassandraTables(cassandra.contact_points, keyspace)

    def test_many_rows_with_few_requests_under_way_all_arrive(
        self, spark: SparkSession, sink: CassandraTables
    ) -> None:
        rows = spark.range(20_000).selectExpr(
            "concat('u-', id % 100) user_id",
            "'2026-10-31' date",
            "concat('e-', id) event_id",
            "timestamp_millis(1793448000000 + id) event_time",
            "id cents",
            "cast(null as double) rate",
            "id % 2 = 0 paid",
        )
        assert sink.upsert(CHANGING, rows, Batch("app", 0)) == 20_000
        assert sorted(row["cents"] for row in sink.rows(CHANGING)) == list(range(20_000))  # type: ignore[type-var]

    def test_a_row_without_a_key_is_refused_in_one_sentence(
        self, spark: SparkSession, sink: CassandraTables
    ) -> None:
        nameless = (None, *SPARSE[1:])
        with pytest.raises(Exception, match="Cassandra refuses a row of table changing"):
            sink.upsert(CHANGING, frame(spark, [nameless]), Batch("app", 0))

    def test_the_connection_can_be_closed_and_used_again(
        self, spark: SparkSession, sink: CassandraTables
    ) -> None:
        with sink:
            sink.upsert(CHANGING, frame(spark, [FULL]), Batch("app", 0))
        assert kept(sink, CHANGING) == [FULL]


def test_collect_fills_cassandra_and_the_lake(
    spark: SparkSession, cassandra: Cassandra, keyspace: str, tmp_path: Path
) -> None:
    with broker() as running:
        settings = PipelineSettings(
            running.bootstrap_servers,
            tmp_path,
            trigger="available-now",
            cassandra=cassandra.contact_points,
            keyspace=keyspace,
        )
        for kind in events.LOGS:
            # Ten events, some of them a week late; each is sent twice.
            times = [TODAY - timedelta(days=number % 8) for number in range(10)]
            sent = [event(kind, number, when) for number, when in enumerate(times)]
            send(settings, kind.topic, [*sent, *sent])
        send(settings, events.LOGIN.topic, [b"broken"])
        run(spark, settings)
        tables = open_event_tables(settings)
        assert tables is not None
        wanted = {kind.name: {f"{kind.name}-{number}" for number in range(10)} for kind in events.LOGS}
        for kind in events.LOGS:
            for store in (tables, open_lake(settings)):
                found = Counter(str(row["event_id"]) for row in store.rows(table_of(kind)))
                assert (set(found), set(found.values())) == (wanted[kind.name], {1})
        assert [letter["reason"] for letter in letters(settings)] == ["not a JSON object"]

        report = PIPELINE.backfill(spark, settings, TimeRange(TODAY, TODAY + timedelta(days=1)))
        # The events of today: numbers 0 and 8, each twice in the log.
        assert report.written["table login"] == 4
        assert len(list(tables.rows(table_of(events.LOGIN)))) == 10


def test_the_rows_of_a_user_and_day_come_in_the_order_of_time(
    spark: SparkSession, cassandra: Cassandra, keyspace: str
) -> None:
    tables = CassandraTables(cassandra.contact_points, keyspace)
    table = table_of(events.TASK)
    rows = spark.range(50).selectExpr(
        *(f"'{name}' {name}" for name in ("device_id", "ip", "app_version", "task_id", "topic")),
        "concat('e-', id) event_id",
        "timestamp_millis(1793448000000 + 7919 * id % 50) event_time",
        "'u' user_id",
        "'2026-10-31' date",
        *(f"id {name}" for name in ("step", "steps", "partition", "offset")),
    )
    tables.upsert(table, rows, Batch("app", 0))
    session = connect(CassandraCluster.at(cassandra.contact_points)).session
    query = f"SELECT event_time FROM {keyspace}.task WHERE user_id = 'u' AND date = '2026-10-31'"
    times = [row[0] for row in session.execute(query)]
    assert len(times) == 50
    assert times == sorted(times)


def test_a_cluster_that_does_not_answer_is_told_with_the_mend() -> None:
    nobody = CassandraTables("127.0.0.1:1", "k")
    with pytest.raises(TableError, match=r"does not answer at 127\.0\.0\.1:1: start it, or"):
        nobody.ensure(CHANGING)
