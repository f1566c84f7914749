"""Take the pictures of ``docs/console.md``: ``python scripts/console_screenshots.py URL CLUSTER``.

The console has to run already, best over ``make run`` with traffic of its own (a topic ``orders``, a group
``shipping``). Needs a Chromium on this machine. ``--all DIR`` takes every page there, light and dark; without
it the few that the document shows go into ``docs/console``.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

DOCUMENT = Path(__file__).parent.parent / "docs" / "console"
PAGES = (
    "overview",
    "topology",
    "topics",
    "topics/orders",
    "topics/orders/partitions",
    "topics/orders/configs",
    "topics/orders/groups",
    "groups",
    "groups/shipping",
    "spark",
    "brokers",
    "clients",
    "transactions",
    "access",
    "audit",
)
SETTLED_MS = 1500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("cluster")
    parser.add_argument("--all", type=Path, help="take every page into this directory, and leave docs/ alone")
    arguments = parser.parse_args()
    root = f"{arguments.url.rstrip('/')}/static/index.html#/{arguments.cluster}"
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        if arguments.all is not None:
            for theme in ("light", "dark"):
                for page in PAGES:
                    take(
                        browser,
                        f"{root}/{page}",
                        arguments.all / f"{theme}-{page.replace('/', '-')}.png",
                        theme,
                    )
        else:
            take(browser, f"{root}/overview", DOCUMENT / "overview.png", "light")
            take(browser, f"{root}/topics/orders", DOCUMENT / "messages.png", "light", open_a_record)
            take(browser, f"{root}/groups/shipping", DOCUMENT / "group.png", "dark")
            take(browser, f"{root}/topology", DOCUMENT / "topology.png", "light")
            take(browser, f"{root}/spark", DOCUMENT / "spark.png", "dark")
        browser.close()


def take(
    browser: Browser, address: str, path: Path, theme: str, prepare: Callable[[Page], None] | None = None
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    context = browser.new_context(
        viewport={"width": 1280, "height": 760},
        color_scheme="dark" if theme == "dark" else "light",
        locale="en-GB",
    )
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(SETTLED_MS)
    if prepare is not None:
        prepare(page)
        page.wait_for_timeout(SETTLED_MS)
    page.screenshot(path=path)
    context.close()


def open_a_record(page: Page) -> None:
    page.get_by_label("Filter").fill("value.price > 300")
    page.get_by_role("button", name="Search").click()
    page.wait_for_timeout(SETTLED_MS)
    page.locator(".records tbody tr").nth(1).click()


if __name__ == "__main__":
    main()
