"""Exactly once under kills: worker processes that copy topic ``in`` to ``out``, and what is done to them.

``Loop`` fills the input, keeps two workers running (whoever ends is started again under the same
transactional id) and lets chance decide what happens next: a worker is killed, a worker is stopped, replaced
and woken up again as a zombie, the broker is killed and started again. When the group has committed the
whole input, the output as a reader of committed records sees it must be the input: nothing lost, nothing
doubled, the order of every key kept.

Apache Kafka passes this as long as it is not killed itself: a single Kafka 4.3 that starts again may take the
leaders of partitions for unknown, leave out the markers of prepared transactions ("Couldn't find leader
endpoint for partitions") and count them as complete, after which readers wait for ever or see records twice.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Producer
from foreign.broker_process import BrokerProcess, Tidelog
from tests.rigs.exactly_once.producers import TIMEOUT_S, read
from tests.rigs.group_members.topics import create
from tests.rigs.raw_client import RawClient

from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

WORKERS = 2
PARTITIONS = 3
KEYS = 5
PATIENCE_S = 120.0

Command = Callable[[str, str], Sequence[str]]
"""From the broker's address and a transactional id to what starts a worker."""


def librdkafka(address: str, transactional_id: str) -> Sequence[str]:
    return [sys.executable, "-m", "tests.rigs.exactly_once.worker", address, transactional_id]


def tidelog(protocol: str = "classic") -> Command:
    """Our own clients, in a group of one protocol or the other."""

    def command(address: str, transactional_id: str) -> Sequence[str]:
        return [
            *(sys.executable, "-m", "tests.rigs.exactly_once.tidelog_worker"),
            *(address, transactional_id, protocol),
        ]

    return command


class Loop:
    """The workers of one run."""

    def __init__(
        self,
        broker: BrokerProcess,
        directory: Path,
        chance: random.Random,
        records: int,
        commands: Sequence[Command] = (librdkafka,) * WORKERS,
    ) -> None:
        self.broker = broker
        self.chance = chance
        self.commands = commands
        self.happened: list[str] = []
        self._log = directory / "workers.log"
        self._workers: list[subprocess.Popen[bytes]] = []
        self._zombies: list[subprocess.Popen[bytes]] = []
        self.input = {
            partition: [(b"key %d" % chance.randrange(KEYS), b"%d" % number) for number in range(records)]
            for partition in range(PARTITIONS)
        }

    def fill(self) -> None:
        for topic in ("in", "out"):
            create(self.broker.address, topic, PARTITIONS)
        producer = Producer({"bootstrap.servers": self.broker.address, "enable.idempotence": True})
        for partition, records in self.input.items():
            for key, value in records:
                producer.produce("in", value, key, partition)
            assert producer.flush(TIMEOUT_S) == 0

    # Workers

    def start_worker(self, number: int) -> subprocess.Popen[bytes]:
        root = Path(__file__).parents[3]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self.commands[number](self.broker.address, f"worker-{number}"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=root,
                env={**os.environ, "PYTHONPATH": str(root)},
            )

    def keep_running(self) -> None:
        for number, worker in enumerate(self._workers):
            if worker.poll() is not None:
                self.happened.append(f"worker {number} ended with {worker.returncode}")
                self._workers[number] = self.start_worker(number)

    def close(self) -> None:
        for process in [*self._workers, *self._zombies]:
            process.kill()
            process.wait()

    # What happens

    def kill_worker(self) -> None:
        number = self.chance.randrange(len(self._workers))
        self.happened.append(f"worker {number} killed")
        self._workers[number].kill()
        self._workers[number].wait()
        self._workers[number] = self.start_worker(number)

    def make_zombie(self) -> None:
        """A worker stands still and is replaced; before the next thing happens it goes on."""
        number = self.chance.randrange(len(self._workers))
        self.happened.append(f"worker {number} stopped and replaced")
        self._workers[number].send_signal(signal.SIGSTOP)
        self._zombies.append(self._workers[number])
        self._workers[number] = self.start_worker(number)

    def wake_zombies(self) -> None:
        """Let those who were replaced go on."""
        for zombie in self._zombies:
            if zombie.poll() is None:
                zombie.send_signal(signal.SIGCONT)

    def kill_broker(self) -> None:
        self.happened.append("broker killed")
        self.broker.kill()
        self.broker.start()

    def run(self, events: int) -> None:
        """Let so many things happen, each after some progress, and wait for the end."""
        self.fill()
        self._workers = [self.start_worker(number) for number in range(len(self.commands))]
        total = sum(map(len, self.input.values()))
        actions = [self.kill_worker, self.make_zombie, self.kill_worker]
        if isinstance(self.broker, Tidelog):
            actions.insert(2, self.kill_broker)
        for number in range(events):
            self.wait_for_progress(total * (number + 1) // (events + 2))
            self.wake_zombies()
            actions[number]() if number < len(actions) else self.chance.choice(actions)()
        self.wake_zombies()
        self.wait_for_progress(total)

    def wait_for_progress(self, goal: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while (done := self.committed()) < goal:
            self.keep_running()
            assert time.monotonic() < deadline, (
                f"{done} of {goal} after {self.happened}\n{self.last_output()}"
            )
            time.sleep(0.05)

    def committed(self) -> int:
        """How many records of the input the group has committed; 0 while nobody knows."""
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="loop", topics=None)])
        try:
            with RawClient("127.0.0.1", self.broker.port) as client:
                (group,) = client.ask(8, request, OffsetFetchResponse).groups
        except OSError:
            return 0
        return sum(max(each.committed_offset, 0) for topic in group.topics for each in topic.partitions)

    # What must hold

    def check(self) -> None:
        """The output is the input, turned around, partition by partition and in order."""
        self.close()
        for partition, records in self.input.items():
            wanted = [value[::-1] for _, value in records]
            # The offsets may be there a moment before the markers in the output are.
            deadline = time.monotonic() + TIMEOUT_S
            while len(found := self.output(partition)) < len(wanted):
                assert time.monotonic() < deadline, f"{len(found)} of {len(wanted)} after {self.happened}"
            assert len(found) == len(wanted), f"{len(found)} records for {len(wanted)} after {self.happened}"
            assert found == wanted, f"another order after {self.happened}"

    def output(self, partition: int) -> list[bytes]:
        return read(self.broker.address, "out", partition)

    def last_output(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]
