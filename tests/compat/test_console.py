"""The console over Apache Kafka: what it shows and changes is nothing of Tidelog's own."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from foreign.apache_kafka import ApacheKafka
from tests.compat.conftest import available
from tests.rigs.console_thread import ApiClient, ConsoleThread, console_settings
from tests.waiting import wait_until

from tidelog import Consumer, Producer

CLUSTER = "/clusters/main"


@pytest.fixture(scope="module", params=["kafka-4", "kafka-3.9"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with available():
        broker = ApacheKafka(tmp_path_factory.mktemp("kafka"), jars=request.param)
        broker.start()
    yield broker.address
    broker.stop()


@pytest.fixture(scope="module")
def api(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    with (
        ConsoleThread(console_settings(tmp_path_factory.mktemp("console"), kafka)) as console,
        console.client() as api,
    ):
        yield api


def nodes(api: ApiClient) -> set[tuple[str, str]]:
    return {(each["kind"], each["name"]) for each in api.get(f"{CLUSTER}/topology")["nodes"]}


def test_topics_records_and_groups_of_apache_kafka(api: ApiClient, kafka: str) -> None:
    api.change("POST", f"{CLUSTER}/topics", name="orders", partitions=2, configs={"retention.ms": "60000"})
    with Producer(bootstrap_servers=kafka) as producer:
        for number in range(50):
            producer.send("orders", json.dumps({"id": number}).encode(), key=b"k-%d" % number)
    found = api.get(f"{CLUSTER}/topics/orders/messages", filter="value.id >= 48")
    assert sorted(json.loads(each["value"]["text"])["id"] for each in found["records"]) == [48, 49]
    configs = {each["name"]: each for each in api.get(f"{CLUSTER}/topics/orders/configs")}
    assert configs["retention.ms"]["value"] == "60000"
    assert configs["retention.ms"]["is_own"]
    assert configs["cleanup.policy"]["default"] == "delete"

    with Consumer(bootstrap_servers=kafka, group_id="late", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        read = 0
        while read < 50:
            read += len(consumer.poll(1.0))
        consumer.commit()
    plan = api.change("POST", f"{CLUSTER}/groups/late/reset", to="earliest", dry_run=False)
    assert {each["new"] for each in plan["offsets"]} == {0}
    assert api.get(f"{CLUSTER}/groups/late")["lag"] == 50
    (row,) = (each for each in api.get(f"{CLUSTER}/groups") if each["group"] == "late")
    assert row["lag"] == 50
    api.change("DELETE", f"{CLUSTER}/topics/orders", name="orders")


def test_the_other_pages_of_apache_kafka(api: ApiClient, kafka: str) -> None:
    with Producer(bootstrap_servers=kafka, transactional_id="tx-1") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("written", b"x")
        producer.commit_transaction()
    overview = api.get(f"{CLUSTER}/overview")
    assert (overview["brokers"], overview["problems"]) == (1, [])
    (only,) = api.get(f"{CLUSTER}/brokers")
    assert only["log_dirs"]
    assert api.get(f"{CLUSTER}/brokers/{only['id']}/configs")
    (transaction,) = api.get(f"{CLUSTER}/transactions")["transactions"]
    assert transaction["transactional_id"] == "tx-1"
    wait_until(lambda: ("producer", "tx-1") in nodes(api), "the producer in the picture")
    api.change("PUT", f"{CLUSTER}/users", name="alice", password="secret-secret")
    assert [each["name"] for each in api.get(f"{CLUSTER}/users")] == ["alice"]
    api.change("PUT", f"{CLUSTER}/quotas", entity={"user": "alice"}, quotas={"producer_byte_rate": 1000.0})
    assert len(api.get(f"{CLUSTER}/quotas")) == 1
    refused = api.http.get(f"{CLUSTER}/acls")
    assert refused.json()["code"] == "SECURITY_DISABLED"
    assert "metrics" in api.get(f"{CLUSTER}/clients")["problems"][0]
