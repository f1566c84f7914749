"""Regular-expression subscriptions: when topics are looked up, and what members get."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from tests.unit.coordinator.consumer.scene import ASSIGNMENT_INTERVAL_MS, Consumer, Scene

from tidelog.coordinator.group.consumer import regexes
from tidelog.coordinator.group.consumer.regexes import MIN_REFRESH_INTERVAL_MS
from tidelog.coordinator.sweep import SLICE_MS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.regex import topic_regex
from tidelog.scheduling.slices import Slices
from tidelog.wire.internal_topics import consumer_offsets as stored


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    for name in ("orders-eu", "orders-us", "payments"):
        scene.topic(name, 2)
    return scene


@pytest.fixture
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have found out about expressions is forgotten."""
    monkeypatch.setattr(topic_regex, "_AUTOMATA", topic_regex.Automata(topic_regex.MAX_BYTES))


def test_a_member_gets_the_topics_that_its_expression_matches(scene: Scene) -> None:
    consumer = Consumer(scene, "a", regex="orders-.*").join()
    assert consumer.size == 0
    scene.settle(consumer)
    assert consumer.has("orders-eu") == consumer.has("orders-us") == {0, 1}
    assert consumer.has("payments") == set()
    assert scene.group().is_subscribed_to("orders-eu")


def test_topics_that_a_member_may_not_describe_are_not_found(scene: Scene) -> None:
    scene.hidden = {"orders-us"}
    consumer = Consumer(scene, "a", regex="orders-.*").join()
    scene.topic("orders-asia", 1)
    scene.hidden.add("orders-asia")
    scene.settle(consumer)
    assert consumer.has("orders-eu") == {0, 1}
    assert consumer.has("orders-us") == consumer.has("orders-asia") == set()
    # A rule that allows it counts when topics are looked up the next time.
    scene.hidden.clear()
    scene.advance(MIN_REFRESH_INTERVAL_MS)
    scene.topic("orders-asia", 2)
    scene.settle(consumer)
    assert consumer.has("orders-us") == consumer.has("orders-asia") == {0, 1}


def test_what_was_found_is_written_down(scene: Scene) -> None:
    Consumer(scene, "a", regex="orders-.*").join()
    scene.advance(0)
    resolved, epoch = scene.records()[-2:]
    assert resolved.key == stored.ConsumerGroupRegularExpressionKey(
        group_id="g", regular_expression="orders-.*"
    )
    assert resolved.value == stored.ConsumerGroupRegularExpressionValue(
        topics=["orders-eu", "orders-us"], version=0, timestamp=scene.clock.time_ms()
    )
    assert isinstance(epoch.value, stored.ConsumerGroupMetadataValue)


def test_names_and_an_expression_add_up(scene: Scene) -> None:
    consumer = Consumer(scene, "a", "payments", regex="orders-e.").join()
    scene.settle(consumer)
    assert consumer.has("payments") == consumer.has("orders-eu") == {0, 1}
    assert consumer.has("orders-us") == set()


def test_a_topic_that_comes_and_matches_is_found_but_not_within_ten_seconds(scene: Scene) -> None:
    consumer = Consumer(scene, "a", regex="orders-.*").join()
    scene.settle(consumer, rounds=2)
    scene.topic("orders-asia", 1)
    consumer.beat()
    assert consumer.has("orders-asia") == set()
    scene.advance(MIN_REFRESH_INTERVAL_MS)
    scene.settle(consumer)
    assert consumer.has("orders-asia") == {0}


def test_what_was_found_is_found_again_a_moment_later_if_the_log_refuses_it(scene: Scene) -> None:
    consumer = Consumer(scene, "a", regex="orders-.*").join()
    scene.settle(consumer)
    scene.advance(MIN_REFRESH_INTERVAL_MS)
    scene.topic("orders-asia", 2)
    consumer.beat()
    scene.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    scene.settle(consumer)
    assert consumer.has("orders-asia") == {0, 1}


def test_a_topic_that_does_not_match_makes_nobody_look(scene: Scene) -> None:
    consumer = Consumer(scene, "a", regex="orders-.*").join()
    scene.settle(consumer)
    scene.advance(MIN_REFRESH_INTERVAL_MS)
    before = scene.records()
    scene.topic("refunds", 1)
    scene.settle(consumer)
    assert scene.records() == before


def test_expressions_are_looked_up_again_after_the_refresh_interval(scene: Scene) -> None:
    consumer = Consumer(scene, "a", regex="orders-.*").join()
    scene.settle(consumer)
    scene.topic("orders-asia", 1, quietly=True)
    for _ in range(60):
        scene.advance(10_000)
        consumer.beat()
    scene.settle(consumer)
    assert consumer.has("orders-asia") == {0}


def test_members_with_one_expression_share_its_topics(scene: Scene) -> None:
    first = Consumer(scene, "a", regex="orders-.*").join()
    scene.settle(first)
    second = Consumer(scene, "b", regex="orders-.*").join()
    scene.settle(first, second)
    assert (first.size, second.size) == (2, 2)


def test_the_last_subscriber_takes_the_expression_with_it(scene: Scene) -> None:
    first = Consumer(scene, "a", regex="orders-.*").join()
    scene.settle(first)
    first.resubscribe("payments", regex="")
    assert scene.group().subscriptions.resolved == {}
    assert not scene.group().is_subscribed_to("orders-eu")
    scene.settle(first)
    assert (first.has("payments"), first.has("orders-eu")) == ({0, 1}, set())
    second = Consumer(scene, "b", regex="orders-.*").join()
    scene.settle(first, second)
    assert second.size == 4
    second.leave()
    assert scene.group().subscriptions.resolved == {}


def test_another_expression_replaces_the_first(scene: Scene) -> None:
    consumer = Consumer(scene, "a", regex="orders-.*").join()
    scene.settle(consumer, rounds=11)
    consumer.resubscribe(regex="pay.*")
    scene.settle(consumer)
    assert (consumer.has("payments"), consumer.has("orders-eu")) == ({0, 1}, set())
    assert scene.group().subscriptions.regexes == {"pay.*": 1}


@pytest.mark.parametrize("regex", ["(", "a**", "(?=a)", r"(a)\1", "a{2,1}", "[z-a]", "(?<!a)b", r"\K"])
def test_an_expression_that_cannot_be_read_is_refused_and_leaves_no_trace(scene: Scene, regex: str) -> None:
    with pytest.raises(KafkaError) as raised:
        Consumer(scene, "a", regex=regex).join()
    assert raised.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "g" not in scene.shard_of("g").groups


def test_after_a_restart_topics_that_came_meanwhile_are_found(scene: Scene) -> None:
    consumer = Consumer(scene, "a", regex="orders-.*").join()
    scene.settle(consumer)
    scene.unload()
    scene.topic("orders-asia", 1)
    scene.move()
    scene.advance(MIN_REFRESH_INTERVAL_MS)
    scene.settle(consumer)
    assert consumer.has("orders-asia") == {0}


def test_deleted_topics_are_taken_away_at_once(scene: Scene) -> None:
    consumer = Consumer(scene, "a", regex="orders-.*").join()
    scene.settle(consumer)
    scene.delete_topic("orders-eu")
    scene.advance(ASSIGNMENT_INTERVAL_MS)
    consumer.beat()
    assert (consumer.has("orders-eu"), consumer.has("orders-us")) == (set(), {0, 1})


def test_expressions_are_looked_up_in_slices_and_miss_nothing_that_comes_meanwhile(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[int] = []
    matching = regexes._matching

    def slow(regex: str, names: Iterable[str]) -> Slices[frozenset[str]]:
        names = list(names)
        looked_at.append(len(names))
        scene.clock.advance(int(SLICE_MS) + 1)
        return matching(regex, names)

    monkeypatch.setattr(regexes, "MATCHED_AT_ONCE", 1)
    monkeypatch.setattr(regexes, "_matching", slow)
    Consumer(scene, "a", regex="orders-.*").join()
    scene.timers.run_due()
    assert looked_at == [1], "the rest waits for another turn"
    assert not scene.group().subscriptions.resolved
    scene.topic("orders-asia", 1)
    scene.delete_topic("orders-us")
    goes = 1
    while not scene.group().subscriptions.resolved:
        scene.timers.run_due()
        goes += 1
        assert goes < 10
    assert looked_at == [1, 1, 1, 1], "three that were there, and the one that came"
    assert goes > 3
    assert scene.group().subscriptions.resolved["orders-.*"].topics == {"orders-eu", "orders-asia"}


@pytest.mark.usefixtures("nothing_known")
def test_a_look_up_gives_way_to_others_within_a_name(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes, "SLICE_MS", 0)
    name = "".join(random.Random(0).choices("ab", k=200))
    scene.topic(name, 1)
    Consumer(scene, "a", regex=f"[ab]*{name[-100]}[ab]{{99}}").join()
    assert scene.timers.run_due() > len(name), "a slice for each of its characters"
    assert next(iter(scene.group().subscriptions.resolved.values())).topics == {name}


def test_which_groups_a_new_topic_concerns_is_found_out_in_slices(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    concerned = [Consumer(scene, "a", regex="orders-.*", group_id=group_id) for group_id in ("g1", "g2")]
    other = Consumer(scene, "a", regex="pay.*", group_id="g3")
    for consumer in (*concerned, other):
        consumer.join()
    scene.advance(0)
    matching = regexes._matching
    looked_at: list[str] = []

    def slow(regex: str, names: Iterable[str]) -> Slices[frozenset[str]]:
        looked_at.append(regex)
        scene.clock.advance(int(SLICE_MS) + 1)
        return matching(regex, names)

    monkeypatch.setattr(regexes, "_matching", slow)
    scene.topic("orders-asia", 1)
    assert looked_at == [], "not while everybody is told of the topic"
    goes = 0
    while len(looked_at) < 3:
        before = len(looked_at)
        scene.timers.run_due()
        assert len(looked_at) <= before + 1
        if not goes:
            scene.topic("payments-asia", 1)
        goes += 1
        assert goes < 10
    scene.advance(1000)
    stale = {each: scene.group(each).regexes_are_stale for each in ("g1", "g2", "g3")}
    assert stale == {"g1": True, "g2": True, "g3": True}, "the topic that came meanwhile counts, too"


def test_topics_that_come_before_a_refused_look_up_is_tried_again_are_found(scene: Scene) -> None:
    Consumer(scene, "a", regex="orders-.*").join()
    scene.log_of("g").fail_next = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "too few")
    scene.timers.run_due()
    assert not scene.group().subscriptions.resolved
    scene.topic("orders-asia", 1)
    scene.delete_topic("orders-us")
    scene.advance(1000)
    assert scene.group().subscriptions.resolved["orders-.*"].topics == {"orders-eu", "orders-asia"}
