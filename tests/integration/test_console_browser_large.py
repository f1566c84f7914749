"""The console's pages of a large cluster in a real browser: two thousand topics, two hundred groups."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.rigs.console_browser import go, heading, needs_chromium
from tests.rigs.console_thread import ConsoleThread, console_settings

from tidelog import TopicPartition
from tidelog.testing import LocalBroker, broker

pytestmark = needs_chromium
TOPICS, GROUPS = 2000, 200
SHOWN_TOPICS, SHOWN_GROUPS = 40, 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with broker(topics=[topic(number) for number in range(TOPICS)]) as running:
        for number in range(GROUPS):
            running.admin.alter_group_offsets(group(number), {TopicPartition(topic(number), 0): 0})
        yield running


@pytest.fixture(scope="module")
def console(cluster: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    settings = console_settings(tmp_path_factory.mktemp("console"), cluster.bootstrap_servers)
    with ConsoleThread(settings) as running:
        yield running


def topic(number: int) -> str:
    return f"orders.of.a.shop.with.a.long.name.{number:04}"


def group(number: int) -> str:
    return f"readers-{number:03}"


def test_two_thousand_topics_are_paged_searched_and_starred(page: Page, console: ConsoleThread) -> None:
    go(page, console, "topics")
    rows = page.locator("tbody tr")
    expect(page.get_by_text(f"1–100 of {TOPICS:,}")).to_be_visible()
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text(f"101–200 of {TOPICS:,}")).to_be_visible()
    page.keyboard.press("/")
    search = page.get_by_label("Search topics")
    expect(search).to_be_focused()
    search.fill("name.19")
    expect(page.get_by_text(f"100 of {TOPICS:,} topics")).to_be_visible()
    search.fill(topic(1999))
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Favorite").click()
    search.fill("")
    page.get_by_label("Favorites", exact=True).check()
    expect(rows).to_have_count(1)
    page.get_by_role("link", name=topic(1999)).click()
    heading(page, topic(1999))


def test_a_button_that_is_held_down_while_the_page_is_drawn_anew_is_pressed(
    page: Page, console: ConsoleThread
) -> None:
    go(page, console, "topics")
    expect(page.get_by_text(f"1–100 of {TOPICS:,}")).to_be_visible()
    page.get_by_role("button", name="Next").hover()
    page.mouse.down()
    # A look at so many topics takes long where the machine is busy, and the next one comes the later for it.
    for _ in range(2):
        with page.expect_response(lambda answer: "/topics?" in answer.url, timeout=75_000):
            pass
    page.mouse.up()
    expect(page.get_by_text(f"101–200 of {TOPICS:,}")).to_be_visible()


def test_two_hundred_groups_are_paged_and_searched(page: Page, console: ConsoleThread) -> None:
    go(page, console, "groups")
    rows = page.locator("tbody tr")
    expect(page.get_by_text(f"1–100 of {GROUPS}")).to_be_visible()
    expect(rows).to_have_count(100)
    page.get_by_label("Search groups").fill(group(199))
    expect(rows).to_have_count(1)
    page.get_by_role("link", name=group(199)).click()
    heading(page, group(199))
    expect(page.get_by_text(topic(199)).first).to_be_visible()


def test_the_overview_and_the_picture_of_a_large_cluster_stay_readable(
    page: Page, console: ConsoleThread
) -> None:
    go(page, console, "overview")
    heading(page, "Overview")
    # With the internal one that keeps the offsets.
    expect(page.locator(".tile", has_text="Topics")).to_contain_text(f"{TOPICS + 1:,}")
    expect(page.locator(".tile", has_text="Groups")).to_contain_text(str(GROUPS))
    go(page, console, "topology")
    expect(page.get_by_text(f"{TOPICS - SHOWN_TOPICS:,} less active topics are not shown.")).to_be_visible()
    boxes = page.locator(".topology a")
    expect(boxes).to_have_count(2 * SHOWN_TOPICS)


def test_no_more_groups_and_producers_than_a_picture_holds_are_drawn(
    page: Page, console: ConsoleThread, cluster: LocalBroker
) -> None:
    everybody = {f"of-one-topic-{number:03}" for number in range(GROUPS)}
    for each in everybody:
        cluster.admin.alter_group_offsets(each, {TopicPartition(topic(0), 0): 0})
    go(page, console, "topology")
    boxes = page.locator(".topology a", has_text="of-one-topic-")
    expect(page.get_by_text("less active groups are not shown.")).to_be_visible()
    assert 0 < boxes.count() <= SHOWN_GROUPS
