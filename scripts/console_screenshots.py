"""Take the pictures of ``docs/how-to/console.md``: ``python -m scripts.console_screenshots``.

Without an address it starts a small cluster with traffic of its own (``console_demo_cluster``); otherwise
``URL CLUSTER`` name a console that runs already, best with a topic ``orders`` and a group ``shipping``. Needs
a Chromium on this machine. ``--all DIR`` takes every page there, light and dark, in English and in Chinese;
``--gallery`` those in English for ``docs/console/pages.md``, which it writes, too. Without either the few
that the document shows go into ``docs/console``, those of pipelines only from a console over ``make run``.
All are PNGs of 256 colours, and one that is larger than ``LARGEST_BYTES`` is refused: the repository stays
light.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, Page, expect, sync_playwright
from scripts.console_demo_cluster import CLUSTER, demo_console
from scripts.palette_png import palette_png

DOCUMENT = Path(__file__).parent.parent / "docs" / "console"
GALLERY = DOCUMENT / "pages"
PAGES = (
    "overview",
    "topology",
    "topics",
    "topics/orders",
    "topics/orders/partitions",
    "topics/orders/configs",
    "topics/orders/groups",
    "topics/orders_dead_letters",
    "topics/no-such-topic",
    "groups",
    "groups/shipping",
    "spark",
    "brokers",
    "brokers/1",
    "clients",
    "transactions",
    "access",
    "audit",
)
LANGUAGES = ("en", "zh")
THEMES = ("light", "dark")
WIDTH, HEIGHT = 1280, 760
SETTLED_MS = 1500
WAIT_MS = 60_000
TRAFFIC_S = 40.0
LARGEST_BYTES = 120_000
# The browser has a decoder of PNG, and we need none.
PIXELS = """async (data) => {
  const picture = await createImageBitmap(await (await fetch(`data:image/png;base64,${data}`)).blob());
  const canvas = new OffscreenCanvas(picture.width, picture.height);
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const pixels = context.getImageData(0, 0, picture.width, picture.height).data;
  let text = "";
  for (let at = 0; at < pixels.length; at += 32768) {
    text += String.fromCharCode(...pixels.subarray(at, at + 32768));
  }
  return btoa(text);
}"""


class Picture(NamedTuple):
    """One page, and how it is shown."""

    page: str
    file: Path
    theme: str = "light"
    language: str = "en"
    prepare: Callable[[Page], None] | None = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", help="a console that runs already; without it one is started")
    parser.add_argument("cluster", nargs="?", default=CLUSTER)
    parser.add_argument("--all", type=Path, help="take every page into this directory, and leave docs/ alone")
    parser.add_argument("--pages", default="", help="with --all: only pages whose names have this in them")
    parser.add_argument("--gallery", action="store_true", help="take every page for docs/console/pages.md")
    arguments = parser.parse_args()
    expect.set_options(timeout=WAIT_MS)
    chosen = gallery() if arguments.gallery else wanted(arguments.all, arguments.url is not None)
    pictures = [each for each in chosen if arguments.pages in each.page]
    with contextlib.ExitStack() as stack:
        url = arguments.url or stack.enter_context(demo_console(TRAFFIC_S))
        root = f"{url.rstrip('/')}/static/index.html#/{arguments.cluster}"
        playwright = stack.enter_context(sync_playwright())
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for each in pictures:
            take(browser, root, each)
            print(f"{each.file} ({each.file.stat().st_size // 1024} KiB)", flush=True)
        browser.close()
    if arguments.gallery:
        DOCUMENT.joinpath("pages.md").write_text(gallery_text(), encoding="utf-8")


def gallery() -> list[Picture]:
    """Every page in English, light and dark."""
    return [Picture(page, _in_gallery(page, theme), theme) for page in PAGES for theme in THEMES]


def gallery_text() -> str:
    """The document that shows them."""
    shown = [
        f"| `{page}` | "
        + " | ".join(f"![{page}, {theme}](pages/{_in_gallery(page, theme).name})" for theme in THEMES)
        + " |"
        for page in PAGES
    ]
    return "\n".join(
        [
            "# Every page of the console",
            "",
            "Made by `python -m scripts.console_screenshots --gallery` from a small cluster of its own; what",
            "each page is for is in [the console](../how-to/console.md).",
            "",
            f"| page | {' | '.join(THEMES)} |",
            f"|---|{'---|' * len(THEMES)}",
            *shown,
            "",
        ]
    )


def _in_gallery(page: str, theme: str) -> Path:
    return GALLERY / f"{page.replace('/', '-')}-{theme}.png"


def wanted(directory: Path | None, has_pipelines: bool) -> list[Picture]:
    """The pictures of the document, or all."""
    if directory is None:
        of_pipelines = [
            Picture("topology", DOCUMENT / "topology.png"),
            Picture("spark", DOCUMENT / "spark.png", "dark"),
        ]
        return [
            Picture("overview", DOCUMENT / "overview.png"),
            Picture("topics/orders", DOCUMENT / "messages.png", prepare=open_a_record),
            Picture("groups/shipping", DOCUMENT / "group.png", "dark"),
            *(of_pipelines if has_pipelines else ()),
        ]
    return [
        Picture(page, directory / f"{language}-{theme}-{page.replace('/', '-')}.png", theme, language)
        for language in LANGUAGES
        for theme in THEMES
        for page in PAGES
    ]


def take(browser: Browser, root: str, picture: Picture) -> None:
    """Open the page, wait until it is there, and write the file."""
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme="dark" if picture.theme == "dark" else "light",
        locale="zh-CN" if picture.language == "zh" else "en-GB",
    )
    page = context.new_page()
    page.goto(f"{root}/{picture.page}")
    expect(page.get_by_role("heading", level=1).or_(page.locator(".refusal")).first).to_be_visible()
    page.wait_for_timeout(SETTLED_MS)
    if picture.prepare is not None:
        picture.prepare(page)
        page.wait_for_timeout(SETTLED_MS)
    shot = page.screenshot()
    blank = context.new_page()
    pixels = base64.b64decode(blank.evaluate(PIXELS, base64.b64encode(shot).decode()))
    context.close()
    file = palette_png(pixels, WIDTH, HEIGHT)
    if len(file) > LARGEST_BYTES:
        raise SystemExit(
            f"{picture.file} has {len(file)} bytes; {LARGEST_BYTES} are the most: show less on it"
        )
    picture.file.parent.mkdir(parents=True, exist_ok=True)
    picture.file.write_bytes(file)


def open_a_record(page: Page) -> None:
    page.get_by_label("Filter").fill("value.price > 300")
    page.get_by_role("button", name="Search").click()
    page.wait_for_timeout(SETTLED_MS)
    page.locator(".records > tbody > tr").nth(1).click()


if __name__ == "__main__":
    main()
