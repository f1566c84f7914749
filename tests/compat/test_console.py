"""The console over Apache Kafka: what it shows and changes is nothing of Tidelog's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from foreign.apache_kafka import ApacheKafka
from tests.compat.conftest import available
from tests.rigs.console_thread import ApiClient, ConsoleThread, console_settings
from tests.rigs.waiting import wait_until

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
    # Brokers of KRaft hear of what the controller has noted a little later.
    wait_until(lambda: [each["name"] for each in api.get(f"{CLUSTER}/users")] == ["alice"], "the user")
    api.change("PUT", f"{CLUSTER}/quotas", entity={"user": "alice"}, quotas={"producer_byte_rate": 1000.0})
    wait_until(lambda: len(api.get(f"{CLUSTER}/quotas")) == 1, "the quota")
    refused = api.http.get(f"{CLUSTER}/acls")
    assert refused.json()["code"] == "SECURITY_DISABLED"
    assert "metrics" in api.get(f"{CLUSTER}/clients")["problems"][0]


def test_partitions_configs_and_groups_of_apache_kafka_are_administered(api: ApiClient, kafka: str) -> None:
    api.change("POST", f"{CLUSTER}/topics", name="moved", partitions=2)
    path = f"{CLUSTER}/topics/moved"
    wait_until(lambda: api.http.get(path).status_code == 200, "the topic")
    (only,) = api.get(f"{CLUSTER}/brokers")
    plan = api.change("POST", f"{path}/reassign", replication_factor=1)
    assert plan["moves"] == []  # there is one broker
    refused = api.try_change("POST", f"{path}/reassign", replication_factor=2)
    assert "too few for 2 replicas" in refused.json()["error"]
    api.change("POST", f"{path}/reassign", replicas={"0": [only["id"]]}, dry_run=False)
    nothing: dict[str, object] = {"moves": [], "throttle": {}, "problem": None}
    wait_until(lambda: api.get(f"{path}/reassignments") == nothing, "nothing to move")
    assert api.change("POST", f"{path}/reassign/cancel")["remark"] == "no reassignments are in progress"
    for asked in ({}, {"type": "unclean", "name": "moved"}):
        found = api.change("POST", f"{path}/elect-leaders", **asked)
        assert found == {"elected": [], "not_needed": [0, 1], "refused": []}
    api.wait_for_look()
    api.wait_for_look()
    api.change("PUT", f"{path}/configs", configs={"retention.ms": "70000"})

    def told() -> list[dict[str, object]]:
        events = api.get(f"{CLUSTER}/events", limit=200)
        return [each["args"] for each in events if each["kind"] == "topic-config-set"]

    wait_until(told, "the changed config")
    assert told()[0] == {"topic": "moved", "config": "retention.ms", "now": "70000", "user": "anonymous"}


def test_why_groups_of_apache_kafka_rebalance(api: ApiClient, kafka: str) -> None:
    api.change("POST", f"{CLUSTER}/topics", name="read", partitions=2)
    options: dict[str, Any] = {"bootstrap_servers": kafka, "group_id": "why"}
    with Consumer(**options, client_id="first") as first, Consumer(**options, client_id="second") as second:
        first.subscribe(["read"])
        wait_until(lambda: (first.poll(0.05), first.assignment())[1], "partitions")
        wait_until(lambda: api.get(f"{CLUSTER}/groups/why")["state"] == "Stable", "a stable group")
        api.wait_for_look()
        second.subscribe(["read"])

        def joined() -> list[str]:
            first.poll(0.05)
            second.poll(0.05)
            found = api.get(f"{CLUSTER}/groups/why")["rebalances"]
            return [each["args"]["joined_names"] for each in found if "joined" in each["args"]]

        wait_until(joined, "the reason")
        assert joined()[-1].startswith("second (")


def test_what_apache_kafka_does_not_offer_is_said(api: ApiClient, kafka: str) -> None:
    query = {"principal": "User:alice", "resource": "topic", "name": "t"}
    refused = api.http.get(f"{CLUSTER}/acls/explain", params=query)
    assert refused.json()["code"] == "SECURITY_DISABLED"
    assert api.http.get(f"{CLUSTER}/delegation-tokens").json()["code"].startswith("DELEGATION_TOKEN_")
    assert "metrics" in api.get(f"{CLUSTER}/telemetry")["problems"][0]
    api.change("PUT", f"{CLUSTER}/client-metrics/all", metrics=["*"], interval_ms=5000)
    wait_until(lambda: api.get(f"{CLUSTER}/client-metrics"), "the subscription")
    (only,) = api.get(f"{CLUSTER}/client-metrics")
    assert (only["name"], only["metrics"], only["interval_ms"]) == ("all", ["*"], 5000)
    api.change("DELETE", f"{CLUSTER}/client-metrics/all")
    wait_until(lambda: api.get(f"{CLUSTER}/client-metrics") == [], "the subscription to go")


def test_access_to_apache_kafka_is_explained_by_the_rules_alone(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    options = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with available():
        broker = ApacheKafka(tmp_path_factory.mktemp("guarded"), options)
        broker.start()
    try:
        settings = console_settings(tmp_path_factory.mktemp("console"), broker.address)
        with ConsoleThread(settings) as console, console.client() as api:
            rule = {"principal": "User:alice", "operation": "read", "resource": "topic", "name": "pay"}
            api.change("POST", f"{CLUSTER}/acls", **rule, pattern="prefixed")
            wait_until(lambda: api.get(f"{CLUSTER}/acls"), "the rule")
            query = {"principal": "User:alice", "resource": "topic", "name": "payments"}
            found = api.get(f"{CLUSTER}/acls/explain", **query, operation="describe")
            assert (found["super_users"], found["open_without_rules"]) == (None, None)
            (answer,) = found["answers"]
            assert (answer["allowed"], answer["reason"]) == (True, "rule")
            assert [each["effect"] for each in answer["rules"]] == ["allows"]
            (answer,) = api.get(f"{CLUSTER}/acls/explain", **query, operation="write")["answers"]
            assert (answer["allowed"], answer["reason"]) == (False, "not allowed")
    finally:
        broker.stop()
