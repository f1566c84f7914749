"""Requests of a broker to the controller, whoever that is: AlterPartition, ControlledShutdown, topics to be
created.

The controller is the one that ``/controller`` names; while there is none, or the one that was asked says
NOT_CONTROLLER, the request waits and is tried again until its time is up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

from tidelog.broker.cluster.peer_broker import PeerBroker, PeerEndpoint
from tidelog.client._network.connection import RequestBuilder
from tidelog.client._network.retry import Deadline
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.wire.schema import Payload

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Payload)

_RETRY_S = 0.1


class ControllerLink:
    """One broker's way to the controller."""

    def __init__(self, endpoint: Callable[[], PeerEndpoint | None], timeout_ms: float) -> None:
        """``endpoint`` is where the controller listens for brokers, None while nobody knows."""
        self._peer = PeerBroker(endpoint)
        self._timeout_ms = timeout_ms

    async def request(
        self,
        message: Payload | RequestBuilder,
        response_type: type[ResponseT],
        *,
        timeout_ms: float | None = None,
        is_elsewhere: Callable[[ResponseT], bool] | None = None,
    ) -> ResponseT:
        """The controller's answer; ``is_elsewhere`` says whether one is that of a broker which is not it."""
        deadline = Deadline(timeout_ms if timeout_ms is not None else self._timeout_ms)
        while True:
            reason: object = "the broker that was asked is not the controller"
            try:
                response = await self._peer.request(
                    message, response_type, min(self._timeout_ms, max(deadline.remaining_ms, 1))
                )
                if not (is_elsewhere or _not_controller)(response):
                    return response
            except (TidelogError, OSError, TimeoutError) as error:
                reason = error
            await self._peer.close()
            if deadline.expired:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"the controller did not answer: {reason}")
            logger.debug("Asking the controller again: %s", reason)
            await asyncio.sleep(_RETRY_S)

    async def close(self) -> None:
        """End the connection."""
        await self._peer.close()


def _not_controller(response: Payload) -> bool:
    return getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER
