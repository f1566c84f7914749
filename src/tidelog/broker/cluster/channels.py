"""The controller's ways to the brokers: one task and one connection for each, requests in order, sent until
answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from tidelog.broker.cluster.peer_broker import PeerBroker, PeerEndpoint
from tidelog.controller.cluster.context import LiveBroker
from tidelog.controller.cluster.control_batch import OnResponse
from tidelog.errors import TidelogError
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.schema import Payload

logger = logging.getLogger(__name__)

_RETRY_S = 0.1


class _Waiting(NamedTuple):
    request: Payload
    on_response: OnResponse


class Channel:
    """The way to one broker in one of its epochs.

    ``broker`` may be replaced within the epoch, as a broker may register other addresses: connections lead to
    them, and what waits or is under way is kept.
    """

    def __init__(
        self, broker: LiveBroker, endpoint_of: Callable[[LiveBroker], PeerEndpoint | None], timeout_ms: float
    ) -> None:
        self.broker = broker
        self._broker_id = broker.registration.broker_id
        self._peer = PeerBroker(lambda: endpoint_of(self.broker))
        self._timeout_ms = timeout_ms
        self._queue: asyncio.Queue[_Waiting] = asyncio.Queue()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, request: Payload, on_response: OnResponse) -> None:
        """Send after what waits already."""
        self._queue.put_nowait(_Waiting(request, on_response))

    async def close(self) -> None:
        """Drop what waits."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._peer.close()

    async def _run(self) -> None:
        while True:
            waiting = await self._queue.get()
            try:
                waiting.on_response(await self._deliver(waiting.request))
            except Exception:
                logger.exception("Unexpected error in a request to broker %d", self._broker_id)

    async def _deliver(self, request: Payload) -> Payload:
        api = API_TABLE[ApiKey(request.API_KEY)]
        complained = False
        while True:
            try:
                return await self._peer.request(request, api.response, self._timeout_ms)
            except (TidelogError, OSError, TimeoutError) as error:
                if not complained:
                    complained = True
                    logger.info("%s does not reach broker %d: %s", api.name, self._broker_id, error)
                await self._peer.close()
                await asyncio.sleep(_RETRY_S)


class Channels:
    """Satisfies ``BrokerChannels``."""

    def __init__(
        self,
        endpoint_of: Callable[[LiveBroker], PeerEndpoint | None],
        timeout_ms: float,
    ) -> None:
        self._endpoint_of = endpoint_of
        self._timeout_ms = timeout_ms
        self._held: dict[int, Channel] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def set_brokers(self, brokers: Mapping[int, LiveBroker]) -> None:
        for broker_id, channel in list(self._held.items()):
            now = brokers.get(broker_id)
            if now is not None and now.epoch == channel.broker.epoch:
                channel.broker = now
            else:
                del self._held[broker_id]
                self._close_soon(channel)
        for broker_id, broker in brokers.items():
            if broker_id not in self._held:
                self._held[broker_id] = Channel(broker, self._endpoint_of, self._timeout_ms)

    def send(self, broker_id: int, request: Payload, on_response: OnResponse) -> None:
        channel = self._held.get(broker_id)
        if channel is not None:
            channel.send(request, on_response)

    def close(self) -> None:
        for channel in self._held.values():
            self._close_soon(channel)
        self._held.clear()

    def _close_soon(self, channel: Channel) -> None:
        task = asyncio.get_running_loop().create_task(channel.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
