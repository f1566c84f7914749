"""Asks the coordinators of one producer, through moves and loading, and says what their refusals mean.

An error that the next transaction may be spared is *abortable*, one that nothing mends is *fatal*, as in
Kafka: either becomes a state of ``transaction_manager`` here. ``transactional_requests`` and
``transactional_offsets`` make the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.coordinators import CoordinatorType, find_coordinators
from tidelog.client._network.retry import Backoff, Deadline
from tidelog.client.errors import is_retriable
from tidelog.client.metadata import Node
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.client.producer.errors import ProducerFencedError
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.schema import Payload

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Payload)

_E = ErrorCode
MOVED = frozenset({_E.NOT_COORDINATOR, _E.COORDINATOR_NOT_AVAILABLE})
FENCED = frozenset({_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED})


class TransactionCoordinators:
    """The coordinators that one producer talks to: that of its transactional id, and those of groups."""

    def __init__(self, cluster: Cluster, manager: TransactionManager) -> None:
        self._cluster = cluster
        self._manager = manager
        self._nodes: dict[tuple[CoordinatorType, str], Node] = {}

    @property
    def transactional_id(self) -> str:
        """The producer's, which has one."""
        assert self._manager.transactional_id is not None
        return self._manager.transactional_id

    def backoff(self) -> Backoff:
        """The pauses of one operation."""
        return self._cluster.backoff()

    def forget(self, kind: CoordinatorType, key: str) -> None:
        """Look for the coordinator anew when it is asked next."""
        self._nodes.pop((kind, key), None)

    async def ask(
        self,
        build: Callable[[int], Payload],
        response_type: type[ResponseT],
        code_of: Callable[[ResponseT], int],
        *,
        max_version: int | None = None,
        coordinator: tuple[CoordinatorType, str] | None = None,
        backoff: Backoff | None = None,
    ) -> ResponseT:
        """Ask until there is an answer that waiting would not change."""
        where = coordinator or (CoordinatorType.TRANSACTION, self.transactional_id)
        backoff = backoff or self._cluster.backoff()
        while True:
            try:
                node = self._nodes.get(where) or await self._find(where)
                response = await self._cluster.ask_node(node, build, response_type, max_version=max_version)
            except Exception as error:
                self._nodes.pop(where, None)
                if not is_retriable(error):
                    if where[0] is CoordinatorType.GROUP and _is_about_group(error):
                        self._manager.fail_transaction(error)
                    else:
                        self._manager.fail_for_good(error)
                    raise
                logger.debug("%s: %s; trying again", response_type.__name__, error)
                await pause(backoff)
                continue
            code = ErrorCode(code_of(response))
            if code in MOVED:
                self._nodes.pop(where, None)
            elif not code.retriable:
                return response
            await pause(backoff)

    async def _find(self, where: tuple[CoordinatorType, str]) -> Node:
        kind, key = where
        found = (
            await find_coordinators(self._cluster, kind, [key], Deadline(self._cluster.request_timeout_ms))
        )[key]
        if isinstance(found, KafkaError):
            raise found
        self._nodes[where] = found
        return found

    def refused(self, code: ErrorCode, api: str) -> Exception:
        """The error that ``code`` means, once the producer is in the state that follows from it."""
        manager = self._manager
        if code in FENCED:
            error: Exception = ProducerFencedError(manager.transactional_id)
            manager.fail_for_good(error)
            return error
        error = KafkaError(code, f"{api} for transactional.id={manager.transactional_id!r}: {words(code)}")
        if code is _E.UNKNOWN_PRODUCER_ID:
            manager.fail_transaction_or_for_good(error)
        elif code is _E.TRANSACTION_ABORTABLE:
            manager.fail_transaction(error)
        else:
            manager.fail_for_good(error)
        return error


def _is_about_group(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code is _E.GROUP_AUTHORIZATION_FAILED


async def pause(backoff: Backoff) -> None:
    """Wait before the next attempt."""
    await asyncio.sleep(backoff.next_ms() / 1000)


def words(code: ErrorCode) -> str:
    """An error code as people write it."""
    return code.name.lower().replace("_", " ")
