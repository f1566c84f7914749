"""Everything beside the records that a broker keeps in files, damaged in every way while it is down.

The broker starts and serves what it served before, or it refuses to start with one sentence that names the
file and says what to do; then doing so helps. It never shows a traceback, and a producer goes on in its
sequence.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.chaos import damage
from tests.chaos.amount import pairs
from tests.chaos.clients import EARLIEST, LATEST, Admin, Writer, assert_kept
from tests.chaos.conftest import StartBroker

from tidelog.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

TOPIC = "orders"
FIRST_TIMESTAMP = 1_700_000_000_000
ENDS = ["kill", "stop"]
CHECKPOINTS = [
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
]


@pytest.fixture
def broker(broker_at: StartBroker) -> BrokerProcess:
    """Rolls often, so that there are segments, indexes and snapshots to damage."""
    return broker_at(
        log_index_interval_bytes="200",
        log_index_size_max_bytes="120",
        log_flush_offset_checkpoint_interval_ms="20",
        log_flush_start_offset_checkpoint_interval_ms="20",
        replica_high_watermark_checkpoint_interval_ms="20",
        log_message_timestamp_before_max_ms="9223372036854775807",
        log_retention_ms="-1",
    ).start()


@pytest.fixture
def writer(broker: BrokerProcess) -> Writer:
    Admin(broker.bootstrap).create_topic(TOPIC, 2)
    writer = Writer(broker.bootstrap, TOPIC)
    for _ in range(80):
        write_one(writer)
    return writer


def write_one(writer: Writer) -> None:
    """A record whose timestamp is its number."""
    number = len(writer.written)
    writer.write([b"%d" % number + b"." * (number % 60)], timestamp_ms=FIRST_TIMESTAMP + number)


def end(broker: BrokerProcess, how: str) -> Path:
    if how == "kill":
        broker.kill()
    else:
        assert broker.stop() == 0
    return broker.data_dir / f"{TOPIC}-0"


def assert_serves(broker: BrokerProcess, writer: Writer, *, by_time: bool = True) -> None:
    """Everything is there, is found by offset and by time, and more can be written."""
    assert_kept(broker.bootstrap, writer)
    admin = Admin(broker.bootstrap)
    for number in range(0, len(writer.written), 7):
        found = admin.offset(TOPIC, 0, FIRST_TIMESTAMP + number)
        assert found == number or not by_time
    assert (admin.offset(TOPIC, 0, EARLIEST), admin.offset(TOPIC, 0, LATEST)) == (0, len(writer.written))
    write_one(writer)
    assert_kept(broker.bootstrap, writer)
    admin.close()
    assert "Traceback" not in broker.log


def assert_refused(broker: BrokerProcess, path: Path) -> None:
    """The broker has ended; its last line is one sentence about ``path``."""
    assert broker.wait() == 1
    said = broker.log
    assert "Traceback" not in said
    last = said.strip().splitlines()[-1]
    assert last.startswith("tidelog start: ")
    assert str(path) in last


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_indexes_and_snapshots_can_be_made_anew(
    broker: BrokerProcess, writer: Writer, chance: random.Random, suffix: str
) -> None:
    for way, how in pairs(damage.WAYS, ENDS):
        print(way, how)
        partition = end(broker, how)
        files = sorted(partition.glob("*" + suffix))
        for path in {files[-1], chance.choice(files), chance.choice(files)}:
            damage.WAYS[way](path, chance)
        broker.start()
        # A time index that lacks its last entries, or is nonsense in good order, is believed, as in Kafka.
        noticed = suffix != ".timeindex" or way not in ("cut", "flipped", "garbled")
        assert_serves(broker, writer, by_time=noticed)
        if not noticed:
            for path in end(broker, "kill").glob("*.timeindex"):
                path.unlink()
            broker.start()


@pytest.mark.parametrize("how", ENDS)
def test_all_indexes_and_snapshots_gone_at_once_are_made_anew(
    broker: BrokerProcess, writer: Writer, how: str
) -> None:
    partition = end(broker, how)
    for path in partition.iterdir():
        if path.suffix in (".index", ".timeindex", ".snapshot"):
            path.unlink()
    broker.start()
    assert_serves(broker, writer)


def test_a_transaction_index_that_makes_no_sense_is_made_anew(
    broker: BrokerProcess, writer: Writer, chance: random.Random
) -> None:
    for way in damage.WAYS:
        print(way)
        partition = end(broker, "stop")
        path = damage.segments(partition)[0].with_suffix(".txnindex")
        path.write_bytes(bytes(34 * 2))
        damage.WAYS[way](path, chance)
        broker.start()
        assert_serves(broker, writer)


def test_checkpoints_can_be_done_without(
    broker: BrokerProcess, writer: Writer, chance: random.Random
) -> None:
    for way, how in pairs(damage.WAYS, ENDS):
        print(way, how)
        end(broker, how)
        for name in CHECKPOINTS:
            path = broker.data_dir / name
            if not path.exists():
                path.write_text(f"0\n1\n{TOPIC} 0 0\n")
            damage.WAYS[way](path, chance)
        if how == "stop":
            damage.WAYS[way](broker.data_dir / ".kafka_cleanshutdown", chance)
        broker.start()
        assert_serves(broker, writer)


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata", "meta.properties"])
def test_damaged_small_files_are_made_anew_or_named(
    broker: BrokerProcess, writer: Writer, chance: random.Random, name: str
) -> None:
    # A topic id with one wrong bit is another topic's: see the next test.
    ways = [way for way in damage.WAYS if (name, way) != ("partition.metadata", "flipped")]
    for way, how in pairs(ways, ENDS):
        print(way, how)
        partition = end(broker, how)
        path = broker.data_dir / name if name == "meta.properties" else partition / name
        before = path.read_bytes()
        damage.WAYS[way](path, chance)
        try:
            broker.start()
        except RuntimeError:
            assert_refused(broker, path)
            path.write_bytes(before)
            broker.start()
        assert_serves(broker, writer)


def test_a_partition_of_another_topic_id_is_set_aside_and_not_deleted(
    broker: BrokerProcess, writer: Writer
) -> None:
    partition = end(broker, "kill")
    path = partition / "partition.metadata"
    before = path.read_text()
    path.write_text(before[:-5] + ("A" if before[-5] != "A" else "B") + before[-4:])
    broker.start()
    (aside,) = broker.data_dir.glob(f"{TOPIC}-0.*-stray")
    assert str(aside.name) in broker.log
    broker.kill()
    shutil.rmtree(partition)
    aside.rename(partition)
    path.write_text(before)
    broker.start()
    assert_serves(broker, writer)


def test_a_damaged_leader_epoch_checkpoint_is_rebuilt_once_it_is_deleted_as_told(
    broker: BrokerProcess, writer: Writer
) -> None:
    path = end(broker, "kill") / "leader-epoch-checkpoint"
    path.write_text("nonsense")
    assert "delete the file" in broker.refusal()
    path.unlink()
    broker.start()
    assert_serves(broker, writer)
    assert path.read_text().splitlines()[:1] == ["0"]
