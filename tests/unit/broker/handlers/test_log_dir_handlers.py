"""DescribeLogDirs and AlterReplicaLogDirs on two real directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode
from tidelog.ids import TopicPartition
from tidelog.storage.log.log import Log
from tidelog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidelog.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest

Run = Callable[..., None]
TWO_DIRS = {"log.dirs": "TMP/d1,TMP/d2"}


async def _describe(broker: Any, topics: dict[str, list[int]] | None, version: int = 4) -> Any:
    asked = None
    if topics is not None:
        asked = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
    return await broker.call("describe_log_dirs", DescribeLogDirsRequest(topics=asked), version)


async def _move(broker: Any, path: Path | str, topic: str, index: int, version: int = 2) -> ErrorCode:
    wanted = AlterReplicaLogDirTopic(name=topic, partitions=[index])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[wanted])])
    (result,) = (await broker.call("alter_replica_log_dirs", request, version)).results
    assert result.topic_name == topic
    return ErrorCode(result.partitions[0].error_code)


@pytest.mark.parametrize("version", range(1, 6))
def test_directories_are_described_with_their_partitions(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", 2), NewTopic("u")])
        partition = await broker.produce("t", 0, 5)
        response = await _describe(broker, None, version)
        (result,) = response.results
        assert (response.error_code, result.error_code) == (0, 0)
        assert result.log_dir == str(broker.config.log_dirs[0])
        sizes = {
            (topic.name, each.partition_index): each.partition_size
            for topic in result.topics
            for each in topic.partitions
        }
        assert sizes == {("t", 0): partition.log.files.size_bytes, ("t", 1): 0, ("u", 0): 0}
        assert all(each.offset_lag == 0 for topic in result.topics for each in topic.partitions)
        if version >= 4:
            assert 0 < result.usable_bytes <= result.total_bytes
        else:
            assert (result.usable_bytes, result.total_bytes) == (-1, -1)

    run(body)


def test_only_the_partitions_asked_for_are_described(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", 2)])
        (some,) = (await _describe(broker, {"t": [1, 9], "no": [0]})).results
        assert [(t.name, [p.partition_index for p in t.partitions]) for t in some.topics] == [("t", [1])]
        (none,) = (await _describe(broker, {})).results
        assert none.topics == []

    run(body)


def test_an_offline_directory_is_a_storage_error(run: Run) -> None:
    async def body(broker: Any) -> None:
        lost = broker.config.log_dirs[1]
        broker.log_dirs.mark_offline(lost, OSError(5, "I/O error"))
        results = {each.log_dir: each.error_code for each in (await _describe(broker, None)).results}
        assert results == {str(broker.config.log_dirs[0]): 0, str(lost): ErrorCode.KAFKA_STORAGE_ERROR}

    run(body, TWO_DIRS)


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_moves_to_another_directory_with_its_records(run: Run, version: int) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t")])
        partition = await broker.produce("t", 0, 9)
        source = partition.log.directory.parent
        (target,) = (path for path in broker.config.log_dirs if path != source)
        moved = asyncio.Event()
        switch = broker.log_dirs.on_moved

        def noted(partition: TopicPartition, log: Log) -> None:
            switch(partition, log)
            moved.set()

        broker.log_dirs.on_moved = noted
        assert await _move(broker, target, "t", 0, version) is ErrorCode.NONE
        async with asyncio.timeout(60):
            await moved.wait()
        assert partition.log.directory == target / "t-0"
        assert partition.log.log_end_offset == 9
        assert await _move(broker, target, "t", 0, version) is ErrorCode.NONE

    run(body, TWO_DIRS)


def test_moves_that_cannot_be_are_refused(run: Run) -> None:
    async def body(broker: Any) -> None:
        long_name = "x" * 240
        await broker.controller.create_topics([NewTopic("t"), NewTopic(long_name)])
        here = broker.config.log_dirs[0]
        assert await _move(broker, "/nowhere", "t", 0) is ErrorCode.LOG_DIR_NOT_FOUND
        assert await _move(broker, "relative", "t", 0) is ErrorCode.LOG_DIR_NOT_FOUND
        assert await _move(broker, here, "no", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await _move(broker, here, "t", 8) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await _move(broker, here, long_name, 0) is ErrorCode.INVALID_TOPIC_EXCEPTION
        broker.log_dirs.mark_offline(broker.config.log_dirs[1], OSError(5, "I/O error"))
        offline = await _move(broker, broker.config.log_dirs[1], "t", 0)
        assert offline is ErrorCode.KAFKA_STORAGE_ERROR

    run(body, TWO_DIRS)


async def _turns_of(work: Any) -> tuple[Any, int]:
    """What ``work`` comes to, and how often others had their turn meanwhile."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return task.result(), turns


def test_many_partitions_are_described_and_moved_in_several_turns_of_the_loop(run: Run) -> None:
    async def body(broker: Any) -> None:
        await broker.controller.create_topics([NewTopic("t", 450)])
        response, turns = await _turns_of(_describe(broker, None))
        described = [
            each.partition_index for result in response.results for each in result.topics[0].partitions
        ]
        assert sorted(described) == list(range(450))
        assert turns >= 3
        target = next(str(path) for path in broker.config.log_dirs)
        wanted = AlterReplicaLogDirTopic(name="t", partitions=list(range(30)))
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=target, topics=[wanted])])
        response, turns = await _turns_of(broker.call("alter_replica_log_dirs", request, 2))
        assert [each.error_code for each in response.results[0].partitions] == [0] * 30
        assert turns >= 7
        await broker.log_dirs.moves.close()

    run(body, TWO_DIRS)
