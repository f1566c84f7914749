"""What metrics and quotas cost: broker CPU per produce and fetch request, with and without them.

The requests of *request cost* go to brokers that run at the same time and take turns: one at defaults, one
whose metrics are scraped every five seconds, one with byte-rate quotas that no client reaches. The baseline
is a copy of the same commit without the lines that count requests and check quotas. Goals: 1 % at defaults, 2
% when scraped.
"""

from __future__ import annotations

import shutil
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from foreign.broker_process import BrokerProcess, Tidelog, free_port

import tidelog
from benchmarks import request_turns
from benchmarks.contestants import make, scratch
from benchmarks.figures import Figures
from tidelog.client import Admin
from tidelog.client.admin.quotas import QuotaAlteration

NAME = "observing"
SCRAPE_S = 5.0
OUT_OF_REACH = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12}
_TIMEOUT_S = 10.0

LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    "broker/handlers/produce.py": {
        "                partition.counts.produce_requests += 1\n": "",
        "if quotas.request is not None:\n            if": "if False:\n            if",
        "not quotas.on_produce\n": "True\n",
    },
    "broker/handlers/fetch.py": {
        "        partition.counts.bytes_out += found.length\n": "",
        "payer = self._payer(connection, frame, request) if self._quotas.on_fetch else None": "payer = None",
    },
    "broker/exchange/dispatch.py": {"request_time = self.request_time\n": "request_time = None\n"},
    "replication/partition.py": {"        self.counts.fetch_requests += 1\n": ""},
    "broker/network/connection.py": {"observer = self._network.observer\n": "observer = None\n"},
}
"""By file: what stands there on the way of a usual request, and what is put in its place."""


class BareTidelog(Tidelog):
    """A broker of this commit that neither counts nor looks at quotas."""

    def prepare(self) -> None:
        """Copy the code, and leave out what is to be measured; what is not there any more is an error."""
        copy = self.directory / "code" / "tidelog"
        shutil.copytree(Path(tidelog.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for name, replaced in LEFT_OUT.items():
            code = (copy / name).read_text("utf-8")
            for old, new in replaced.items():
                if code.count(old) != 1:
                    raise RuntimeError(f"{name} has {old.strip()!r} {code.count(old)} times, not once")
                code = code.replace(old, new)
            (copy / name).write_text(code, "utf-8")

    def environment(self) -> dict[str, str]:
        """That of every broker, with the copy before the package that is installed."""
        code = self.directory / "code"
        return {
            **super().environment(),
            "PYTHONPATH": str(code),
            "PYTHONPYCACHEPREFIX": str(code / "pycache"),
        }


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    with ExitStack() as stack:
        place = stack.enter_context(scratch(root))
        port = free_port()
        brokers = {
            "without either": BareTidelog(place / "bare"),
            "as it comes": make(contestant, place / "usual"),
            "scraped": make(contestant, place / "scraped", {"metrics.listeners": f"127.0.0.1:{port}"}),
            "quotas": make(contestant, place / "quotas"),
        }
        for broker in brokers.values():
            stack.callback(broker.kill)
            broker.start()
        _limit(brokers["quotas"])
        stack.enter_context(_scraped(port))
        turns, requests = (3, 2000) if quick else (24, 24_000)
        request_turns.compare(NAME, contestant, brokers, figures, turns=turns, requests=requests)


def _limit(broker: BrokerProcess) -> None:
    with Admin(bootstrap_servers=broker.address) as admin:
        (result,) = admin.alter_client_quotas([QuotaAlteration({"client-id": None}, OUT_OF_REACH)])
        result.raise_for_error()


@contextmanager
def _scraped(port: int) -> Iterator[None]:
    """Scrape the metrics now and then; a scrape that fails ends in an error."""
    ended = threading.Event()
    failed: list[Exception] = []

    def scrape() -> None:
        while not failed and not ended.wait(SCRAPE_S):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_TIMEOUT_S).read()
            except Exception as error:
                failed.append(error)

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failed:
        raise failed[0]
