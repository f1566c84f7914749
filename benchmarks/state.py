"""The memory of pipelines whose state grows: `python -m benchmarks state --users 10000000`.

Every user has one event of each kind: a credit, a login on a device of his own, an invitation by the user
before him, with a number and a network far from that one's. So each event adds to what earnings,
account-switch, invite-fraud and phone-region have to remember, and nobody is reported. One after the other
works them off with the command that people use, in micro-batches, and the memory of its processes (the JVM,
the driver's Python, all Python workers together) is noted every second: what is theirs alone. Pages of files
that they have mapped are told, too, but are the system's, which takes them back when it needs them.

Memory is bounded if it does not follow the state: what the last quarter of a run holds at most is set beside
the second quarter, when half of the users had not come yet. The first quarter is when processes find their
size. The bound is a quarter more. A JVM fills its heap before it collects, however little of that is in use,
so its heap is told beside the rest of it, and held to what is live in it: `jcmd` counts that, after a full
collection, when half of the micro-batches are done, and when seven eighths are.

How many events a second were worked off in the same two quarters, of micro-batches, says whether these take
longer as the state grows.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from benchmarks.contestants import scratch
from tidelog import Producer
from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards import events
from tidelog_rewards.topics import ensure_topics

USERS = 10_000_000
BATCH = 250_000
MOST_GROWTH = 1.25
HEAP, MAPPED, LIVE = "JVM heap", "mapped files", "live in heap"
BOUNDED = ("JVM beside it", "driver", "workers")
PARTS = (HEAP, *BOUNDED, MAPPED)
_LEAST_BATCHES = 4
_MB = 1_000_000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Make = Callable[[int, str], str]
"""The own fields of a user's event, as the inside of a JSON object."""


class Sample(NamedTuple):
    """A moment of a run: resident megabytes by part, and how many micro-batches were done."""

    at_s: float
    resident: Mapping[str, float]
    batches: int


class Run(NamedTuple):
    """What was seen of a pipeline's run."""

    pipeline: str
    users: int
    batch: int
    took_s: float
    state_mb: float
    samples: Sequence[Sample]
    live: Sequence[float]
    """Megabytes that were live in the heap of the JVM: at half of the micro-batches, and at seven eighths."""

    @property
    def batches(self) -> int:
        return math.ceil(self.users / self.batch)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks state", description=__doc__)
    parser.add_argument("--users", type=int, default=USERS, help="who come once (default: %(default)s)")
    parser.add_argument(
        "--batch", type=int, default=BATCH, help="records of a micro-batch at most (default: %(default)s)"
    )
    parser.add_argument(
        "--data-root", type=Path, default=Path("/dev/shm"), help="where data goes (default: %(default)s)"
    )
    parser.add_argument(
        "--pipeline", choices=sorted(MADE), action="append", help="one of them alone (default: all four)"
    )
    asked = parser.parse_args(given)
    bounded = True
    for pipeline in asked.pipeline or MADE:
        with scratch(asked.data_root) as root:
            bounded &= _run(pipeline, root, asked.users, asked.batch)
    return 0 if bounded else 1


def _run(pipeline: str, root: Path, users: int, batch: int) -> bool:
    with BrokerProcess(root / "broker") as broker:
        directory = root / "pipelines"
        ensure_topics(PipelineSettings(bootstrap_servers=broker.bootstrap, directory=directory))
        _fill(broker.bootstrap, pipeline, users)
        command = [sys.executable, "-m", "tidelog", "pipeline", "run", pipeline, "--once"]
        where = ["--bootstrap-server", broker.bootstrap, "--directory", str(directory)]
        watch = _Watch(directory / "checkpoints" / pipeline / "commits", math.ceil(users / batch))
        with subprocess.Popen([*command, "--max-offsets-per-trigger", str(batch), *where]) as running:
            took_s = watch.until_ended(running)
        if running.returncode != 0:
            raise RuntimeError(f"{pipeline} ended with {running.returncode}")
        state_mb = sum(each.stat().st_size for each in directory.rglob("*") if each.is_file()) / _MB
    return _report(Run(pipeline, users, batch, took_s, state_mb, watch.samples, watch.live))


def _fill(bootstrap: str, pipeline: str, users: int) -> None:
    kind, make = MADE[pipeline]
    start = datetime.now(UTC) - timedelta(milliseconds=users)
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 262_144}) as producer:
        for number in range(users):
            moment = start + timedelta(milliseconds=number)
            time_text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            user = f"u{number:012x}"
            value = (
                f'{{"event_id":"e{number:012x}","event_time":"{time_text}","user_id":"{user}",'
                f'"device_id":"d{number:012x}","ip":"{_address(number)}",{make(number, user)}}}'
            )
            producer.send(kind.topic, value.encode(), key=user.encode())


def _address(number: int) -> str:
    return f"11.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _phone(number: int) -> str:
    return f"+86138{number % 100_000_000:08d}"


def _credit(number: int, user: str) -> str:
    return f'"source":"right_slide","amount_cents":{number % 100}'


def _login(number: int, user: str) -> str:
    return f'"phone":"{_phone(number)}","method":"token","success":true'


def _invite(number: int, user: str) -> str:
    newcomer = number + 1
    phone = f"+861{newcomer * 7919 % 10**10:010d}"
    address = f"11.{newcomer & 255}.{newcomer >> 8 & 255}.{newcomer >> 16 & 255}"
    return (
        f'"invitee_id":"u{newcomer:012x}","invitee_phone":"{phone}",'
        f'"invitee_device_id":"d{newcomer:012x}","invitee_ip":"{address}","channel":"link"'
    )


MADE: dict[str, tuple[events.EventKind, Make]] = {
    "earnings": (events.CREDIT, _credit),
    "account-switch": (events.LOGIN, _login),
    "invite-fraud": (events.INVITE, _invite),
    "phone-region": (events.LOGIN, _login),
}


class _Watch:
    """Looks at a command every second until it has ended."""

    def __init__(self, commits: Path, batches: int) -> None:
        self._commits = commits
        self._moments = (math.ceil(batches / 2), math.ceil(batches * 7 / 8))
        """After so many micro-batches the heap is looked at."""
        self._heaps: dict[int, range] = {}
        self.samples: list[Sample] = []
        self.live: list[float] = []

    def until_ended(self, running: subprocess.Popen[bytes]) -> float:
        """Watch it, and say how many seconds it has taken."""
        began_s = time.monotonic()
        pause = threading.Event()
        while running.poll() is None:
            done = self._batches()
            self.samples.append(Sample(time.monotonic() - began_s, self._resident_mb(running.pid), done))
            if len(self.live) < len(self._moments) and done >= self._moments[len(self.live)]:
                self.live += [_live_mb(java) for java in self._heaps]
            pause.wait(1.0)
        return time.monotonic() - began_s

    def _batches(self) -> int:
        """How many micro-batches are done: Spark commits each."""
        if not self._commits.exists():
            return 0
        numbers = (int(each.name) for each in self._commits.iterdir() if each.name.isdigit())
        return max(numbers, default=-1) + 1

    def _resident_mb(self, root: int) -> dict[str, float]:
        """The memory of a command's processes: its own Python, the JVM, and all others below."""
        found = dict.fromkeys(PARTS, 0.0)
        processes = set(_tree(root))
        self._heaps = {java: heap for java, heap in self._heaps.items() if java in processes}
        for process in processes:
            try:
                if Path(f"/proc/{process}/comm").read_text().strip() == "java":
                    found[HEAP], found[BOUNDED[0]], mapped_mb = self._jvm_mb(process)
                else:
                    counted = Path(f"/proc/{process}/statm").read_text().split()
                    resident_mb, mapped_mb = (int(pages) * _PAGE_BYTES / _MB for pages in counted[1:3])
                    found[BOUNDED[1] if process == root else BOUNDED[2]] += resident_mb - mapped_mb
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            found[MAPPED] += mapped_mb
        return found

    def _jvm_mb(self, java: int) -> tuple[float, float, float]:
        """What is resident of a JVM's heap, used or not, of the rest, and of files that it has mapped."""
        if java not in self._heaps:
            borders = re.findall(r"0x([0-9a-f]+)", _jcmd(java, "GC.heap_info"))
            if borders:  # else it is just starting
                self._heaps[java] = range(int(min(borders), 16), int(max(borders), 16))
        heap = self._heaps.get(java, range(0))
        heap_kb = beside_kb = mapped_kb = 0
        is_heap = False
        # All from one look: a heap grows and shrinks by hundreds of megabytes between two.
        for line in Path(f"/proc/{java}/smaps").read_text().splitlines():
            name, _, value = line.partition(":")
            if border := re.match(r"([0-9a-f]+)-[0-9a-f]+ ", line):
                is_heap = int(border[1], 16) in heap
            elif name == "Rss" and is_heap:
                heap_kb += int(value.split()[0])
            elif name == "Rss":
                mapped_kb += int(value.split()[0])
            elif name == "Anonymous" and not is_heap:
                beside_kb += int(value.split()[0])
        return heap_kb * 1024 / _MB, beside_kb * 1024 / _MB, (mapped_kb - beside_kb) * 1024 / _MB


def _live_mb(java: int) -> float:
    """What is live in the heap of a JVM: the histogram of its objects collects it first."""
    counted = re.search(r"^Total +\d+ +(\d+)", _jcmd(java, "GC.class_histogram"), re.MULTILINE)
    return int(counted[1]) / _MB if counted else math.nan


def _jcmd(java: int, command: str) -> str:
    return subprocess.run(["jcmd", str(java), command], capture_output=True, text=True, check=False).stdout


def _tree(root: int) -> Iterator[int]:
    yield root
    try:
        threads = list(Path(f"/proc/{root}/task").iterdir())
        children = [int(each) for task in threads for each in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield from _tree(child)


def _report(run: Run) -> bool:
    rate = run.users / run.took_s
    print(
        f"{run.pipeline}: {run.users:,} users in {run.took_s:,.0f} s ({rate:,.0f} events/s), "
        f"{run.state_mb:,.0f} MB on disk"
    )
    if run.batches < _LEAST_BATCHES:
        print(f"  {run.batches} micro-batches are too few to say more: there must be {_LEAST_BATCHES}")
        return False
    is_bounded = True
    for part in PARTS:
        early, late = (_most(run, part, quarter) for quarter in (1, 3))
        is_bounded &= part not in BOUNDED or late <= early * MOST_GROWTH
        print(f"  {part:13} {early:8,.0f} MB at most in the second quarter, {late:8,.0f} in the last")
    early, late = run.live if len(run.live) == 2 else (math.nan, math.nan)
    is_bounded &= late <= early * MOST_GROWTH
    print(f"  {LIVE:13} {early:8,.0f} MB at half of the micro-batches, {late:8,.0f} at seven eighths")
    print("  memory is bounded" if is_bounded else "  memory GROWS with the state")
    early, late = (_rate(run, quarter) for quarter in (1, 3))
    print(f"  {early:,.0f} events/s in the second quarter, {late:,.0f} in the last", flush=True)
    return is_bounded


def _most(run: Run, part: str, quarter: int) -> float:
    """The greatest that one of four equal parts of the time has seen."""
    begin_s, end_s = quarter * run.took_s / 4, (quarter + 1) * run.took_s / 4
    return max((each.resident[part] for each in run.samples if begin_s <= each.at_s < end_s), default=0.0)


def _rate(run: Run, quarter: int) -> float:
    """Events a second in one of four parts of the micro-batches."""
    begin, end = (run.batches * each // 4 for each in (quarter, quarter + 1))
    times_s = [next((s.at_s for s in run.samples if s.batches >= each), run.took_s) for each in (begin, end)]
    return (min(end * run.batch, run.users) - begin * run.batch) / (times_s[1] - times_s[0])
