"""The console's pages about Spark, and its topology, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.rigs.console_browser import go, needs_chromium
from tests.rigs.console_thread import ConsoleThread, console_settings
from tests.rigs.told_queries import running_pipeline, told_query, write_incidents

from tidelog import Producer
from tidelog.testing import broker
from tidelog_rewards.events import DEAD_LETTERS, INCIDENTS

pytestmark = needs_chromium
TOPICS = {"orders": 2, "large-orders": 1, INCIDENTS: 1, DEAD_LETTERS: 1}


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    directory = tmp_path_factory.mktemp("files")
    with broker(topics=TOPICS) as cluster, told_query(cluster, directory / "checkpoints" / "c") as query:
        write_incidents(cluster)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send(DEAD_LETTERS, b"{}")
        query.batch(20)
        settings = console_settings(
            directory / "console", cluster.bootstrap_servers, pipelines=directory / "pipelines"
        )
        with running_pipeline(directory / "pipelines"), ConsoleThread(settings) as running:
            yield running


def test_a_query_is_shown_with_what_it_reads_and_writes(page: Page, console: ConsoleThread) -> None:
    go(page, console, "spark")
    row = page.get_by_role("table", name="Queries").locator("tr", has_text="copies")
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("epoch 0, 20 rows")
    row.get_by_role("link", name="large-orders").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("large-orders")


def test_pipelines_lead_to_their_topics_and_dead_letters(page: Page, console: ConsoleThread) -> None:
    go(page, console, "spark")
    row = page.get_by_role("table", name="Pipelines").locator("tr", has_text="collect")
    expect(row).to_contain_text("running")
    expect(row).to_contain_text("tidelog.credit")
    page.get_by_role("link", name="1 dead letter written").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(DEAD_LETTERS)


def test_alerts_are_chosen_by_state(page: Page, console: ConsoleThread) -> None:
    go(page, console, "spark")
    alerts = page.get_by_role("table", name="Alerts")
    expect(alerts.locator("tbody tr")).to_have_count(2)
    expect(alerts).to_contain_text("device-b2")
    states = page.get_by_label("Alert state")
    expect(states.locator("option").first).to_have_text("active (2)")
    states.select_option("dismissed")
    expect(alerts.locator("tbody tr")).to_have_count(1)
    expect(alerts).to_contain_text("device-d4")
    states.select_option("all")
    page.get_by_label("Search alerts").fill("c3")
    page.get_by_label("Search alerts").press("Enter")
    expect(alerts.locator("tbody tr")).to_have_count(1)
    expect(alerts).to_contain_text("device-c3")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_topology_ends_in_sinks_and_a_click_goes_there(
    page: Page, console: ConsoleThread, theme: str
) -> None:
    page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
    go(page, console, "topology")
    picture = page.locator(".topology svg")
    expect(picture.locator("text.column")).to_have_count(4)
    for name in ("orders", "copies", "collect", "large-orders", "credit", "tidelog.credit"):
        expect(picture.locator("text", has_text=re.compile(f"^{re.escape(name)}$")).first).to_be_visible()
    expect(picture.locator(".edge.good").first).to_be_attached()
    picture.locator("text", has_text=re.compile("^copies$")).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Spark")


def test_pages_about_spark_are_in_chinese_too(page: Page, console: ConsoleThread) -> None:
    go(page, console, "spark")
    page.get_by_label("Language").select_option("zh")
    expect(page.get_by_role("table", name="查询")).to_contain_text("运行中")
