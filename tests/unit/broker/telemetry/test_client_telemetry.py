"""Which figures clients are asked for, at what pace they may push them, and what hostile pushes come to."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rigs.clock import ManualClock

from tidelog.broker.context import RequestContext
from tidelog.broker.telemetry import client_telemetry as module
from tidelog.broker.telemetry.client_telemetry import ClientTelemetry, subscription_id
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import RESERVED_UUIDS, ZERO_UUID, Uuid, uuid_from_text
from tidelog.metadata.image import MetadataImage
from tidelog.metrics.otlp import (
    Gauge,
    Metric,
    NumberPoint,
    ResourceMetrics,
    ScopeMetrics,
    encode,
)
from tidelog.records.compression import Codec, compress

ME = Uuid(bytes(range(16)))
INTERVAL_MS = 1000


def context(
    client_id: str | None = "orders-1",
    port: int = 5,
    *,
    software: tuple[str, str] = ("librdkafka", "2.16"),
    closed: bool = False,
) -> RequestContext:
    connection: Any = SimpleNamespace(peer=("10.0.0.7", port), client_software=software, closed=closed)
    return RequestContext(connection, 0, 1, client_id)


class Rig:
    def __init__(self, *, max_bytes: int = 1 << 20, max_series: int = 1000, **subscription: str) -> None:
        self.clock = ManualClock()
        self.image = MetadataImage()
        if subscription:
            self.image.put_client_metrics("s", {k.replace("_", "."): v for k, v in subscription.items()})
        self.telemetry = ClientTelemetry(self.image, self.clock, max_bytes, max_series)

    def ask(self, instance_id: Uuid = ME, **who: Any) -> int:
        return self.telemetry.ask(context(**who), instance_id)[1].subscription_id

    async def push(
        self,
        subscription: int,
        metrics: bytes = b"",
        compression: int = 0,
        *,
        instance_id: Uuid = ME,
        terminating: bool = False,
        **who: Any,
    ) -> ErrorCode:
        try:
            reading = self.telemetry.push(
                context(**who), instance_id, subscription, compression, metrics, terminating=terminating
            )
            if reading is not None:
                await reading
        except KafkaError as error:
            return ErrorCode(error.code)
        return ErrorCode.NONE

    def refused(self, instance_id: Uuid = ME) -> ErrorCode:
        try:
            self.ask(instance_id)
        except KafkaError as error:
            return ErrorCode(error.code)
        return ErrorCode.NONE


def asks_for(rig: Rig, **who: Any) -> tuple[tuple[str, ...], int]:
    _, asked = rig.telemetry.ask(context(**who), ZERO_UUID)
    return asked.metrics, asked.interval_ms


def payload(*names: str, value: float = 1.0) -> bytes:
    metrics = [Metric(name, Gauge([NumberPoint(value)])) for name in names]
    return encode([ResourceMetrics([ScopeMetrics(metrics)])])


def run(body: Any) -> None:
    asyncio.run(body)


# Asking


def test_a_client_without_an_id_gets_one_of_its_own() -> None:
    rig = Rig()
    first, _ = rig.telemetry.ask(context(), ZERO_UUID)
    second, _ = rig.telemetry.ask(context(), ZERO_UUID)
    assert first != second
    assert not {first, second} & RESERVED_UUIDS
    assert rig.telemetry.ask(context(), ME)[0] == ME


def test_without_a_subscription_nothing_is_asked_for_every_five_minutes() -> None:
    assert asks_for(Rig()) == ((), 300_000)


def test_subscriptions_add_up_and_the_shortest_interval_holds() -> None:
    rig = Rig(metrics="b.,a.", interval_ms="5000")
    rig.image.put_client_metrics("t", {"metrics": "c.", "interval.ms": "2000", "match": "client_id=orders.*"})
    rig.image.put_client_metrics("u", {"metrics": "d.", "interval.ms": "100", "match": "client_id=bills.*"})
    rig.telemetry.subscriptions_changed()
    assert asks_for(rig) == (("a.", "b.", "c."), 2000)
    assert asks_for(rig, client_id="bills") == (("a.", "b.", "d."), 100)
    assert asks_for(rig, client_id=None) == (("a.", "b."), 5000)


def test_a_star_among_others_stands_alone() -> None:
    assert asks_for(Rig(metrics="a.,*"))[0] == ("*",)


def test_what_somebody_else_wrote_and_nobody_can_use_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert asks_for(Rig(interval_ms="5")) == ((), 300_000)
    assert "subscription s to clients' metrics is passed over" in caplog.text


def test_the_subscription_id_is_kafkas() -> None:
    # As Apache Kafka 4.3 computes them: tests/compat/side_by_side/client_telemetry.py holds them together.
    known = uuid_from_text("AAECAwQFBgcICQoLDA0ODw")
    assert known == ME
    assert subscription_id((), 300_000, ME) != subscription_id(("*",), 300_000, ME)
    assert -(1 << 31) <= subscription_id(("*",), 1000, ME) < 1 << 31
    other = Uuid(bytes(15) + b"\x03")
    assert subscription_id(("*",), 1000, other) ^ subscription_id(("*",), 1000, ZERO_UUID) == 3


def test_who_asks_again_too_early_is_throttled_until_the_interval_is_over() -> None:
    rig = Rig(metrics="*", interval_ms="1000")
    rig.ask()
    assert rig.refused() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    rig.clock.advance(999)
    assert rig.refused() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    rig.clock.advance(1)
    rig.ask()
    assert rig.telemetry.counts.throttled == 2


def test_changed_subscriptions_may_be_asked_for_at_once() -> None:
    rig = Rig(metrics="*", interval_ms="1000")
    before = rig.ask()
    rig.image.put_client_metrics("s", {"metrics": "a."})
    rig.telemetry.subscriptions_changed()
    assert rig.ask() != before


# Pushing


def test_the_first_push_may_follow_at_once_and_the_next_after_the_interval() -> None:
    async def body() -> None:
        rig = Rig(metrics="*", interval_ms="1000")
        known = rig.ask()
        assert await rig.push(known) == ErrorCode.NONE
        rig.clock.advance(999)
        assert await rig.push(known) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        rig.clock.advance(1)
        assert await rig.push(known) == ErrorCode.NONE

    run(body())


def test_a_broker_that_knows_nothing_of_an_instance_takes_its_push() -> None:
    async def body() -> None:
        first, second = Rig(metrics="*"), Rig(metrics="*")
        known = first.ask()
        assert await second.push(known, payload("a")) == ErrorCode.NONE

    run(body())


def test_another_subscription_is_unknown_and_the_client_may_ask_again_at_once() -> None:
    async def body() -> None:
        rig = Rig(metrics="*", interval_ms="1000")
        known = rig.ask()
        assert await rig.push(known ^ 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        assert rig.ask() == known
        rig.clock.advance(1000)
        assert await rig.push(known) == ErrorCode.NONE
        assert rig.telemetry.counts.unknown_subscriptions == 1

    run(body())


@pytest.mark.parametrize("compression", [-1, 5, 127])
def test_unknown_packing_is_refused_and_the_client_may_ask_again_at_once(compression: int) -> None:
    async def body() -> None:
        rig = Rig(metrics="*")
        known = rig.ask()
        assert await rig.push(known, b"x", compression) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert rig.ask() == known

    run(body())


@pytest.mark.parametrize("codec", list(Codec))
def test_pushes_are_taken_in_every_packing(codec: Codec) -> None:
    async def body() -> None:
        rig = Rig(metrics="*")
        packed = compress(codec, payload(*(f"a.{number}" for number in range(400))))
        assert await rig.push(rig.ask(), packed, codec) == ErrorCode.NONE
        assert rig.telemetry.figures is not None
        assert rig.telemetry.figures.series == 400
        assert rig.telemetry.counts.exported == 1

    run(body())


@pytest.mark.parametrize("reserved", sorted(RESERVED_UUIDS))
def test_reserved_ids_are_no_clients(reserved: Uuid) -> None:
    async def body() -> None:
        rig = Rig()
        assert await rig.push(1, instance_id=reserved) == ErrorCode.INVALID_REQUEST
        assert rig.telemetry.instance_count == 0

    run(body())


def test_the_last_push_may_come_early_and_nothing_after_it() -> None:
    async def body() -> None:
        rig = Rig(metrics="*", interval_ms="1000")
        known = rig.ask()
        assert await rig.push(known) == ErrorCode.NONE
        assert await rig.push(known, payload("a"), terminating=True) == ErrorCode.NONE
        for _ in range(3):
            rig.clock.advance(2000)
            assert await rig.push(known, payload("a")) == ErrorCode.INVALID_REQUEST
        rig.image.put_client_metrics("s", {"metrics": "a.", "interval.ms": "1000"})
        rig.telemetry.subscriptions_changed()
        assert await rig.push(rig.ask(), payload("a")) == ErrorCode.INVALID_REQUEST

    run(body())


def test_what_nobody_has_asked_for_is_not_read() -> None:
    async def body() -> None:
        rig = Rig()
        assert await rig.push(rig.ask(), b"no otlp") == ErrorCode.NONE
        assert rig.telemetry.figures is None
        assert rig.telemetry.counts.exported == 0

    run(body())


def test_a_push_whose_connection_has_gone_is_not_read() -> None:
    async def body() -> None:
        rig = Rig(metrics="*")
        assert await rig.push(rig.ask(), payload("a"), closed=True) == ErrorCode.NONE
        assert rig.telemetry.figures is None

    run(body())


# Hostile pushes


def test_of_many_pushes_at_once_a_few_wait_and_the_others_have_come_too_early() -> None:
    async def body() -> None:
        rig = Rig(metrics="*", interval_ms="1000", max_series=100_000)
        long = payload(*(f"a.{number}" for number in range(2000)))
        instances = [Uuid(bytes([number]) * 16) for number in range(1, 41)]
        pushes = [rig.push(rig.ask(each), long, instance_id=each) for each in instances]
        answers = await asyncio.gather(*pushes)
        assert answers[:17] == [ErrorCode.NONE] * 17
        assert answers[17:] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED] * 23
        assert rig.telemetry.counts.throttled == 23
        rig.clock.advance(1000)
        last = instances[-1]
        assert await rig.push(rig.ask(last), payload("a"), instance_id=last) == ErrorCode.NONE

    run(body())


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_bombs_are_too_large_and_never_unpacked(codec: Codec) -> None:
    async def body() -> None:
        rig = Rig(max_bytes=1 << 20, metrics="*")
        known = rig.ask()
        bomb = compress(codec, bytes(20 << 20))
        assert len(bomb) <= 1 << 20
        tracemalloc.start()
        assert await rig.push(known, bomb, codec) == ErrorCode.TELEMETRY_TOO_LARGE
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 << 20
        assert rig.telemetry.counts.failed == 1

    run(body())


def test_what_is_larger_than_allowed_is_not_looked_at() -> None:
    async def body() -> None:
        rig = Rig(max_bytes=100, metrics="*")
        assert await rig.push(rig.ask(), bytes(101)) == ErrorCode.TELEMETRY_TOO_LARGE

    run(body())


@pytest.mark.parametrize(
    ("hostile", "codec"),
    [
        (b"\xff" * 100, Codec.NONE),
        (b"no gzip", Codec.GZIP),
        (gzip.compress(b"\x0a\x7f"), Codec.GZIP),
        (b"\x28\xb5\x2f\xfd", Codec.ZSTD),
    ],
    ids=["garbage", "no-gzip", "cut-short", "cut-zstd"],
)
def test_what_is_no_otlp_is_an_invalid_record_and_one_line_names_who_sent_it(
    hostile: bytes, codec: Codec, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        rig = Rig(metrics="*")
        assert await rig.push(rig.ask(), hostile, codec) == ErrorCode.INVALID_RECORD

    run(body())
    assert "client 'orders-1' (AAECAwQFBgcICQoLDA0ODw) of 10.0.0.7" in caplog.text


def test_a_flood_of_elements_is_too_large() -> None:
    async def body() -> None:
        rig = Rig(metrics="*")
        assert await rig.push(rig.ask(), b"\x0a\x00" * 110_000) == ErrorCode.TELEMETRY_TOO_LARGE

    run(body())


def test_a_flood_of_ids_is_bounded_and_an_honest_client_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        monkeypatch.setattr(module, "MOST_INSTANCES", 50)
        rig = Rig(metrics="*")
        known = rig.ask()
        for number in range(500):
            rig.ask(Uuid(number.to_bytes(16, "big")[::-1]))
        assert rig.telemetry.instance_count == 50
        assert await rig.push(known, payload("a")) == ErrorCode.NONE

    run(body())


def test_no_more_than_the_beginning_of_a_long_name_is_kept() -> None:
    async def body() -> None:
        rig = Rig(metrics="*")
        who: dict[str, Any] = {"client_id": "n" * 32_000, "software": ("s" * 32_000, "v" * 32_000)}
        assert await rig.push(rig.ask(**who), payload("x"), **who) is ErrorCode.NONE
        assert rig.telemetry.figures is not None
        (figures,) = rig.telemetry.figures
        _, client_id, name, version, _ = figures.client
        assert (client_id, name, version) == ("n" * 256, "s" * 256, "v" * 256)

    run(body())


def test_silent_instances_are_forgotten() -> None:
    rig = Rig(metrics="*", interval_ms="1000")
    rig.ask()
    rig.clock.advance(60_001)
    rig.ask(Uuid(b"b" * 16))
    assert rig.telemetry.instance_count == 1


def test_a_long_push_lets_others_have_their_turn() -> None:
    async def body() -> None:
        rig = Rig(metrics="*", max_series=100_000)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count())
        names = [f"a.{number}" for number in range(10_000)]
        assert await rig.push(rig.ask(), payload(*names)) == ErrorCode.NONE
        counting.cancel()
        assert turns > 5

    run(body())
