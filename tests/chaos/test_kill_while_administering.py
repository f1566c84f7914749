"""kill -9 during changes of topics, options, log starts and log directories: what was acknowledged stays."""

from __future__ import annotations

import random
import shutil
import threading
from functools import partial
from pathlib import Path

import pytest
from tests.chaos.amount import times
from tests.chaos.clients import EARLIEST, Admin, Writer, assert_kept, read_from, values, wait_until
from tests.chaos.conftest import StartBroker
from tests.chaos.crew import Crew, numbered, wait_for_more

from tidelog.metadata.embedded.embedded_store import SNAPSHOT_NAME
from tidelog.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

KILLS = times(3, 8)


class Topics:
    """A client that creates, grows and deletes topics, and what it was told about them.

    ``known`` maps names to the number of partitions; the topic of a change that was under way when the broker
    died is in ``open``: it may be as before or as wished.
    """

    def __init__(self, bootstrap: str, chance: random.Random) -> None:
        self.known: dict[str, int] = {}
        self.open: str | None = None
        self.changes = 0
        self._admin = Admin(bootstrap)
        self._chance = chance

    def change(self, stop: threading.Event) -> None:
        """One change; a lost connection leaves its outcome open until :meth:`settle`."""
        if self.open is not None:
            stop.wait(0.002)
            return
        name = f"topic-{self._chance.randrange(12)}"
        partitions = self.known.get(name)
        self.open = name
        try:
            if partitions is None:
                count = self._chance.randrange(1, 4)
                self._admin.create_topic(name, count)
                self.known[name] = count
            elif self._chance.random() < 0.4:
                self._admin.add_partitions(name, partitions + 1)
                self.known[name] = partitions + 1
            else:
                self._admin.delete_topic(name)
                del self.known[name]
        except OSError:
            return
        self.open = None
        self.changes += 1

    def settle(self, now: dict[str, int]) -> None:
        """Take what is there ``now`` for the outcome of the open change; all others must be as known."""
        open_one = self.open
        others = {name: count for name, count in now.items() if name != open_one}
        assert others == {name: count for name, count in self.known.items() if name != open_one}
        if open_one is not None:
            before, after = self.known.get(open_one), now.get(open_one)
            assert before is None or after in (None, before, before + 1)
            if after is None:
                self.known.pop(open_one, None)
            else:
                self.known[open_one] = after


def partition_directories(broker: BrokerProcess) -> set[str]:
    """The partitions that lie on disk and wait for nothing."""
    return {
        path.name
        for log_dir in broker.log_dirs
        for path in log_dir.iterdir()
        if path.is_dir() and not path.name.endswith("-delete")
    }


def test_acknowledged_creations_exist_and_acknowledged_deletions_stay(
    broker_at: StartBroker, chance: random.Random, tmp_path: Path
) -> None:
    broker = broker_at(tmp_path / "first", tmp_path / "second", log_segment_delete_delay_ms="20").start()
    topics = Topics(broker.bootstrap, chance)
    with Crew([topics.change]) as crew:
        for _ in range(KILLS * 2):
            goal = topics.changes + chance.randrange(1, 20)
            wait_until("more changes", partial(lambda goal: topics.changes >= goal or crew.failures, goal))
            broker.kill()
            broker.restart()
            wait_until("the client to notice", lambda: topics.open is not None or crew.failures)
            now = Admin(broker.bootstrap).topics()
            expected = {f"{name}-{index}" for name, (_, count) in now.items() for index in range(count)}
            assert partition_directories(broker) == expected
            topics.settle({name: count for name, (_, count) in now.items()})
            topics.open = None
    assert "stray" not in broker.log


def test_acknowledged_config_changes_stay(broker_at: StartBroker, chance: random.Random) -> None:
    """Long values, so that the metadata's journal is cut back, behind a new snapshot, again and again."""
    broker = broker_at().start()
    Admin(broker.bootstrap).create_topic("tuned")
    option = "leader.replication.throttled.replicas"
    padding = ",".join(f"{number}:1" for number in range(4000))
    acknowledged = 0

    def work(stop: threading.Event) -> None:
        nonlocal acknowledged
        admin = Admin(broker.bootstrap)
        try:
            admin.set_topic_configs("tuned", {option: f"{acknowledged + 1}:7,{padding}"})
        except OSError:
            stop.wait(0.002)
        else:
            acknowledged += 1
        finally:
            admin.close()

    snapshot = broker.data_dir / SNAPSHOT_NAME
    kills = 0
    with Crew([work]) as crew:
        while kills < 4 or not snapshot.exists():
            goal = acknowledged + chance.randrange(1, 80)
            wait_until("more changes", partial(lambda goal: acknowledged >= goal or crew.failures, goal))
            broker.kill()
            kills += 1
            before = acknowledged
            broker.restart()
            value = Admin(broker.bootstrap).topic_configs("tuned")[option] or ""
            assert int(value.partition(":")[0]) >= before
            assert value.endswith(padding)


def test_deleted_records_stay_deleted_once_their_start_was_checkpointed(
    broker_at: StartBroker, chance: random.Random
) -> None:
    """Kafka writes log starts every minute and lets an unclean stop bring deleted records back until then."""
    broker = broker_at(log_flush_start_offset_checkpoint_interval_ms="20").start()
    checkpoint = broker.data_dir / "log-start-offset-checkpoint"
    admin = Admin(broker.bootstrap)
    admin.create_topic("trimmed")
    writer = Writer(broker.bootstrap, "trimmed")
    start = 0
    for _ in range(KILLS):
        writer.write([b"%d" % (len(writer.written) + n) for n in range(50)])
        start = chance.randrange(start, len(writer.written) + 1)
        assert admin.delete_records("trimmed", 0, start) == start
        line = f"trimmed 0 {start}\n"
        if start:
            wait_until("the checkpoint", partial(lambda line: line in text_of(checkpoint), line))
        broker.kill()
        broker.restart()
        admin = Admin(broker.bootstrap)
        assert admin.offset("trimmed", 0, EARLIEST) == start
        assert values(read_from(broker.bootstrap, "trimmed", 0)) == writer.written[start:]


def test_a_topic_made_anew_under_an_old_name_has_nothing_of_the_old_one(
    broker_at: StartBroker, chance: random.Random
) -> None:
    """Neither its log start, which is in a checkpoint, nor its recovery point, nor its records."""
    broker = broker_at(
        log_flush_start_offset_checkpoint_interval_ms="1",
        log_flush_offset_checkpoint_interval_ms="1",
        replica_high_watermark_checkpoint_interval_ms="1",
        log_segment_delete_delay_ms="20",
    ).start()
    for _ in range(KILLS):
        admin = Admin(broker.bootstrap)
        for _ in range(chance.randrange(1, 6)):
            admin.create_topic("again")
            old = Writer(broker.bootstrap, "again")
            for number in range(20):
                old.write([b"old %d" % number])
            old.close()
            assert admin.delete_records("again", 0, chance.randrange(1, 21)) > 0
            admin.delete_topic("again")
        admin.create_topic("again")
        new = Writer(broker.bootstrap, "again")
        for number in range(chance.randrange(1, 10)):
            new.write([b"new %d" % number])
        broker.kill()
        broker.start()
        assert_kept(broker.bootstrap, new)
        Admin(broker.bootstrap).delete_topic("again")


def text_of(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""


def test_moves_between_log_directories_under_kills_lose_nothing(
    broker_at: StartBroker, chance: random.Random, tmp_path: Path
) -> None:
    places = [tmp_path / "first", tmp_path / "second"]
    broker = broker_at(*places, log_segment_delete_delay_ms="20", log_index_size_max_bytes="2400").start()
    Admin(broker.bootstrap).create_topic("moving", 2)
    writers = [Writer(broker.bootstrap, "moving", partition) for partition in (0, 1)]
    moved = 0

    def move(stop: threading.Event) -> None:
        nonlocal moved
        admin = Admin(broker.bootstrap)
        partition = chance.randrange(2)
        try:
            (current,) = [path for path, future in admin.where_is("moving", partition).items() if not future]
            (target,) = [str(place) for place in places if str(place) != current]
            admin.move("moving", partition, target)
            moved += 1
            wait_until(
                "the end of the move",
                lambda: admin.where_is("moving", partition) == {target: False} or stop.wait(0.001),
            )
        except OSError:
            stop.wait(0.002)
        finally:
            admin.close()

    with Crew([*(numbered(writer, 5, 200) for writer in writers), move]) as crew:
        for _ in range(KILLS):
            goal = moved + 2
            wait_for_more(crew, writers, chance.randrange(1, 1000))
            wait_until("more moves", partial(lambda goal: moved >= goal or crew.failures, goal))
            broker.kill()
            broker.restart()
        wait_for_more(crew, writers, 100)
    for writer in writers:
        assert_kept(broker.bootstrap, writer)
    broker.stop()
    broker.start()
    for writer in writers:
        assert_kept(broker.bootstrap, writer)


def test_a_kill_between_the_two_renames_of_a_move_does_not_keep_the_broker_from_starting(
    broker_at: StartBroker, tmp_path: Path
) -> None:
    """The partition then lies in both directories, with the same records."""
    places = [tmp_path / "first", tmp_path / "second"]
    broker = broker_at(*places).start()
    Admin(broker.bootstrap).create_topic("moving")
    writer = Writer(broker.bootstrap, "moving")
    for number in range(100):
        writer.write([b"%d" % number])
    broker.kill()
    (source,) = [place for place in places if (place / "moving-0").exists()]
    (target,) = [place for place in places if place != source]
    shutil.copytree(source / "moving-0", target / "moving-0")
    broker.start()
    assert_kept(broker.bootstrap, writer)
    writer.write([b"after"])
    assert_kept(broker.bootstrap, writer)
    broker.stop()
    broker.start()
    assert_kept(broker.bootstrap, writer)
