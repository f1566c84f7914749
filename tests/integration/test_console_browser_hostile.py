"""What strangers write, in a real browser: shown as it is, inert, and without harm to the page."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.rigs.console_browser import go, needs_chromium
from tests.rigs.console_thread import ConsoleThread, console_settings

from tidelog import Producer, TopicPartition
from tidelog.client.admin.admin import Admin
from tidelog.testing import LocalBroker, broker

pytestmark = needs_chromium
OWN = "document.body.dataset.owned = 1"
GROUPS = (
    f'<img src=x onerror="{OWN}">',
    f"javascript:{OWN}",
    "reversed \u202egnihtemos",
    "hidden \U000e0041\u3164\u2066 letters",
    "../../etc/passwd?x#y%2e",
    "line\nend\x00nul",
    "g" * 249,
)
EXACT = '{"id": 9007199254740993, "amount": 1.10, "huge": 1e400, "fine": 7}'
TEXTS = (
    f'<script>{OWN}</script><a href="javascript:{OWN}">x</a>',
    json.dumps({"__proto__": {"polluted": 1}, "constructor": "<b>", "\u202e": "\u2066"}),
    '{"alone": "\\ud800"}',
    "\ufeff=cmd|' /C calc'!A0",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalBroker]:
    with broker(topics=["exact", "odd", "texts"]) as running:
        with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
            producer.send("exact", EXACT.encode())
            producer.send("odd", "\x01\u202e".encode() * 200_000)
            for each in TEXTS:
                headers = [(each[:50], each.encode()), ("", b""), ("none", None)]
                producer.send("texts", each.encode(), key=each.encode(), headers=headers)
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            for group in GROUPS:
                for result in admin.alter_group_offsets(group, {TopicPartition("texts", 0): 1}):
                    result.raise_for_error()
        yield running


@pytest.fixture(scope="module")
def console(cluster: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    settings = console_settings(tmp_path_factory.mktemp("console"), cluster.bootstrap_servers)
    with ConsoleThread(settings) as running:
        yield running


def is_owned(page: Page) -> bool:
    return bool(page.evaluate("document.body.dataset.owned || ({}).polluted"))


def test_names_of_groups_are_shown_whole_and_lead_to_their_pages(page: Page, console: ConsoleThread) -> None:
    go(page, console, "groups")
    expect(page.locator("tbody tr")).to_have_count(len(GROUPS))
    for text in ("U+202E", "U+E0041", "U+3164", "U+2066", "U+0000"):
        expect(page.locator("tbody .odd", has_text=text)).to_have_count(1)
    links = page.locator("tbody a").evaluate_all("links => links.map((each) => each.getAttribute('href'))")
    assert len(links) == len(GROUPS)
    assert all(each.startswith("#/main/groups/") for each in links)
    for link in links:
        page.goto(f"{console.url}/static/index.html{link}")
        expect(page.get_by_role("heading", level=1)).not_to_contain_text("Groups")
        expect(page.locator(".page > .refusal")).to_have_count(0)
        expect(page.get_by_text("texts", exact=True).first).to_be_visible()
    assert not is_owned(page)


def test_the_topology_shows_characters_that_cannot_be_seen_and_stays_in_its_boxes(
    page: Page, console: ConsoleThread
) -> None:
    go(page, console, "topology")
    expect(page.locator("svg text", has_text="U+202E")).to_have_count(1)
    expect(page.locator("svg text", has_text="U+E0041")).to_have_count(1)
    assert "\u202e" not in page.locator(".topology").inner_text()
    # Asked in one step: the page draws itself anew, and what was taken out of it has no style.
    page.wait_for_function(
        """() => {
            const drawn = [...document.querySelectorAll(".topology a > svg")];
            return drawn.length > 0 && drawn.every((each) => getComputedStyle(each).overflowX === "hidden");
        }"""
    )
    assert not is_owned(page)


def test_numbers_are_shown_with_all_their_digits(page: Page, console: ConsoleThread) -> None:
    go(page, console, "topics/exact")
    page.locator(".records tbody tr").first.click()
    digits = page.locator(".json .n")
    expect(digits).to_have_text(["9007199254740993", "1.10", "1e400", "7"])


def test_a_megabyte_of_control_characters_is_shown_and_leaves_the_page_alive(
    page: Page, console: ConsoleThread
) -> None:
    go(page, console, "topics/odd")
    page.locator(".records tbody tr").first.click()
    page.get_by_role("button", name="Load full message").click()
    expect(page.get_by_role("button", name="Load full message")).to_have_count(0)
    assert page.evaluate("document.querySelectorAll('*').length") < 10_000
    expect(page.locator(".detail pre")).to_contain_text("U+0001")
    assert "\u202e" not in page.locator(".detail pre").inner_text()


def test_hostile_records_are_shown_as_they_are(page: Page, console: ConsoleThread) -> None:
    go(page, console, "topics/texts")
    rows = page.locator(".records > tbody > tr:not(.detail)")
    expect(rows).to_have_count(len(TEXTS))
    for number in range(len(TEXTS)):
        rows.nth(number).click()
    expect(page.locator(".detail")).to_have_count(len(TEXTS))
    expect(page.locator(".detail .k", has_text="__proto__").first).to_be_visible()
    expect(page.locator(".detail td", has_text="calc").first).to_be_visible()
    assert page.locator('.page a[href*="javascript"]').count() == 0
    assert not is_owned(page)
