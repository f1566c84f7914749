"""``format("tidelog")`` over SASL_SSL: a batch is written, a stream copies it, a batch reads the copy.

The driver logs in by SCRAM, and every task by the one token that it gets.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.rigs.sasl_ssl_broker import sasl_ssl_broker

from tidelog import Admin, NewTopic
from tidelog.broker.app import Broker
from tidelog.broker.network.answer import HandlerResult
from tidelog.broker.network.connection import Connection, RequestHandler
from tidelog.wire.api import ApiKey
from tidelog.wire.headers import parse_request_header

pytestmark = [pytest.mark.slow, pytest.mark.timeout(480)]

ROWS = 2000
"""More than is read ahead beside the driver."""


class Recorder:
    """The dispatcher, and who sent which requests: client id, API, and whether a token proved who it is."""

    def __init__(self, dispatcher: RequestHandler) -> None:
        self._dispatcher = dispatcher
        self.seen: set[tuple[str, ApiKey, bool]] = set()

    def handle(self, connection: Connection, frame: memoryview) -> HandlerResult:
        header, _ = parse_request_header(frame)
        self.seen.add((header.client_id or "", ApiKey(header.api_key), connection.session.by_token))
        return self._dispatcher.handle(connection, frame)

    def commit(self) -> None:
        self._dispatcher.commit()


def recording(broker: Broker) -> Recorder:
    """Stand before the dispatcher of clients that log in from now on."""
    assert broker._authentication is not None
    (listener,) = broker._authentication.listeners.values()
    recorder = listener.dispatcher = Recorder(listener.dispatcher)
    return recorder


def test_a_secure_cluster_is_written_streamed_and_read_by_one_token(
    spark: SparkSession, tmp_path: Path
) -> None:
    with sasl_ssl_broker(tmp_path) as broker:
        with Admin(broker.client("admin")) as admin:
            admin.create_topics([NewTopic("orders", 2), NewTopic("copies", 1)])
        recorder = broker.thread.call(recording)
        options = {f"kafka.{name}": text for name, text in broker.client("admin").items()}
        rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
        rows.write.format("tidelog").options(**options).option("topic", "orders").mode("append").save()

        source = spark.readStream.format("tidelog").options(**options)
        stream = source.option("subscribe", "orders").option("startingOffsets", "earliest").load()
        sink = stream.select("value").writeStream.format("tidelog").options(**options)
        query = (
            sink.option("topic", "copies")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

        copies = spark.read.format("tidelog").options(**options).option("subscribe", "copies").load()
        read = copies.selectExpr("cast(value as string)").collect()
        assert sorted(int(row[0]) for row in read) == list(range(ROWS))

        data = {
            (api, by_token) for _, api, by_token in recorder.seen if api in (ApiKey.PRODUCE, ApiKey.FETCH)
        }
        assert data == {(ApiKey.PRODUCE, True), (ApiKey.FETCH, True)}
        known = {each for each in recorder.seen if each[1] is not ApiKey.API_VERSIONS}
        assert {by_token for client, _, by_token in known if "executor" in client} == {True}
        assert (ApiKey.CREATE_DELEGATION_TOKEN, False) in {(api, how) for _, api, how in recorder.seen}
        with Admin(broker.client("admin")) as admin:
            assert len(admin.describe_delegation_tokens()) == 1
