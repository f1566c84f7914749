"""Fetches that go on without the loop's task: the next goes out in the turn in which the last is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from unittest.mock import patch

from tests.rigs.clock import ManualClock
from tests.rigs.waiting import until

from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition, random_uuid
from tidelog.metadata.image import PartitionImage
from tidelog.records.batch import set_base_offset, set_leader_epoch
from tidelog.records.record import Record, encode_batch
from tidelog.replication.fetch_loop import _BATCHES_PER_TURN, _PARTITIONS_PER_TURN, FetchLoop
from tidelog.replication.leader_endpoint import Answers, FetchedPartition, OnAnswers, Positions
from tidelog.replication.partition import Partition
from tidelog.storage.log.log import AppendInfo, Log
from tidelog.storage.log.log_context import LogContext
from tidelog.storage.log_config import LogConfig

NAME = TopicPartition("topic", 0)
DEADLINE_S = 60.0


class PromptLeader:
    """Says what it is told to say, to whoever asks without waiting."""

    def __init__(self) -> None:
        self.asked: list[tuple[Positions, OnAnswers]] = []
        self.bounds_asked = 0

    def begin_fetch(self, positions: Positions, on_answers: OnAnswers) -> bool:
        self.asked.append((positions, on_answers))
        return True

    async def fetch(self, positions: Positions) -> Answers:
        raise AssertionError("there is no need to wait")

    async def log_bounds(self, partition: TopicPartition, leader_epoch: int) -> tuple[int, int]:
        self.bounds_asked += 1
        return 5, 9

    async def close(self) -> None:
        """Nothing is open."""

    def answer(self, answer: FetchedPartition | Exception) -> None:
        on_answers = self.asked[-1][1]
        on_answers(answer if isinstance(answer, Exception) else {NAME: answer})

    @property
    def offset(self) -> int:
        return self.asked[-1][0][NAME].offset


def batch(offset: int) -> memoryview:
    data = bytearray(encode_batch([Record(timestamp=1, value=b"a")]))
    set_base_offset(data, 0, offset)
    set_leader_epoch(data, 0, 0)
    return memoryview(data)


def run(tmp_path: Path, test: Callable[[PromptLeader, Partition, FetchLoop], Awaitable[None]]) -> None:
    async def body() -> None:
        clock = ManualClock()
        log = Log.open(LogContext(tmp_path / "topic-0", LogConfig(), clock), clean_shutdown=True)
        partition = Partition(NAME, random_uuid(), log, 2, asyncio.get_running_loop(), lambda error: None)
        partition.apply(PartitionImage(replicas=(1, 2), leader=1, leader_epoch=0, isr=(1, 2)))
        leader = PromptLeader()
        loop = FetchLoop(1, leader, clock, lambda: 0, lambda error: None)
        loop.start()
        loop.add(partition)
        await until(lambda: len(leader.asked) == 1)
        await test(leader, partition, loop)
        await loop.close()
        log.close(clean=False)

    asyncio.run(body())


def test_records_are_appended_and_more_is_asked_for_at_once(tmp_path: Path) -> None:
    async def test(leader: PromptLeader, partition: Partition, loop: FetchLoop) -> None:
        for offset in range(3):
            leader.answer(FetchedPartition(0, offset, 0, None, batch(offset)))
            assert partition.log.log_end_offset == offset + 1
            assert leader.offset == offset + 1
        leader.answer(FetchedPartition(0, 3, 0))
        assert partition.log.high_watermark == 3
        assert len(leader.asked) == 5

    run(tmp_path, test)


def test_what_has_to_be_waited_for_is_left_to_the_task(tmp_path: Path) -> None:
    async def test(leader: PromptLeader, partition: Partition, loop: FetchLoop) -> None:
        leader.answer(FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE))
        assert len(leader.asked) == 1
        await until(lambda: len(leader.asked) == 2)
        assert leader.bounds_asked == 1
        assert leader.offset == 5

    run(tmp_path, test)


def test_a_fetch_that_fails_is_tried_again(tmp_path: Path) -> None:
    async def test(leader: PromptLeader, partition: Partition, loop: FetchLoop) -> None:
        for error in (
            ConnectionResetError("gone"),
            KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR),
            KeyError("bug"),
        ):
            before = len(leader.asked)
            leader.answer(error)
            await until(lambda before=before: len(leader.asked) == before + 1)  # type: ignore[misc]

    run(tmp_path, test)


def test_nothing_is_appended_after_the_loop_was_closed(tmp_path: Path) -> None:
    async def test(leader: PromptLeader, partition: Partition, loop: FetchLoop) -> None:
        await loop.close()
        leader.answer(FetchedPartition(0, 0, 0, None, batch(0)))
        assert partition.log.log_end_offset == 0
        assert len(leader.asked) == 1

    run(tmp_path, test)


def test_an_answer_about_a_deleted_topic_is_not_for_the_one_made_anew_under_its_name(tmp_path: Path) -> None:
    async def test(leader: PromptLeader, partition: Partition, loop: FetchLoop) -> None:
        partition.close()
        loop.remove(NAME)
        log = Log.open(
            LogContext(tmp_path / "new" / "topic-0", LogConfig(), ManualClock()), clean_shutdown=True
        )
        again = Partition(NAME, random_uuid(), log, 2, asyncio.get_running_loop(), lambda error: None)
        again.apply(PartitionImage(replicas=(1, 2), leader=1, leader_epoch=0, isr=(1, 2)))
        loop.add(again)
        leader.answer(FetchedPartition(0, 1, 0, None, batch(0)))
        assert log.log_end_offset == 0
        assert leader.asked[-1][0][NAME].topic_id == again.topic_id
        leader.answer(FetchedPartition(0, 1, 0, None, batch(0)))
        assert log.log_end_offset == 1
        log.close(clean=False)

    run(tmp_path, test)


def test_an_answer_of_very_many_batches_is_appended_in_several_turns(tmp_path: Path) -> None:
    """A megabyte of batches with one small record each would stop the loop for as long as it takes."""
    count = 2 * _BATCHES_PER_TURN + 50
    everything = memoryview(b"".join(batch(offset) for offset in range(count)))

    async def test(leader: PromptLeader, partition: Partition, loop: FetchLoop) -> None:
        log = partition.log
        ends: list[int] = []
        append = log.append_as_follower

        def noted(records: memoryview) -> AppendInfo | None:
            info = append(records)
            ends.append(log.log_end_offset)
            return info

        with patch.object(type(log), "append_as_follower", lambda _, records: noted(records)):
            leader.answer(FetchedPartition(0, count, 0, None, everything))
            assert ends == [_BATCHES_PER_TURN]
            assert len(leader.asked) == 1
            assert log.high_watermark == 0
            await until(lambda: len(leader.asked) == 2)
        assert ends == [_BATCHES_PER_TURN, 2 * _BATCHES_PER_TURN, count]
        assert leader.offset == count
        assert log.high_watermark == count
        assert log.read_bytes(0, len(everything)) == everything

    run(tmp_path, test)


def test_a_long_answer_is_dropped_where_the_partition_changes_meanwhile(tmp_path: Path) -> None:
    everything = memoryview(b"".join(batch(offset) for offset in range(2 * _BATCHES_PER_TURN)))

    async def test(leader: PromptLeader, partition: Partition, loop: FetchLoop) -> None:
        leader.answer(FetchedPartition(0, 0, 0, None, everything))
        partition.apply(PartitionImage(replicas=(1, 2), leader=1, leader_epoch=1, isr=(1, 2)))
        loop.add(partition)
        await until(lambda: len(leader.asked) == 2)
        assert leader.offset == partition.log.log_end_offset == _BATCHES_PER_TURN

    run(tmp_path, test)


def test_what_is_corrupt_in_a_long_answer_ends_it_there(tmp_path: Path) -> None:
    broken = bytearray(batch(_BATCHES_PER_TURN))
    broken[-1] ^= 1
    whole = b"".join(batch(offset) for offset in range(_BATCHES_PER_TURN))
    after = b"".join(batch(_BATCHES_PER_TURN + 1 + offset) for offset in range(_BATCHES_PER_TURN))

    async def test(leader: PromptLeader, partition: Partition, loop: FetchLoop) -> None:
        leader.answer(FetchedPartition(0, 0, 0, None, memoryview(whole + broken + after)))
        await until(lambda: len(leader.asked) == 2)
        assert leader.offset == partition.log.log_end_offset == _BATCHES_PER_TURN

    run(tmp_path, test)


def test_answers_about_very_many_partitions_are_taken_in_several_turns(tmp_path: Path) -> None:
    async def test(leader: PromptLeader, partition: Partition, loop: FetchLoop) -> None:
        names = [TopicPartition("other", index) for index in range(_PARTITIONS_PER_TURN)]
        followed = loop._followed[NAME]
        loop._followed.update(dict.fromkeys(names, followed))
        positions = dict.fromkeys([*names, NAME], leader.asked[-1][0][NAME])
        answers = {name: FetchedPartition(0, 0, 0) for name in names}
        turns = loop._append_in_slices(
            positions, {**answers, NAME: FetchedPartition(0, 0, 0, None, batch(0))}
        )
        next(turns)
        assert partition.log.log_end_offset == 0
        assert next(turns, "the end") == "the end"
        assert partition.log.log_end_offset == 1
        for name in names:
            loop.remove(name)

    run(tmp_path, test)
