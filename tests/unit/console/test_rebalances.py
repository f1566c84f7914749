"""Why groups rebalance: what two views of a group tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog.client.admin.group_resources import GroupDescription, GroupState, GroupType, MemberDescription
from tidelog.client.metadata import PartitionMetadata
from tidelog.client.resources import TopicDescription
from tidelog.console.watching.changes import Event
from tidelog.console.watching.rebalances import RebalanceWatch, topics_of
from tidelog.ids import TopicPartition, Uuid


def topic(name: str, partitions: int) -> TopicDescription:
    found = tuple(PartitionMetadata(each, 1, 0, (1,), (1,)) for each in range(partitions))
    return TopicDescription(name, Uuid(bytes(16)), False, found)


TOPICS = {each: topic(each, 2) for each in ("orders", "payments")}


def member(
    id_: str, *partitions: int, client: str = "", instance: str | None = None, topics: str = "orders"
) -> MemberDescription:
    return MemberDescription(
        id_,
        client or id_,
        "10.0.0.1",
        instance,
        topics=tuple(topics.split()),
        assignment=tuple(TopicPartition("orders", each) for each in partitions),
    )


def group(
    *members: MemberDescription,
    state: GroupState = GroupState.STABLE,
    type_: GroupType = GroupType.CLASSIC,
    epoch: int | None = None,
) -> GroupDescription:
    return GroupDescription("g", type_, state, "consumer", "range", None, members, epoch)


def told(
    before: GroupDescription,
    after: GroupDescription,
    topics: dict[str, TopicDescription] | None = None,
) -> dict[str, object] | None:
    watch = RebalanceWatch()
    assert watch.compare(1, before, TOPICS) is None  # nobody knows what was before
    event = watch.compare(2, after, topics or TOPICS)
    return None if event is None else dict(event.args)


ONE = group(member("a", 0, 1))


def test_members_who_join_and_leave_are_named() -> None:
    two = group(member("a", 0), member("b", 1))
    assert told(ONE, two) == {"group": "g", "joined": 1, "joined_names": "b (10.0.0.1)", "topics": "orders"}
    assert told(two, ONE) == {"group": "g", "left": 1, "left_names": "b (10.0.0.1)", "topics": "orders"}
    many = group(member("a", 0), *(member(f"m{each}") for each in range(7)))
    found = told(ONE, many)
    assert found is not None
    assert found["joined"] == 7
    assert str(found["joined_names"]).endswith("m4 (10.0.0.1), …")


def test_a_group_that_stays_as_it_is_has_not_rebalanced() -> None:
    assert told(ONE, ONE) is None
    # Nothing has been given to anybody anew yet, however many partitions there are.
    assert told(ONE, ONE, {**TOPICS, "orders": topic("orders", 4)}) is None


def test_more_partitions_are_the_reason_even_when_consumers_notice_late() -> None:
    watch, grown = RebalanceWatch(), {**TOPICS, "orders": topic("orders", 3)}
    assert watch.compare(1, ONE, TOPICS) is None
    assert watch.compare(2, ONE, grown) is None
    event = watch.compare(3, group(member("a", 0, 1, 2)), grown)
    assert event is not None
    assert (event.args["grown"], event.args["grown_names"]) == (1, "orders (2 → 3)")


def test_a_member_that_subscribes_to_another_topic_is_named_with_it() -> None:
    found = told(ONE, group(replace(member("a", 0, 1, topics="orders payments"))))
    assert found is None  # until partitions are given out anew
    after = replace(
        member("a", topics="orders payments"),
        assignment=(TopicPartition("orders", 0), TopicPartition("payments", 0)),
    )
    found = told(ONE, group(after))
    assert found is not None
    assert (found["resubscribed_names"], found["appeared_names"]) == ("a (10.0.0.1)", "payments")
    assert "joined" not in found


def test_who_leaves_and_comes_back_is_not_somebody_else() -> None:
    found = told(group(member("x-1", 0, 1, client="x")), group(member("x-2", 0, 1, client="x")))
    assert found is not None
    assert (found["returned"], found.get("joined"), found.get("left")) == (1, None, None)


def test_a_static_member_that_is_started_again_makes_no_rebalance() -> None:
    watch = RebalanceWatch()
    before = group(member("x-1", 0, 1, client="x", instance="i"))
    again = group(member("x-2", 0, 1, client="x", instance="i"))
    assert watch.compare(1, before, TOPICS) is None
    assert watch.compare(2, again, TOPICS) is None
    found = watch.compare(3, group(member("x-2", 0, client="x", instance="i"), member("b", 1)), TOPICS)
    assert found is not None
    assert (found.args["joined_names"], "returned" in found.args) == ("b (10.0.0.1)", False)


def test_without_a_reason_the_event_has_none() -> None:
    swapped = group(member("a", 1), member("b", 0))
    assert told(group(member("a", 0), member("b", 1)), swapped) == {"group": "g", "topics": "orders"}


@pytest.mark.parametrize("state", [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_a_classic_group_is_looked_at_when_its_rebalance_is_over(state: GroupState) -> None:
    assert told(ONE, group(member("a"), member("b"), state=state)) is None


def test_a_consumer_group_rebalances_with_its_epoch() -> None:
    def at(epoch: int, *members: MemberDescription) -> GroupDescription:
        return group(*members, state=GroupState.RECONCILING, type_=GroupType.CONSUMER, epoch=epoch)

    assert told(at(3, member("a", 0, 1)), at(3, member("a", 0))) is None  # on its way to what epoch 3 says
    found = told(at(3, member("a", 0, 1)), at(4, member("a", 0), member("b")))
    assert found is not None
    assert (found["epoch"], found["joined"]) == (4, 1)


def test_an_event_is_about_every_topic_that_it_could_name() -> None:
    both, less = member("a", 0, 1, topics="orders hidden"), member("a", 0, topics="orders")
    found = told(group(both), group(less))
    assert found is not None
    assert (found["vanished_names"], found["topics"]) == ("hidden", "hidden,orders")
    # There need not be such a topic.
    found = told(group(less), group(both))
    assert found is not None
    assert (found["appeared_names"], found["topics"]) == ("hidden", "hidden,orders")
    # Of what only somebody who left has read, too.
    found = told(group(member("a", 0), member("b", topics="payments")), group(member("a", 0, 1)))
    assert found is not None
    assert found["topics"] == "orders,payments"


def test_events_name_their_topics() -> None:
    assert list(topics_of(Event(1, "x", "info", {"topics": "a,b"}))) == ["a", "b"]
    assert list(topics_of(Event(1, "x", "info", {"topic": "a"}))) == ["a"]
    kept = {"topics": "a", "vanished_names": "b, c", "grown_names": "d (1 → 2)", "joined_names": "m"}
    assert list(topics_of(Event(1, "x", "info", dict(kept)))) == ["a", "d", "b", "c"]
    assert list(topics_of(Event(1, "x", "info", {"topics": ""}))) == []
