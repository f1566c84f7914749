"""A cluster of several brokers that has lost one: what can be read is shown, what cannot is said at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.console_thread import ApiClient, ConsoleThread, console_settings
from tests.rigs.waiting import wait_until

from tidelog import Producer
from tidelog.client.admin.admin import Admin
from tidelog.client.resources import NewTopic

CLUSTER = "/clusters/main"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    root = tmp_path_factory.mktemp("lost")
    with ClusterThread(root / "cluster", 3) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            alone = NewTopic("alone", 3, 1, configs={"min.insync.replicas": "1"})
            for result in admin.create_topics([alone, NewTopic("copied", 3, 3)]):
                result.raise_for_error()
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in range(9):
                for topic in ("alone", "copied"):
                    producer.send(topic, b"x", partition=number % 3)
        settings = console_settings(root / "console", cluster.bootstrap)
        with ConsoleThread(settings) as console, console.client() as client:
            client.get(f"{CLUSTER}/overview")
            cluster.stop(2)
            wait_until(lambda: client.get(f"{CLUSTER}/overview")["offline"] == 1, "the loss to be seen")
            yield client


def lost_partition(api: ApiClient) -> int:
    rows = api.get(f"{CLUSTER}/topics/alone")["partitions"]
    (lost,) = (each["partition"] for each in rows if each["leader"] is None)
    return int(lost)


def test_pages_show_the_partitions_that_can_be_read_and_name_the_others(api: ApiClient) -> None:
    lost = lost_partition(api)
    page = api.get(f"{CLUSTER}/topics/alone/messages")
    assert {each["partition"] for each in page["records"]} == {0, 1, 2} - {lost}
    assert len(page["records"]) == 6
    assert page["progress"]["left_out"] == [lost]
    stream = api.http.get(f"{CLUSTER}/topics/alone/messages/stream", params={"filter": 'text == "x"'}).text
    assert f'"left_out":[{lost}]' in stream
    whole = api.get(f"{CLUSTER}/topics/copied/messages")
    assert (len(whole["records"]), whole["progress"]["left_out"]) == (9, [])


def test_files_are_whole_or_refused(api: ApiClient) -> None:
    lost = lost_partition(api)
    path = f"{CLUSTER}/topics/alone/messages"
    others = ",".join(str(each) for each in range(3) if each != lost)
    assert len(api.http.get(f"{path}/export", params={"partitions": others}).text.splitlines()) == 6
    for refused in (
        api.http.get(f"{path}/export"),
        api.http.get(path, params={"partitions": lost}),
        api.try_change("POST", f"{CLUSTER}/topics/alone/redrive"),
    ):
        assert (refused.status_code, refused.json()["code"]) == (503, "UNREACHABLE")
        assert "has no leader" in refused.json()["error"]


def test_the_feed_tells_what_was_lost_and_every_page_answers(api: ApiClient) -> None:
    kinds = {each["kind"] for each in api.get(f"{CLUSTER}/events")}
    assert {"broker-gone", "partitions-offline", "isr-shrunk"} <= kinds
    assert {each["id"] for each in api.get(f"{CLUSTER}/brokers")} == {1, 3}
    assert api.get(f"{CLUSTER}/topics", sort="problems", descending=True)["topics"][0]["name"] == "alone"
    for page in ("groups", "topology", "transactions", "clients", "rates", "requests"):
        api.get(f"{CLUSTER}/{page}")
