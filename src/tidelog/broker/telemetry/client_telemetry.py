"""The broker's side of KIP-714: which figures a client is asked for, and whether its pushes are in order.

Rules, errors and numbers are those of Kafka's ``ClientMetricsManager``: a client instance has a UUID that the
first broker gives it, what all subscriptions that match it ask for together, the shortest of their intervals,
and a subscription id made of these (a CRC-32C), which a push must carry. A push, or a question, that comes
before the interval is over is THROTTLING_QUOTA_EXCEEDED. All of that follows from the instance's id and the
subscriptions, so that any broker can go on where another was left; what is remembered of instances is their
pace alone, in a cache of ``MOST_INSTANCES``. Nobody needs an ACL to push, as in Kafka.

What is pushed is unpacked to ``telemetry.max.bytes`` at most, one push at a time and those that are not small
beside the loop, and read in steps between which others are served. ``MOST_WAITING`` pushes wait for their
turn, so that they need no slot of ``queued.max.requests`` (``broker/exchange/dispatch``).

Deviations: an instance whose last push said so is gone for good, where Kafka takes every other push
after that; the pace of an instance outlives its connection; what nobody has asked for is not read.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.broker.network.rate_limited_log import RateLimitedLog
from tidelog.checksum import crc32c
from tidelog.clock import Clock
from tidelog.config.client_metrics import (
    ALL_METRICS,
    DEFAULT_INTERVAL_MS,
    SELECTORS,
    Subscription,
    read_subscription,
)
from tidelog.errors import CorruptRecordError, ErrorCode, KafkaError
from tidelog.ids import RESERVED_UUIDS, ZERO_UUID, Uuid, random_uuid, uuid_to_text
from tidelog.metadata.image import MetadataImage
from tidelog.records.compression import Codec, DecompressedTooLargeError, decompress

if TYPE_CHECKING:
    from tidelog.broker.context import RequestContext
    from tidelog.broker.telemetry.client_figures import AllFigures, Client
    from tidelog.metrics.otlp import ResourceMetrics

logger = logging.getLogger(__name__)

MOST_INSTANCES = 16384
MOST_WAITING = 16
"""How many pushes wait for the one that is being read; who comes then has come too early."""
ACCEPTED = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""How pushes may be packed, what is liked best first; unpacked ones are taken, too."""

_KEPT_MS = 60_000
_SWEEP_MS = 30_000
_NEVER = float("-inf")
_NO_SOFTWARE = ("unknown", "unknown")
"""What Kafka, too, calls a client that has not said what it is."""
_LONGEST_NAME = 256
_SMALL_BYTES = 4 * 1024
_STEP_S = 0.001
# Java's clients write some ten for each figure, of which a push has four thousand at most.
_MOST_ELEMENTS = 100_000


class Asked(NamedTuple):
    """What an instance is asked for."""

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int


class Instance:
    """One client, as far as its pace goes."""

    __slots__ = ("asked", "asked_ms", "last_error", "pushed_ms", "seen_ms", "terminated", "version")

    def __init__(self, asked: Asked, version: int) -> None:
        self.asked = asked
        self.version = version
        """Of the subscriptions."""
        self.asked_ms = _NEVER
        self.pushed_ms = _NEVER
        self.seen_ms = 0.0
        self.terminated = False
        self.last_error = ErrorCode.NONE

    def may_ask(self, now_ms: float) -> bool:
        """Note a question for subscriptions, if its time has come."""
        if now_ms - max(self.asked_ms, self.pushed_ms) < self.asked.interval_ms:
            return False
        self.asked_ms = now_ms
        return True

    def may_push(self, now_ms: float) -> bool:
        """Note a push, if its time has come; the first after a question may come at any time."""
        if self.asked_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.asked.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


class TelemetryCounts:
    """What has happened, for the metrics."""

    __slots__ = ("exported", "failed", "throttled", "unknown_subscriptions")

    def __init__(self) -> None:
        self.throttled = 0
        self.unknown_subscriptions = 0
        self.exported = 0
        self.failed = 0


class ClientTelemetry:
    """Answers clients about their telemetry, and keeps it."""

    def __init__(self, image: MetadataImage, clock: Clock, max_bytes: int, max_series: int) -> None:
        self._image = image
        self._clock = clock
        self.max_bytes = max_bytes
        self._max_series = max_series
        self._instances: OrderedDict[Uuid, Instance] = OrderedDict()
        self._subscriptions: dict[str, Subscription] = {}
        self._version = 0
        self._swept_ms = clock.monotonic_ms()
        self._one_at_a_time = asyncio.Lock()
        self._under_way = 0
        self._log = RateLimitedLog(logger, clock)
        self.counts = TelemetryCounts()
        self.figures: AllFigures | None = None
        """What has been pushed; nothing before the first push."""
        self.subscriptions_changed()

    @property
    def instance_count(self) -> int:
        """How many clients have been there of late."""
        return len(self._instances)

    def subscriptions_changed(self) -> None:
        """Go by the subscriptions that the image has now; what cannot be used is passed over."""
        self._version += 1
        self._subscriptions = {}
        for name, entries in sorted(self._image.client_metrics.items()):
            try:
                self._subscriptions[name] = read_subscription(entries)
            except KafkaError as error:
                logger.warning("The subscription %s to clients' metrics is passed over: %s", name, error)

    # GetTelemetrySubscriptions

    def ask(self, context: RequestContext, instance_id: Uuid) -> tuple[Uuid, Asked]:
        """What a client is to push; it gets an id if it has none. Raises the refusal."""
        if instance_id == ZERO_UUID:
            instance_id = random_uuid()
        now_ms = self._clock.monotonic_ms()
        instance = self._instance(context, instance_id, now_ms)
        if not instance.may_ask(now_ms) and instance.last_error not in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ):
            self.counts.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance_id, instance.asked

    def _instance(self, context: RequestContext, instance_id: Uuid, now_ms: float) -> Instance:
        if now_ms - self._swept_ms > _SWEEP_MS:
            self._sweep(now_ms)
        instance = self._instances.get(instance_id)
        if instance is None or instance.version != self._version:
            before = instance
            asked = self._asked(instance_id, _selected(context, instance_id))
            instance = self._instances[instance_id] = Instance(asked, self._version)
            # What is asked for has changed: the client may come at once, unless it has gone.
            instance.terminated = before is not None and before.terminated
            if len(self._instances) > MOST_INSTANCES:
                self._instances.popitem(last=False)
        self._instances.move_to_end(instance_id)
        instance.seen_ms = now_ms
        return instance

    def _asked(self, instance_id: Uuid, client: Mapping[str, str | None]) -> Asked:
        metrics: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        for subscription in self._subscriptions.values():
            if subscription.is_for(client):
                metrics.update(subscription.metrics)
                interval_ms = min(interval_ms, subscription.interval_ms)
        wanted = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
        return Asked(subscription_id(wanted, interval_ms, instance_id), wanted, interval_ms)

    def _sweep(self, now_ms: float) -> None:
        self._swept_ms = now_ms
        gone = [
            instance_id
            for instance_id, each in self._instances.items()
            if now_ms - each.seen_ms > max(_KEPT_MS, 3 * each.asked.interval_ms)
        ]
        for instance_id in gone:
            del self._instances[instance_id]

    # PushTelemetry

    def push(
        self,
        context: RequestContext,
        instance_id: Uuid,
        subscription: int,
        compression: int,
        metrics: bytes,
        *,
        terminating: bool,
    ) -> Coroutine[object, object, None] | None:
        """Take what a client pushes: done, or to be awaited. Raises the refusal."""
        if instance_id in RESERVED_UUIDS:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        now_ms = self._clock.monotonic_ms()
        instance = self._instance(context, instance_id, now_ms)
        try:
            codec = self._checked(instance, subscription, compression, metrics, terminating, now_ms)
        except KafkaError as error:
            instance.last_error = ErrorCode(error.code)
            raise
        finally:
            instance.terminated |= terminating
        instance.last_error = ErrorCode.NONE
        # A client that is asked for nothing has no reason to push, and nobody to read it.
        if not metrics or not instance.asked.metrics:
            return None
        return self._keep_in_turn(context, instance_id, instance, codec, metrics)

    def _checked(
        self,
        instance: Instance,
        subscription: int,
        compression: int,
        metrics: bytes,
        terminating: bool,
        now_ms: float,
    ) -> Codec:
        if instance.terminated:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not instance.may_push(now_ms) and not terminating:
            self.counts.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription != instance.asked.subscription_id:
            self.counts.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        try:
            codec = Codec(compression)
        except ValueError:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE) from None
        if len(metrics) > self.max_bytes:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
        return codec

    async def _keep_in_turn(
        self, context: RequestContext, instance_id: Uuid, instance: Instance, codec: Codec, metrics: bytes
    ) -> None:
        if self._under_way > MOST_WAITING:
            self.counts.throttled += 1
            instance.last_error = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._under_way += 1
        try:
            # One at a time: what is unpacked may be a hundred times what was sent.
            async with self._one_at_a_time:
                if not context.connection.closed:
                    await self._keep(_client(context, instance_id), instance, codec, metrics)
        finally:
            self._under_way -= 1

    async def _keep(self, client: Client, instance: Instance, codec: Codec, metrics: bytes) -> None:
        # Loaded with the first push.
        from tidelog.metrics.otlp import TooManyElementsError

        try:
            if len(metrics) > _SMALL_BYTES and codec is not Codec.NONE:
                data = await asyncio.to_thread(decompress, codec, metrics, self.max_bytes)
            else:
                data = decompress(codec, metrics, self.max_bytes)
            await self._read(client, instance.asked.interval_ms, data)
        except (DecompressedTooLargeError, TooManyElementsError) as error:
            # Not INVALID_RECORD, upon which clients never push again.
            raise self._failed(client, instance, ErrorCode.TELEMETRY_TOO_LARGE, str(error)) from error
        except (CorruptRecordError, ValueError) as error:
            raise self._failed(client, instance, ErrorCode.INVALID_RECORD, str(error)) from error
        self.counts.exported += 1

    def _failed(self, client: Client, instance: Instance, code: ErrorCode, reason: str) -> KafkaError:
        self.counts.failed += 1
        instance.last_error = code
        self._log.warn(
            "push",
            "What client %r (%s) of %s has pushed of its metrics is not taken: %s",
            client.client_id[:100],
            uuid_to_text(client.instance_id),
            client.address,
            reason,
        )
        return KafkaError(code)

    async def _read(self, client: Client, interval_ms: int, data: bytes) -> None:
        from tidelog.broker.telemetry.client_figures import AllFigures
        from tidelog.metrics.otlp import decode_in_steps

        if self.figures is None:
            self.figures = AllFigures(self._clock, self._max_series)
        until_s = time.monotonic() + _STEP_S
        steps = decode_in_steps(data, max_elements=_MOST_ELEMENTS)
        found: list[ResourceMetrics] = []
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found = end.value
                break
            if time.monotonic() >= until_s:
                await asyncio.sleep(0)
                until_s = time.monotonic() + _STEP_S
        for _ in self.figures.take(client, interval_ms, found):
            if time.monotonic() >= until_s:
                await asyncio.sleep(0)
                until_s = time.monotonic() + _STEP_S


def subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: Uuid) -> int:
    """Kafka's id of what an instance is asked for, as a signed number of 32 bits.

    Where several prefixes are asked for, Kafka's is made of them in the order of a hash table.
    """
    checksum = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    high, low = (int.from_bytes(instance_id[start : start + 8], "big") for start in (0, 8))
    mixed = high ^ low
    value = (checksum ^ mixed >> 32 ^ mixed) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _selected(context: RequestContext, instance_id: Uuid) -> dict[str, str | None]:
    software = context.connection.client_software or _NO_SOFTWARE
    address, port = context.connection.peer
    values = (uuid_to_text(instance_id), context.client_id, *software, address, str(port))
    return dict(zip(SELECTORS, values, strict=True))


def _client(context: RequestContext, instance_id: Uuid) -> Client:
    from tidelog.broker.telemetry.client_figures import Client

    names = (context.client_id or "", *(context.connection.client_software or _NO_SOFTWARE))
    # Kept of thousands of instances: no subscription chooses anybody by a longer name either.
    client_id, name, version = (each[:_LONGEST_NAME] for each in names)
    return Client(instance_id, client_id, name, version, context.client_address)
