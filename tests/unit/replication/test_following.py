"""Leaders and followers with real logs: what is committed, who is in sync, how parted histories mend."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.faulty_disk import FaultyDisk
from tests.rigs.replica_set import ReplicaSet

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.batch import set_base_offset
from tidelog.records.record import Record, encode_batch
from tidelog.replication.partition import ACKS_ALL
from tidelog.storage.disk import OutOfFilesError
from tidelog.storage.log.log_files import LogFiles
from tidelog.storage.log.log_shrinking import _CUT_OFF_AT_A_TIME
from tidelog.storage.log_config import LogConfig
from tidelog.storage.segment.segment import Segment

LAG_MS = 10_000


def batch(*values: bytes) -> memoryview:
    return memoryview(bytearray(encode_batch([Record(timestamp=1, value=value) for value in values])))


class Scene:
    def __init__(self, tmp_path: Path, config: LogConfig | None) -> None:
        self.clock = ManualClock()
        self.disk_of_2 = FaultyDisk()
        self.replicas = ReplicaSet(tmp_path, 3, self.clock, config, LAG_MS, {2: self.disk_of_2})
        self.replicas.elect(1, isr=(1, 2, 3))

    def offsets(self) -> list[tuple[int, int]]:
        """High watermark and end of each log."""
        logs = [self.replicas[broker].log for broker in (1, 2, 3)]
        return [(log.high_watermark, log.log_end_offset) for log in logs]


def run(tmp_path: Path, test: Callable[[Scene], Awaitable[None]], config: LogConfig | None = None) -> None:
    async def body() -> None:
        scene = Scene(tmp_path, config)
        try:
            await test(scene)
        finally:
            scene.replicas.close()

    asyncio.run(body())


def test_a_record_is_committed_when_every_in_sync_replica_has_it(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas[1].append(batch(b"a", b"b"), ACKS_ALL)
        assert scene.offsets() == [(0, 2), (0, 0), (0, 0)]
        await replicas.rounds(1)
        assert scene.offsets() == [(0, 2), (0, 2), (0, 2)]
        await replicas.rounds(1)
        assert scene.offsets()[0] == (2, 2)
        await replicas.rounds(1)
        assert scene.offsets() == [(2, 2)] * 3
        assert replicas.contents(1) == replicas.contents(2) == replicas.contents(3) != b""

    run(tmp_path, test)


def test_a_follower_that_falls_behind_is_put_out_and_taken_in_again(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas.cut_off.add(3)
        replicas[1].append(batch(b"a"), ACKS_ALL)
        await replicas.rounds(2)
        assert scene.offsets()[0] == (0, 1)
        scene.clock.advance(LAG_MS + 1)
        await replicas.rounds(1)
        replicas[1].shrink_isr()
        assert list(replicas[1].isr) == [1, 2]
        assert scene.offsets()[0] == (1, 1)
        replicas.cut_off.clear()
        await replicas.rounds(2)
        assert list(replicas[1].isr) == [1, 2, 3]
        assert replicas.contents(3) == replicas.contents(1)

    run(tmp_path, test)


def test_a_follower_that_has_found_no_file_to_open_goes_on(tmp_path: Path) -> None:
    """That the process may not open any more files costs no directory, and so no replica."""

    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas[1].append(batch(b"a"))
        replicas[2].log.files.close_handles()
        scene.disk_of_2.fail_next("open", errno.EMFILE)
        await replicas.rounds(1)
        assert [type(error) for error in replicas.lost] == [OutOfFilesError]
        assert scene.offsets()[1] == (0, 0)
        await replicas.rounds(3)
        assert scene.offsets() == [(1, 1)] * 3

    run(tmp_path, test)


def test_a_log_without_epochs_is_cut_before_it_follows_though_files_run_out(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas[1].append(batch(b"a"))
        await replicas.rounds(3)
        replicas.cut_off.add(2)
        replicas[1].append(batch(b"b"))
        log = replicas[2].log
        other = bytearray(encode_batch([Record(timestamp=1, value=b"other")]))
        set_base_offset(other, 0, 1)
        log.append_as_follower(memoryview(other))
        log.epochs.clear()
        replicas.elect(1)
        replicas.cut_off.clear()
        log.files.close_handles()
        scene.disk_of_2.fail_next("open", errno.EMFILE)
        replicas.tell(2)
        assert log.log_end_offset == 2
        await replicas.rounds(4)
        assert replicas.contents(2) == replicas.contents(1)

    run(tmp_path, test)


def test_a_follower_that_is_about_to_be_in_sync_holds_the_high_watermark(tmp_path: Path) -> None:
    """Else it could be taken in, and elected, without what was committed in the meantime."""

    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas.cut_off.add(3)
        scene.clock.advance(LAG_MS + 1)
        await replicas.rounds(1)
        replicas[1].append(batch(b"a"))
        await replicas.rounds(2)
        replicas[1].shrink_isr()
        assert replicas[1].isr == (1, 2)
        replicas.grant = lambda partition, isr: False
        replicas.cut_off.clear()
        await replicas.rounds(2)
        assert replicas[1].isr == (1, 2)
        replicas.cut_off.add(3)
        replicas[1].append(batch(b"b"))
        await replicas.rounds(2)
        assert scene.offsets()[0] == (1, 2)
        scene.clock.advance(LAG_MS + 1)
        await replicas.rounds(1)
        replicas[1].advance_high_watermark()
        assert scene.offsets()[0] == (2, 2)

    run(tmp_path, test)


def test_a_follower_that_is_gone_holds_nothing_back_though_it_had_caught_up(tmp_path: Path) -> None:
    """A broker that shuts down follows until its end, but is not taken in again."""

    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas.grant = lambda partition, isr: False
        replicas.elect(1, isr=(1, 2))
        await replicas.rounds(2)
        replicas.cut_off.add(3)
        replicas[1].append(batch(b"a"), ACKS_ALL)
        await replicas.rounds(2)
        assert scene.offsets()[0] == (0, 1)
        replicas.gone.add(3)
        replicas[1].brokers_changed()
        assert scene.offsets()[0] == (1, 1)

    run(tmp_path, test)


def test_while_a_change_is_under_way_both_sets_count(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas.cut_off.add(3)
        scene.clock.advance(LAG_MS + 1)
        await replicas.rounds(1)
        replicas[1].append(batch(b"a"))
        asked: list[tuple[int, ...]] = []
        replicas[1]._context.isr_requests = type(
            "Slow", (), {"submit": lambda self, p, isr: asked.append(isr)}
        )()
        replicas[1].shrink_isr()
        await replicas.rounds(2)
        assert asked == [(1, 2)]
        assert scene.offsets()[0] == (0, 1)
        replicas[1].isr_changed(0, (1, 2), 1)
        assert scene.offsets()[0] == (1, 1)

    run(tmp_path, test)


def test_too_few_in_sync_replicas_take_no_acks_all_and_commit_nothing(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas.cut_off.update({2, 3})
        scene.clock.advance(LAG_MS + 1)
        replicas[1].append(batch(b"a"), 1)
        replicas[1].shrink_isr()
        assert replicas[1].isr == (1,)
        with pytest.raises(KafkaError) as refusal:
            replicas[1].append(batch(b"b"), ACKS_ALL)
        assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert scene.offsets()[0] == (0, 1)

    run(tmp_path, test, LogConfig(min_insync_replicas=2))


def test_a_deposed_leader_drops_what_nobody_else_has(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas[1].append(batch(b"committed"))
        await replicas.rounds(3)
        replicas.cut_off.add(1)
        replicas[1].append(batch(b"lost-1", b"lost-2", b"lost-3"))
        replicas.elect(2, isr=(2, 3))
        replicas[2].append(batch(b"new"))
        await replicas.rounds(3)
        assert scene.offsets()[1] == (2, 2)
        replicas.cut_off.clear()
        replicas.tell(1)
        await replicas.rounds(4)
        assert scene.offsets() == [(2, 2)] * 3
        assert replicas.contents(1) == replicas.contents(2) == replicas.contents(3)
        assert replicas[2].isr == (2, 3, 1)

    run(tmp_path, test)


def test_histories_that_part_several_times_are_mended_step_by_step(tmp_path: Path) -> None:
    """KIP-279: leaders that were each alone for a while leave epochs that the others have never seen."""

    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas[1].append(batch(b"common"))
        await replicas.rounds(3)
        for leader in (2, 3, 2, 3):
            replicas.cut_off = {1, 2, 3} - {leader}
            replicas.elect(leader, isr=(leader,))
            replicas[leader].append(batch(f"epoch {replicas.state.leader_epoch}".encode()))
        replicas.cut_off = {2, 3}
        replicas.elect(1, isr=(1,))
        replicas[1].append(batch(b"final"))
        replicas.cut_off.clear()
        for broker in (2, 3):
            replicas.tell(broker)
        await replicas.rounds(12)
        assert replicas.contents(1) == replicas.contents(2) == replicas.contents(3)
        assert scene.offsets() == [(2, 2)] * 3

    run(tmp_path, test)


def test_a_follower_behind_the_start_of_the_leaders_log_begins_there(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas[1].append(batch(b"a"))
        await replicas.rounds(3)
        replicas.cut_off.add(3)
        scene.clock.advance(LAG_MS + 1)
        await replicas.rounds(1)
        for number in range(5):
            replicas[1].append(batch(f"{number}".encode()))
        replicas[1].shrink_isr()
        await replicas.rounds(3)
        replicas[1].log.increment_log_start_offset(4)
        replicas.cut_off.clear()
        await replicas.rounds(5)
        assert replicas[3].log.log_start_offset == 4
        assert replicas.contents(3) == replicas.contents(1)
        assert replicas[1].isr == (1, 2, 3)

    run(tmp_path, test)


def test_a_follower_begins_with_a_whole_batch_though_the_leaders_log_starts_within_it(tmp_path: Path) -> None:
    """As after DeleteRecords: the start of a log need not be the start of a batch."""

    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas[1].append(batch(b"a"))
        await replicas.rounds(3)
        replicas.cut_off.add(3)
        scene.clock.advance(LAG_MS + 1)
        await replicas.rounds(1)
        replicas[1].append(batch(b"b", b"c", b"d"))
        replicas[1].shrink_isr()
        await replicas.rounds(3)
        replicas[1].log.increment_log_start_offset(3)
        replicas.cut_off.clear()
        await replicas.rounds(5)
        assert replicas[3].log.log_start_offset == 3
        assert scene.offsets()[2] == (4, 4)
        assert replicas.contents(3) == replicas.contents(1)
        assert replicas[1].isr == (1, 2, 3)

    run(tmp_path, test)


def test_the_start_of_the_log_follows_the_leaders(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas[1].append(batch(b"a"))
        replicas[1].append(batch(b"b"))
        await replicas.rounds(3)
        replicas[1].log.increment_log_start_offset(1)
        assert replicas[1].low_watermark == 0
        await replicas.rounds(2)
        assert [replicas[broker].log.log_start_offset for broker in (1, 2, 3)] == [1, 1, 1]
        assert replicas[1].low_watermark == 1

    run(tmp_path, test)


def test_an_unclean_leader_with_less_makes_the_others_forget(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas.cut_off.add(3)
        replicas[1].append(batch(b"a"))
        replicas[1].append(batch(b"b"))
        await replicas.rounds(3)
        replicas.cut_off = {1, 2}
        replicas.elect(3, isr=(3,))
        replicas.cut_off.clear()
        for broker in (1, 2):
            replicas.tell(broker)
        await replicas.rounds(4)
        assert scene.offsets() == [(0, 0)] * 3
        replicas[3].append(batch(b"c"))
        await replicas.rounds(4)
        assert replicas.contents(1) == replicas.contents(2) == replicas.contents(3) != b""

    run(tmp_path, test)


def test_a_fetch_in_an_old_epoch_is_fenced_and_counts_for_nothing(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas.cut_off.add(3)
        replicas.elect(1)
        replicas.cut_off.clear()
        replicas[1].append(batch(b"a"))
        await replicas.rounds(3)
        assert scene.offsets() == [(0, 1), (0, 1), (0, 0)]
        replicas.tell(3)
        await replicas.rounds(3)
        assert scene.offsets() == [(1, 1)] * 3

    run(tmp_path, test)


def test_what_is_no_replica_is_refused(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        with pytest.raises(KafkaError) as refusal:
            scene.replicas[1].fetched_by(9, 0, 0)
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(tmp_path, test)


def test_a_log_is_cut_back_by_those_who_tell_the_cleaner(tmp_path: Path) -> None:
    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        cut: list[int] = []

        class Truncation:
            def truncate_to(self, partition: TopicPartition, offset: int) -> None:
                cut.append(offset)
                replicas[1].log.truncate_to(offset)

            def truncate_fully_and_start_at(self, partition: TopicPartition, offset: int) -> None:
                raise AssertionError("nothing was deleted")

        replicas.cut_off.add(1)
        replicas[1].append(batch(b"lost"))
        replicas.elect(2, isr=(2, 3))
        replicas[2].append(batch(b"new"))
        await replicas.rounds(2)
        replicas.cut_off.clear()
        replicas[1]._context.truncation = Truncation()
        replicas.tell(1)
        await replicas.rounds(3)
        assert cut == [0]
        assert replicas.contents(1) == replicas.contents(2)

    run(tmp_path, test)


def test_a_log_of_very_many_segments_is_cut_back_in_several_turns(tmp_path: Path) -> None:
    count = 3 * _CUT_OFF_AT_A_TIME

    async def test(scene: Scene) -> None:
        replicas = scene.replicas
        replicas.cut_off.add(1)
        for number in range(count):
            replicas[1].append(batch(b"lost %d" % number))
            replicas[1].log.roll()
        replicas.elect(2, isr=(2, 3))
        replicas[2].append(batch(b"new"))
        await replicas.rounds(2)
        replicas.cut_off.clear()
        replicas.tell(1)
        removed: list[int] = []
        remove = LogFiles.remove_segments

        def noted(files: LogFiles, segments: Sequence[Segment], *, at_once: bool = False) -> None:
            removed.append(len(segments))
            remove(files, segments, at_once=at_once)

        with patch.object(LogFiles, "remove_segments", noted):
            await replicas.rounds(3)
        assert sum(removed) == count
        assert max(removed) == _CUT_OFF_AT_A_TIME
        assert replicas.contents(1) == replicas.contents(2) != b""

    run(tmp_path, test)
