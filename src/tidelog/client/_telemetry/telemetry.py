"""A client's figures for its brokers, where the cluster's administrator wants them (KIP-714).

One task per client, begun once a broker offers it: ask for the subscription (which figures, how often, in
which codecs), push them at that interval, ask again when the broker says that it has changed. The
first push comes after half to one and a half intervals, so that clients which start together do not push
together; a last one says at the end that the client goes. What brokers answer is acted on as Java's
``ClientTelemetryReporter`` does:

    UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE    ask for the subscription again, now
    TELEMETRY_TOO_LARGE, THROTTLING_QUOTA_EXCEEDED           ask again after an interval
    every other error                                        no more telemetry from this client

Where no connection can be had, or the broker does not offer it any more, that is tried again later. Nothing
of this is ever an error of the client's own work.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.connection import Connection
from tidelog.client._network.retry import Deadline
from tidelog.client._telemetry.subscription import Subscription
from tidelog.client.errors import ClientClosedError, ClientError, RequestTimeoutError
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import ZERO_UUID, Uuid, uuid_to_text
from tidelog.records.compression import Codec
from tidelog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from tidelog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from tidelog.client._telemetry.payload import Payloads

logger = logging.getLogger(__name__)

DEFAULT_INTERVAL_MS = 300_000
_JITTER = (0.5, 1.5)
_RETRY_MS = 30_000
_AGAIN_AT_ONCE_MS = 1000
_LAST_PUSH_S = 0.5

_ASK_AGAIN_NOW = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_ASK_AGAIN_LATER = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})

Labels = Callable[[], Mapping[str, str]]


class _Stopped(Exception):
    """This client sends no telemetry any more."""


class ClientTelemetry:
    """Pushes the figures of one client; ``labels`` say who it is."""

    def __init__(self, cluster: Cluster, labels: Labels) -> None:
        self._cluster = cluster
        self._labels = labels
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._subscription: Subscription | None = None
        self._subscribed = asyncio.Event()
        self._push_needed = False
        self._asked_at_once = False
        self._payloads: Payloads | None = None
        self._closed = False

    def start(self) -> None:
        """Begin, if that was not done yet."""
        if self._task is None and not self._closed:
            self._task = self._loop.create_task(self._run(), name="client telemetry")

    async def instance_id(self, deadline: Deadline) -> Uuid:
        """The id that a broker has given this client, waiting until one has."""
        if self._subscription is None:
            try:
                async with asyncio.timeout(deadline.remaining):
                    await self._subscribed.wait()
            except TimeoutError:
                raise RequestTimeoutError(
                    "no broker has given this client an instance id within "
                    f"{deadline.timeout_ms / 1000:g} s: brokers do so where they are set up to receive "
                    "client metrics (KIP-714)"
                ) from None
        if self._subscription is None:
            raise ClientClosedError("the client was closed before a broker has given it an instance id")
        return self._subscription.instance_id

    async def close(self, timeout: float | None = None) -> None:
        """Push once more, saying that it is the last time, where a broker expects it; then end."""
        self._closed = True
        self._subscribed.set()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._subscription is None or not self._push_needed:
            return
        limit_s = _LAST_PUSH_S if timeout is None else min(timeout, _LAST_PUSH_S)
        connection = self._cluster.connection_offering(PushTelemetryRequest)
        if connection is None or limit_s <= 0:
            return
        try:
            await self._push(self._subscription, connection, Deadline(limit_s * 1000), terminating=True)
        except (TidelogError, _Stopped) as error:
            logger.debug("the last push of telemetry: %s", error)

    async def _run(self) -> None:
        delay_ms = 0.0
        while True:
            await asyncio.sleep(delay_ms / 1000)
            try:
                delay_ms = await self._turn()
            except _Stopped as reason:
                self._push_needed = False
                logger.debug("no more telemetry: %s", reason)
                return
            except (ClientError, KafkaError) as error:
                # The broker has gone, or another one has taken its place that does not offer it.
                self._push_needed = False
                unsupported = isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION
                delay_ms = DEFAULT_INTERVAL_MS if unsupported else min(self._interval_ms, _RETRY_MS)
                logger.debug("telemetry is tried again in %.0f ms: %s", delay_ms, error)

    @property
    def _interval_ms(self) -> float:
        return DEFAULT_INTERVAL_MS if self._subscription is None else self._subscription.interval_ms

    async def _turn(self) -> float:
        """Ask or push; how long until the next turn, in ms."""
        deadline = Deadline(self._cluster.request_timeout_ms)
        connection = await self._connected(deadline)
        if self._subscription is not None and self._push_needed:
            return await self._push(self._subscription, connection, deadline, terminating=False)
        return await self._subscribe(connection, deadline)

    async def _connected(self, deadline: Deadline) -> Connection:
        connection = self._cluster.connection_offering(GetTelemetrySubscriptionsRequest)
        if connection is not None:
            return connection
        node = self._cluster.least_loaded_node()
        if node is None:
            raise RequestTimeoutError("no broker can be reached now")
        return await self._cluster.connection_to(node, deadline)

    async def _subscribe(self, connection: Connection, deadline: Deadline) -> float:
        known = self._subscription
        response = await connection.request(
            GetTelemetrySubscriptionsRequest(
                client_instance_id=ZERO_UUID if known is None else known.instance_id
            ),
            GetTelemetrySubscriptionsResponse,
            deadline,
        )
        if response.error_code:
            return self._refused(ErrorCode(response.error_code))
        found = _subscription_in(response)
        if known is not None and known.delta != found.delta and self._payloads is not None:
            self._payloads.forget()
        if known is None:
            logger.debug("this client has the instance id %s", uuid_to_text(found.instance_id))
        self._subscription = found
        self._subscribed.set()
        self._push_needed = bool(found.metrics)
        return found.interval_ms * (random.uniform(*_JITTER) if found.metrics else 1.0)

    async def _push(
        self, wanted: Subscription, connection: Connection, deadline: Deadline, *, terminating: bool
    ) -> float:
        try:
            codec, payload = self._payload(wanted)
        except Exception:
            # Whatever is wrong with a figure is no reason for the client to do without all of them for ever.
            logger.warning("the client's figures cannot be pushed; the next attempt follows", exc_info=True)
            return wanted.interval_ms
        response = await connection.request(
            PushTelemetryRequest(
                client_instance_id=wanted.instance_id,
                subscription_id=wanted.subscription_id,
                terminating=terminating,
                compression_type=int(codec),
                metrics=payload,
            ),
            PushTelemetryResponse,
            deadline,
        )
        if response.error_code:
            self._push_needed = False
            return self._refused(ErrorCode(response.error_code))
        self._asked_at_once = False
        return wanted.interval_ms

    def _refused(self, code: ErrorCode) -> float:
        """When to ask for the subscription again."""
        logger.debug("a broker answers telemetry with %s", code.name)
        if code in _ASK_AGAIN_NOW:
            # Once: a broker that says so for ever must not be asked without a pause.
            delay_ms = _AGAIN_AT_ONCE_MS if self._asked_at_once else 0
            self._asked_at_once = True
            return delay_ms
        if code in _ASK_AGAIN_LATER:
            return self._interval_ms
        raise _Stopped(f"a broker has answered {code.name}")

    def _payload(self, wanted: Subscription) -> tuple[Codec, bytes]:
        # A client of which nothing is wanted does without the code for it.
        from tidelog.client._telemetry.payload import Payloads

        if self._payloads is None:
            self._payloads = Payloads(self._cluster.metrics, self._labels)
        return self._payloads.next(wanted)


def _subscription_in(response: GetTelemetrySubscriptionsResponse) -> Subscription:
    if response.client_instance_id == ZERO_UUID:
        raise _Stopped("a broker has given no instance id")
    codecs = tuple(Codec(each) for each in response.accepted_compression_types if each in _CODECS)
    interval_ms = response.push_interval_ms if response.push_interval_ms > 0 else DEFAULT_INTERVAL_MS
    return Subscription(
        response.client_instance_id,
        response.subscription_id,
        interval_ms,
        codecs,
        response.delta_temporality,
        tuple(response.requested_metrics),
    )


_CODECS = frozenset(int(codec) for codec in Codec)
