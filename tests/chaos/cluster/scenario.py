"""One run: a cluster, clients that work, harm, and what must hold afterwards.

    with Scenario(tmp_path, seed=7, title="…") as scenario:
        scenario.topic("orders", 3)
        scenario.produce("orders", rate=300)
        scenario.nemesis.harm("kill -9", scenario.nemesis.leader_of("orders", 0))
        scenario.finish()

``finish`` waits until the cluster is whole, lets producers end and readers catch up, reads everything,
stops the brokers, compares their replicas, prints the report and fails if there is any anomaly.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from tests.chaos.cluster.brokers import ChaosCluster, wait_for
from tests.chaos.cluster.checker import FINAL, Checker, Findings, total
from tests.chaos.cluster.client_process import END_S, Client
from tests.chaos.cluster.copiers import LOST
from tests.chaos.cluster.faults import KINDS, Nemesis
from tests.chaos.cluster.history import FAIL, INFO, OK, POLL, SEND, Event, HistoryFile, read_history
from tests.chaos.cluster.locked_reader import is_locked
from tests.chaos.cluster.own_repeats import own_repeats
from tests.chaos.cluster.replicas import differences
from tests.chaos.cluster.report import print_report
from tests.chaos.cluster.unasked_coordinator import STUCK, asks_nobody
from tests.chaos.cluster.workloads import CONFLUENT, TIDELOG, Work

from tidelog import Consumer, TopicPartition

CATCH_UP_S = 120.0
REPLICAS = "replicas that differ"


class Scenario:
    """A run; made, started and ended by a ``with`` block."""

    def __init__(
        self,
        directory: Path,
        *,
        seed: int,
        title: str,
        brokers: int = 3,
        zookeeper_servers: int = 1,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.title = f"{title} (seed {seed}; repeat with TIDELOG_CHAOS_SEED={seed})"
        self.chance = random.Random(seed)
        self.cluster = ChaosCluster(
            directory / "cluster", brokers=brokers, zookeeper_servers=zookeeper_servers, options=options
        )
        self.nemesis = Nemesis(self.cluster, self.chance)
        self.clients: dict[str, Client] = {}
        self._history = directory / "history"
        self._history.mkdir(parents=True)
        self._topics: dict[str, int] = {}
        self._copies: list[tuple[str, str]] = []

    def __enter__(self) -> Scenario:
        self.cluster.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self.clients.values():
            if client.is_running:
                client.kill()
        if error is not None:
            print(f"failed: {self.title}; kept in {self._history.parent}")
        self.cluster.__exit__(kind, error, trace)

    # Clients

    def topic(self, name: str, partitions: int) -> None:
        self.cluster.create_topic(name, partitions)
        self._topics[name] = partitions

    def produce(self, topic: str, *, client: str = TIDELOG, rate: float = 100, count: int = 0) -> Client:
        return self._add("produce", client, topic, rate=rate, count=count)

    def assign(self, topic: str, *, client: str = TIDELOG) -> Client:
        return self._add("assign", client, topic)

    def subscribe(self, topic: str, group: str, *, client: str = TIDELOG) -> Client:
        return self._add("subscribe", client, topic, group=group)

    def copy(
        self, topic: str, output: str, *, client: str, per_transaction: int, abort_share: float = 0.1
    ) -> Client:
        if (topic, output) not in self._copies:
            self._copies.append((topic, output))
        return self._add(
            "copy",
            client,
            topic,
            output=output,
            group=f"copiers-of-{topic}",
            per_transaction=per_transaction,
            abort_share=abort_share,
        )

    def administer(self, topic: str) -> Client:
        """Move a topic's partitions about, and make, grow and delete topics of its own."""
        return self._add("administer", TIDELOG, topic)

    def _add(self, kind: str, client: str, topic: str, **more: object) -> Client:
        name = f"{kind}-{client}-{len(self.clients)}"
        work = Work(
            kind,
            client,
            name,
            self.cluster.bootstrap,
            str(self._history),
            topic,
            self._topics[topic],
            **more,  # type: ignore[arg-type]
        )
        self.clients[name] = Client(work, self._history.parent)
        return self.clients[name]

    def of_kind(self, *kinds: str) -> list[Client]:
        return [each for each in self.clients.values() if each.work.kind in kinds]

    def keep_running(self) -> None:
        """Start those copiers again that have lost their producer; nobody else may fail."""
        for client in self.clients.values():
            if client.is_running:
                continue
            if client.work.kind == "copy" and client.exit_code in (LOST, -signal.SIGKILL):
                client.start_again()
            elif client.exit_code == STUCK and asks_nobody(client.trace):
                print(f"{client.work.name}: librdkafka asks nobody to take its offsets", flush=True)
                client.start_again()
            elif client.exit_code:
                raise AssertionError(f"{client.work.name} has ended:\n{client.said}")

    def wait_acknowledged(self, count: int, patience_s: float = END_S) -> None:
        """Wait until so many records more were acknowledged."""
        before = self._acknowledged()
        wait_for(
            lambda: f"{count} more acknowledged than {before}, but {self._acknowledged() - before}",
            lambda: self._acknowledged() >= before + count,
            patience_s,
        )

    def _acknowledged(self) -> int:
        """Roughly, and quickly."""
        return sum(path.read_bytes().count(b'"ok","send"') for path in self._history.glob("produce-*.jsonl"))

    def wait_copied(self, count: int) -> None:
        """Wait until so many records were copied since the start."""
        wait_for(lambda: f"{count} copied, but {self._copied()}", lambda: self._copied() >= count, END_S)

    def _copied(self) -> int:
        self.keep_running()
        return sum(
            line.count(b"|")
            for path in self._history.glob("copy-*.jsonl")
            for line in path.read_bytes().splitlines()
            if b'"ok","txn"' in line
        )

    def storm(self, kind: str) -> None:
        """One fault, of a leader, the controller or anybody; mostly, but not always, waited for."""
        nemesis = self.nemesis
        topic = self.chance.choice([*self._topics, "__consumer_offsets", "__transaction_state"])
        victims = (lambda: nemesis.leader_of(topic, 0), nemesis.controller, nemesis.anybody)
        if KINDS[kind].only_when_whole:
            self.cluster.wait_in_sync()
        if not KINDS[kind].alone and self.chance.random() < 0.25:
            more = self.chance.choice([each for each in sorted(KINDS) if not KINDS[each].alone])
            fault = nemesis.harm_two((kind, more))
        else:
            fault = nemesis.harm(kind, self.chance.choice(victims)())
        if KINDS[kind].only_when_whole or self.chance.random() < 0.7:
            nemesis.wait_whole(fault)
        self.keep_running()

    def events(self) -> list[Event]:
        """All that has been written down so far."""
        return read_history(self._history)

    def client_errors(self) -> list[str]:
        """What producers and readers were told that was no success."""
        return [
            f"{event.process}: {event.remark or event.kind}"
            for event in read_history(self._history)
            if event.kind in (FAIL, INFO) and event.operation in (SEND, POLL)
        ]

    # The end

    def finish(self) -> Findings:
        """Let everybody finish, and check."""
        self.cluster.wait_in_sync()
        self.end_producers()
        ends = self.read_all()
        self._wait_for_readers(ends)
        for client in self.of_kind("assign", "subscribe", "copy"):
            client.stop()
        for client in self.of_kind("assign", "subscribe"):
            client.wait()
        self.cluster.wait_in_sync()
        checker = self._checked()
        findings = checker.findings
        self._compare_replicas(findings)
        self._excuse_own_repeats(checker)
        print_report(self.title, read_history(self._history), self.nemesis.faults, findings)
        assert total(findings) == 0, {name: what[:5] for name, what in findings.items() if what}
        return findings

    def end_producers(self) -> None:
        for client in self.of_kind("produce"):
            if not client.work.count:
                client.stop()
        for client in self.of_kind("produce"):
            client.wait()

    def check(self) -> Findings:
        return self._checked().findings

    def _checked(self) -> Checker:
        groups: dict[str, list[str]] = {}
        for client in self.of_kind("subscribe"):
            groups.setdefault(client.work.group, []).append(client.work.name)
        checker = Checker(read_history(self._history), groups)
        checker.check()
        for source, copy in self._copies:
            checker.check_copies(source, copy)
        return checker

    def read_all(self) -> dict[tuple[str, int], int]:
        """Read every topic from start to end, into the history; gives the last offsets."""
        history = HistoryFile(self._history / f"{FINAL}.jsonl", FINAL)
        for source, copy in self._copies:
            self._wait_for_copies(source, copy)
        last: dict[tuple[str, int], int] = {}
        places = [
            TopicPartition(topic, index)
            for topic, partitions in self._topics.items()
            for index in range(partitions)
        ]
        with Consumer(
            bootstrap_servers=self.cluster.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign(places)
            ends = consumer.end_offsets(places, timeout=60)
            deadline = time.monotonic() + CATCH_UP_S
            while any(consumer.position(each, timeout=60) < end for each, end in ends.items()):
                assert time.monotonic() < deadline, (
                    f"not read within {CATCH_UP_S} s: {consumer.ongoing_error()}"
                )
                records = [
                    (each.topic, each.partition, each.offset, (each.value or b"").decode())
                    for each in consumer.poll(1.0)
                ]
                history.add(OK, POLL, "", records)
                for topic, partition, offset, _ in records:
                    last[topic, partition] = offset
        history.close()
        return last

    def _wait_for_copies(self, source: str, copy: str) -> None:
        """Wait until the copiers' group has read all of the input, and nothing is under way any more."""
        group = f"copiers-of-{source}"
        places = [TopicPartition(source, index) for index in range(self._topics[source])]
        outputs = [TopicPartition(copy, index) for index in range(self._topics[copy])]
        options = {
            "bootstrap.servers": self.cluster.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
        }
        with (
            Consumer(options, isolation_level="read_committed") as consumer,
            Consumer(options) as uncommitted,
        ):
            ends = consumer.end_offsets(places, timeout=60)

            def left() -> int:
                known = consumer.committed(places, timeout=60)
                done = {place: 0 if (at := known.get(place)) is None else at.offset for place in places}
                return sum(max(0, ends[place] - done[place]) for place in places)

            def is_done() -> bool:
                self.keep_running()
                if left():
                    return False
                stable = consumer.end_offsets(outputs, timeout=60)
                return stable == uncommitted.end_offsets(outputs, timeout=60)

            wait_for(lambda: f"{source} is copied, {left()} are left", is_done, END_S)

    def _wait_for_readers(self, ends: Mapping[tuple[str, int], int]) -> None:
        """Wait until assigned readers, and groups, have come to the end."""
        topic_of = {
            client.work.group or client.work.name: client.work.topic for client in self.clients.values()
        }

        def behind() -> list[str]:
            self._start_locked_readers_again()
            readers: dict[str, set[str]] = {}
            for client in self.of_kind("assign", "subscribe"):
                readers.setdefault(client.work.group or client.work.name, set()).add(client.work.process)
            seen = [
                (event.process, (record[0], record[1]), record[2])
                for event in read_history(self._history)
                if event.operation == POLL and event.kind == OK
                for record in event.records
            ]
            found: list[str] = []
            for reader, processes in readers.items():
                reached = {place: offset for process, place, offset in sorted(seen) if process in processes}
                wanted = {place: end for place, end in ends.items() if place[0] == topic_of[reader]}
                for process, place, offset in seen:
                    if process in processes:
                        reached[place] = max(reached[place], offset)
                found += [
                    f"{reader} at {place}: {reached.get(place)} of {end}"
                    for place, end in wanted.items()
                    if reached.get(place, -1) < end
                ]
            return found

        _slowly(lambda: f"readers at the end: {behind()}", lambda: not behind(), CATCH_UP_S)

    def _start_locked_readers_again(self) -> None:
        for client in self.of_kind("assign", "subscribe"):
            if client.work.client == CONFLUENT and client.is_running and is_locked(client.trace):
                print(f"{client.work.name}: two threads of librdkafka wait for each other", flush=True)
                client.kill()
                client.start_again()

    def _compare_replicas(self, findings: Findings) -> None:
        for broker in self.cluster.brokers.values():
            broker.send_signal(signal.SIGTERM)
        for broker_id, broker in self.cluster.brokers.items():
            code = broker.wait(60)
            assert code == 0, f"broker {broker_id} ended with {code}:\n{broker.log[-3000:]}"
        findings[REPLICAS] = differences(
            {each: broker.data_dir for each, broker in self.cluster.brokers.items()}
        )

    def _excuse_own_repeats(self, checker: Checker) -> None:
        """Leave out what a client, by its trace, has repeated itself; brokers have stopped."""
        if not checker.repeated:
            return
        traces = {each.work.name: each.trace for each in self.of_kind("produce")}
        log_dirs = [broker.data_dir for broker in self.cluster.brokers.values()]
        own = own_repeats(checker.repeated, traces, log_dirs)
        checker.forgive_repeats(own)
        if own:
            print(f"{len(own)} values were sent again by their producer in another epoch: {sorted(own)[:5]}")


def _slowly(what: Callable[[], str], holds: Callable[[], bool], patience_s: float) -> None:
    """Like ``wait_for``, for what costs a while to look at."""
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what()}"
        time.sleep(0.5)
