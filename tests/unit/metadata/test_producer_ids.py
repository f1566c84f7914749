from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tidelog.errors import KafkaError
from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.metadata.producer_ids import ProducerIds
from tidelog.metadata.znodes.znodes import PRODUCER_ID_BLOCK, ProducerIdBlock


def test_ids_are_handed_out_in_order_from_blocks_of_a_thousand(tmp_path: Path) -> None:
    async def main() -> None:
        store = EmbeddedStore(tmp_path)
        ids = ProducerIds(store, 1)
        assert ids.next_id_nowait() is None
        assert [await ids.next_id() for _ in range(1001)] == list(range(1001))
        assert ids.next_id_nowait() == 1001
        raw, version = await store.get(PRODUCER_ID_BLOCK)
        assert ProducerIdBlock.decode(raw) == ProducerIdBlock(1, 1000, 1999)
        assert version == 1
        await store.close()

    asyncio.run(main())


def test_an_id_is_never_given_again_after_a_restart(tmp_path: Path) -> None:
    async def run() -> int:
        store = EmbeddedStore(tmp_path)
        taken = await ProducerIds(store, 1).next_id()
        await store.close()
        return taken

    assert [asyncio.run(run()) for _ in range(3)] == [0, 1000, 2000]


def test_two_brokers_never_share_an_id(tmp_path: Path) -> None:
    async def main() -> None:
        store = EmbeddedStore(tmp_path)
        brokers = [ProducerIds(store, broker) for broker in range(3)]
        taken = await asyncio.gather(*(brokers[turn % 3].next_id() for turn in range(300)))
        assert len(set(taken)) == 300
        assert {each // 1000 for each in taken} == {0, 1, 2}
        await store.close()

    asyncio.run(main())


def test_an_empty_node_as_kafka_leaves_it_at_start_is_a_beginning(tmp_path: Path) -> None:
    async def main() -> None:
        store = EmbeddedStore(tmp_path)
        await store.create(PRODUCER_ID_BLOCK)
        assert await ProducerIds(store, 1).next_id() == 0
        await store.close()

    asyncio.run(main())


def test_the_last_block_is_the_last(tmp_path: Path) -> None:
    async def main() -> None:
        store = EmbeddedStore(tmp_path)
        await store.create(PRODUCER_ID_BLOCK, ProducerIdBlock(1, 2**63 - 1000, 2**63 - 1).encode())
        with pytest.raises(KafkaError, match="have been handed out"):
            await ProducerIds(store, 1).next_id()
        await store.close()

    asyncio.run(main())
