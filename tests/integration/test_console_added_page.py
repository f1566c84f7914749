"""A page of another package in the console: its endpoint answers, its script draws in a real browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.rigs.console_browser import needs_chromium
from tests.rigs.console_thread import ConsoleThread, console_settings

from tidelog import extensions
from tidelog.testing import broker

PAGE = """
from pathlib import Path

from tidelog.console.api.endpoint import Call, Nothing, reads
from tidelog.console.extension import ConsolePage


@reads("/clusters/{cluster}/words", "Words.", Nothing)
async def words(call: Call, asked: Nothing) -> list[str]:
    return ["tea", "coffee"]


WORDS = ConsolePage(endpoints=(words,), title="Words", script=Path(__file__).with_name("words.js"))
"""
SCRIPT = """
import { get } from "/static/api.js";
import { h } from "/static/dom.js";

export async function show(view) {
  const words = await get(view.path("words"), {}, view.signal);
  view.root.append(h("h1", {}, "Words"), h("p", { id: "words" }, words.join(" and ")));
}
"""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleThread]:
    """With a foreign package installed, in a directory of its own."""
    directory = tmp_path_factory.mktemp("console")
    site = directory / "site"
    info = site / "words_page-1.dist-info"
    info.mkdir(parents=True)
    (site / "words_page.py").write_text(PAGE)
    (site / "words.js").write_text(SCRIPT)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: words-page\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tidelog.console_pages]\nwords = words_page:WORDS\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        forget()
        with (
            broker() as cluster,
            ConsoleThread(console_settings(directory, cluster.bootstrap_servers)) as running,
        ):
            yield running
    forget()


def forget() -> None:
    """Look for installed packages again."""
    extensions.extensions.cache_clear()
    extensions.loaded.cache_clear()


def test_its_endpoint_is_part_of_the_api(console: ConsoleThread) -> None:
    with console.client() as client:
        [page] = client.get("/session")["pages"]
        assert page == {"name": "words", "title": "Words", "script": "/pages/words/words.js"}
        assert client.get("/clusters/main/words") == ["tea", "coffee"]


@needs_chromium
def test_its_script_draws_a_page(console: ConsoleThread, page: Page) -> None:
    page.goto(console.url)
    page.get_by_role("link", name="Words").click()
    expect(page.locator("#words")).to_have_text("tea and coffee")
