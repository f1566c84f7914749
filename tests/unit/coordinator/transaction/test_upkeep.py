"""What a shard does by itself: transactions past their timeout are aborted, unused ids are forgotten."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.unit.coordinator.transaction.scene import TIMEOUT_MS, TX, Scene, added, code, only_code

from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction import upkeep
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.coordinator.transaction.transaction import LAST_USABLE_EPOCH, MAX_EPOCH
from tidelog.errors import ErrorCode, KafkaError

S = TransactionState
E = ErrorCode
ABORT_INTERVAL_MS = 10_000
REMOVE_INTERVAL_MS = 3_600_000
WEEK_MS = 7 * 24 * 3_600_000


# Timeouts


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_transaction_past_its_timeout_is_aborted_and_its_producer_fenced(version: int) -> None:
    scene = Scene(version)
    producer = scene.in_state(S.ONGOING)
    scene.advance(TIMEOUT_MS)
    assert scene.state() is S.ONGOING
    scene.advance(ABORT_INTERVAL_MS)
    found = scene.get()
    assert found.state is S.COMPLETE_ABORT
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch + 1)
    assert {entry[1:] for entry in scene.markers.written} == {(producer.producer_id, 1, False)}
    assert only_code(scene.add(producer)) is E.PRODUCER_FENCED
    expected = E.PRODUCER_FENCED if version < 2 else E.INVALID_TXN_STATE
    assert code(scene.end(producer, commit=True)) is expected
    assert scene.initialized() == Producer(producer.producer_id, 2)


def test_transactions_are_looked_at_as_often_as_the_option_says() -> None:
    scene = Scene(options={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"})
    producer = scene.init(timeout_ms=1000).result()
    added(scene.add(producer))
    scene.advance(1000)
    assert scene.state() is S.ONGOING
    scene.advance(100)
    assert scene.state() is S.COMPLETE_ABORT


def test_the_time_counts_from_the_first_partition() -> None:
    scene = Scene()
    producer = scene.initialized()
    scene.advance(2 * TIMEOUT_MS)
    added(scene.add(producer))
    scene.advance(TIMEOUT_MS)
    assert scene.state() is S.ONGOING


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_only_open_transactions_time_out(state: TransactionState) -> None:
    scene = Scene()
    scene.in_state(state)
    before = scene.get()
    for _ in range(20):
        scene.advance(ABORT_INTERVAL_MS)
    assert scene.get() == before


def test_transactions_in_two_phase_commit_never_time_out() -> None:
    scene = Scene(options={"transaction.two.phase.commit.enable": "true"})
    producer = scene.coordinator.init_producer_id(TX, 0, None, two_phase=True).result()
    added(scene.add(producer))
    for _ in range(20):
        scene.advance(WEEK_MS)
    assert scene.state() is S.ONGOING


def test_an_abort_that_the_log_refuses_is_tried_again() -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    scene.log.fail_next = KafkaError(E.NOT_ENOUGH_REPLICAS)
    scene.advance(TIMEOUT_MS + 1)
    assert scene.state() is S.ONGOING
    assert scene.get().producer_epoch == producer.epoch
    scene.advance(ABORT_INTERVAL_MS)
    assert scene.state() is S.COMPLETE_ABORT
    assert scene.get().producer_epoch == producer.epoch + 1


def test_a_step_under_way_is_not_interrupted() -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    scene.clock.advance(TIMEOUT_MS + 1)
    scene.log.autocommit = False
    reply = scene.end(producer, commit=True)
    scene.timers.run_due()
    scene.log.autocommit = True
    scene.log.commit()
    reply.result()
    assert scene.state() is S.COMPLETE_COMMIT


def test_a_reloaded_shard_looks_for_timeouts_too() -> None:
    scene = Scene()
    scene.in_state(S.ONGOING)
    scene.crash()
    scene.advance(TIMEOUT_MS + 1)
    assert scene.state() is S.COMPLETE_ABORT


def test_an_unloaded_shard_does_nothing() -> None:
    scene = Scene()
    scene.in_state(S.ONGOING)
    offset = scene.log.end_offset
    scene.unload()
    scene.advance(WEEK_MS)
    assert scene.log.end_offset == offset
    assert len(scene.timers) == 0


def test_at_the_last_epoch_an_abort_waits_for_a_new_producer_id() -> None:
    scene = Scene()
    scene.initialized()
    scene.shard.transactions[TX] = msgspec.structs.replace(scene.get(), producer_epoch=LAST_USABLE_EPOCH - 1)
    last = scene.initialized()
    added(scene.add(last))
    scene.ids.dry = True

    async def run() -> None:
        scene.advance(TIMEOUT_MS + 1)
        for _ in range(10):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert scene.markers.requests[0][:2] == (last.producer_id, MAX_EPOCH)
    assert (scene.get().producer_id, scene.get().producer_epoch) == (1001, 0)
    assert scene.state() is S.COMPLETE_ABORT


# Expiry


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_id_that_nobody_uses_is_forgotten(state: TransactionState) -> None:
    scene = Scene()
    scene.in_state(state)
    producer = Producer(scene.get().producer_id, scene.get().producer_epoch)
    scene.advance(WEEK_MS - 1)
    assert scene.find() is not None
    scene.advance(REMOVE_INTERVAL_MS)
    assert scene.find() is None
    assert only_code(scene.add(producer)) is E.INVALID_PRODUCER_ID_MAPPING
    assert code(scene.end(producer, commit=True)) is E.INVALID_PRODUCER_ID_MAPPING
    scene.crash()
    assert scene.find() is None
    assert scene.initialized().epoch == 0


def test_use_keeps_an_id() -> None:
    scene = Scene()
    scene.initialized()
    scene.advance(WEEK_MS - 1)
    scene.initialized()
    scene.advance(REMOVE_INTERVAL_MS)
    assert scene.find() is not None


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_an_id_with_markers_to_write_is_kept(state: TransactionState) -> None:
    scene = Scene()
    scene.in_state(state)
    scene.advance(WEEK_MS)
    scene.advance(WEEK_MS)
    assert scene.state() is state


def test_age_and_interval_are_options() -> None:
    scene = Scene(
        options={
            "transactional.id.expiration.ms": "1000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
        }
    )
    scene.initialized()
    scene.advance(900)
    assert scene.find() is not None
    scene.advance(100)
    assert scene.find() is None


def test_many_ids_are_forgotten_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "TOMBSTONES_AT_ONCE", 3)
    scene = Scene()
    for number in range(8):
        scene.initialized(f"tx-{number}")
    batches = len(scene.log.batches)
    scene.advance(WEEK_MS)
    assert scene.shard.transactions == {}
    assert len(scene.log.batches) == batches + 3


def test_tombstones_that_do_not_fit_into_one_batch_go_into_several() -> None:
    scene = Scene()
    for number in range(20):
        scene.initialized(f"a-rather-long-transactional-id-{number}")
    scene.log.max_batch_bytes = 200
    scene.advance(WEEK_MS)
    assert scene.shard.transactions == {}
    scene.log.max_batch_bytes = 1 << 20
    scene.crash()
    assert scene.shard.transactions == {}


def test_tombstones_that_the_log_refuses_are_tried_again() -> None:
    scene = Scene()
    scene.initialized()
    scene.log.fail_next = KafkaError(E.NOT_ENOUGH_REPLICAS)
    scene.advance(WEEK_MS)
    assert scene.find() is not None
    assert scene.initialized().epoch == 1
    scene.advance(WEEK_MS)
    assert scene.find() is None


def test_while_a_tombstone_is_not_committed_requests_have_to_wait() -> None:
    scene = Scene()
    producer = scene.initialized()
    scene.log.autocommit = False
    scene.advance(WEEK_MS)
    assert code(scene.init()) is E.CONCURRENT_TRANSACTIONS
    assert only_code(scene.add(producer)) is E.CONCURRENT_TRANSACTIONS
    assert code(scene.end(producer, commit=True, version=0)) is E.CONCURRENT_TRANSACTIONS
    assert code(scene.end(producer, commit=True, version=2)) is E.CONCURRENT_TRANSACTIONS
    scene.log.commit()
    assert only_code(scene.add(producer)) is E.INVALID_PRODUCER_ID_MAPPING
