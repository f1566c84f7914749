"""SIGTERM at bad moments: under load, twice, during start and recovery."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.chaos.amount import times
from tests.chaos.clients import Admin, Session, Writer, assert_kept, fetch_once, wait_until
from tests.chaos.conftest import StartBroker
from tests.chaos.crew import Crew, Work, numbered, wait_for_more
from tests.rigs.raw_client import RawClient

from tidelog.records.record import Record, encode_batch
from tidelog.testing.broker_process import BrokerProcess
from tidelog.wire.api import ApiKey
from tidelog.wire.messages import fetch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CLEAN_MARK = ".kafka_cleanshutdown"


def long_poll(bootstrap: str, topic: str, partition: int) -> Work:
    """Wait at the end of a partition, again and again."""
    session = Session(bootstrap)

    def work(stop: threading.Event) -> None:
        try:
            end = Admin(bootstrap).offset(topic, partition, -1)
            fetch_once(session, topic, partition, end, max_wait_ms=2_000)
        except OSError:
            session.close()
            stop.wait(0.01)

    return work


def stop_within_bounds(broker: BrokerProcess) -> None:
    code = broker.stop()  # which waits for a minute
    assert code == 0, broker.log
    assert "Traceback" not in broker.log
    assert all((path / CLEAN_MARK).exists() for path in broker.log_dirs)


def test_a_clean_stop_under_load_loses_nothing_and_needs_no_recovery(
    broker_at: StartBroker, chance: random.Random, tmp_path: Path
) -> None:
    broker = broker_at(tmp_path / "first", tmp_path / "second", log_segment_bytes="1048576").start()
    Admin(broker.bootstrap).create_topic("loaded", 4)
    writers = [Writer(broker.bootstrap, "loaded", partition) for partition in range(4)]
    works = [numbered(writer, 20, 500) for writer in writers]
    works += [long_poll(broker.bootstrap, "loaded", partition) for partition in range(4)]
    with Crew(works) as crew:
        for _ in range(times(2, 4)):
            wait_for_more(crew, writers, chance.randrange(100, 3000))
            stop_within_bounds(broker)
            broker.start()
            assert "recover" not in broker.log
        wait_for_more(crew, writers, 100)
        broker.stop()
        broker.start()
    for writer in writers:
        assert_kept(broker.bootstrap, writer)


def test_a_clean_stop_during_compaction_and_a_move_is_clean(
    broker_at: StartBroker, chance: random.Random, tmp_path: Path
) -> None:
    places = [tmp_path / "first", tmp_path / "second"]
    broker = broker_at(
        *places,
        log_cleaner_backoff_ms="5",
        log_cleaner_min_cleanable_ratio="0.01",
        log_index_size_max_bytes="2400",
        log_index_interval_bytes="64",
    ).start()
    admin = Admin(broker.bootstrap)
    admin.create_topic("keyed", 1, cleanup_policy="compact")
    admin.create_topic("moving", 1)
    keyed, moving = Writer(broker.bootstrap, "keyed"), Writer(broker.bootstrap, "moving")

    def write_keyed(_: threading.Event) -> None:
        keys = [b"%d" % chance.randrange(20) for _ in range(10)]
        keyed.write([b"%d" % (len(keyed.written) + n) for n in range(10)], keys=keys)

    with Crew([write_keyed, numbered(moving, 10, 300)]) as crew:
        for _ in range(3):
            wait_for_more(crew, [keyed, moving], chance.randrange(500, 3000))
            admin = Admin(broker.bootstrap)
            (place,) = [path for path, future in admin.where_is("moving", 0).items() if not future]
            with contextlib.suppress(OSError):
                admin.move("moving", 0, *(str(path) for path in places if str(path) != place))
            stop_within_bounds(broker)
            broker.start()
            assert "recover" not in broker.log
        wait_for_more(crew, [keyed, moving], 100)
    assert_kept(broker.bootstrap, moving)


def test_a_second_sigterm_loses_nothing(broker_at: StartBroker, chance: random.Random) -> None:
    broker = broker_at().start()
    Admin(broker.bootstrap).create_topic("loaded", 2)
    writers = [Writer(broker.bootstrap, "loaded", partition) for partition in range(2)]
    with Crew([numbered(writer, 20, 500) for writer in writers]) as crew:
        for _ in range(times(3, 6)):
            wait_for_more(crew, writers, chance.randrange(1000))
            broker.send_signal(signal.SIGTERM)
            threading.Event().wait(chance.choice([0, 0.001, 0.01]))
            with contextlib.suppress(ProcessLookupError):
                broker.send_signal(signal.SIGTERM)
            assert broker.wait() == 0
            assert (broker.data_dir / CLEAN_MARK).exists()
            broker.start()
            assert "recover" not in broker.log
    for writer in writers:
        assert_kept(broker.bootstrap, writer)


def test_ctrl_c_twice_ends_the_broker_at_once_and_loses_nothing(broker_at: StartBroker) -> None:
    """Somebody does not want to wait for a consumer that does not read."""
    broker = broker_at().start()
    Admin(broker.bootstrap).create_topic("loaded")
    writer = Writer(broker.bootstrap, "loaded")
    for _ in range(100):
        writer.write([b"v" * 200_000])
    with RawClient(broker.host, broker.port) as reader:
        reader.send_request(ApiKey.FETCH, 12, whole_partition("loaded"))
        assert reader.sock.recv(100)
        broker.send_signal(signal.SIGINT)
        wait_until("the shutdown to begin", lambda: "Shutting down" in broker.log)
        broker.send_signal(signal.SIGINT)
        assert broker.wait() == 130
    broker.start()
    assert_kept(broker.bootstrap, writer)


def whole_partition(topic: str) -> fetch.FetchRequest:
    wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    return fetch.FetchRequest(min_bytes=1, topics=[fetch.FetchTopic(topic=topic, partitions=[wanted])])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_at_any_moment_of_a_start_harms_nothing(
    broker_at: StartBroker, chance: random.Random, number: signal.Signals
) -> None:
    broker = broker_at(log_index_size_max_bytes="240", log_index_interval_bytes="64").start()
    Admin(broker.bootstrap).create_topic("loaded", 3)
    writers = [Writer(broker.bootstrap, "loaded", partition) for partition in range(3)]
    for writer in writers:
        for value in range(300):
            writer.write([b"%d" % value])
    for attempt in range(times(4, 8)):
        if attempt % 2:
            broker.kill()
        else:
            broker.stop()
        broker.launch()
        # A start takes a few tenths of a second: any moment of it, and a little beyond.
        time.sleep(chance.random() * 0.4)
        broker.send_signal(number)
        # Before the interpreter has come so far as to listen for signals, they end it.
        expected = (0, -signal.SIGTERM) if number is signal.SIGTERM else (-signal.SIGKILL,)
        assert broker.wait() in expected, broker.log
        assert "Traceback" not in broker.log
        broker.start()
        for writer in writers:
            writer.write([b"after attempt %d" % attempt])
            assert_kept(broker.bootstrap, writer)


def test_sigterm_during_a_long_recovery_ends_it_soon(broker_at: StartBroker) -> None:
    """Nobody wants to wait for minutes of checks before the broker stops: the next start does them again."""
    partitions = 60
    broker = broker_at(num_recovery_threads_per_data_dir="1").start()
    Admin(broker.bootstrap).create_topic("large", partitions)
    broker.kill()
    first = broker.data_dir / "large-0" / "00000000000000000000.log"
    first.write_bytes(many_batches(40_000))
    for index in range(1, partitions):
        other = broker.data_dir / f"large-{index}" / first.name
        other.unlink()
        other.hardlink_to(first)
    broker.launch()
    wait_until("the recovery to begin", lambda: "recovering" in broker.log)
    broker.send_signal(signal.SIGTERM)
    assert broker.wait() == 0, broker.log
    assert f"loaded {partitions} logs" not in broker.log, "it did not wait for the recovery"
    assert "ready" not in broker.log.replace("before it was ready", "")
    assert "Traceback" not in broker.log
    assert not (broker.data_dir / CLEAN_MARK).exists()


def many_batches(count: int) -> bytes:
    """Sound batches of one record each, from offset 0 on; the offset is not under the checksum."""
    batch = encode_batch([Record(0, 1_700_000_000_000, None, b"v")])
    return b"".join(offset.to_bytes(8, "big") + batch[8:] for offset in range(count))
