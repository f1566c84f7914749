"""kill -9 while several producers write: rolling, retention and compaction under way."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.chaos.amount import times
from tests.chaos.clients import EARLIEST, LATEST, Admin, Writer, assert_kept, read_from, values, wait_until
from tests.chaos.conftest import StartBroker
from tests.chaos.crew import Crew, numbered, wait_for_more

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

KILLS = times(3, 8)


def test_concurrent_producers_on_several_topics_lose_double_and_reorder_nothing(
    broker_at: StartBroker, chance: random.Random
) -> None:
    broker = broker_at(log_segment_bytes="1048576").start()
    admin = Admin(broker.bootstrap)
    for topic in ("one", "two", "three"):
        admin.create_topic(topic, 2)
    writers = [
        Writer(broker.bootstrap, topic, partition)
        for topic in ("one", "two", "three")
        for partition in (0, 1)
    ]
    with Crew([numbered(writer, chance.randrange(1, 20), 50) for writer in writers]) as crew:
        for _ in range(KILLS):
            wait_for_more(crew, writers, chance.randrange(2000))
            broker.kill()
            broker.restart()
        wait_for_more(crew, writers, 100)
    for writer in writers:
        assert_kept(broker.bootstrap, writer)


def test_constant_rolling_of_tiny_segments_loses_nothing(
    broker_at: StartBroker, chance: random.Random
) -> None:
    broker = broker_at(
        log_flush_offset_checkpoint_interval_ms="50",
        log_index_interval_bytes="64",
        log_index_size_max_bytes="120",
    ).start()
    Admin(broker.bootstrap).create_topic("small", 2, segment_bytes="1048576")
    writers = [Writer(broker.bootstrap, "small", partition) for partition in (0, 1)]
    with Crew([numbered(writer, chance.randrange(1, 4), 40) for writer in writers]) as crew:
        for _ in range(KILLS):
            wait_for_more(crew, writers, chance.randrange(500))
            broker.kill()
            broker.restart()
        wait_until("many segments", lambda: crew.failures or segments_of(broker.data_dir / "small-0") > 20)
    for writer in writers:
        assert_kept(broker.bootstrap, writer)


def segments_of(partition: Path) -> int:
    return len(list(partition.glob("*.log")))


def test_retention_under_kills_keeps_an_unbroken_suffix(
    broker_at: StartBroker, chance: random.Random
) -> None:
    broker = broker_at(
        log_retention_check_interval_ms="20",
        log_index_size_max_bytes="240",
        log_index_interval_bytes="64",
        log_segment_delete_delay_ms="50",
        log_flush_offset_checkpoint_interval_ms="50",
        log_flush_start_offset_checkpoint_interval_ms="50",
    ).start()
    admin = Admin(broker.bootstrap)
    admin.create_topic("short", 2, retention_bytes="20000")
    writers = [Writer(broker.bootstrap, "short", partition) for partition in (0, 1)]
    starts = {0: 0, 1: 0}
    with Crew([numbered(writer, 3, 60) for writer in writers]) as crew:
        for _ in range(KILLS):
            wait_for_more(crew, writers, chance.randrange(1500))
            broker.kill()
            broker.restart()
            for partition, before in starts.items():
                start = Admin(broker.bootstrap).offset("short", partition, EARLIEST)
                assert start >= before, "segments that were deleted came back"
                starts[partition] = start
        wait_for_more(crew, writers, 100)
    # From here on nothing is deleted while it is read.
    Admin(broker.bootstrap).set_topic_configs("short", {"retention.bytes": "-1"})
    for writer in writers:
        stored = read_from(broker.bootstrap, "short", writer.partition)
        assert stored[0].offset > 0
        assert values(stored) == writer.written[stored[0].offset :]
        assert [each.offset for each in stored] == list(range(stored[0].offset, len(writer.written)))


def test_compaction_under_kills_keeps_the_latest_value_of_every_key_and_no_worker(
    broker_at: StartBroker, chance: random.Random
) -> None:
    broker = broker_at(
        log_cleaner_backoff_ms="10",
        log_cleaner_min_cleanable_ratio="0.01",
        log_index_size_max_bytes="240",
        log_index_interval_bytes="64",
        log_segment_delete_delay_ms="50",
        log_flush_offset_checkpoint_interval_ms="50",
    ).start()
    Admin(broker.bootstrap).create_topic("keyed", 1, cleanup_policy="compact")
    writer = Writer(broker.bootstrap, "keyed")
    latest: dict[bytes, bytes] = {}

    def work(_: object) -> None:
        keys = [b"key %d" % chance.randrange(40) for _ in range(5)]
        first = len(writer.written)
        new = [b"%d" % (first + n) for n in range(5)]
        writer.write(new, keys=keys)
        latest.update(zip(keys, new, strict=True))

    orphans: set[int] = set()
    compactions = 0
    with Crew([work]) as crew:
        for _ in range(KILLS):
            wait_for_more(crew, [writer], chance.randrange(200, 1500))
            workers = children(broker.pid)
            compactions += broker.log.count("compacted keyed-0")
            broker.kill()
            orphans |= workers
            broker.restart()
        wait_for_more(crew, [writer], 500)
    wait_until("a compaction", lambda: "compacted keyed-0" in broker.log)
    wait_until("the workers of dead brokers to be gone", lambda: not any(map(is_running, orphans)))
    assert orphans, "no broker died with a worker"
    stored = read_from(broker.bootstrap, "keyed", 0)
    assert len(stored) < len(writer.written)
    offsets = [each.offset for each in stored]
    assert offsets == sorted(set(offsets))
    assert {each.key: each.value for each in stored} == latest
    assert all(each.value == writer.written[each.offset] for each in stored)
    assert (
        stored[-1].offset == len(writer.written) - 1 == Admin(broker.bootstrap).offset("keyed", 0, LATEST) - 1
    )


def children(pid: int) -> set[int]:
    """The processes that ``pid`` has started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return set(map(int, text.split()))


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
