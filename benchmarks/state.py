"""The memory of pipelines whose state grows: `python -m benchmarks state --users 10000000`.

Every user has one event of each kind: a credit, a login on a device of his own, an invitation by the user
before him. So each event adds to what earnings, account-switch and invite-fraud have to remember. One after
the other works them off with the command that people use, in micro-batches, and the memory of its processes
(the resident set of the JVM, of the driver's Python, of all Python workers together) is noted every second.

Memory is bounded if it does not follow the state: what the last quarter of a run holds at most is set beside
the second quarter, when half of the users had not come yet. The first quarter is when processes find their
size. The bound is a quarter more.
"""

from __future__ import annotations

import argparse
import os
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
from tidelog.pipelines.framework import events
from tidelog.pipelines.framework.topics import ensure_topics
from tidelog.pipelines.pipeline import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess

USERS = 10_000_000
BATCH = 250_000
MOST_GROWTH = 1.25
PARTS = ("JVM", "driver", "workers")
_MB = 1_000_000
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

Make = Callable[[int, str], str]
"""The own fields of a user's event, as the inside of a JSON object."""


class Sample(NamedTuple):
    """Resident megabytes at a moment of a run."""

    at_s: float
    resident: Mapping[str, float]


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
        "--pipeline", choices=sorted(MADE), action="append", help="one of them alone (default: all three)"
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
        began_s = time.monotonic()
        with subprocess.Popen([*command, "--max-offsets-per-trigger", str(batch), *where]) as running:
            samples = list(_watch(running, began_s))
        if running.returncode != 0:
            raise RuntimeError(f"{pipeline} ended with {running.returncode}")
        took_s = time.monotonic() - began_s
        state_mb = sum(each.stat().st_size for each in directory.rglob("*") if each.is_file()) / _MB
    return _report(pipeline, users, took_s, state_mb, samples)


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
    return (
        f'"invitee_id":"u{newcomer:012x}","invitee_phone":"{_phone(newcomer * 7919)}",'
        f'"invitee_device_id":"d{newcomer:012x}","invitee_ip":"{_address(newcomer)}","channel":"link"'
    )


MADE: dict[str, tuple[events.EventKind, Make]] = {
    "earnings": (events.CREDIT, _credit),
    "account-switch": (events.LOGIN, _login),
    "invite-fraud": (events.INVITE, _invite),
}


def _watch(running: subprocess.Popen[bytes], began_s: float) -> Iterator[Sample]:
    """A sample every second until the command has ended."""
    pause = threading.Event()
    while running.poll() is None:
        yield Sample(time.monotonic() - began_s, _resident_mb(running.pid))
        pause.wait(1.0)


def _resident_mb(root: int) -> dict[str, float]:
    """The memory of a command's processes: its own Python, the JVM, and all others below."""
    found = dict.fromkeys(PARTS, 0.0)
    for process in _tree(root):
        try:
            pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
            name = Path(f"/proc/{process}/comm").read_text().strip()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended meanwhile
        part = "driver" if process == root else "JVM" if name == "java" else "workers"
        found[part] += pages * _PAGE_BYTES / _MB
    return found


def _tree(root: int) -> Iterator[int]:
    yield root
    try:
        threads = list(Path(f"/proc/{root}/task").iterdir())
        children = [int(each) for task in threads for each in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return
    for child in children:
        yield from _tree(child)


def _report(pipeline: str, users: int, took_s: float, state_mb: float, samples: Sequence[Sample]) -> bool:
    rate = users / took_s
    print(
        f"{pipeline}: {users:,} users in {took_s:,.0f} s ({rate:,.0f} events/s), {state_mb:,.0f} MB on disk"
    )
    bounded = True
    for part in PARTS:
        early, late = (_most(samples, part, quarter, took_s) for quarter in (1, 3))
        bounded &= late <= early * MOST_GROWTH
        print(f"  {part:8} {early:8,.0f} MB at most in the second quarter, {late:8,.0f} in the last")
    print("  memory is bounded" if bounded else "  memory GROWS with the state", flush=True)
    return bounded


def _most(samples: Sequence[Sample], part: str, quarter: int, took_s: float) -> float:
    """The greatest that one of four equal parts of the time has seen."""
    begin_s, end_s = quarter * took_s / 4, (quarter + 1) * took_s / 4
    return max((each.resident[part] for each in samples if begin_s <= each.at_s < end_s), default=0.0)
