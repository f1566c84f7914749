"""EndTxn: commit and abort, in every state, with every epoch, for both generations of clients."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.unit.coordinator.transaction.scene import ORDERS, TX, Scene, added, code, only_code, unchanged

from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction.shard import NO_PRODUCER
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.coordinator.transaction.transaction import LAST_USABLE_EPOCH, MAX_EPOCH
from tidelog.errors import ErrorCode, KafkaError

S = TransactionState
E = ErrorCode
PREPARED = [S.PREPARE_COMMIT, S.PREPARE_ABORT]
AT_REST = [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]


def present(scene: Scene) -> Producer:
    found = scene.get()
    return Producer(found.producer_id, found.producer_epoch)


def other(producer: Producer, by: int) -> Producer:
    return Producer(producer.producer_id, producer.epoch + by)


# Old clients: transaction versions 0 and 1


@pytest.mark.parametrize("cluster", [0, 1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_an_old_client_keeps_its_epoch(cluster: int, commit: bool) -> None:
    scene = Scene(cluster)
    producer = scene.in_state(S.ONGOING)
    assert scene.end(producer, commit=commit, version=0).result() == NO_PRODUCER
    assert scene.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert present(scene) == producer
    assert scene.markers.written == [
        (name, producer.producer_id, producer.epoch, commit) for name in ORDERS[:2]
    ]
    assert scene.markers.requests[0].transaction_version == 0
    added(scene.add(producer))


@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        (S.EMPTY, True, E.INVALID_TXN_STATE),
        (S.EMPTY, False, E.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, True, E.NONE),
        (S.COMPLETE_COMMIT, False, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, False, E.NONE),
        (S.COMPLETE_ABORT, True, E.INVALID_TXN_STATE),
        (S.PREPARE_COMMIT, True, E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_COMMIT, False, E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_ABORT, True, E.CONCURRENT_TRANSACTIONS),
        (S.PREPARE_ABORT, False, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_old_clients_in_states_with_nothing_to_end(
    state: TransactionState, commit: bool, expected: ErrorCode
) -> None:
    scene = Scene(1)
    producer = scene.in_state(state, version=0)
    unchanged(scene, lambda: _is(scene, producer, commit, 0, expected))


@pytest.mark.parametrize("state", AT_REST + PREPARED)
@pytest.mark.parametrize("commit", [True, False])
def test_old_zombies_and_strangers_are_refused_in_every_state(state: TransactionState, commit: bool) -> None:
    scene = Scene(1)
    producer = scene.in_state(state, version=0)
    stranger = Producer(producer.producer_id + 1, producer.epoch)
    unchanged(scene, lambda: _is(scene, other(producer, -1), commit, 0, E.PRODUCER_FENCED))
    unchanged(scene, lambda: _is(scene, other(producer, +1), commit, 0, E.PRODUCER_FENCED))
    unchanged(scene, lambda: _is(scene, stranger, commit, 0, E.INVALID_PRODUCER_ID_MAPPING))


def test_while_a_step_is_not_committed_an_old_client_is_judged_by_the_state_before_it() -> None:
    scene = Scene(0, autocommit=False)
    scene.init()
    scene.log.commit()
    producer = present(scene)
    scene.init()
    _is(scene, producer, True, 0, E.CONCURRENT_TRANSACTIONS)
    _is(scene, other(producer, 1), True, 0, E.PRODUCER_FENCED)
    _is(scene, Producer(77, 0), True, 0, E.INVALID_PRODUCER_ID_MAPPING)
    scene.log.commit()
    _is(scene, producer, True, 0, E.PRODUCER_FENCED)


def test_while_the_first_step_is_not_committed_nobody_is_the_producer() -> None:
    scene = Scene(0, autocommit=False)
    scene.init()
    _is(scene, Producer(1000, 0), True, 0, E.INVALID_PRODUCER_ID_MAPPING)


# Clients of transaction version 2


@pytest.mark.parametrize("commit", [True, False])
def test_every_transaction_has_its_own_epoch(commit: bool) -> None:
    scene = Scene()
    first = scene.in_state(S.ONGOING)
    second = scene.end(first, commit=commit).result()
    assert second == other(first, 1)
    assert present(scene) == second
    assert scene.markers.written == [(name, *second, commit) for name in ORDERS[:2]]
    assert scene.markers.requests[0].transaction_version == 2
    added(scene.add(second))
    assert scene.end(second, commit=commit).result() == other(first, 2)


@pytest.mark.parametrize("commit", [True, False])
def test_the_answer_comes_before_the_markers(commit: bool) -> None:
    scene = Scene()
    scene.markers.hold = True
    producer = scene.in_state(S.ONGOING)
    scene.markers.hold = True
    assert scene.end(producer, commit=commit).result() == other(producer, 1)
    assert scene.state() is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    scene.markers.release()
    assert scene.state() is (S.COMPLETE_COMMIT if commit else S.COMPLETE_ABORT)
    assert scene.get().partitions == frozenset()


@pytest.mark.parametrize(
    ("state", "commit", "repeated", "current"),
    [
        (S.EMPTY, False, E.PRODUCER_FENCED, E.NONE),
        (S.EMPTY, True, E.PRODUCER_FENCED, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, False, E.NONE, E.NONE),
        (S.COMPLETE_ABORT, True, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, False, E.INVALID_TXN_STATE, E.NONE),
        (S.COMPLETE_COMMIT, True, E.NONE, E.INVALID_TXN_STATE),
    ],
)
def test_repeated_and_new_requests_with_nothing_open(
    state: TransactionState, commit: bool, repeated: ErrorCode, current: ErrorCode
) -> None:
    scene = Scene()
    scene.in_state(state)
    producer = present(scene)
    unchanged(scene, lambda: _is(scene, other(producer, -1), commit, 2, repeated))
    if repeated is E.NONE:
        assert scene.end(other(producer, -1), commit=commit).result() == producer
    _is(scene, producer, commit, 2, current)
    if current is E.NONE:
        # An abort where nothing was added: the epoch grows all the same, and no marker is written.
        assert scene.state() is S.COMPLETE_ABORT
        assert present(scene) == other(producer, 1)
        assert scene.get().start_ms == scene.clock.time_ms()
    else:
        assert scene.state() is state


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("by", [-1, 0, 1])
def test_while_markers_are_being_written_everybody_has_to_wait(
    state: TransactionState, commit: bool, by: int
) -> None:
    scene = Scene()
    producer = scene.in_state(state)
    unchanged(scene, lambda: _is(scene, other(producer, by), commit, 2, E.CONCURRENT_TRANSACTIONS))
    unchanged(scene, lambda: _is(scene, Producer(77, 0), commit, 2, E.CONCURRENT_TRANSACTIONS))


@pytest.mark.parametrize("state", AT_REST)
@pytest.mark.parametrize("commit", [True, False])
def test_zombies_and_strangers_are_refused(state: TransactionState, commit: bool) -> None:
    scene = Scene()
    scene.in_state(state)
    producer = present(scene)
    stranger = Producer(producer.producer_id + 1, producer.epoch)
    unchanged(scene, lambda: _is(scene, other(producer, +1), commit, 2, E.PRODUCER_FENCED))
    unchanged(scene, lambda: _is(scene, other(producer, -2), commit, 2, E.PRODUCER_FENCED))
    unchanged(scene, lambda: _is(scene, stranger, commit, 2, E.INVALID_PRODUCER_ID_MAPPING))


def test_a_zombie_in_an_open_transaction_is_fenced() -> None:
    scene = Scene()
    scene.in_state(S.ONGOING)
    unchanged(scene, lambda: _is(scene, other(present(scene), -1), True, 2, E.PRODUCER_FENCED))


@pytest.mark.parametrize("version", [0, 2])
def test_a_transactional_id_that_nobody_has_begun_is_refused(version: int) -> None:
    scene = Scene()
    _is(scene, Producer(1, 0), True, version, E.INVALID_PRODUCER_ID_MAPPING)
    assert code(scene.end(Producer(1, 0), commit=True, version=version, name="")) is E.INVALID_REQUEST


@pytest.mark.parametrize("version", [0, 2])
def test_an_end_that_the_log_refuses_has_not_happened(version: int) -> None:
    scene = Scene(version)
    producer = scene.in_state(S.ONGOING)
    scene.log.fail_next = KafkaError(E.NOT_ENOUGH_REPLICAS)
    _is(scene, producer, True, version, E.COORDINATOR_NOT_AVAILABLE)
    assert scene.state() is S.ONGOING
    assert scene.markers.requests == []
    # It is still open, so the producer may even change its mind.
    _is(scene, producer, False, version, E.NONE)
    assert {committed for *_, committed in scene.markers.written} == {False}


def test_no_marker_is_sent_before_the_outcome_is_committed() -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    scene.log.autocommit = False
    reply = scene.end(producer, commit=True)
    assert not reply.done
    assert scene.markers.requests == []
    _is(scene, producer, True, 2, E.CONCURRENT_TRANSACTIONS)
    scene.log.commit()
    assert reply.result() == other(producer, 1)
    assert scene.markers.requests != []
    assert only_code(scene.add(other(producer, 1))) is E.CONCURRENT_TRANSACTIONS
    scene.log.commit()
    assert scene.state() is S.COMPLETE_COMMIT


def test_an_outcome_that_is_committed_late_is_carried_out_all_the_same() -> None:
    scene = Scene()
    producer = scene.in_state(S.ONGOING)
    scene.log.autocommit = False
    reply = scene.end(producer, commit=True)
    scene.advance(5001)
    assert code(reply) is E.COORDINATOR_NOT_AVAILABLE
    scene.advance(5001)
    scene.advance(1000)
    assert scene.markers.requests == []
    _is(scene, producer, False, 2, E.CONCURRENT_TRANSACTIONS)
    scene.log.autocommit = True
    scene.log.commit()
    scene.advance(100)
    assert scene.state() is S.COMPLETE_COMMIT
    assert scene.end(producer, commit=True).result() == other(producer, 1)


# Epochs come to an end


def at_epoch(scene: Scene, epoch: int) -> Producer:
    scene.initialized()
    scene.shard.transactions[TX] = msgspec.structs.replace(scene.get(), producer_epoch=epoch - 1)
    return scene.initialized()


@pytest.mark.parametrize("commit", [True, False])
def test_after_the_last_epoch_the_answer_names_a_new_producer_id(commit: bool) -> None:
    scene = Scene()
    last = at_epoch(scene, LAST_USABLE_EPOCH)
    added(scene.add(last))
    scene.markers.hold = True
    following = scene.end(last, commit=commit).result()
    assert following == Producer(1001, 0)
    prepared = scene.get()
    assert (prepared.producer_id, prepared.producer_epoch) == (last.producer_id, MAX_EPOCH)
    assert prepared.next_producer_id == 1001
    # The new producer may be quicker than the markers.
    assert only_code(scene.add(following)) is E.CONCURRENT_TRANSACTIONS
    scene.markers.release()
    assert {entry[1:] for entry in scene.markers.written} == {(last.producer_id, MAX_EPOCH, commit)}
    assert present(scene) == following
    unchanged(scene, lambda: _is(scene, last, commit, 2, E.NONE))
    assert scene.end(last, commit=commit).result() == following
    _is(scene, last, not commit, 2, E.INVALID_TXN_STATE)
    added(scene.add(following))
    _is(scene, last, commit, 2, E.INVALID_PRODUCER_ID_MAPPING)


def test_a_repetition_over_the_end_of_the_epochs_survives_a_reload() -> None:
    scene = Scene()
    last = at_epoch(scene, LAST_USABLE_EPOCH)
    added(scene.add(last))
    scene.markers.hold = True
    following = scene.end(last, commit=True).result()
    scene.crash()
    scene.markers.release()
    assert present(scene) == following
    assert scene.end(last, commit=True).result() == following


def test_an_end_that_needs_a_producer_id_waits_for_one() -> None:
    scene = Scene()
    last = at_epoch(scene, LAST_USABLE_EPOCH)
    added(scene.add(last))
    scene.ids.dry = True

    async def run() -> Producer:
        reply = scene.end(last, commit=True)
        assert not reply.done
        assert scene.state() is S.ONGOING
        return await reply

    assert asyncio.run(run()) == Producer(1001, 0)
    assert scene.state() is S.COMPLETE_COMMIT


def _is(scene: Scene, producer: Producer, commit: bool, version: int, expected: ErrorCode) -> None:
    assert code(scene.end(producer, commit=commit, version=version)) is expected
