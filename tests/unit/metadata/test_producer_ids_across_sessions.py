"""Producer ids are handed out though a session with ZooKeeper ends in the middle of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.rigs.memory_zookeeper import MemoryZooKeeper

from tidelog.metadata.producer_ids import BLOCK_SIZE, ProducerIds
from tidelog.metadata.store import Op, Result, SessionExpired


@pytest.mark.parametrize("happens", [False, True], ids=["write lost", "answer lost"])
def test_an_id_is_handed_out_in_the_next_session(happens: bool) -> None:
    async def test() -> int:
        store = MemoryZooKeeper().session()
        real_get, real_multi = store.get, store.multi
        failures = ["get", "multi"]

        async def get(path: str) -> tuple[bytes, int]:
            if "get" in failures:
                failures.remove("get")
                raise SessionExpired(path)
            return await real_get(path)

        async def multi(ops: Sequence[Op]) -> list[Result]:
            if "multi" in failures:
                failures.remove("multi")
                if happens:
                    await real_multi(ops)
                raise SessionExpired(ops[0].path)
            return await real_multi(ops)

        store.get, store.multi = get, multi  # type: ignore[method-assign]
        return await asyncio.wait_for(ProducerIds(store, 1).next_id(), 10)

    assert asyncio.run(test()) == (BLOCK_SIZE if happens else 0)
