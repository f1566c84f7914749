from __future__ import annotations

import asyncio
from math import inf

import pytest
from tests.rigs.clock import ManualClock

from tidelog.broker.quotas import request_time
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.broker.quotas.payer import Payer
from tidelog.broker.quotas.request_time import RequestTime, timed
from tidelog.config.client_quotas import QuotaEntity
from tidelog.errors import ErrorCode, KafkaError

ALICE = Payer("alice", "app")
USER: QuotaEntity = (("user", "alice"),)


def _quotas(**limits: float) -> tuple[ClientQuotas, ManualClock]:
    clock = ManualClock()
    quotas = ClientQuotas(clock=clock)
    quotas.apply({USER: limits})
    return quotas, clock


def test_without_quotas_nothing_is_asked() -> None:
    quotas, _ = _quotas()
    assert not quotas.on_produce
    assert not quotas.on_fetch
    assert (quotas.produce, quotas.fetch, quotas.request, quotas.mutations) == (None,) * 4


def test_a_change_of_some_leaves_the_others() -> None:
    quotas, _ = _quotas(producer_byte_rate=1000)
    bob: QuotaEntity = (("user", "bob"),)
    quotas.apply({USER: {"producer_byte_rate": 1000}, bob: {"consumer_byte_rate": 1000}}, {bob})
    assert quotas.produced(ALICE, 15_000, -1) == 5_000
    assert quotas.most_fetched(Payer("bob", "app")) == 10_000
    quotas.apply({bob: {"producer_byte_rate": 1000}}, {USER, bob})
    assert quotas.produced(ALICE, 15_000, -1) == 0
    assert quotas.produced(Payer("bob", "app"), 15_000, -1) == 5_000
    assert quotas.fetch is None
    assert quotas.produce is not None
    quotas.apply({}, {bob})
    assert not quotas.on_produce


def test_producers_pause_by_kafkas_formula() -> None:
    quotas, _ = _quotas(producer_byte_rate=1000)
    assert quotas.produced(ALICE, 10_000, -1) == 0
    assert quotas.produced(ALICE, 5_000, -1) == 5_000
    assert quotas.produced(Payer("bob", "app"), 10**9, -1) == 0


def test_a_throttled_fetch_takes_nothing_of_the_quota() -> None:
    quotas, clock = _quotas(consumer_byte_rate=1000)
    assert quotas.most_fetched(ALICE) == 10_000
    assert quotas.fetched(ALICE, 10_000) == 0
    assert quotas.fetched(ALICE, 1_000) == 1_000
    assert quotas.fetched(ALICE, 2_000) == 2_000
    clock.advance(11_000)
    assert quotas.fetched(ALICE, 10_000) == 0


def test_one_batch_that_is_more_than_a_quota_ever_gives_comes_through() -> None:
    quotas, clock = _quotas(consumer_byte_rate=1000)
    assert quotas.fetched(ALICE, 50_000, indivisible=True) == 0
    assert quotas.fetched(ALICE, 50_000, indivisible=True) > 0
    clock.advance(12_000)
    assert quotas.fetched(ALICE, 50_000, indivisible=True) == 0


def test_nobody_pauses_for_the_time_of_requests_longer_than_a_window() -> None:
    quotas, _ = _quotas(request_percentage=1e-9, producer_byte_rate=1000)
    assert quotas.request is not None
    before = quotas.request.begin()
    assert quotas.request.pause_ms(ALICE) == 1000
    assert quotas.produced(ALICE, 30_000, -1) == 20_000
    quotas.request.end(ALICE, before)


def test_acks_0_pays_for_its_bytes_only() -> None:
    quotas, _ = _quotas(request_percentage=1e-9)
    assert quotas.request is not None
    quotas.request.begin()
    assert quotas.produced(ALICE, 100, 0) == 0
    assert quotas.produced(ALICE, 100, 1) == 1000


def test_the_time_of_brokers_is_counted_apart() -> None:
    quotas, clock = _quotas(request_percentage=1e-9)
    request = quotas.request
    assert request is not None
    request.begin(is_exempt=True)
    request.end(ALICE)
    assert request.exempt.measure(clock.monotonic_ms()) > 0
    assert request.quota.rate_of(*ALICE) == 0


def test_a_request_in_between_does_not_pay_for_the_other() -> None:
    quotas, _ = _quotas(request_percentage=100)
    request = quotas.request
    assert request is not None
    request.begin()
    before = request.begin(is_exempt=True)
    request.end(ALICE, before)
    assert not request.is_exempt
    request.end(ALICE)
    assert request.quota.rate_of(*ALICE) > 0


def test_each_step_of_work_is_charged_and_giving_it_up_reaches_it() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("given up")

    async def run(time: RequestTime) -> None:
        task = asyncio.create_task(timed(work(), time, ALICE))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    quotas, _ = _quotas(request_percentage=100)
    assert quotas.request is not None
    asyncio.run(run(quotas.request))
    assert ended == ["given up"]
    assert quotas.request.quota.rate_of(*ALICE) > 0


def test_work_that_turns_out_to_be_a_brokers_is_so_to_its_end() -> None:
    quotas, clock = _quotas(request_percentage=100)
    request = quotas.request
    assert request is not None

    async def work() -> None:
        request.is_exempt = True
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(quotas.timed(work(), ALICE))
    assert request.quota.rate_of(*ALICE) == 0
    assert request.exempt.measure(clock.monotonic_ms()) > 0
    assert not request.is_exempt


def test_what_another_request_has_made_happen_is_not_paid_for_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(request_time, "perf_counter", lambda: now_s)
    quotas, _ = _quotas(request_percentage=1)
    request = quotas.request
    assert request is not None
    request.begin()
    now_s += 5.0
    assert request.charge(ALICE, lambda: request.pause_ms(ALICE)) == 0
    assert request.quota.rate_of(*ALICE) == 0
    assert request.pause_ms(ALICE) == 1000


def test_strict_changes_are_refused_while_there_are_less_than_no_tokens() -> None:
    quotas, clock = _quotas(controller_mutation_rate=2)
    first = quotas.changes_partitions(ALICE, strict=True)
    assert first is not None
    first.record(30)
    assert first.pause_ms == 0
    with pytest.raises(KafkaError) as refused:
        first.record(1)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert first.pause_ms == 4_000
    clock.advance(4_000)
    assert first.pause_ms == 0
    first.record(1)


def test_lenient_changes_are_made_and_paid_for_afterwards() -> None:
    quotas, _ = _quotas(controller_mutation_rate=2)
    changes = quotas.changes_partitions(ALICE, strict=False)
    assert changes is not None
    changes.record(30)
    assert changes.pause_ms == 4_000
    changes.record(2)
    assert changes.pause_ms == 5_000
    assert quotas.changes_partitions(Payer("bob", "app"), strict=True) is None


@pytest.mark.parametrize("limit", [1.0, 1e-9, float(2**63 - 1), inf])
@pytest.mark.parametrize("used", [1, 100 * 1024 * 1024, 2**40])
def test_the_smallest_and_the_largest_quotas_ask_for_pauses_that_can_be_told(limit: float, used: int) -> None:
    quotas, _ = _quotas(producer_byte_rate=limit, consumer_byte_rate=limit, request_percentage=limit)
    payer = Payer("alice", "app")
    for _ in range(3):
        pause_ms = quotas.produced(payer, used, 1)
        assert isinstance(pause_ms, int)
        assert 0 <= pause_ms < 2**31
        assert 0 <= quotas.fetched(payer, used) < 2**31
    assert 1 <= (quotas.most_fetched(payer) or 0) < 2**31


def test_a_quota_of_no_time_makes_everybody_pause_for_a_window() -> None:
    quotas, _ = _quotas(request_percentage=0)
    assert quotas.request is not None
    for _ in range(2):
        before = quotas.request.begin()
        assert quotas.request.pause_ms(ALICE) == 1000
        quotas.request.end(ALICE, before)


def test_a_quota_of_no_changes_lets_one_through_and_then_none() -> None:
    quotas, clock = _quotas(controller_mutation_rate=0)
    assert quotas.mutations is not None
    first = quotas.mutations.begin(*ALICE, strict=True)
    assert first is not None
    first.record(1)
    for _ in range(2):
        clock.advance(3_600)
        later = quotas.mutations.begin(*ALICE, strict=True)
        assert later is not None
        with pytest.raises(KafkaError) as refusal:
            later.record(1)
        assert refusal.value.code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert later.pause_ms == 11_000
