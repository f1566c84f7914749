"""DescribeTransactions and ListTransactions on the coordinator: what is told of which transactions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest
from tests.rigs.memory_log import MemoryLog
from tests.unit.coordinator.transaction.scene import ORDERS, TX, Scene, added, code

from tidelog.coordinator.log import partition_for
from tidelog.coordinator.transaction.listing import TransactionFilter
from tidelog.coordinator.transaction.state import TransactionState
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TRANSACTION_STATE_TOPIC
from tidelog.metadata.znodes.znodes import TopicAssignment
from tidelog.regex import topic_regex
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.slices import Slices, run_to_end

S = TransactionState


def listed(
    scene: Scene,
    states: list[str] | None = None,
    producer_ids: list[int] | None = None,
    duration_ms: int = -1,
    pattern: str | None = None,
) -> set[str]:
    wanted = TransactionFilter.parse(states or [], producer_ids or [], duration_ms, pattern)
    return {
        found.transactional_id
        for found in run_to_end(scene.coordinator.list(wanted, lambda each: each)).result()
    }


@pytest.fixture
def scene() -> Scene:
    """``idle`` is empty, ``done`` is committed, ``old`` and ``young`` are open, 5 seconds apart."""
    scene = Scene()
    scene.initialized("idle")
    done, old, young = scene.initialized("done"), scene.initialized("old"), scene.initialized("young")
    added(scene.add(done, name="done"))
    scene.end(done, commit=True, name="done").result()
    added(scene.add(old, name="old"))
    scene.clock.advance(5000)
    added(scene.add(young, name="young"))
    return scene


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have found out about expressions is forgotten."""
    monkeypatch.setattr(topic_regex, "_AUTOMATA", topic_regex.Automata(topic_regex.MAX_BYTES))


def test_without_filters_all_are_listed(scene: Scene) -> None:
    assert listed(scene) == {"idle", "done", "old", "young"}


def test_states_are_alternatives(scene: Scene) -> None:
    assert listed(scene, ["Ongoing"]) == {"old", "young"}
    assert listed(scene, ["Ongoing", "Empty"]) == {"old", "young", "idle"}
    assert listed(scene, ["PrepareCommit"]) == set()


def test_nothing_is_in_a_state_that_there_is_not(scene: Scene) -> None:
    wanted = TransactionFilter.parse(["Ongoing", "Sleepy", "ongoing", "Sleepy"], [], -1, None)
    assert wanted.unknown_states == ("Sleepy", "ongoing")
    assert listed(scene, ["Sleepy"]) == set()
    assert listed(scene, ["Sleepy", "Empty"]) == {"idle"}


def test_producer_ids_are_alternatives(scene: Scene) -> None:
    ids = {name: scene.get(name).producer_id for name in ("idle", "old")}
    assert listed(scene, producer_ids=[ids["idle"]]) == {"idle"}
    assert listed(scene, producer_ids=[*ids.values(), 12345]) == {"idle", "old"}
    assert listed(scene, producer_ids=[12345]) == set()


def test_the_duration_counts_from_the_start_and_must_be_exceeded(scene: Scene) -> None:
    assert listed(scene, ["Ongoing"], duration_ms=4999) == {"old"}
    assert listed(scene, ["Ongoing"], duration_ms=5000) == set()
    assert listed(scene, ["Ongoing"], duration_ms=0) == {"old"}
    assert listed(scene, ["Ongoing"], duration_ms=-1) == {"old", "young"}


def test_a_pattern_must_match_the_whole_id(scene: Scene) -> None:
    assert listed(scene, pattern="o") == set()
    assert listed(scene, pattern="o.*") == {"old"}
    assert listed(scene, pattern=".*o.*") == {"old", "done", "young"}
    assert listed(scene, pattern="") == {"idle", "done", "old", "young"}


def test_an_id_beyond_ascii_is_matched_by_a_dot(scene: Scene) -> None:
    scene.initialized("größe")
    assert listed(scene, pattern="gr..e") == {"größe"}
    assert listed(scene, pattern="gr[^a-z]+e") == {"größe"}
    assert listed(scene, pattern="gr[a-z]+e") == set()


def test_no_pattern_takes_long(scene: Scene) -> None:
    scene.initialized("a" * 5000)
    assert listed(scene, pattern="(a+)+b") == set()


HEAVY = "[ab]*a[ab]{300}"
LONG_ID = "".join(random.Random(0).choices("ab", k=2000))


@pytest.mark.usefixtures("nothing_known")
def test_a_pattern_gives_way_to_others_within_an_id(scene: Scene) -> None:
    scene.initialized(LONG_ID)
    wanted = TransactionFilter.parse([], [], -1, HEAVY)
    assert sum(1 for _ in scene.coordinator.list(wanted, lambda each: each)) > len(LONG_ID)
    assert listed(scene, pattern=HEAVY) == ({LONG_ID} if LONG_ID[-301] == "a" else set())


def test_ids_that_are_not_visible_are_not_matched(scene: Scene) -> None:
    scene.initialized(LONG_ID)
    wanted = TransactionFilter.parse([], [], -1, HEAVY)
    work = scene.coordinator.list(wanted, lambda each: each, lambda name: name != LONG_ID)
    assert sum(1 for _ in work) < 100


@pytest.mark.usefixtures("nothing_known")
def test_what_has_changed_while_its_id_was_matched_is_told_as_it_is() -> None:
    scene = Scene()
    producer = scene.initialized("abab")
    added(scene.add(producer, name="abab"))
    wanted = TransactionFilter.parse(["Ongoing"], [], -1, "(?:ab)+")
    work = scene.coordinator.list(wanted, lambda each: each)
    next(work)
    scene.end(producer, commit=True, name="abab").result()
    assert run_to_end(work).result() == []


def test_conditions_add_up(scene: Scene) -> None:
    assert listed(scene, ["Ongoing"], duration_ms=0, pattern=".*l.*") == {"old"}
    assert listed(scene, ["Empty"], pattern="o.*") == set()


def test_a_bad_pattern_is_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        TransactionFilter.parse([], [], -1, "(")
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_all_shards_of_this_broker_are_listed() -> None:
    scene = Scene()
    scene.put_topic(TRANSACTION_STATE_TOPIC, 3)
    assert scene.coordinator.runtime.load_nowait(2, 1, MemoryLog())
    by_partition = {partition_for(name, 3): name for name in "abcdef"}
    for partition in (0, 2):
        scene.initialized(by_partition[partition])
    assert code(scene.init(by_partition[1])) is ErrorCode.NOT_COORDINATOR
    assert listed(scene) == {by_partition[0], by_partition[2]}


def test_shards_are_counted_and_listed_where_a_partition_is_not_known() -> None:
    scene = Scene()
    partitions = {1: (1,), 2: (1,)}
    scene.image.put_topic(TRANSACTION_STATE_TOPIC, TopicAssignment(topic_id=None, partitions=partitions), {})
    log = MemoryLog()
    assert scene.coordinator.runtime.load_nowait(2, 1, log)
    scene.initialized(next(name for name in "abcdef" if partition_for(name, 3) == 2))
    assert log.batches
    assert len(listed(scene)) == 1


def test_while_a_shard_is_being_loaded_nothing_is_listed() -> None:
    scene = Scene()
    scene.initialized()
    scene.coordinator.runtime.hold(0, 2, scene.log)
    reply = run_to_end(scene.coordinator.list(TransactionFilter.parse([], [], -1, None), lambda each: each))
    assert code(_as_object(reply)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert code(scene.init()) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert asyncio.run(scene.coordinator.runtime.load(0))
    assert listed(scene) == {TX}


def test_a_description_tells_all(scene: Scene) -> None:
    (found,) = described(scene, "old").result()
    assert isinstance(found, Transaction)
    expected = ("Ongoing", 60_000, frozenset(ORDERS[:2]))
    assert (found.state.label, found.timeout_ms, found.partitions) == expected
    assert found.start_ms == scene.clock.time_ms() - 5000


@pytest.mark.parametrize(
    ("name", "expected"),
    [("", ErrorCode.INVALID_REQUEST), ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)],
)
def test_ids_that_cannot_be_described(name: str, expected: ErrorCode) -> None:
    (refused,) = described(Scene(), name).result()
    assert isinstance(refused, KafkaError)
    assert refused.code is expected


def test_a_description_waits_for_what_is_not_committed() -> None:
    scene = Scene(autocommit=False)
    scene.init()
    reply = described(scene, TX)
    assert not reply.done
    scene.log.commit()
    (found,) = reply.result()
    assert isinstance(found, Transaction)
    assert found.state is S.EMPTY


def test_a_description_that_cannot_be_committed_is_refused() -> None:
    scene = Scene(autocommit=False)
    scene.init()
    reply = described(scene, TX, "nobody")
    scene.unload()
    assert [each.code for each in reply.result() if isinstance(each, KafkaError)] == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_COORDINATOR,
    ]


def test_many_transactions_are_listed_and_described_one_at_a_time() -> None:
    scene = Scene()
    names = [f"tx-{number}" for number in range(20)]
    for name in names:
        scene.initialized(name)
    shown: list[str] = []

    def show(found: Transaction) -> str:
        shown.append(found.transactional_id)
        return found.transactional_id

    for work in (
        scene.coordinator.list(TransactionFilter.parse([], [], -1, None), show),
        scene.coordinator.describe(names, show, lambda name, error: name),
    ):
        shown.clear()
        before, at_most = 0, 0
        end: list[Promise[list[str]]] = []
        for _ in ended(work, end):
            at_most, before = max(at_most, len(shown) - before), len(shown)
        assert at_most == 1
        assert sorted(end[0].result()) == sorted(names)


def ended(work: Slices[Promise[list[str]]], end: list[Promise[list[str]]]) -> Iterator[None]:
    """Goes from step to step; ``end`` gets the result."""
    end.append((yield from work))


def described(scene: Scene, *names: str) -> Promise[list[Transaction | KafkaError]]:
    def show(found: Transaction) -> Transaction | KafkaError:
        return found

    return run_to_end(scene.coordinator.describe(names, show, lambda name, error: error))


def _as_object(reply: Promise[list[Transaction]]) -> Promise[object]:
    return reply  # type: ignore[return-value]
