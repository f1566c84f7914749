"""What changes between two snapshots: events for the feed, and rates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidelog.client.admin.group_resources import GroupListing, GroupState, GroupType
from tidelog.client.metadata import Node, PartitionMetadata
from tidelog.client.resources import ClusterDescription, TopicDescription
from tidelog.console.watching.changes import changes_between
from tidelog.console.watching.rates import rates_between
from tidelog.console.watching.snapshot import Disk, Snapshot
from tidelog.ids import TopicPartition, Uuid

NODES = tuple(Node(each, "h", 9090 + each) for each in (1, 2, 3))
PLACE = TopicPartition("t", 0)


def partition(number: int, leader: int | None, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionMetadata:
    return PartitionMetadata(number, leader, 0, (1, 2, 3), isr)


def topic(name: str, *partitions: PartitionMetadata, id_: int = 1) -> TopicDescription:
    return TopicDescription(name, Uuid(bytes(15) + bytes([id_])), False, partitions)


def group(name: str, state: GroupState) -> GroupListing:
    return GroupListing(name, "consumer", state, GroupType.CLASSIC, NODES[0])


BASE = Snapshot(
    0.0,
    1000,
    ClusterDescription("c", NODES[0], NODES),
    {"t": topic("t", partition(0, 1), partition(1, 1))},
    {PLACE: 100},
    {PLACE: 1000},
    (Disk(1, "/d", {"t": 1}, 50, 100),),
    {"g": group("g", GroupState.STABLE)},
    {"g": {PLACE: 90}},
)


def found(**changes: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(each.kind, each.args) for each in changes_between(BASE, replace(BASE, **changes))]


def test_nothing_changes_by_itself_and_the_first_look_tells_nothing() -> None:
    assert found() == []
    assert changes_between(None, BASE) == []


def test_a_broker_that_goes_takes_leaders_and_replicas_with_it() -> None:
    now = {"t": topic("t", partition(0, 2, (2, 3)), partition(1, 2, (2, 3)))}
    assert found(cluster=ClusterDescription("c", NODES[1], NODES[1:]), topics=now) == [
        ("broker-gone", {"broker": 1}),
        ("controller-moved", {"broker": 2}),
        ("isr-shrunk", {"topic": "t", "count": 2}),
        ("leaders-moved", {"from": 1, "to": 2, "count": 2}),
    ]


def test_partitions_without_a_leader_are_told() -> None:
    assert found(topics={"t": topic("t", partition(0, None), partition(1, 1))}) == [
        ("partitions-offline", {"topic": "t", "count": 1})
    ]


def test_topics_come_go_grow_and_are_made_anew() -> None:
    both = BASE.topics["t"].partitions
    assert found(topics={}) == [("topic-deleted", {"topic": "t"})]
    assert found(topics={**BASE.topics, "u": topic("u", partition(0, 1))}) == [
        ("topic-created", {"topic": "u"})
    ]
    assert found(topics={"t": topic("t", *both, id_=2)}) == [("topic-made-anew", {"topic": "t"})]
    assert found(topics={"t": topic("t", *both, partition(2, 1))}) == [
        ("partitions-added", {"topic": "t", "before": 2, "now": 3})
    ]


def test_partitions_with_other_replicas_are_counted() -> None:
    moved = replace(partition(0, 1), replicas=(1, 2, 4), isr=(1, 2, 3))
    assert found(topics={"t": topic("t", moved, partition(1, 1))}) == [
        ("replicas-changed", {"topic": "t", "count": 1})
    ]


def test_groups_rebalance_and_internal_ones_are_nobodys_business() -> None:
    assert found(groups={"g": group("g", GroupState.PREPARING_REBALANCE)}) == [
        ("group-rebalances", {"group": "g", "state": "PreparingRebalance"})
    ]
    assert found(groups={"g": group("g", GroupState.EMPTY)}) == [
        ("group-state", {"group": "g", "before": "Stable", "state": "Empty"})
    ]
    internal = group("__tidelog-spark-epochs.x.0", GroupState.EMPTY)
    assert found(groups={**BASE.groups, internal.group_id: internal}) == []


def test_disks_that_fail_or_fill_up_are_told_once() -> None:
    full = (Disk(1, "/d", {"t": 1}, 5, 100),)
    assert found(disks=full) == [("disk-nearly-full", {"broker": 1, "path": "/d"})]
    assert changes_between(replace(BASE, disks=full), replace(BASE, disks=full)) == []
    assert found(disks=(Disk(1, "/d", {"t": 1}, None, None, "offline"),)) == [
        ("disk-failed", {"broker": 1, "path": "/d"})
    ]


def test_rates_are_differences_and_topics_made_anew_count_nothing() -> None:
    now = replace(BASE, at_s=10.0, ends={PLACE: 150}, sizes={PLACE: 2000}, committed={"g": {PLACE: 110}})
    rates = rates_between(BASE, now)
    assert (rates.records, rates.size_bytes, rates.committed) == ({"t": 5.0}, {"t": 100.0}, {("g", "t"): 2.0})
    anew = replace(now, topics={"t": topic("t", partition(0, 1), id_=2)})
    assert rates_between(BASE, anew).total_records == 0.0
    assert rates_between(None, now).total_records == 0.0
