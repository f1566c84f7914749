"""The machine's Chromium, driven by Playwright, for the console's pages.

Where there is none these tests are skipped, but for `.ci/run`, which installs one and says so
(``TIDELOG_BROWSER=required``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.rigs.console_thread import ConsoleThread

WAIT_MS = 60_000
CHROMIUM = next(
    filter(
        None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))
    ),
    None,
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None and os.environ.get("TIDELOG_BROWSER") != "required",
    reason="there is no Chromium: install the package chromium, or Google Chrome",
)


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser for a module's tests."""
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        # Tests run as whoever runs them, in containers as root, where Chromium's own sandbox does not start.
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@contextmanager
def open_page(browser: Browser) -> Iterator[Page]:
    """A page in a browser profile of its own; errors of scripts fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    context.set_default_timeout(WAIT_MS)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on(
        "console", lambda said: errors.append(said.text) if "Content Security Policy" in said.text else None
    )
    yield opened
    context.close()
    assert not errors, f"scripts of the page failed: {errors}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for the tests of a module."""
    with running_browser() as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own for each test."""
    with open_page(browser) as opened:
        yield opened


def go(page: Page, console: ConsoleThread, *parts: str) -> None:
    """Open a page of the cluster ``main``."""
    page.goto(f"{console.url}/static/index.html#/main/{'/'.join(parts)}")


def heading(page: Page, text: str) -> None:
    """Wait for the page's title."""
    expect(page.get_by_role("heading", level=1)).to_contain_text(text)
