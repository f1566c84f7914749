"""A compacted transactional changelog on both brokers: the same records are left, and readers reach the end.

The history has transactions that ended either way, whose records others supersede, and then rounds of records
of the same key, each of which lets the cleaner come once more: markers get their horizon, and go or stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat.clients import CLIENTS
from tests.compat.conftest import available
from tests.compat.driver import Driver
from tests.compat.side_by_side.batches import Batch, record
from tests.compat.side_by_side.records_requests import append, stored
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.transaction_requests import Producer

OPTIONS = {
    "log.cleaner.backoff.ms": "100",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
CHANGELOG = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.001",
    "segment_ms": "1",
    "min_compaction_lag_ms": "0",
    "delete_retention_ms": "0",
}
CLEANED_WITHIN_S = 60.0
ROUNDS = 5
STEP_MS = 10_000

Batches = list[dict[str, object]]


class Changelog:
    """The changelog on one of the two brokers."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.side = Side(broker.label, "127.0.0.1", broker.port).prepare(coordinators=True).begin("c")
        self.topic = self.side.topic(**CHANGELOG)
        self._now_ms = int(time.time() * 1000)

    def write(self) -> None:
        """The history, with the cleaner waited for after every round."""
        for number, (tv, committed) in enumerate((tv, end) for tv in ("tv1", "tv2") for end in (True, False)):
            producer = Producer(self.side, f"p{number}", tv).begun()
            producer.write(self.topic)
            producer.end(committed)
            producer.settled()
        for number in range(ROUNDS):
            self._supersede(number)
            # The newest one, in the active segment, and the one before it.
            self._wait(lambda batches: len(data_offsets(batches)) == 2)

    def _supersede(self, number: int) -> None:
        """A record of the key that all transactions wrote, in a segment of its own."""
        self._now_ms += STEP_MS
        body = (record(b"%d" % number, b"key"),)
        append(self.side, self.topic, Batch(body, base_timestamp=self._now_ms).bytes())

    def _wait(self, done: Callable[[Batches], bool]) -> None:
        deadline = time.monotonic() + CLEANED_WITHIN_S
        while not done(batches := self.batches()):
            assert time.monotonic() < deadline, f"{self.broker.label}: never cleaned: {batches}"
            time.sleep(0.05)

    def batches(self) -> Batches:
        return stored(self.side, self.topic)


def is_control(batch: dict[str, object]) -> bool:
    return bool(int(str(batch["attributes"])) & 0x20)


def data_offsets(batches: Batches) -> set[int]:
    """The offsets of the records that are left, each batch having had one."""
    return {int(str(each["base_offset"])) for each in batches if each["records"] and not is_control(each)}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changelog]:
    broker = Tidelog(tmp_path_factory.mktemp("tidelog"), OPTIONS)
    broker.start()
    changelog = Changelog(broker)
    changelog.write()
    yield changelog
    broker.stop()


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Changelog]:
    with available():
        broker = ApacheKafka(
            tmp_path_factory.mktemp("kafka"), {**OPTIONS, "log.initial.task.delay.ms": "500"}
        )
        broker.start()
    changelog = Changelog(broker)
    changelog.write()
    yield changelog
    broker.stop()


@pytest.fixture(params=["java-4", "java-3.9", "librdkafka"])
def reader(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[Changelog, str], dict[str, int]]]:
    client = next(each for each in CLIENTS if each.name == request.param)
    running: list[Driver] = []

    def restore(changelog: Changelog, isolation: str) -> dict[str, int]:
        with available():
            driver = Driver(client, changelog.broker.address, tmp_path / "driver.log")
        running.append(driver)
        found: dict[str, int] = driver("restore", topic=changelog.topic, partition=0, isolation=isolation)
        return found

    yield restore
    for driver in running:
        driver.close()


def test_both_brokers_leave_the_same_records(ours: Changelog, kafkas: Changelog) -> None:
    mine, theirs = ours.batches(), kafkas.batches()
    assert data_offsets(mine) == data_offsets(theirs)
    assert next(reversed(mine))["records"] == next(reversed(theirs))["records"]


def test_no_control_batch_of_ours_is_without_its_record(ours: Changelog) -> None:
    assert [each for each in ours.batches() if is_control(each) and not each["records"]] == []


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_readers_reach_the_end_of_both(
    ours: Changelog,
    kafkas: Changelog,
    reader: Callable[[Changelog, str], dict[str, int]],
    isolation: str,
) -> None:
    for changelog in (ours, kafkas):
        found = reader(changelog, isolation)
        assert found["position"] == found["end"], changelog.broker.label
        assert found["count"] == len(data_offsets(changelog.batches()))
