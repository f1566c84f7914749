"""Adding partitions to a transaction and verifying them, in every state."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.transaction.scene import (
    OFFSETS,
    ORDERS,
    TX,
    Scene,
    added,
    code,
    only_code,
    unchanged,
)

from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition

S = TransactionState
AT_REST = [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
PREPARED = [S.PREPARE_COMMIT, S.PREPARE_ABORT]


def present(scene: Scene) -> Producer:
    found = scene.get()
    return Producer(found.producer_id, found.producer_epoch)


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize("version", [0, 1, 2])
def test_partitions_open_a_transaction_or_join_the_open_one(state: TransactionState, version: int) -> None:
    scene = Scene(version)
    scene.in_state(state)
    before = scene.get()
    scene.clock.advance(10)
    added(scene.add(present(scene), [ORDERS[3]]))
    after = scene.get()
    assert after.state is S.ONGOING
    assert after.partitions == before.partitions | {ORDERS[3]}
    joined = state is S.ONGOING
    assert after.start_ms == (before.start_ms if joined else scene.clock.time_ms())
    assert after.last_update_ms == scene.clock.time_ms()


def test_partitions_that_are_in_already_cost_no_record() -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    unchanged(scene, lambda: added(scene.add(producer, ORDERS[:1])))


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("verify_only", [False, True])
def test_while_markers_are_being_written_partitions_have_to_wait(
    state: TransactionState, verify_only: bool
) -> None:
    scene = Scene()
    scene.in_state(state)

    def refused() -> None:
        reply = scene.add(present(scene), verify_only=verify_only)
        assert only_code(reply) is ErrorCode.CONCURRENT_TRANSACTIONS

    unchanged(scene, refused)


@pytest.mark.parametrize("state", PREPARED)
def test_while_markers_are_being_written_even_zombies_are_told_to_wait(state: TransactionState) -> None:
    """A step over the end of a producer id's epochs may be under way (KIP-890): nobody can tell yet."""
    scene = Scene()
    scene.in_state(state)
    assert only_code(scene.add(Producer(77, 0))) is ErrorCode.CONCURRENT_TRANSACTIONS


def test_while_a_step_is_not_committed_partitions_have_to_wait() -> None:
    scene = Scene(autocommit=False)
    scene.init()
    scene.log.commit()
    producer = present(scene)
    first = scene.add(producer, [ORDERS[0]])
    assert not first.done
    assert only_code(scene.add(producer, [ORDERS[1]])) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert only_code(scene.add(Producer(77, 0))) is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.log.commit()
    added(first)


def test_verifying_waits_for_what_is_not_committed() -> None:
    scene = Scene(autocommit=False)
    scene.init()
    scene.log.commit()
    producer = present(scene)
    scene.add(producer, [ORDERS[0]])
    verified = scene.add(producer, [ORDERS[0]], verify_only=True)
    assert not verified.done
    scene.log.commit()
    added(verified)


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize("verify_only", [False, True])
def test_zombies_and_strangers_are_refused(state: TransactionState, verify_only: bool) -> None:
    scene = Scene()
    scene.in_state(state)
    producer_id, epoch = present(scene)
    for zombie, expected in [
        (Producer(producer_id, epoch - 1), ErrorCode.PRODUCER_FENCED),
        (Producer(producer_id, epoch + 1), ErrorCode.PRODUCER_FENCED),
        (Producer(producer_id + 1, epoch), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ]:
        reply = scene.add(zombie, verify_only=verify_only)
        assert only_code(reply) is expected
    assert scene.get().partitions == (set(ORDERS[:2]) if state is S.ONGOING else set())


@pytest.mark.parametrize("verify_only", [False, True])
def test_a_transactional_id_that_nobody_has_begun_is_refused(verify_only: bool) -> None:
    scene = Scene()
    reply = scene.add(Producer(1, 0), verify_only=verify_only)
    assert only_code(reply) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert scene.find() is None


@pytest.mark.parametrize("verify_only", [False, True])
def test_an_empty_transactional_id_is_an_invalid_request(verify_only: bool) -> None:
    reply = Scene().add(Producer(1, 0), name="", verify_only=verify_only)
    assert only_code(reply) is ErrorCode.INVALID_REQUEST


def test_verifying_tells_which_partitions_are_part_of_the_transaction() -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)

    def verify() -> None:
        assert scene.add(producer, ORDERS[1:3], verify_only=True).result() == {
            ORDERS[1]: ErrorCode.NONE,
            ORDERS[2]: ErrorCode.TRANSACTION_ABORTABLE,
        }

    unchanged(scene, verify)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_without_an_open_transaction_no_partition_is_part_of_it(state: TransactionState) -> None:
    scene = Scene()
    scene.in_state(state)
    reply = scene.add(present(scene), verify_only=True)
    assert only_code(reply) is ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize("verify_only", [False, True])
def test_unknown_partitions_keep_the_others_from_being_added(verify_only: bool) -> None:
    scene = Scene()
    producer = scene.initialized()
    missing = [TopicPartition("orders", 99), TopicPartition("nowhere", 0)]

    def refused() -> None:
        reply = scene.add(producer, [ORDERS[0], *missing], verify_only=verify_only)
        assert reply.result() == {
            ORDERS[0]: ErrorCode.OPERATION_NOT_ATTEMPTED,
            missing[0]: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            missing[1]: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    unchanged(scene, refused)


def test_clients_must_not_write_to_internal_topics_but_brokers_may() -> None:
    scene = Scene()
    producer = scene.initialized()
    assert scene.add(producer, [OFFSETS, ORDERS[0]], from_client=True).result() == {
        OFFSETS: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ORDERS[0]: ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
    added(scene.add(producer, [OFFSETS]))


def test_who_adds_decides_the_clients_transaction_version() -> None:
    scene = Scene()
    producer = scene.initialized()
    added(scene.add(producer, [ORDERS[0]], from_client=True))
    assert scene.get().client_version == 0
    added(scene.add(producer, [ORDERS[1]]))
    assert scene.get().client_version == 2


def test_a_groups_partition_is_added_though_its_topic_does_not_exist_yet() -> None:
    scene = Scene()
    producer = scene.initialized()
    scene.image.drop_topic(OFFSETS.topic)
    scene.coordinator.add_partitions(TX, producer, frozenset({OFFSETS}), 0).result()
    assert scene.get().partitions == {OFFSETS}
    assert code(scene.coordinator.add_partitions("", producer, frozenset(), 0)) is ErrorCode.INVALID_REQUEST


def test_what_the_log_refuses_is_not_added() -> None:
    scene = Scene()
    producer = scene.initialized()
    scene.log.fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert only_code(scene.add(producer)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.state() is S.EMPTY
    added(scene.add(producer))


def test_an_addition_that_is_not_committed_in_time_may_be_asked_for_again() -> None:
    scene = Scene(autocommit=False)
    scene.init()
    scene.log.commit()
    producer = present(scene)
    late = scene.add(producer)
    scene.advance(5001)
    assert only_code(late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    again = scene.add(producer)
    assert not again.done
    scene.log.commit()
    added(again)


def test_a_transaction_that_is_too_large_for_a_record_is_refused() -> None:
    scene = Scene()
    producer = scene.initialized()
    scene.log.max_batch_bytes = 100
    assert only_code(scene.add(producer)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert scene.state() is S.EMPTY
