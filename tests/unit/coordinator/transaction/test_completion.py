"""Markers: sent until every partition has one, given up where nobody needs them, resumed after a reload."""

from __future__ import annotations

import logging

import pytest
from tests.unit.coordinator.transaction.scene import OFFSETS, ORDERS, Scene, added, code, only_code

from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction.completion import MAX_BACKOFF_MS
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.errors import ErrorCode, KafkaError

S = TransactionState
E = ErrorCode

RETRIED = [
    E.NOT_LEADER_OR_FOLLOWER,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.REQUEST_TIMED_OUT,
    E.KAFKA_STORAGE_ERROR,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.UNKNOWN_SERVER_ERROR,
]


def test_markers_go_to_all_partitions_of_the_transaction() -> None:
    scene = Scene()
    producer = scene.initialized()
    added(scene.add(producer, ORDERS[1:3]))
    added(scene.add(producer, [OFFSETS]))
    scene.end(producer, commit=True).result()
    (request,) = scene.markers.requests
    assert request == (producer.producer_id, 1, scene.epoch, True, (OFFSETS, *ORDERS[1:3]), 2)


@pytest.mark.parametrize("refused", RETRIED)
def test_partitions_that_refuse_for_now_are_tried_again(refused: ErrorCode) -> None:
    scene = Scene()
    scene.markers.codes[ORDERS[1]] = refused
    producer = scene.in_state(S.ONGOING)
    scene.end(producer, commit=True).result()
    for _ in range(20):
        scene.advance(MAX_BACKOFF_MS)
    assert scene.state() is S.PREPARE_COMMIT
    assert all(request.partitions == (ORDERS[1],) for request in scene.markers.requests[1:])
    assert len(scene.markers.requests) > 10
    del scene.markers.codes[ORDERS[1]]
    scene.advance(MAX_BACKOFF_MS)
    assert scene.state() is S.COMPLETE_COMMIT
    assert sorted(entry[0] for entry in scene.markers.written) == ORDERS[:2]


@pytest.mark.parametrize("refused", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
def test_partitions_that_cannot_hold_markers_need_none(refused: ErrorCode) -> None:
    scene = Scene()
    scene.markers.codes[ORDERS[1]] = refused
    producer = scene.in_state(S.ONGOING)
    scene.end(producer, commit=False).result()
    assert scene.state() is S.COMPLETE_ABORT


@pytest.mark.parametrize("refused", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_a_coordinator_that_was_replaced_sends_no_more(refused: ErrorCode) -> None:
    scene = Scene()
    scene.markers.codes[ORDERS[1]] = refused
    producer = scene.in_state(S.ONGOING)
    scene.end(producer, commit=True).result()
    scene.advance(60_000)
    assert len(scene.markers.requests) == 1
    assert scene.state() is S.PREPARE_COMMIT
    assert code(scene.init()) is E.CONCURRENT_TRANSACTIONS


def test_a_deleted_topic_gets_no_markers() -> None:
    scene = Scene()
    scene.markers.codes = dict.fromkeys(ORDERS, E.UNKNOWN_TOPIC_OR_PARTITION)
    producer = scene.in_state(S.ONGOING)
    added(scene.add(producer, [OFFSETS]))
    scene.end(producer, commit=True).result()
    assert scene.state() is S.PREPARE_COMMIT
    scene.image.drop_topic("orders")
    scene.advance(MAX_BACKOFF_MS)
    assert scene.state() is S.COMPLETE_COMMIT
    assert [entry[0] for entry in scene.markers.written] == [OFFSETS]


def test_a_transaction_whose_topics_are_all_gone_is_complete_at_once() -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    scene.image.drop_topic("orders")
    scene.end(producer, commit=True).result()
    assert scene.state() is S.COMPLETE_COMMIT
    assert scene.markers.requests == []


def test_a_partition_that_nobody_has_told_of_yet_gets_its_marker_when_somebody_has() -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    added(scene.add(producer, [OFFSETS]))
    orders = scene.image.topics["orders"]
    scene.image.drop_topic("orders")
    scene.markers.nobody_knows = True
    scene.end(producer, commit=True).result()
    assert scene.state() is S.PREPARE_COMMIT
    assert [entry[0] for entry in scene.markers.written] == [OFFSETS]
    scene.markers.nobody_knows = False
    scene.markers.untold = set(ORDERS)
    scene.advance(MAX_BACKOFF_MS)
    assert scene.state() is S.PREPARE_COMMIT
    scene.image.install(orders)
    scene.advance(MAX_BACKOFF_MS)
    assert scene.state() is S.COMPLETE_COMMIT
    assert [entry[0] for entry in scene.markers.written] == [OFFSETS, *ORDERS[:2]]


def test_an_answer_that_leaves_partitions_out_or_fails_is_tried_again() -> None:
    scene = Scene()
    scene.markers.answers.append(ConnectionError("gone"))
    producer = scene.in_state(S.ONGOING)
    scene.end(producer, commit=True).result()
    assert scene.state() is S.PREPARE_COMMIT
    scene.markers.raise_next = RuntimeError("a bug")
    scene.advance(MAX_BACKOFF_MS)
    assert scene.state() is S.PREPARE_COMMIT
    scene.advance(MAX_BACKOFF_MS)
    assert scene.state() is S.COMPLETE_COMMIT


def test_a_lost_answer_leads_to_repeated_markers() -> None:
    scene = Scene()
    producer = scene.in_state(S.PREPARE_COMMIT)
    scene.markers.lose()
    scene.advance(MAX_BACKOFF_MS)
    scene.markers.release()
    assert scene.state() is S.COMPLETE_COMMIT
    assert scene.markers.requests[0] == scene.markers.requests[1]
    assert {entry[1:] for entry in scene.markers.written} == {(producer.producer_id, 1, True)}


def test_a_late_answer_to_an_unloaded_shard_changes_nothing() -> None:
    scene = Scene()
    scene.in_state(S.PREPARE_COMMIT)
    offset = scene.log.end_offset
    scene.unload()
    scene.markers.release()
    scene.advance(60_000)
    assert scene.log.end_offset == offset
    assert len(scene.markers.requests) == 1


def test_an_unloaded_shard_does_not_try_again() -> None:
    scene = Scene()
    scene.markers.codes[ORDERS[0]] = E.NOT_LEADER_OR_FOLLOWER
    producer = scene.in_state(S.ONGOING)
    scene.end(producer, commit=True).result()
    scene.unload()
    scene.advance(60_000)
    assert len(scene.markers.requests) == 1


def test_a_late_answer_to_the_shard_before_does_not_end_what_the_next_one_sends() -> None:
    scene = Scene()
    scene.in_state(S.PREPARE_COMMIT)
    late = scene.markers.held[0]
    # The same broker loads the partition again, under a new epoch.
    scene.epoch += 1
    scene.coordinator.runtime.load_nowait(0, scene.epoch, scene.log)
    late[1].resolve(dict.fromkeys(ORDERS[:2], E.NONE))
    assert scene.state() is S.PREPARE_COMMIT
    scene.markers.held.popleft()
    scene.markers.release()
    assert scene.state() is S.COMPLETE_COMMIT
    assert [request.coordinator_epoch for request in scene.markers.requests] == [1, 2]


@pytest.mark.parametrize(
    "refused", [E.NOT_ENOUGH_REPLICAS, E.KAFKA_STORAGE_ERROR, E.NOT_LEADER_OR_FOLLOWER, E.CORRUPT_MESSAGE]
)
def test_the_end_is_written_again_when_the_log_refuses_it(refused: ErrorCode) -> None:
    scene = Scene()
    producer = scene.in_state(S.PREPARE_COMMIT)
    scene.log.fail_next = KafkaError(refused)
    scene.markers.release()
    assert scene.state() is S.PREPARE_COMMIT
    assert only_code(scene.add(Producer(producer.producer_id, 1))) is E.CONCURRENT_TRANSACTIONS
    scene.log.fail_next = KafkaError(refused)
    scene.advance(MAX_BACKOFF_MS)
    assert scene.state() is S.PREPARE_COMMIT
    scene.advance(MAX_BACKOFF_MS)
    assert scene.state() is S.COMPLETE_COMMIT
    assert len(scene.markers.requests) == 1


def test_an_end_that_is_committed_late_is_not_written_twice() -> None:
    scene = Scene()
    scene.in_state(S.PREPARE_COMMIT)
    scene.log.autocommit = False
    scene.markers.release()
    offset = scene.log.end_offset
    scene.advance(5001)
    scene.advance(60_000)
    assert scene.state() is S.COMPLETE_COMMIT
    assert scene.log.end_offset == offset


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_reloaded_shard_goes_on_with_what_was_prepared(state: TransactionState, version: int) -> None:
    scene = Scene(version)
    producer = scene.in_state(state)
    scene.crash()
    assert scene.state() is state
    assert scene.markers.requests[-1] == scene.markers.requests[0]._replace(coordinator_epoch=2)
    scene.markers.release()
    assert scene.state() is (S.COMPLETE_COMMIT if state is S.PREPARE_COMMIT else S.COMPLETE_ABORT)
    assert scene.get().producer_id == producer.producer_id


def test_a_reloaded_shard_sends_nothing_before_its_log_is_committed() -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    scene.log.autocommit = False
    scene.end(producer, commit=True)
    # The same replica leads again and finds more than is committed.
    scene.epoch += 1
    scene.coordinator.runtime.load_nowait(0, scene.epoch, scene.log)
    assert scene.state() is S.PREPARE_COMMIT
    scene.advance(5001)
    scene.advance(1000)
    assert scene.markers.requests == []
    scene.log.autocommit = True
    scene.log.commit()
    scene.advance(1000)
    assert scene.state() is S.COMPLETE_COMMIT


def test_one_transaction_that_hangs_does_not_hold_up_others(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    slow, quick = scene.initialized("slow"), scene.initialized("quick")
    added(scene.add(slow, [ORDERS[0]], "slow"))
    added(scene.add(quick, [ORDERS[1]], "quick"))
    scene.markers.codes[ORDERS[0]] = E.NOT_LEADER_OR_FOLLOWER
    scene.end(slow, commit=True, name="slow").result()
    with caplog.at_level(logging.WARNING):
        scene.end(quick, commit=True, name="quick").result()
    assert scene.get("quick").state is S.COMPLETE_COMMIT
    assert scene.get("slow").state is S.PREPARE_COMMIT
    assert not caplog.records
