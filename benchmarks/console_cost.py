"""What the console costs beside a large cluster: `python -m benchmarks console --topics 2000 --groups 500`.

"up" is the time from the launch of the process until it answers; "first paint" that from opening its address
in a fresh browser profile until the first topics, or the figures of the overview, are on the screen. CPU is
what the broker and the console take while a page is open, and what the broker took before there was a console
is subtracted. Needs Chromium.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from foreign.broker_process import free_port
from playwright.sync_api import Page, sync_playwright

from benchmarks.contestants import scratch
from tidelog import Admin, NewTopic, TopicPartition
from tidelog.testing.broker_process import BrokerProcess

BATCH = 200
_TICKS = os.sysconf("SC_CLK_TCK")
_MB = 1_000_000
_WAIT_S = 60.0
PAGES = {"overview": ".tile .value", "topics": "tbody tr"}
"""The pages that are opened, and what has to be seen of them."""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks console", description=__doc__)
    parser.add_argument("--topics", type=int, default=2000, help="default: %(default)s")
    parser.add_argument("--groups", type=int, default=500, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=int, default=60, help="how long CPU is watched (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=5, help="starts and paints (default: %(default)s)")
    parser.add_argument(
        "--data-root", type=Path, default=Path("/dev/shm"), help="where data goes (default: %(default)s)"
    )
    asked = parser.parse_args(given)
    with scratch(asked.data_root) as root, BrokerProcess(root / "broker") as broker:
        _fill(broker.bootstrap, asked.topics, asked.groups)
        time.sleep(5)
        (at_rest,) = _cpu_shares(asked.seconds, broker.pid)
        ups: list[float] = []
        paints: dict[str, list[float]] = {name: [] for name in PAGES}
        for number in range(asked.rounds):
            with _console(broker.bootstrap, root / f"console-{number}") as console:
                ups.append(console.up_s)
                for name in PAGES:
                    paints[name].append(_paint_s(console.url, name))
        with _console(broker.bootstrap, root / "console") as console, _page() as page:
            _open(page, console.url, "topics")
            time.sleep(10)
            of_broker, of_console = _cpu_shares(asked.seconds, broker.pid, console.pid)
            resident_mb = _resident_mb(console.pid)
    print(f"{asked.topics:,} topics, {asked.groups:,} groups; medians of {asked.rounds} (least…greatest)")
    print(f"  up                       {_spread(ups)} s")
    for name, seconds in paints.items():
        print(f"  first paint of {name:9} {_spread(seconds)} s")
    print(f"  CPU of the broker        {of_broker - at_rest:.2f} % of a core, at rest {at_rest:.2f} %")
    print(f"  CPU of the console       {of_console:.2f} % of a core")
    print(f"  memory of the console    {resident_mb:.0f} MB")
    return 0


def _fill(bootstrap: str, topics: int, groups: int) -> None:
    names = [f"topic-{number:05}" for number in range(topics)]
    with Admin(bootstrap_servers=bootstrap) as admin:
        for start in range(0, topics, BATCH):
            for result in admin.create_topics([NewTopic(name) for name in names[start : start + BATCH]]):
                result.raise_for_error()
        for number in range(groups):
            place = TopicPartition(names[number % topics], 0)
            admin.alter_group_offsets(f"group-{number:05}", {place: 0})


class _Console(NamedTuple):
    url: str
    up_s: float
    pid: int


@contextmanager
def _console(bootstrap: str, directory: Path) -> Iterator[_Console]:
    port = free_port()
    command = [sys.executable, "-m", "tidelog", "console", "--bootstrap-server", bootstrap]
    command += ["--listen", f"127.0.0.1:{port}", "--data-dir", str(directory)]
    url = f"http://127.0.0.1:{port}"
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not _answers(url):
                if process.poll() is not None or time.perf_counter() - began > _WAIT_S:
                    raise RuntimeError("the console does not start")
                time.sleep(0.01)
            yield _Console(url, time.perf_counter() - began, process.pid)
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/static/index.html", timeout=5) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except (urllib.error.URLError, ConnectionError):
        return False


@contextmanager
def _page() -> Iterator[Page]:
    """A page of a browser that has seen nothing yet."""
    with sync_playwright() as playwright:
        # Benchmarks run as whoever runs them, in containers as root, where Chromium's sandbox does not start.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(viewport={"width": 1280, "height": 900})
        browser.close()


def _open(page: Page, url: str, name: str) -> None:
    page.goto(f"{url}/static/index.html#/default/{name}")
    page.locator(PAGES[name]).first.wait_for(timeout=_WAIT_S * 1000)


def _paint_s(url: str, name: str) -> float:
    with _page() as page:
        began = time.perf_counter()
        _open(page, url, name)
        return time.perf_counter() - began


def _cpu_shares(seconds: int, *processes: int) -> list[float]:
    """What part of a core, in percent, each process takes for a while."""
    began, before = time.monotonic(), [_cpu_s(each) for each in processes]
    time.sleep(seconds)
    took = time.monotonic() - began
    return [100 * (_cpu_s(each) - used) / took for each, used in zip(processes, before, strict=True)]


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:13]) / _TICKS


def _resident_mb(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / _MB


def _spread(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f}…{max(seconds):.2f})"
