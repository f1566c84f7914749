"""Producer ids: unique in the cluster for ever, handed out from blocks of 1000 that the store remembers.

A broker owns a block once it has moved ``/latest_producer_id_block`` past it, by a write that names the
version it read; two brokers cannot own one id, and a crash only wastes the rest of a block. The
transaction coordinator is the caller (``coordinator/transaction/producer_id_supply``).
"""

from __future__ import annotations

import asyncio

from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.store import BadVersion, MetadataStore, NodeExists, NoNode, SessionExpired
from tidelog.metadata.znodes.znodes import PRODUCER_ID_BLOCK, ProducerIdBlock
from tidelog.options import MAX_LONG

BLOCK_SIZE = 1000


class ProducerIds:
    """One broker's supply of producer ids."""

    def __init__(self, store: MetadataStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._last = -1
        self._refilling = asyncio.Lock()

    def next_id_nowait(self) -> int | None:
        """The next id, or None if a new block is needed first."""
        if self._next > self._last:
            return None
        self._next += 1
        return self._next - 1

    async def next_id(self) -> int:
        """An id that no producer ever had, however long it takes."""
        async with self._refilling:
            taken = self.next_id_nowait()
            if taken is None:
                block = await self.block_for(self._broker_id)
                self._next, self._last = block.first + 1, block.last
                return block.first
            return taken

    async def block_for(self, broker_id: int) -> ProducerIdBlock:
        """A block of ids that nobody had, for this or another broker."""
        while True:
            latest, version = await self._latest()
            first = latest.last + 1 if latest is not None else 0
            if first > MAX_LONG - BLOCK_SIZE:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR, f"all producer ids up to {first - 1} have been handed out"
                )
            block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
            try:
                if version is None:
                    await self._store.create(PRODUCER_ID_BLOCK, block.encode())
                else:
                    await self._store.set(PRODUCER_ID_BLOCK, block.encode(), version)
            except (BadVersion, NodeExists, SessionExpired):
                # If it was the session, the block may be this broker's and is wasted then.
                continue
            return block

    async def _latest(self) -> tuple[ProducerIdBlock | None, int | None]:
        while True:
            try:
                raw, version = await self._store.get(PRODUCER_ID_BLOCK)
                break
            except NoNode:
                return None, None
            except SessionExpired:
                continue  # The next session tells as well.
        return (ProducerIdBlock.decode(raw) if raw else None), version
