"""aiokafka: the asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
WAIT_S = 20.0


async def create(bootstrap: str, name: str, partitions: int = 1) -> str:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, partitions, 1)])
    finally:
        await admin.close()
    return name


async def read(bootstrap: str, topic: str, count: int, offset: int = 0) -> list[tuple[object, ...]]:
    client = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False)
    await client.start()
    try:
        place = TopicPartition(topic, 0)
        client.assign([place])
        client.seek(place, offset)
        rows: list[tuple[object, ...]] = []
        async with asyncio.timeout(WAIT_S):
            while len(rows) < count:
                message = await client.getone()
                rows.append((message.offset, message.key, message.value, message.headers))
        return rows
    finally:
        await client.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_codec_and_acks_gives_back_the_same_records(
    bootstrap: str, topic_name: Callable[[], str], codec: str | None, acks: int | str
) -> None:
    async def scenario() -> None:
        topic = await create(bootstrap, topic_name())
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, acks=acks)
        await producer.start()
        expected = []
        for i in range(100):
            key, value = f"k{i}".encode(), f"value {i}".encode() * 10
            await producer.send(topic, key=key, value=value, headers=[("n", str(i).encode())], partition=0)
            expected.append((i, key, value, (("n", str(i).encode()),)))
        await producer.stop()
        assert await read(bootstrap, topic, 100) == expected

    asyncio.run(scenario())


def test_idempotent_producer_keeps_order(bootstrap: str, topic_name: Callable[[], str]) -> None:
    async def scenario() -> None:
        topic = await create(bootstrap, topic_name())
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        futures = [await producer.send(topic, value=str(i).encode(), partition=0) for i in range(500)]
        done = await asyncio.gather(*futures)
        assert [meta.offset for meta in done] == list(range(500))
        await producer.stop()
        assert [row[2] for row in await read(bootstrap, topic, 500)] == [str(i).encode() for i in range(500)]

    asyncio.run(scenario())


def test_too_large_and_out_of_range_are_told_apart(bootstrap: str, topic_name: Callable[[], str]) -> None:
    async def scenario() -> None:
        topic = await create(bootstrap, topic_name())
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, max_request_size=5_000_000, max_batch_size=4_000_000
        )
        await producer.start()
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 2_000_000)
        await producer.stop()
        client = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="none")
        await client.start()
        try:
            place = TopicPartition(topic, 0)
            client.assign([place])
            client.seek(place, 99)
            with pytest.raises(OffsetOutOfRangeError):
                async with asyncio.timeout(WAIT_S):
                    await client.getone()
        finally:
            await client.stop()

    asyncio.run(scenario())


def test_a_long_poll_ends_when_data_arrives(bootstrap: str, topic_name: Callable[[], str]) -> None:
    async def scenario() -> None:
        topic = await create(bootstrap, topic_name())
        client = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, fetch_max_wait_ms=15_000)
        await client.start()
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        try:
            place = TopicPartition(topic, 0)
            client.assign([place])
            client.seek(place, 0)
            waiting = asyncio.create_task(client.getone())
            done, _ = await asyncio.wait({waiting}, timeout=0.5)
            assert not done
            await producer.send_and_wait(topic, b"now", partition=0)
            async with asyncio.timeout(60):
                assert (await waiting).value == b"now"
        finally:
            await producer.stop()
            await client.stop()

    asyncio.run(scenario())
