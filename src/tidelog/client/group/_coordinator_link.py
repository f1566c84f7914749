"""The way to a group's coordinator: which broker it is, and requests to it.

Looking for the coordinator goes on in the background until there is one; callers wait for it as long as
they like. An answer that it has moved, and every error of the network, make it unknown again. Errors that
no waiting mends (authorization) are raised to whoever waits next.

A JoinGroup or SyncGroup waits at the broker, and with it all that follows on its connection: other requests
go round it on the usual connection while ``is_held``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidelog.client._network.cluster import COORDINATOR, Cluster
from tidelog.client._network.connection import RequestBuilder, ResponseT
from tidelog.client._network.coordinators import CoordinatorType, find_coordinators
from tidelog.client._network.node_connections import MAIN
from tidelog.client._network.retry import Deadline
from tidelog.client.errors import (
    BrokerUnreachableError,
    ConnectionLostError,
    RequestTimeoutError,
    is_retriable,
)
from tidelog.client.metadata import Node
from tidelog.errors import ErrorCode, TidelogError
from tidelog.wire.schema import Payload

logger = logging.getLogger(__name__)

_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class CoordinatorLink:
    """One group's coordinator."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self.node: Node | None = None
        self.on_found: Callable[[], None] = lambda: None
        self.last_error: Exception | None = None
        self._cluster = cluster
        self._finding = f"finding the coordinator of group {group_id!r}"
        self._joining = f"joining group {group_id!r}"
        self._looking: asyncio.Task[None] | None = None
        self._held = 0

    @property
    def is_held(self) -> bool:
        """Whether a request that may wait long is under way."""
        return self._held > 0

    def is_ready(self) -> bool:
        """Whether the coordinator is known; begins to look for it if not. Raises what no waiting mends."""
        if self.node is not None:
            return True
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(
                self._look(), name=f"find coordinator of {self.group_id}"
            )
            self._looking.add_done_callback(lambda _: self.on_found())
        elif self._looking.done():
            done, self._looking = self._looking, None
            done.result()
        return False

    async def wait_ready(self, deadline: Deadline) -> Node:
        """The coordinator; raises ``RequestTimeoutError`` when time is up before one is found."""
        while not self.is_ready():
            looking = self._looking
            if looking is None:
                continue
            await asyncio.wait([looking], timeout=deadline.remaining)
            if not looking.done():
                why = "no broker has answered" if self.last_error is None else str(self.last_error)
                raise RequestTimeoutError(
                    f"the coordinator of group {self.group_id!r} was not found within "
                    f"{deadline.timeout_ms / 1000:.3g} s: {why}"
                )
        assert self.node is not None
        return self.node

    def lost(self, why: object) -> None:
        """The broker is not, or no longer reachable as, the coordinator."""
        if self.node is not None:
            logger.info("coordinator %s of group %s is lost: %s", self.node, self.group_id, why)
            self.node = None

    def join_failed(self, error: object) -> None:
        """An attempt to join the group, or to stay in it, has failed and is made again."""
        self._cluster.ongoing_errors.note(self._joining, error)

    def joined(self) -> None:
        """This client is a member of the group, or no longer wants to be."""
        self._cluster.ongoing_errors.over(self._joining)

    def note(self, code: int) -> None:
        """Take notice of an answer's error code."""
        if code in _MOVED:
            self.lost(ErrorCode(code).name)

    async def ask(
        self,
        build: Payload | RequestBuilder,
        response_type: type[ResponseT],
        deadline: Deadline,
        *,
        waits_ms: float = 0,
        beside: bool = False,
        max_version: int | None = None,
    ) -> ResponseT:
        """Ask the coordinator, once; ``waits_ms`` is how long it may hold its answer back.

        ``beside`` goes round whatever may hold up its connection.
        A broker gets ``request.timeout.ms`` whatever ``deadline`` says: a caller in a hurry must not cost
        the others their connection.
        """
        node = await self.wait_ready(deadline)
        waits = waits_ms > 0
        channel = MAIN if beside or (self._held and not waits) else COORDINATOR
        patience = Deadline(max(self._cluster.request_timeout_ms, waits_ms))
        self._held += waits
        try:
            async with asyncio.timeout(deadline.remaining):
                return await self._cluster.ask_node(
                    node, build, response_type, patience, max_version=max_version, channel=channel
                )
        except TimeoutError:
            raise RequestTimeoutError(
                f"the coordinator of group {self.group_id!r}, {node}, has not answered within "
                f"{deadline.timeout_ms / 1000:.3g} s"
            ) from None
        except (BrokerUnreachableError, ConnectionLostError, RequestTimeoutError) as error:
            if self.node == node:
                self.lost(error)
            raise
        finally:
            self._held -= waits

    async def close(self) -> None:
        """Stop looking."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        backoff = self._cluster.backoff()
        while True:
            try:
                self.node = await self._find()
            except TidelogError as error:
                self.last_error = error
                self._cluster.ongoing_errors.note(self._finding, error)
                if not is_retriable(error):
                    raise
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                self.last_error = None
                self._cluster.ongoing_errors.over(self._finding)
                logger.info("group %s has coordinator %s", self.group_id, self.node)
                return

    async def _find(self) -> Node:
        deadline = self._cluster.deadline(self._cluster.request_timeout_ms)
        found = await find_coordinators(self._cluster, CoordinatorType.GROUP, [self.group_id], deadline)
        coordinator = found[self.group_id]
        if not isinstance(coordinator, Node):
            raise coordinator
        return coordinator
