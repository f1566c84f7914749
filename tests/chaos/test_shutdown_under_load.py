"""SIGTERM at bad moments: under load, twice, during start and recovery."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.chaos.clients import Admin, Session, Writer, assert_kept, fetch_once, wait_until
from tests.chaos.conftest import StartBroker
from tests.chaos.crew import Crew, Work, numbered, wait_for_more
from tidelog.testing.broker import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

BOUND_S = 10.0
CLEAN_MARK = ".kafka_cleanshutdown"


def long_poll(bootstrap: str, topic: str, partition: int) -> Work:
    """Wait at the end of a partition, again and again."""
    session = Session(bootstrap)

    def work(stop: threading.Event) -> None:
        try:
            end = Admin(bootstrap).offset(topic, partition, -1)
            fetch_once(session, topic, partition, end, max_wait_ms=20_000)
        except OSError:
            session.close()
            stop.wait(0.01)

    return work


def stop_within_bounds(broker: BrokerProcess) -> None:
    started = time.monotonic()
    code = broker.stop()
    assert code == 0, broker.log
    assert time.monotonic() - started < BOUND_S
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
        for _ in range(4):
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
        for _ in range(6):
            wait_for_more(crew, writers, chance.randrange(1000))
            broker.send_signal(signal.SIGTERM)
            threading.Event().wait(chance.choice([0, 0.001, 0.01]))
            with contextlib.suppress(ProcessLookupError):
                broker.send_signal(signal.SIGTERM)
            assert broker.wait(BOUND_S) == 0
            assert (broker.data_dir / CLEAN_MARK).exists()
            broker.start()
            assert "recover" not in broker.log
    for writer in writers:
        assert_kept(broker.bootstrap, writer)


def test_a_stopped_consumer_does_not_hold_up_a_stop_that_is_asked_for_twice_with_ctrl_c(
    broker_at: StartBroker,
) -> None:
    broker = broker_at().start()
    Admin(broker.bootstrap).create_topic("loaded")
    writer = Writer(broker.bootstrap, "loaded")
    for _ in range(100):
        writer.write([b"v" * 200_000])
    reader = Session(broker.bootstrap)
    reader.ask  # noqa: B018
    broker.send_signal(signal.SIGINT)
    broker.send_signal(signal.SIGINT)
    assert broker.wait(BOUND_S) in (0, 130)
    broker.start()
    assert_kept(broker.bootstrap, writer)


def test_sigterm_at_any_moment_of_a_start_ends_it_and_harms_nothing(
    broker_at: StartBroker, chance: random.Random
) -> None:
    broker = broker_at(log_index_size_max_bytes="240", log_index_interval_bytes="64").start()
    Admin(broker.bootstrap).create_topic("loaded", 3)
    writers = [Writer(broker.bootstrap, "loaded", partition) for partition in range(3)]
    for writer in writers:
        for number in range(300):
            writer.write([b"%d" % number])
    for attempt in range(10):
        broker.kill() if attempt % 2 else broker.stop()
        broker.launch()
        # A start takes a few tenths of a second: any moment of it, and a little beyond.
        time.sleep(chance.random() * 0.5)
        broker.send_signal(signal.SIGTERM)
        code = broker.wait(BOUND_S)
        # Before the interpreter has come so far as to listen for signals, they end it.
        assert code in (0, -signal.SIGTERM), broker.log
        assert "Traceback" not in broker.log
        broker.start()
        for writer in writers:
            writer.write([b"after attempt %d" % attempt])
            assert_kept(broker.bootstrap, writer)


def test_sigterm_during_a_long_recovery_ends_it_soon(broker_at: StartBroker) -> None:
    """A gigabyte of checks must not be waited for: the next start begins them anew."""
    broker = broker_at(num_recovery_threads_per_data_dir="1").start()
    Admin(broker.bootstrap).create_topic("large", 1)
    writer = Writer(broker.bootstrap, "large")
    writer.write([b"x" * 500_000])
    broker.kill()
    # A sparse file of a huge number of tiny sound batches would take too long to write: make checking slow by
    # repeating the directory under many names instead.
    broker.start()
    admin = Admin(broker.bootstrap)
    admin.create_topic("many", 3000)
    broker.kill()
    broker.launch()
    wait_until("the recovery to begin", lambda: "recovering" in broker.log)
    started = time.monotonic()
    broker.send_signal(signal.SIGTERM)
    assert broker.wait() == 0
    assert time.monotonic() - started < 3
    broker.start()
    assert_kept(broker.bootstrap, writer)
