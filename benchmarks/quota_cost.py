"""What each kind of quota costs: broker CPU per produce and fetch request, with and without quotas.

The quotas of one broker change between turns: each turn with quotas that no client reaches is compared with
the neighboring turn without quotas; the figure is the median. The requests are those of *request cost*.
Quotas are byte rates, request_percentage, and both, for the default client id; both also for a user, a client
id, and a user with a client id. Goal: 10 %.

`quota-instructions` counts instructions under `valgrind` instead. It works on a busy machine but leaves out
the kernel's part of a request, which quotas do not change.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from foreign.broker_process import BrokerProcess, Tidelog

from benchmarks import pipeline
from benchmarks.contestants import started
from benchmarks.figures import Figures
from benchmarks.request_turns import DEPTHS, Load, loads
from tidelog.client import Admin
from tidelog.client.admin.quotas import QuotaAlteration

NAME = "quota cost"
Entity = Mapping[str, str | None]

BYTES: Mapping[str, float] = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12}
TIME: Mapping[str, float] = {"request_percentage": 1e9}
DEFAULT_CLIENT: Entity = {"client-id": None}
# The client id is that of `wire`.
QUOTAS: Mapping[str, tuple[Entity, Mapping[str, float]]] = {
    "byte rates": (DEFAULT_CLIENT, BYTES),
    "request_percentage": (DEFAULT_CLIENT, TIME),
    "both": (DEFAULT_CLIENT, {**BYTES, **TIME}),
    "both, client id": ({"client-id": "bench"}, {**BYTES, **TIME}),
    "both, user": ({"user": "ANONYMOUS"}, {**BYTES, **TIME}),
    "both, user and client id": ({"user": "ANONYMOUS", "client-id": "bench"}, {**BYTES, **TIME}),
}


def measure(contestant: str, root: Path, figures: Figures, *, quick: bool) -> None:
    turns, requests = (3, 4000) if quick else (12, 24_000)
    with started(contestant, root) as broker:
        compare(NAME, contestant, broker, figures, turns=turns, requests=requests, unit="µs", per=1e6)


def compare(
    name: str,
    contestant: str,
    broker: BrokerProcess,
    figures: Figures,
    *,
    turns: int,
    requests: int,
    unit: str,
    per: float,
) -> None:
    for depth in DEPTHS:
        for load in loads(requests):
            plain, more = _in_turns(broker, load, depth, turns)
            label = f"{load[0]}, {depth} in flight"
            figures.add(name, contestant, f"{label}, without quotas", plain * per, unit, "lower")
            for quota, percent in more.items():
                figures.add(name, contestant, f"more for {label}, {quota}", percent, "%", "lower")


def _in_turns(broker: BrokerProcess, load: Load, depth: int, turns: int) -> tuple[float, Mapping[str, float]]:
    """The cost of a request without quotas, and how much more it is with each; the first turn warms up."""
    title, lanes_of, error_at = load
    lanes = lanes_of(broker, f"quota-{title.replace(' ', '-')}-{depth}")
    # Sequence numbers go on: each part of a turn sends the next part of what is prepared.
    part = len(lanes[0]) // ((turns + 1) * 2 * len(QUOTAS))
    sent = 0

    def cost() -> float:
        nonlocal sent
        mine = [lane[sent : sent + part] for lane in lanes]
        sent += part
        before = broker.cpu_seconds()
        done = pipeline.run(broker.port, mine, depth, error_at)
        return (broker.cpu_seconds() - before) / done.requests

    plain: list[float] = []
    more: dict[str, list[float]] = {quota: [] for quota in QUOTAS}
    with Admin(bootstrap_servers=broker.address) as admin:
        for turn in range(turns + 1):
            for quota, (entity, limits) in QUOTAS.items():
                without = cost()
                _set(admin, entity, limits)
                limited = cost()
                _set(admin, entity, dict.fromkeys(limits))
                if turn:
                    plain.append(without)
                    more[quota].append(100 * (limited / without - 1))
    return statistics.median(plain), {quota: statistics.median(each) for quota, each in more.items()}


def _set(admin: Admin, entity: Entity, limits: Mapping[str, float | None]) -> None:
    (result,) = admin.alter_client_quotas([QuotaAlteration(entity, limits)])
    result.raise_for_error()


class CountedTidelog(Tidelog):
    """A broker whose CPU is counted in instructions."""

    startup_timeout_s = 300.0
    _counted = 0
    _dumps = 0

    def command(self) -> list[str]:
        out = f"--callgrind-out-file={self.directory / 'callgrind.out'}"
        return ["valgrind", "--tool=callgrind", out, *super().command()]

    def cpu_seconds(self) -> float:
        """The instructions so far."""
        self._dumps += 1
        subprocess.run(
            ["callgrind_control", "--dump", str(self.pid)], check=True, stdout=subprocess.DEVNULL, timeout=120
        )
        dump = self.directory / f"callgrind.out.{self._dumps}"
        deadline = time.monotonic() + 60
        while not dump.exists() or (found := re.search(r"^totals: (\d+)", dump.read_text(), re.M)) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{dump} was not written within 60 s")
            time.sleep(0.02)
        self._counted += int(found[1])
        dump.unlink()
        return self._counted
