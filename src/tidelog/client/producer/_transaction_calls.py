"""The calls of a transaction, one at a time: init, begin, offsets, prepare, commit, abort.

A call that has not ended within ``max.block.ms`` raises ``RequestTimeoutError`` and goes on in the
background: the same call again waits for it, any other is refused until then. So a commit of which nobody
knows yet whether it succeeds is never taken for one that has failed. Used by ``AsyncProducer``, on its loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidelog.client.errors import ClientClosedError, ClientError, RequestTimeoutError
from tidelog.client.producer._record_accumulator import RecordAccumulator
from tidelog.client.producer._sender import Sender
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.client.producer._transaction.transaction_states import TransactionState
from tidelog.client.producer._transaction.transactional_offsets import CommittedOffset, GroupMetadata
from tidelog.client.producer._transaction.transactional_requests import TransactionalRequests
from tidelog.client.producer.errors import TransactionStateError
from tidelog.ids import TopicPartition

logger = logging.getLogger(__name__)

_COMMIT = "commit_transaction"

_OFFSETS_ARE = (
    "send_offsets_to_transaction() takes the offset of the next record by partition, "
    "as {TopicPartition('orders', 0): 42}"
)
GroupRef = GroupMetadata | str
"""A consumer's ``group_metadata()``, or the name of its group."""
OffsetRef = CommittedOffset | int
"""An offset, with what is committed beside it or without."""


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction whose records are all written, and which somebody else may commit."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_version_2: bool


@dataclass(frozen=True, slots=True)
class _GroupOnly:
    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class _OffsetOnly(NamedTuple):
    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


class _Call(NamedTuple):
    name: str
    task: asyncio.Task[None]


class Transactions:
    """The transactional side of one producer."""

    def __init__(
        self,
        manager: TransactionManager | None,
        requests: TransactionalRequests | None,
        accumulator: RecordAccumulator,
        sender: Sender,
        max_block_ms: int,
    ) -> None:
        self._manager_or_none = manager
        self._requests_or_none = requests
        self._accumulator = accumulator
        self._sender = sender
        self._max_block_s = max_block_ms / 1000
        self._call: _Call | None = None

    @property
    def _manager(self) -> TransactionManager:
        if self._manager_or_none is None:
            raise TransactionStateError("this producer has no transactions: give it a transactional.id")
        self._manager_or_none.require_transactional()
        return self._manager_or_none

    @property
    def _requests(self) -> TransactionalRequests:
        assert self._requests_or_none is not None
        return self._requests_or_none

    async def init(self) -> None:
        """Get the producer id of the transactional id."""
        manager = self._manager

        def begin() -> None:
            manager.raise_if_failed()
            manager.to(TransactionState.INITIALIZING)

        async def run() -> None:
            await self._requests.init_producer()
            self._requests.read_transaction_version(initial=True)

        await self._make("init_transactions", begin, run)

    def begin(self) -> None:
        """Begin a transaction."""
        self._refuse_while_pending("begin_transaction")
        self._manager.begin()

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetRef], group: GroupRef) -> None:
        """Make offsets part of the transaction."""
        manager = self._manager
        committed = _checked_offsets(offsets)
        _check_group(group)
        who: GroupMetadata = _GroupOnly(group) if isinstance(group, str) else group

        def begin() -> None:
            manager.raise_if_failed()
            if manager.state is not TransactionState.IN_TRANSACTION:
                call = "begin_transaction" if manager.has_producer_id else "init_transactions"
                raise TransactionStateError(f"{manager.subject} cannot send offsets: call {call}() first")

        async def run() -> None:
            await self._requests.offsets.commit(committed, who)

        if committed:
            await self._make("send_offsets_to_transaction", begin, run)

    async def prepare(self) -> PreparedTransaction:
        """Wait until the coordinator knows all partitions that were written to; what ends the transaction."""
        self._refuse_while_pending("prepare_transaction")
        manager = self._manager
        await self._sender.wait_partitions_added()
        manager.raise_if_failed()
        assert manager.transactional_id is not None
        return PreparedTransaction(manager.transactional_id, *manager.identity, manager.is_version_2)

    async def commit(self) -> None:
        """Flush and commit."""
        manager = self._manager

        async def run() -> None:
            await self._accumulator.wait_flushed()
            await self._sender.wait_partitions_added()
            manager.raise_if_failed()
            await self._requests.end_transaction(commit=True)

        await self._make(_COMMIT, lambda: self._begin_end(manager, True), run)

    async def abort(self) -> None:
        """Drop what was not sent, wait for what was, and abort."""
        manager = self._manager

        async def run() -> None:
            await self._accumulator.wait_flushed()
            await self._sender.wait_partitions_added()
            await self._requests.end_transaction(commit=False)

        await self._make("abort_transaction", lambda: self._begin_end(manager, False), run)

    @property
    def is_committing(self) -> bool:
        """Whether a commit was given up by its caller and must be called again."""
        return self._call is not None and self._call.name == _COMMIT

    async def abort_if_open(self) -> None:
        """Abort where there is something to abort; a call that is under way is waited for."""
        manager = self._manager_or_none
        if manager is None or not manager.is_transactional:
            return
        if self._call is not None:
            await self._wait(self._call)
            self._call = None
        if manager.has_ongoing_transaction and not manager.is_completing:
            await self.abort()

    async def close(self) -> None:
        """Give up what is under way."""
        if self._call is not None:
            self._call.task.cancel()
            await asyncio.gather(self._call.task, return_exceptions=True)

    def _begin_end(self, manager: TransactionManager, commit: bool) -> None:
        manager.begin_end(commit)
        # From here on every record is checked, and refused, until the next transaction has begun.
        self._accumulator.close_open_batches()
        self._sender.wake()

    def _refuse_while_pending(self, name: str) -> None:
        if self._call is not None and self._call.name != name:
            raise TransactionStateError(
                f"{name} cannot be called now: {self._call.name} timed out and must be called again first"
            )

    async def _make(
        self, name: str, begin: Callable[[], None], run: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._refuse_while_pending(name)
        call = self._call
        if call is None:
            begin()
            call = self._call = _Call(name, asyncio.get_running_loop().create_task(run(), name=name))
            call.task.add_done_callback(_heard)
        try:
            await self._wait(call)
        finally:
            if call.task.done():
                self._call = None
                self._sender.wake()
        if call.task.cancelled():
            raise ClientClosedError(f"the producer was closed while {name} was under way")
        call.task.result()

    async def _wait(self, call: _Call) -> None:
        """Until ``call`` has ended, however, but no longer than ``max.block.ms``."""
        # Not shielded: closing cancels the call, and that must not look as if the caller was cancelled.
        await asyncio.wait([call.task], timeout=self._max_block_s)
        if not call.task.done():
            raise RequestTimeoutError(
                f"{call.name} has not ended within max.block.ms={self._max_block_s * 1000:.0f}; it goes on, "
                "call it again to wait for it"
            )


def _checked_offsets(given: object) -> dict[TopicPartition, CommittedOffset]:
    """Offsets for a transaction as the application gives them."""
    if not isinstance(given, Mapping):
        raise ClientError(f"{_OFFSETS_ARE}, not {given!r}")
    committed: dict[TopicPartition, CommittedOffset] = {}
    for partition, offset in given.items():
        number = getattr(offset, "offset", offset)
        match partition:
            case (str() as topic, int() as index) if isinstance(number, int) and index >= 0 and number >= 0:
                place = TopicPartition(topic, index)
                committed[place] = _OffsetOnly(offset) if isinstance(offset, int) else offset
            case _:
                raise ClientError(f"{_OFFSETS_ARE}, not {{{partition!r}: {offset!r}}}")
    return committed


def _check_group(group: object) -> None:
    if not isinstance(getattr(group, "group_id", group), str):
        raise ClientError(
            "send_offsets_to_transaction() takes the group of the consumer, as consumer.group_metadata(), "
            f"or its id, not {group!r}"
        )


def _heard(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.debug("%s failed: %s", task.get_name(), error)
