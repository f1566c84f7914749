"""What `tidelog cluster describe` makes of the brokers' answers."""

from __future__ import annotations

import pytest

from tidelog.cli.cluster.state import print_state, state_of
from tidelog.client.metadata import Node, PartitionMetadata
from tidelog.client.resources import ClusterDescription, TopicDescription
from tidelog.ids import ZERO_UUID

NODES = (Node(1, "one", 9092, "a"), Node(2, "two", 9092, "b"))
CLUSTER = ClusterDescription("c", NODES[1], NODES)


def topic(name: str, *partitions: PartitionMetadata) -> TopicDescription:
    return TopicDescription(name, ZERO_UUID, False, partitions)


def partition(
    at: int, leader: int | None, replicas: tuple[int, ...], isr: tuple[int, ...]
) -> PartitionMetadata:
    return PartitionMetadata(at, leader, replicas=replicas, isr=isr)


TOPICS = [
    topic("well", partition(0, 1, (1, 2), (1, 2)), partition(1, 1, (2, 1), (2, 1))),
    topic("short", partition(0, 2, (1, 2, 3), (2, 1))),
    topic("thin", partition(0, 2, (3, 2), (2,))),
    topic("lost", partition(0, None, (3,), (3,))),
]
MIN_ISR = {"well": 2, "short": 2, "thin": 2, "lost": 2}


def test_partitions_in_trouble_are_told_apart() -> None:
    state = state_of(CLUSTER, TOPICS, MIN_ISR)
    assert [each.topic for each in state.troubled] == ["short", "thin", "lost"]
    assert (state.under_replicated, state.under_min_isr, state.offline) == (2, 1, 1)
    assert (state.topics, state.partitions) == (4, 5)
    assert state.controller == 2


def test_min_isr_is_never_more_than_the_replicas() -> None:
    single = [topic("single", partition(0, 1, (1,), (1,)))]
    assert state_of(CLUSTER, single, {"single": 2}).troubled == []


def test_brokers_are_counted_with_those_that_are_down() -> None:
    one, two, three = state_of(CLUSTER, TOPICS, MIN_ISR).brokers
    assert (one.partitions_led, one.partitions_preferred, one.partitions_hosted) == (2, 2, 3)
    assert (two.controller, two.address, two.rack) == (True, "two:9092", "b")
    assert (three.alive, three.address, three.partitions_hosted, three.partitions_in_sync) == (
        False,
        None,
        3,
        1,
    )


def test_the_table_names_the_worst_of_each_partition(capsys: pytest.CaptureFixture[str]) -> None:
    print_state(state_of(CLUSTER, TOPICS, MIN_ISR))
    out = capsys.readouterr().out
    assert "3\t-\t-\tDOWN\t0" in out
    assert "thin\t0\tunder min isr\t2\t3,2\t2\t2" in out
    assert "lost\t0\toffline\t-" in out
    assert out.endswith("5 partitions of 4 topics: 2 under-replicated, 1 under min isr, 1 offline\n")


def test_a_cluster_in_order_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_state(state_of(CLUSTER, TOPICS[:1], MIN_ISR))
    assert capsys.readouterr().out.endswith("2 partitions of 1 topic, all in sync\n")
