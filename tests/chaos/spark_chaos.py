"""A streaming job on Spark, and what is done to it: its workers, executors, driver and broker die.

The input is in its topic before the job starts. A driver that ends, killed or because its query failed, is
started again from the checkpoint. Each thing happens after the job has come on since the one before, and then
at a moment that chance chooses. In the end the output as readers of committed records see it must be the
input: nothing lost, nothing doubled.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from tests.chaos.process_tree import Member, descendants
from tests.chaos.spark_job import ROWS_PER_EPOCH
from tests.integration.sink_output import committed_values

from tidelog.client.admin.admin import Admin
from tidelog.client.errors import ClientError
from tidelog.client.resources import NewTopic, OffsetSpec
from tidelog.errors import TidelogError
from tidelog.ids import TopicPartition
from tidelog.testing.broker_process import BrokerProcess

PARTITIONS = 3
EPOCHS_PER_EVENT = 3
PATIENCE_S = 600.0
LONGEST_PAUSE_S = 1.5


class SparkChaos:
    """One job and its broker."""

    def __init__(
        self,
        broker: BrokerProcess,
        directory: Path,
        chance: random.Random,
        *,
        master: str,
        guarantee: str,
        events: int,
    ) -> None:
        self.happened: list[str] = []
        self._broker, self._directory, self._chance = broker, directory, chance
        self._master, self._guarantee, self._events = master, guarantee, events
        self._log = directory / "drivers.log"
        self._driver: subprocess.Popen[bytes] | None = None
        self._left: list[Member] = []
        self._stalled: list[Member] = []
        self._admin = Admin(bootstrap_servers=broker.bootstrap)
        self.records = ROWS_PER_EPOCH * EPOCHS_PER_EVENT * (events + 2)
        self.expected = Counter(f"copy of {number}" for number in range(self.records))

    def fill(self) -> None:
        """Make the topics, and the input."""
        for result in self._admin.create_topics([NewTopic(name, PARTITIONS) for name in ("input", "output")]):
            result.raise_for_error()
        producer = Producer({"bootstrap.servers": self._broker.bootstrap, "enable.idempotence": True})
        for number in range(self.records):
            producer.produce("input", b"%d" % number, b"key %d" % self._chance.randrange(50))
            producer.poll(0)
        assert producer.flush(60) == 0

    def run(self) -> None:
        """Let everything happen, and the job come to its end."""
        self._start_driver()
        for _ in range(self._events):
            written = self._written()
            self._wait(lambda: self._written() > written, "nothing more is written")  # noqa: B023
            time.sleep(self._chance.uniform(0, LONGEST_PAUSE_S))
            self._chance.choice(self._faults)()
        self._wake_stalled()
        self._wait(lambda: self._written() >= self.records, "the output does not get complete")
        self._wait(lambda: self._committed() >= self.records, "the output does not get committed")
        (self._directory / "stop").touch()
        self._wait(lambda: self._driver is None, "the driver does not end")

    def check(self) -> None:
        """Output and input must be the same."""
        output = Counter(committed_values(self._broker.bootstrap, "output"))
        lost, doubled = self.expected - output, output - self.expected
        assert not lost, f"lost: {len(lost)} records, such as {min(lost)!r}, after {self.happened}"
        assert not doubled, (
            f"doubled: {len(doubled)} records, such as {min(doubled)!r}, after {self.happened}"
        )

    def plant(self, value: str) -> None:
        """Write to the output behind the job's back."""
        producer = Producer({"bootstrap.servers": self._broker.bootstrap})
        producer.produce("output", value)
        assert producer.flush(60) == 0

    def close(self) -> None:
        """Leave no process behind."""
        self._admin.close()
        if self._driver is not None:
            self._left += descendants(self._driver.pid)
        for member in self._left:
            member.signal(signal.SIGKILL)
        if self._driver is not None:
            self._driver.wait()

    # What happens

    @property
    def _faults(self) -> list[Callable[[], None]]:
        faults = [
            self._kill_worker,
            self._kill_worker,
            self._kill_driver,
            self._kill_broker,
            self._stall_and_replace,
        ]
        return [*faults, self._kill_executor, self._kill_executor] if "cluster" in self._master else faults

    def _kill_worker(self) -> None:
        self._kill_one("Python worker", _is_worker)

    def _kill_executor(self) -> None:
        self._kill_one("executor", lambda member: "CoarseGrainedExecutorBackend" in member.command)

    def _kill_one(self, what: str, wanted: Callable[[Member], bool]) -> None:
        found = [member for member in self._members() if wanted(member)]
        killed = bool(found) and self._chance.choice(found).signal(signal.SIGKILL)
        self.happened.append(f"{what} killed" if killed else f"no {what} there to kill")

    def _kill_driver(self) -> None:
        """Driver and its Java process die; workers and executors are left to themselves."""
        self.happened.append("driver killed")
        assert self._driver is not None
        members = self._members()
        self._left += members
        for member in members:
            if member.pid == self._driver.pid or "SparkSubmit" in member.command:
                member.signal(signal.SIGKILL)
        self._driver.wait()
        self._start_driver()

    def _stall_and_replace(self) -> None:
        """Workers stand still while their driver dies and is replaced; later they go on, as zombies."""
        self._wake_stalled()
        self._stalled = [member for member in self._members() if _is_worker(member)]
        for member in self._stalled:
            member.signal(signal.SIGSTOP)
        self.happened.append(f"{len(self._stalled)} workers stalled")
        self._kill_driver()

    def _wake_stalled(self) -> None:
        for member in self._stalled:
            member.signal(signal.SIGCONT)
        self._stalled = []

    def _kill_broker(self) -> None:
        self.happened.append("broker killed")
        self._broker.kill()
        time.sleep(self._chance.uniform(0, LONGEST_PAUSE_S))
        self._broker.start()

    # The job

    def _start_driver(self) -> None:
        root = Path(__file__).parents[2]
        paths = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
        job = [self._broker.bootstrap, str(self._directory), self._master, self._guarantee]
        with self._log.open("ab") as log:
            self._driver = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.spark_job", *job],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=root,
                env={**os.environ, "PYTHONPATH": paths, "SPARK_LOCAL_IP": "127.0.0.1"},
            )

    def _keep_running(self) -> None:
        if self._driver is None or self._driver.poll() is None:
            return
        ended, self._driver = self._driver, None
        if ended.returncode == 0 and (self._directory / "stop").exists():
            return
        self.happened.append(f"driver ended with {ended.returncode}")
        self._start_driver()

    def _members(self) -> list[Member]:
        return [] if self._driver is None else descendants(self._driver.pid)

    def _written(self) -> int:
        """Records, committed or not, and markers in the output."""
        ends = {TopicPartition("output", number): OffsetSpec.LATEST for number in range(PARTITIONS)}
        try:
            return sum(each.offset for each in self._admin.list_offsets(ends).values())
        except (ClientError, TidelogError):
            return -1

    def _committed(self) -> int:
        return len(committed_values(self._broker.bootstrap, "output"))

    def _wait(self, until: Callable[[], bool], complaint: str) -> None:
        end = time.monotonic() + PATIENCE_S
        while not until():
            self._keep_running()
            if time.monotonic() > end:
                tail = self._log.read_text("utf-8", "replace")[-4000:]
                raise AssertionError(f"{complaint} after {self.happened}; the drivers' last words: {tail}")
            time.sleep(0.1)


def _is_worker(member: Member) -> bool:
    return "pyspark.daemon" in member.command or "pyspark/daemon" in member.command
