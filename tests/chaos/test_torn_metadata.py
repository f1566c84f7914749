"""The metadata store's files, torn and spoilt: what was acknowledged is there, or the broker says why not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.chaos import damage
from tests.chaos.amount import times
from tests.chaos.clients import Admin, Writer, assert_kept
from tests.chaos.conftest import StartBroker
from tests.chaos.test_torn_files import assert_refused

from tidelog.metadata.embedded.embedded_store import JOURNAL_NAME, SNAPSHOT_NAME
from tidelog.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def broker(broker_at: StartBroker) -> BrokerProcess:
    broker = broker_at().start()
    admin = Admin(broker.bootstrap)
    for number in range(5):
        admin.create_topic(f"topic-{number}", 2)
    return broker


def journal_of(broker: BrokerProcess) -> Path:
    return broker.data_dir / JOURNAL_NAME


def test_an_unfinished_write_at_the_end_of_the_journal_is_cut_off(
    broker: BrokerProcess, chance: random.Random
) -> None:
    """A crash leaves a beginning of a record that nobody was told of, and perhaps zeros behind it."""
    known = Admin(broker.bootstrap).topics()
    attempts = times(3, 6)
    for attempt in range(attempts):
        broker.kill()
        raw = journal_of(broker).read_bytes()
        size = int.from_bytes(raw[8:12], "big") + 8
        torn = raw[8 : 8 + chance.randrange(1, size)] + bytes(chance.choice([0, 0, 1, 4096]))
        damage.append(journal_of(broker), torn if attempt else bytes(chance.randrange(1, 10_000)))
        broker.start()
        assert Admin(broker.bootstrap).topics() == known
        Admin(broker.bootstrap).create_topic(f"more-{attempt}")
        known = Admin(broker.bootstrap).topics()
    assert len(known) == 5 + attempts


def test_garbage_behind_the_journal_is_cut_off(broker: BrokerProcess, chance: random.Random) -> None:
    known = Admin(broker.bootstrap).topics()
    for _ in range(times(2, 4)):
        broker.kill()
        damage.append(journal_of(broker), chance.randbytes(chance.randrange(1, 3000)))
        broker.start()
        assert Admin(broker.bootstrap).topics() == known


def test_a_cut_journal_keeps_all_that_was_written_before_the_cut(
    broker: BrokerProcess, chance: random.Random
) -> None:
    """Not even a crash cuts off what was synced; what is left must still make sense."""
    Admin(broker.bootstrap).create_topic("before-the-cut", 3)
    broker.stop()
    size = journal_of(broker).stat().st_size
    broker.start()
    Admin(broker.bootstrap).create_topic("behind-the-cut", 3)
    broker.kill()
    with journal_of(broker).open("r+b") as file:
        file.truncate(chance.randrange(size, journal_of(broker).stat().st_size))
    broker.start()
    topics = Admin(broker.bootstrap).topics()
    assert "before-the-cut" in topics
    assert len(topics) in (6, 7)
    Admin(broker.bootstrap).create_topic("after-all", 3)


def test_a_journal_that_is_spoilt_in_its_middle_is_refused(
    broker: BrokerProcess, chance: random.Random
) -> None:
    broker.kill()
    path = journal_of(broker)
    whole = path.read_bytes()
    for _ in range(5):
        spoilt = bytearray(whole)
        spoilt[chance.randrange(8, len(whole) // 2)] ^= 1 << chance.randrange(8)
        path.write_bytes(spoilt)
        assert_refused(broker.launch(), path)
    path.write_bytes(chance.randbytes(len(whole)))
    assert_refused(broker.launch(), path)
    path.write_bytes(whole)
    broker.start()
    assert len(Admin(broker.bootstrap).topics()) == 5


def test_a_spoilt_snapshot_is_refused(broker: BrokerProcess, chance: random.Random) -> None:
    admin = Admin(broker.bootstrap)
    path = broker.data_dir / SNAPSHOT_NAME
    long_list = ",".join(f"{n}:1" for n in range(4000))
    for number in range(300):
        if path.exists():
            break
        value = f"{number}:1,{long_list}"
        admin.set_topic_configs("topic-1", {"leader.replication.throttled.replicas": value})
    known = admin.topics()
    broker.kill()
    whole = path.read_bytes()
    for way in ("garbled", "cut", "zeroed", "flipped", "empty"):
        damage.WAYS[way](path, chance)
        assert_refused(broker.launch(), path)
    path.write_bytes(whole)
    broker.start()
    admin = Admin(broker.bootstrap)
    assert admin.topics() == known
    assert admin.topic_configs("topic-1")["leader.replication.throttled.replicas"] == value


def test_without_its_journal_a_broker_takes_over_what_lies_on_its_disk(broker: BrokerProcess) -> None:
    known = Admin(broker.bootstrap).topics()
    writer = Writer(broker.bootstrap, "topic-3", 1)
    for number in range(20):
        writer.write([b"%d" % number])
    broker.stop()
    journal_of(broker).unlink()
    broker.start()
    assert Admin(broker.bootstrap).topics() == known
    assert_kept(broker.bootstrap, writer)
