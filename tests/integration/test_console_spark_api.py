"""What the console's API tells of Spark: queries, pipelines, alerts, and the topology with all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.console_thread import ApiClient, ConsoleThread, console_settings
from tests.rigs.told_queries import (
    QUERY_ID,
    RUNNING,
    STATES,
    ToldQuery,
    running_pipeline,
    told_query,
    write_incidents,
)
from tests.rigs.waiting import wait_until

from tidelog import Producer
from tidelog.console.settings import MaskRule
from tidelog.testing import LocalBroker, broker
from tidelog.testing.reserved_port import ReservedPort
from tidelog_rewards.events import DEAD_LETTERS, INCIDENTS

CLUSTER = "/clusters/main"
TOPICS = {"orders": 2, "large-orders": 1, INCIDENTS: 1, DEAD_LETTERS: 1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with (
        ReservedPort() as metrics,
        broker(topics=TOPICS, options={"metrics.listeners": f"127.0.0.1:{metrics.port}"}) as running,
    ):
        write_incidents(running)
        yield running


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture(scope="module")
def query(cluster: LocalBroker, directory: Path) -> Iterator[ToldQuery]:
    with told_query(cluster, directory / "checkpoints" / "copies-checkpoint") as running:
        running.batch(20)
        running.batch(30)
        yield running


@pytest.fixture(scope="module")
def api(cluster: LocalBroker, directory: Path, query: ToldQuery) -> Iterator[ApiClient]:
    settings = console_settings(
        directory / "console",
        cluster.bootstrap_servers,
        pipelines=directory / "pipelines",
        checkpoints=(directory / "checkpoints",),
        masks=(MaskRule(topics=(INCIDENTS,), fields=("subject",)),),
    )
    with (
        running_pipeline(directory / "pipelines"),
        ConsoleThread(settings) as running,
        running.client() as client,
    ):
        yield client


def spark_rows(api: ApiClient) -> list[Any]:
    rows: list[Any] = api.get(f"{CLUSTER}/spark")["queries"]
    return rows


def test_a_query_is_shown_once_with_its_report_its_sink_and_its_checkpoint(
    api: ApiClient, query: ToldQuery
) -> None:
    def is_told() -> bool:
        rows = spark_rows(api)
        return (
            len(rows) == 1
            and rows[0]["batches"] == 2
            and rows[0]["batch_ms"] is not None
            and rows[0]["lag"] == 0
        )

    wait_until(is_told, "the query, once")
    (row,) = spark_rows(api)
    assert (row["name"], row["query_id"], row["running"]) == ("copies", QUERY_ID, True)
    assert Path(row["path"]).name == "copies-checkpoint"
    assert (row["batch"], row["planned"], row["watermark_ms"]) == (1, 1, 1_700_000_000_000)
    assert [(each["topic"], each["position"], each["lag"]) for each in row["topics"]] == [("orders", 50, 0)]
    (sink,) = row["sinks"]
    assert (sink["topics"], sink["epoch"], sink["rows"]) == (["large-orders"], 1, 30)
    assert row["rows_per_second"] > 0
    assert row["error"] is None


def test_pipelines_have_their_figures_and_where_they_write(api: ApiClient) -> None:
    page = api.get(f"{CLUSTER}/spark")
    rows = {each["name"]: each for each in page["pipelines"]}
    assert len(rows) == 5
    row = rows[RUNNING]
    assert (row["running"], row["rows_per_second"], row["state_rows"]) == (True, 12.5, 7)
    assert row["watermark_ms"] == 1_700_000_000_000
    assert "lake credit" in row["outputs"]
    assert not rows["earnings"]["running"]
    assert (page["dead_letter_topic"], page["dead_letters"]) == (DEAD_LETTERS, 0)


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("live", ["b2", "a1"]),
        ("closed", ["c3"]),
        ("dismissed", ["d4"]),
        ("all", ["d4", "c3", "b2", "a1"]),
    ],
)
def test_alerts_are_chosen_by_the_state_that_they_have_now(
    api: ApiClient, state: str, wanted: list[str]
) -> None:
    page = api.get(f"{CLUSTER}/alerts", state=state)
    assert [each["alert_id"] for each in page["alerts"]] == wanted
    assert page["matched"] == len(wanted)
    assert page["counts"] == dict.fromkeys(STATES.values(), 1)
    assert page["alerts"][0]["reasons"][0]["rule"] == "many_accounts"


def test_a_record_among_the_incidents_that_is_nearly_json_is_passed_over(
    cluster: LocalBroker, tmp_path: Path
) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for name, value in enumerate((b'{"alert_id": "Jos\xe9"}', b'{"reasons": ' + b"[" * 100_000)):
            producer.send(INCIDENTS, value, key=b"%d" % name)
    settings = console_settings(tmp_path, cluster.bootstrap_servers)  # nothing is masked
    with ConsoleThread(settings) as console, console.client() as api:
        assert api.get(f"{CLUSTER}/alerts", state="all")["matched"] == len(STATES)


def test_alerts_are_paged_and_what_is_masked_is_neither_shown_nor_found(api: ApiClient) -> None:
    page = api.get(f"{CLUSTER}/alerts", state="all", start=1, limit=2)
    assert [each["alert_id"] for each in page["alerts"]] == ["c3", "b2"]
    assert page["alerts"][0]["subject"] == "de****c3"
    assert api.get(f"{CLUSTER}/alerts", state="all", search="device-c3")["matched"] == 0
    assert api.get(f"{CLUSTER}/alerts", state="all", search="C3")["matched"] == 1
    refused = api.http.get(f"{CLUSTER}/alerts", params={"state": "new"})
    assert (refused.status_code, refused.json()["code"]) == (400, "BAD_STATE")


def test_the_topology_goes_from_clients_by_software_to_sinks(
    api: ApiClient, cluster: LocalBroker, query: ToldQuery
) -> None:
    def drawn() -> Any:
        return api.get(f"{CLUSTER}/topology")

    def is_whole() -> bool:
        found = {(each["kind"], each["name"]) for each in drawn()["nodes"]}
        return {("producer", "shop"), ("query", "copies"), ("pipeline", RUNNING)} <= found

    with Producer(bootstrap_servers=cluster.bootstrap_servers, client_id="shop") as producer:
        producer.send("orders", b"one more")
        producer.flush()
        wait_until(is_whole, "a producer, a query and a pipeline")
        found = drawn()
    nodes = {(each["kind"], each["name"]): each for each in found["nodes"]}
    shop = nodes["producer", "shop"]
    assert shop["detail"].startswith("tidelog")
    assert shop["detail"].endswith("127.0.0.1")
    assert shop["page"] == ["clients"]
    assert nodes["topic", "orders"]["page"] == ["topics", "orders"]
    copies, collect = nodes["query", "copies"], nodes["pipeline", RUNNING]
    assert (copies["state"], copies["page"], collect["state"]) == ("running", ["spark"], "running")
    edges = {(each["source"], each["target"]) for each in found["edges"]}
    assert {
        (shop["id"], "topic orders"),
        ("topic orders", copies["id"]),
        (copies["id"], "topic sink large-orders"),
        ("topic orders", collect["id"]),
        (collect["id"], "lake credit"),
        (collect["id"], "cassandra tidelog.credit"),
    } <= edges
    # What writes the sink is the query, under its own name.
    assert ("producer Spark copies ", "topic large-orders") in edges
    # The console has seen whose producer id it is, and knows it when the connection is gone.
    assert ("producer", "shop") in {(each["kind"], each["name"]) for each in drawn()["nodes"]}


def test_a_query_without_a_checkpoint_that_the_console_knows_is_shown(
    cluster: LocalBroker, query: ToldQuery, tmp_path: Path
) -> None:
    settings = console_settings(tmp_path / "console", cluster.bootstrap_servers)
    with ConsoleThread(settings) as running, running.client() as api:

        def is_told() -> bool:
            return [each["name"] for each in spark_rows(api)] == ["copies"]

        wait_until(is_told, "the query")
        (row,) = spark_rows(api)
        assert (row["path"], row["query_id"], row["running"]) == (None, QUERY_ID, True)
        # Groups in which queries keep notes are no groups of people, nor lag of the cluster's.
        page = api.get(f"{CLUSTER}/overview")
        assert (page["groups"], page["total_lag"]) == (0, 0)
        assert api.get(f"{CLUSTER}/spark")["pipelines"] == []
