"""InitProducerId on the coordinator: new ids, epochs, fencing, retries, exhausted epochs, refusals."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.unit.coordinator.transaction.scene import (
    TX,
    Scene,
    added,
    code,
    only_code,
    unchanged,
)

from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.transaction.producer_id_supply import WAIT_MS
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.coordinator.transaction.transaction import LAST_USABLE_EPOCH, MAX_EPOCH, NO_TIMEOUT_MS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_PRODUCER_ID
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import run_to_end

S = TransactionState


def test_a_new_transactional_id_gets_a_new_producer_id_with_epoch_0() -> None:
    scene = Scene()
    assert scene.initialized("a") == Producer(1000, 0)
    assert scene.initialized("b") == Producer(1001, 0)
    found = scene.get("a")
    assert found.state is S.EMPTY
    assert (found.start_ms, found.last_update_ms) == (-1, scene.clock.time_ms())


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_the_next_producer_has_the_same_id_and_a_higher_epoch(state: TransactionState, version: int) -> None:
    scene = Scene(version)
    scene.in_state(state)
    before = scene.get()
    assert scene.initialized() == Producer(before.producer_id, before.producer_epoch + 1)
    assert scene.state() is S.EMPTY
    assert scene.get().partitions == frozenset()


def test_a_new_producer_takes_its_own_timeout() -> None:
    scene = Scene()
    scene.init(timeout_ms=1000).result()
    scene.init(timeout_ms=2000).result()
    assert scene.get().timeout_ms == 2000


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_open_transaction_is_aborted_first_and_its_producer_fenced(version: int) -> None:
    scene = Scene(version)
    old = scene.in_state(S.ONGOING)
    assert code(scene.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.state() is S.COMPLETE_ABORT
    assert {entry[1:] for entry in scene.markers.written} == {(old.producer_id, old.epoch + 1, False)}
    new = scene.initialized()
    assert new == Producer(old.producer_id, old.epoch + 2)
    assert only_code(scene.add(old)) is ErrorCode.PRODUCER_FENCED
    assert code(scene.end(old, commit=True)) is ErrorCode.PRODUCER_FENCED
    added(scene.add(new))


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize("version", [0, 2])
def test_while_markers_are_being_written_a_new_producer_has_to_wait(
    state: TransactionState, version: int
) -> None:
    scene = Scene(version)
    scene.in_state(state)
    unchanged(scene, lambda: _refused(scene.init(), ErrorCode.CONCURRENT_TRANSACTIONS))
    scene.markers.release()
    scene.initialized()


def test_while_a_step_is_not_committed_a_new_producer_has_to_wait() -> None:
    scene = Scene(autocommit=False)
    first = scene.init()
    assert not first.done
    assert code(scene.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    scene.log.commit()
    assert first.result() == Producer(1000, 0)
    second = scene.init()
    scene.log.commit()
    assert second.result() == Producer(1000, 1)


def test_a_step_that_the_log_refuses_has_not_happened() -> None:
    scene = Scene()
    scene.log.fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code(scene.init()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.find() is None
    assert scene.initialized().epoch == 0


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_the_log_refuses_is_told_in_a_coordinators_words(refused: ErrorCode, told: ErrorCode) -> None:
    scene = Scene()
    scene.log.fail_next = KafkaError(refused)
    assert code(scene.init()) is told
    assert code(scene.init()) is ErrorCode.NONE


# Producers that go on after an error (KIP-360)


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_producer_that_names_its_epoch_gets_the_next_one_and_may_ask_again(state: TransactionState) -> None:
    scene = Scene()
    scene.in_state(state)
    present = _present(scene)
    bumped = scene.init(expected=present).result()
    assert bumped == Producer(present.producer_id, present.epoch + 1)
    assert scene.init(expected=present).result() == bumped
    assert scene.init(expected=bumped).result() == Producer(bumped.producer_id, bumped.epoch + 1)


def test_a_producer_cannot_go_on_after_another_one_has_begun() -> None:
    scene = Scene()
    old = scene.initialized()
    scene.initialized()
    unchanged(scene, lambda: _refused(scene.init(expected=old), ErrorCode.PRODUCER_FENCED))


@pytest.mark.parametrize("epoch", [-2, 1, 7, MAX_EPOCH])
def test_an_epoch_that_nobody_was_given_is_fenced(epoch: int) -> None:
    scene = Scene()
    producer = scene.initialized()
    expected = Producer(producer.producer_id, epoch)
    unchanged(scene, lambda: _refused(scene.init(expected=expected), ErrorCode.PRODUCER_FENCED))


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_a_foreign_producer_id_is_fenced_in_every_state_at_rest(state: TransactionState) -> None:
    scene = Scene()
    scene.in_state(state)
    unchanged(scene, lambda: _refused(scene.init(expected=Producer(77, 0)), ErrorCode.PRODUCER_FENCED))


def test_a_producer_whose_transactional_id_is_forgotten_gets_a_new_id() -> None:
    scene = Scene()
    assert scene.init(expected=Producer(5, 3)).result() == Producer(1000, 0)


def test_after_a_reload_asking_again_is_fenced_as_in_kafka() -> None:
    scene = Scene()
    present = scene.initialized()
    scene.init(expected=present).result()
    scene.crash()
    assert code(scene.init(expected=present)) is ErrorCode.PRODUCER_FENCED


# Epochs come to an end


def _with_epoch(scene: Scene, epoch: int) -> Producer:
    """A producer that has come to ``epoch``, as a log from elsewhere would have it."""
    scene.initialized()
    scene.shard.transactions[TX] = msgspec.structs.replace(scene.get(), producer_epoch=epoch - 1)
    return scene.initialized()


def test_a_new_producer_after_the_last_epoch_gets_a_new_id() -> None:
    scene = Scene()
    last = _with_epoch(scene, LAST_USABLE_EPOCH)
    assert last.epoch == LAST_USABLE_EPOCH
    new = scene.initialized()
    assert new == Producer(1001, 0)
    assert scene.get().previous_producer_id == last.producer_id
    assert only_code(scene.add(last)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_producer_at_the_last_epoch_that_goes_on_gets_a_new_id_and_may_ask_again() -> None:
    scene = Scene()
    last = _with_epoch(scene, LAST_USABLE_EPOCH)
    new = scene.init(expected=last).result()
    assert new == Producer(1001, 0)
    assert scene.init(expected=last).result() == new
    # The id before the previous one is nobody's any more.
    scene.init(expected=new).result()
    assert code(scene.init(expected=last)) is ErrorCode.PRODUCER_FENCED


def test_a_zombie_with_an_older_epoch_is_refused_when_epochs_are_exhausted() -> None:
    scene = Scene()
    last = _with_epoch(scene, LAST_USABLE_EPOCH)
    old = Producer(last.producer_id, 3)
    unchanged(scene, lambda: _refused(scene.init(expected=old), ErrorCode.UNKNOWN_SERVER_ERROR))


@pytest.mark.parametrize("version", [0, 1, 2])
def test_fencing_at_the_last_epoch_uses_the_one_kept_for_it(version: int) -> None:
    scene = Scene(version)
    last = _with_epoch(scene, LAST_USABLE_EPOCH)
    added(scene.add(last))
    assert code(scene.init()) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert scene.markers.requests[-1][:2] == (last.producer_id, MAX_EPOCH)
    if version < 2:
        assert (scene.get().producer_id, scene.get().producer_epoch) == (last.producer_id, MAX_EPOCH)
        assert scene.initialized() == Producer(1001, 0)
    else:
        assert (scene.get().producer_id, scene.get().producer_epoch) == (1001, 0)
        assert scene.get().next_producer_id == NO_PRODUCER_ID
        assert scene.initialized() == Producer(1001, 1)


def test_a_command_waits_for_a_block_of_producer_ids() -> None:
    scene = Scene()
    scene.ids.dry = True

    async def run() -> None:
        reply = scene.init()
        assert not reply.done
        assert await asyncio.wait_for(_awaited(reply), 10) == Producer(1000, 0)

    asyncio.run(run())
    assert scene.get().producer_id == 1000


def test_without_producer_ids_the_error_is_passed_on_and_nothing_is_left_behind() -> None:
    scene = Scene()
    scene.ids.dry = True
    scene.ids.fail_with = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def run() -> None:
        with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await asyncio.wait_for(_awaited(scene.init()), 10)

    asyncio.run(run())
    scene.ids.dry = False
    assert scene.initialized() == Producer(1000, 0)


def test_who_waits_too_long_for_a_producer_id_is_told_to_come_again() -> None:
    scene = Scene()
    scene.ids.dry = True

    async def run() -> None:
        scene.ids.gate = asyncio.Event()
        replies = [scene.init(), scene.coordinator.new_producer(), scene.coordinator.new_producer()]
        await asyncio.sleep(0)
        scene.advance(WAIT_MS - 1)
        assert not any(reply.done for reply in replies)
        later = scene.coordinator.new_producer()
        scene.advance(1)
        for reply in replies:
            assert isinstance(reply.error, KafkaError)
            assert reply.error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        # What was begun goes on, for those who have not waited so long and those who come again.
        assert not later.done
        scene.ids.gate.set()
        assert await asyncio.wait_for(_awaited(later), 10) == Producer(1000, 0)
        assert scene.ids.awaited == 1
        assert scene.initialized() == Producer(1001, 0)

    asyncio.run(run())


def test_very_many_who_wait_for_a_producer_id_wait_for_one_block() -> None:
    scene = Scene()
    scene.ids.dry = True

    async def run() -> None:
        scene.ids.gate = asyncio.Event()
        replies = [scene.coordinator.new_producer() for _ in range(3000)]
        scene.ids.gate.set()
        producers = [await asyncio.wait_for(_awaited(reply), 10) for reply in replies]
        assert {producer.producer_id for producer in producers} == set(range(1000, 4000))
        assert scene.ids.awaited == 1

    asyncio.run(run())


def test_nobody_waits_for_a_producer_id_of_a_broker_that_stops() -> None:
    scene = Scene()
    scene.ids.dry = True

    async def run() -> None:
        scene.ids.gate = asyncio.Event()
        reply = scene.init()
        await asyncio.sleep(0)
        fetching = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(fetching) == 1
        scene.coordinator.close()
        await asyncio.wait(fetching, timeout=10)
        assert all(task.cancelled() for task in fetching)
        assert not reply.done

    asyncio.run(run())


def test_a_command_that_waited_for_an_id_looks_at_the_shard_as_it_is_by_then() -> None:
    scene = Scene()
    scene.ids.dry = True

    async def run() -> None:
        replies = [scene.init(), scene.init()]
        answers = [await asyncio.wait_for(_awaited(reply), 10) for reply in replies]
        assert answers == [Producer(1000, 0), Producer(1000, 1)]

    asyncio.run(run())


# Refusals that concern no shard


def test_an_empty_transactional_id_is_an_invalid_request() -> None:
    assert code(Scene().init("")) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_timeouts_out_of_bounds_are_refused(timeout_ms: int) -> None:
    scene = Scene()
    unchanged(
        scene, lambda: _refused(scene.init(timeout_ms=timeout_ms), ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    )


def test_the_longest_timeout_is_an_option() -> None:
    scene = Scene(options={"transaction.max.timeout.ms": "5000"})
    assert code(scene.init(timeout_ms=5000)) is ErrorCode.NONE
    assert code(scene.init(timeout_ms=5001)) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_two_phase_commit_is_refused_unless_it_is_allowed() -> None:
    scene = Scene()
    reply = scene.coordinator.init_producer_id(TX, 1000, None, two_phase=True)
    assert code(reply) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_two_phase_commit_has_no_timeout_where_it_is_allowed() -> None:
    scene = Scene(options={"transaction.two.phase.commit.enable": "true"})
    scene.coordinator.init_producer_id(TX, 0, None, two_phase=True).result()
    assert scene.get().timeout_ms == NO_TIMEOUT_MS
    reply = scene.coordinator.init_producer_id(TX, 1000, None, two_phase=True, keep_prepared=True)
    assert code(reply) is ErrorCode.UNSUPPORTED_VERSION


def test_without_its_shard_there_is_no_coordinator() -> None:
    scene = Scene()
    producer = scene.initialized()
    scene.unload()
    assert code(scene.init()) is ErrorCode.NOT_COORDINATOR
    assert only_code(scene.add(producer)) is ErrorCode.NOT_COORDINATOR
    assert only_code(scene.add(producer, verify_only=True)) is ErrorCode.NOT_COORDINATOR
    assert code(scene.end(producer, commit=True)) is ErrorCode.NOT_COORDINATOR
    refused = scene.coordinator.describe([TX], lambda found: ErrorCode.NONE, lambda name, error: error.code)
    assert run_to_end(refused).result() == [ErrorCode.NOT_COORDINATOR]


def test_what_waits_when_a_shard_goes_is_answered() -> None:
    scene = Scene(autocommit=False)
    reply = scene.init()
    scene.unload()
    assert code(reply) is ErrorCode.NOT_COORDINATOR


def _present(scene: Scene) -> Producer:
    found = scene.get()
    return Producer(found.producer_id, found.producer_epoch)


def _refused(reply: Promise[Producer], expected: ErrorCode) -> None:
    assert code(reply) is expected


async def _awaited(reply: Promise[Producer]) -> Producer:
    return await reply
