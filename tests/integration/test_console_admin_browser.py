"""The console's administration in a real browser: moving partitions, access, tokens, telemetry, lag."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.console_browser import go, heading, needs_chromium
from tests.rigs.console_thread import ConsoleThread, console_settings
from tests.rigs.sasl_broker import port_of, sasl_broker
from tests.rigs.waiting import wait_until

from tidelog import Admin, Consumer, NewTopic, Producer, TopicPartition
from tidelog.console.settings import ClusterSettings
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from tidelog.testing import LocalBroker, broker
from tidelog.testing.reserved_port import ReservedPort

pytestmark = needs_chromium


def name(stem: str) -> str:
    return f"{stem}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    options = {"replica.fetch.max.bytes": "20000"}
    with ClusterThread(tmp_path_factory.mktemp("three"), 3, options=options) as running:
        yield running


@pytest.fixture(scope="module")
def console(three: ClusterThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    settings = console_settings(tmp_path_factory.mktemp("console"), three.bootstrap)
    with ConsoleThread(settings) as running:
        yield running


def test_partitions_are_moved_by_a_plan_and_the_move_is_cancelled(
    page: Page, console: ConsoleThread, three: ClusterThread
) -> None:
    topic = name("moved")
    with Admin(bootstrap_servers=three.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: [1, 2]})])[0].raise_for_error()
    with Producer(bootstrap_servers=three.bootstrap, linger_ms=0, batch_size=1) as producer:
        for sent in [producer.send(topic, b"x" * 10_000, partition=0) for _ in range(40)]:
            sent.result(timeout=60)
    go(page, console, "topics", topic, "partitions")
    heading(page, topic)
    page.get_by_role("button", name="Reassign").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("1", exact=True).uncheck()
    dialog.get_by_label("Throttle").fill("0.001")
    dialog.get_by_role("button", name="Preview").click()
    plan = page.get_by_role("dialog", name="Reassign partitions: preview")
    expect(plan).to_contain_text("to copy: Broker 3")
    expect(plan).to_contain_text("Limited to 1,000 B/s per broker.")
    plan.get_by_role("button", name="Move partitions").click()
    moves = page.get_by_role("table", name="Reassignments in progress")
    expect(moves).to_be_visible()
    expect(page.get_by_text("Throttled: Broker 1")).to_be_visible()
    page.get_by_role("button", name="Cancel reassignments").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel reassignments").click()
    expect(moves).to_have_count(0)


def test_leaders_are_elected_and_unclean_elections_ask_for_the_name(
    page: Page, console: ConsoleThread, three: ClusterThread
) -> None:
    topic = name("led")
    with Admin(bootstrap_servers=three.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: [1, 2]})])[0].raise_for_error()
    go(page, console, "topics", topic, "partitions")
    page.get_by_role("button", name="Elect leaders").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("No partition needs an election.")
    dialog.get_by_label("New leader").select_option("unclean")
    elect = dialog.get_by_role("button", name="Elect", exact=True)
    expect(elect).to_be_disabled()
    dialog.get_by_label("Name to confirm", exact=True).fill(topic)
    elect.click()
    expect(dialog.locator(".done")).to_have_text("No partition needs an election.")
    dialog.get_by_role("button", name="Close").click()
    page.get_by_label("Language").select_option("zh")
    expect(page.get_by_role("button", name="重新分配")).to_be_visible()
    expect(page.get_by_role("button", name="选举领导者")).to_be_visible()


@pytest.fixture(scope="module")
def guarded() -> Iterator[LocalBroker]:
    options = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with broker(options=options) as running:
        yield running


@pytest.fixture(scope="module")
def guarded_console(
    guarded: LocalBroker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConsoleThread]:
    settings = console_settings(tmp_path_factory.mktemp("guarded"), guarded.bootstrap_servers)
    with ConsoleThread(settings) as running:
        yield running


def test_who_may_do_what_is_explained(
    page: Page, guarded_console: ConsoleThread, guarded: LocalBroker
) -> None:
    pattern = ResourcePattern(ResourceType.TOPIC, "pay", PatternType.PREFIXED)
    rules = [
        AclBinding(pattern, AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)),
        AclBinding(pattern, AclEntry("User:bob", "*", Operation.ALL, Permission.DENY)),
    ]
    with Admin(bootstrap_servers=guarded.bootstrap_servers) as admin:
        for result in admin.create_acls(rules):
            result.raise_for_error()
    go(page, guarded_console, "access")
    page.get_by_role("button", name="Explain").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Principal").fill("User:alice")
    dialog.get_by_label("Name").fill("payments")
    dialog.get_by_label("Operation").select_option("describe")
    explain = dialog.get_by_role("button", name="Explain")
    explain.click()
    answer = dialog.get_by_role("table", name="Result")
    expect(answer).to_contain_text("allowed")
    expect(answer).to_contain_text("User:alice: allow read, topic prefixed pay, *")
    expect(dialog.get_by_text("other principal")).to_be_visible()
    dialog.get_by_label("Principal").fill("User:bob")
    explain.click()
    expect(answer).to_contain_text("User:bob: deny all")
    dialog.get_by_label("Operation").select_option("")
    explain.click()
    expect(answer.get_by_role("row")).to_have_count(9)


def test_a_delegation_token_is_shown_once_and_ended(
    page: Page, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("lending")
    with sasl_broker(directory / "broker", delegation_token_secret_key="brokers-only") as lending:
        options = {
            "bootstrap.servers": f"127.0.0.1:{port_of(lending)}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": "admin-secret",
        }
        settings = console_settings(directory, "", clusters=(ClusterSettings("main", options),))
        with ConsoleThread(settings) as console:
            go(page, console, "access")
            tokens = page.locator("section", has=page.get_by_role("heading", name="Delegation tokens"))
            expect(tokens).to_contain_text("No delegation tokens")
            tokens.get_by_role("button", name="Add").click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_role("button", name="Create").click()
            expect(dialog.locator(".done")).to_contain_text("it is shown only once")
            password = dialog.get_by_label("Password").input_value()
            assert len(password) > 40
            dialog.get_by_role("button", name="Close").click()
            expect(tokens.get_by_role("row")).to_have_count(2)
            assert password not in page.content()
            tokens.get_by_role("button", name="Expire").click()
            page.get_by_role("dialog").get_by_role("button", name="Expire").click()
            expect(tokens).to_contain_text("No delegation tokens")


def test_a_subscription_is_made_and_a_client_shows_its_figures(
    page: Page, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("telemetry")
    with (
        ReservedPort() as metrics,
        broker(options={"metrics.listeners": f"127.0.0.1:{metrics.port}"}, topics=["sold"]) as running,
        ConsoleThread(console_settings(directory, running.bootstrap_servers)) as console,
    ):
        go(page, console, "clients")
        card = page.locator("section", has=page.get_by_role("heading", name="Client metrics subscriptions"))
        expect(card).to_contain_text("No subscriptions")
        card.get_by_role("button", name="Add").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Name", exact=True).fill("fast")
        dialog.get_by_label("Interval (seconds)").fill("0.1")
        dialog.get_by_role("button", name="Save").click()
        expect(card.get_by_role("row")).to_have_count(2)
        with Producer(bootstrap_servers=running.bootstrap_servers, client_id="till") as producer:
            producer.send("sold", b"x").result(60)
            told = page.get_by_role("table", name="Client metrics (KIP-714)").get_by_role("row", name="till")
            expect(told).to_contain_text("Latency")
            told.get_by_role("button", name="All").click()
            expect(page.get_by_role("dialog")).to_contain_text("producer_record_send_total")
            page.get_by_role("dialog").get_by_role("button", name="Close").click()
        card.get_by_role("button", name="Remove").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
        expect(card).to_contain_text("No subscriptions")


def test_the_feed_and_the_group_tell_why_a_group_has_rebalanced(
    page: Page, console: ConsoleThread, three: ClusterThread
) -> None:
    topic, group = name("read"), name("why")
    with Admin(bootstrap_servers=three.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])[0].raise_for_error()
    options: dict[str, Any] = {"bootstrap_servers": three.bootstrap, "group_id": group}
    with Consumer(**options, client_id="first") as first, Consumer(**options, client_id="second") as second:
        first.subscribe([topic])
        wait_until(lambda: (first.poll(0.05), first.assignment())[1], "partitions")
        go(page, console, "groups", group)
        expect(page.get_by_role("cell", name="first", exact=True).first).to_be_visible()
        expect(page.get_by_text("No rebalances since the console started monitoring")).to_be_visible()
        with console.client() as api:
            api.wait_for_look()
        second.subscribe([topic])
        wait_until(lambda: (first.poll(0.05), second.poll(0.05), second.assignment())[2], "a share")
        expect(page.get_by_text("1 joined (second (127.0.0.1))")).to_be_visible()
        go(page, console, "overview")
        expect(page.get_by_text(f"Group {group} rebalanced: 1 joined")).to_be_visible()
        page.get_by_label("Language").select_option("zh")
        expect(page.get_by_text("1 个成员加入")).to_be_visible()


def test_a_group_shows_the_lag_of_its_partitions_over_time(
    page: Page, console: ConsoleThread, three: ClusterThread
) -> None:
    topic, group = name("slow"), name("behind")
    with Admin(bootstrap_servers=three.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])[0].raise_for_error()
        with Producer(bootstrap_servers=three.bootstrap) as producer:
            for partition in (0, 1, 1):
                producer.send(topic, b"x", partition=partition)
        for result in admin.alter_group_offsets(group, {TopicPartition(topic, each): 0 for each in (0, 1)}):
            result.raise_for_error()
    go(page, console, "groups", group)
    card = page.locator("section", has=page.get_by_role("heading", name="Lag by partition"))
    expect(card.locator(".legend")).to_contain_text("partition 1")
    expect(card.locator(".legend")).to_contain_text("partition 0")
    card.get_by_label("Partition", exact=True).select_option("0")
    expect(card.locator(".legend")).to_have_count(0)
    expect(card.locator(".chart .line")).to_have_count(1)
