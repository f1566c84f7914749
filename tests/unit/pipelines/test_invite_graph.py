"""Rings: circles and chains are found as invitations come, within bounds."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from tidelog.pipelines.jobs.invite_fraud.graph import Edge, InviteGraph, Ring
from tidelog.pipelines.jobs.invite_fraud.rings import ring_alerts
from tidelog.pipelines.jobs.invite_fraud.schema import Rules

MINUTE_MS = 60_000


def edge(inviter: str, invitee: str, minute: float = 0.0, device: str | None = None, **more: Any) -> Edge:
    fields = {
        "inviter_device": device or f"device of {inviter}",
        "invitee_device": device or f"device of {invitee}",
        "network": f"network of {invitee}",
        "partition": 0,
        "offset": 0,
        **more,
    }
    return Edge(round(minute * MINUTE_MS), f"{inviter}-{invitee}", inviter, invitee, **fields)


def shapes(rings: list[Ring]) -> list[tuple[str, tuple[str, ...]]]:
    return [(ring.shape, ring.members) for ring in rings]


def alerts(rings: list[Ring], rules: Rules | None = None) -> list[dict[str, Any]]:
    return [json.loads(value) for _, value in ring_alerts(rings, rules or Rules())]


def test_a_circle_is_found_when_its_last_invitation_comes() -> None:
    graph = InviteGraph()
    assert graph.add([edge("b", "c", 1)]) == []
    assert graph.add([edge("a", "b", 0)]) == []
    assert shapes(graph.add([edge("c", "a", 2)])) == [("cycle", ("a", "b", "c"))]


def test_a_circle_within_one_batch_is_found_in_any_order() -> None:
    edges = [edge("a", "b"), edge("b", "c"), edge("c", "d"), edge("d", "a")]
    for turn in range(4):
        found = InviteGraph().add(edges[turn:] + edges[:turn])
        assert shapes(found) == [("cycle", ("a", "b", "c", "d"))]


@pytest.mark.parametrize(("length", "is_found"), [(6, True), (7, False)])
def test_circles_are_looked_for_up_to_the_longest(length: int, is_found: bool) -> None:
    names = [f"u{at}" for at in range(length)]
    edges = [edge(name, names[(at + 1) % length], at) for at, name in enumerate(names)]
    assert bool(InviteGraph().add(edges)) == is_found


def test_two_who_invite_each_other_are_mutual_and_one_who_invites_himself_is_nothing() -> None:
    graph = InviteGraph()
    assert graph.add([edge("a", "a")]) == []
    assert shapes(graph.add([edge("a", "b"), edge("b", "a")])) == [("mutual", ("a", "b"))]


def test_a_delivery_that_comes_twice_is_nothing_new() -> None:
    graph = InviteGraph()
    graph.add([edge("a", "b"), edge("b", "a")])
    assert graph.add([edge("b", "a"), edge("a", "b")]) == []
    assert len(graph) == 2


@pytest.mark.parametrize(("invitations", "is_found"), [(2, False), (3, True)])
def test_a_chain_on_one_device_counts_from_three_invitations(invitations: int, is_found: bool) -> None:
    graph = InviteGraph()
    rings: list[Ring] = []
    for at in range(invitations):
        rings += graph.add([edge(f"u{at}", f"u{at + 1}", at, "farm")])
    assert bool(rings) == is_found


def test_a_chain_whose_middle_comes_last_is_found_whole() -> None:
    graph = InviteGraph()
    graph.add([edge("a", "b", 0, "farm"), edge("c", "d", 2, "farm")])
    assert shapes(graph.add([edge("b", "c", 1, "farm")])) == [("chain", ("a", "b", "c", "d"))]


def test_a_parent_with_children_on_one_tablet_is_no_chain_and_a_chain_over_devices_neither() -> None:
    assert InviteGraph().add([edge("p", f"child {at}", at, "tablet") for at in range(3)]) == []
    assert InviteGraph().add([edge(f"u{at}", f"u{at + 1}", at) for at in range(6)]) == []


def test_invitations_older_than_the_horizon_are_forgotten() -> None:
    rules = Rules(horizon=timedelta(minutes=60))
    kept, lost = InviteGraph(rules), InviteGraph(rules)
    kept.add([edge("a", "b", 0)])
    lost.add([edge("a", "b", 0)])
    assert kept.add([edge("b", "a", 60)])
    lost.add([edge("x", "y", 60.1)])
    assert len(lost) == 1
    assert lost.add([edge("b", "a", 60.2)]) == []
    assert lost.add([edge("m", "n", 0.05)]) == []
    assert len(lost) == 2, "what is too late is not taken"


def test_the_graph_never_holds_more_than_its_bound() -> None:
    graph = InviteGraph(Rules(max_edges=100))
    for at in range(1_000):
        graph.add([edge(f"a{at}", f"b{at}", at / 100)])
        assert len(graph) <= 100
    assert {each.inviter for each in graph.edges()} == {f"a{at}" for at in range(900, 1_000)}


def test_a_search_gives_up_in_a_crowd() -> None:
    graph = InviteGraph(Rules(max_visits=1_000))
    crowd = [edge("hub", f"u{at}", at / 1000) for at in range(5_000)]
    graph.add(crowd)
    graph.add([edge(f"u{at}", f"v{at}", 10) for at in range(5_000)])
    assert graph.add([edge("v4999", "hub", 11)]) == []
    assert graph.given_up == 1


def test_rings_are_scored_with_reasons_and_honest_friends_are_below_the_line() -> None:
    cycle = alerts(InviteGraph().add([edge("a", "b"), edge("b", "c", 1), edge("c", "a", 2)]))[0]
    assert {reason["rule"]: reason["points"] for reason in cycle["reasons"]} == {"cycle": 70, "quick": 10}
    assert cycle["score"] == 80
    assert cycle["subject"] == "a,b,c"
    assert [invite["event_id"] for invite in cycle["invites"]] == ["a-b", "b-c", "c-a"]
    assert alerts(InviteGraph().add([edge("a", "b"), edge("b", "a", 5)])) == []
    at_home = [edge("a", "b", network="n"), edge("b", "a", 5, network="n")]
    assert alerts(InviteGraph().add(at_home)) == [], "two friends behind one address"
    farm = alerts(InviteGraph().add([edge("a", "b", 0, "d"), edge("b", "a", 90, "d")]))[0]
    assert (farm["score"], farm["devices"]) == (70, ["d"])


def test_a_growing_chain_keeps_its_alert_id_and_a_circle_has_one_whoever_closes_it() -> None:
    graph = InviteGraph()
    graph.add([edge("a", "b", 0, "d"), edge("b", "c", 1, "d")])
    shorter = alerts(graph.add([edge("c", "d", 2, "d")]))[0]
    longer = alerts(graph.add([edge("d", "e", 3, "d")]))[0]
    assert shorter["alert_id"] == longer["alert_id"]
    assert (shorter["score"], longer["score"]) == (60, 70)
    circle = [edge("a", "b", 0), edge("b", "c", 1), edge("c", "a", 2)]
    other_way = [edge("b", "c", 0), edge("c", "a", 1), edge("a", "b", 2)]
    ids = {alerts(InviteGraph().add(edges))[0]["alert_id"] for edges in (circle, other_way)}
    assert len(ids) == 1
