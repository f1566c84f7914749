"""The list of groups counts, for each person, what he may see."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from tidelog.client.admin.group_resources import GroupListing, GroupState, GroupType
from tidelog.client.metadata import Node
from tidelog.client.resources import ClusterDescription
from tidelog.console.api.endpoint import Call
from tidelog.console.api.groups_api import GroupQuery, GroupRow, groups
from tidelog.console.auth.person import Person, person_of
from tidelog.console.auth.sessions import Session
from tidelog.console.settings import ClusterSettings, Grant, Role
from tidelog.console.watching.history import History
from tidelog.console.watching.rates import Rates
from tidelog.console.watching.snapshot import Snapshot
from tidelog.console.watching.watched_cluster import WatchedCluster
from tidelog.ids import TopicPartition

SEEN, HIDDEN = TopicPartition("orders", 0), TopicPartition("payroll", 0)
NODE = Node(1, "127.0.0.1", 9092)


def viewer(*topics: str) -> Person:
    return person_of("alice", (Grant("alice", Role.VIEWER, topics=topics),), Role.ADMIN)


def listed(person: Person, path: Path, *, without_leader: tuple[TopicPartition, ...] = ()) -> list[GroupRow]:
    async def run() -> object:
        history = History(path, 7)
        settings = ClusterSettings("main", {"bootstrap.servers": "127.0.0.1:1"})
        watched = WatchedCluster(settings, history, refresh_s=60.0)
        billing = GroupListing("billing", "consumer", GroupState.EMPTY, GroupType.CLASSIC, NODE)
        offsets = {SEEN: 3, HIDDEN: 4, TopicPartition("payroll", 1): 5}
        watched.snapshot = Snapshot(
            0.0,
            0,
            ClusterDescription("id", NODE, (NODE,)),
            {},
            {each: end for each, end in {SEEN: 10, HIDDEN: 20}.items() if each not in without_leader},
            {},
            (),
            {"billing": billing},
            {"billing": offsets},
        )
        watched.rates = Rates(committed={("billing", "orders"): 1.0, ("billing", "payroll"): 2.0})
        call = Call(cast(Any, None), Session("", "", person, 0.0), person, "", {}, watched)
        try:
            return await groups.handle(call, GroupQuery())
        finally:
            await history.close()

    return cast(list[GroupRow], asyncio.run(run()))


def test_figures_of_a_group_are_those_of_topics_that_somebody_may_see(tmp_path: Path) -> None:
    for topics, figures in ((("orders",), (1, 1, 7, 1.0)), (("*",), (2, 3, 23, 3.0))):
        (row,) = listed(viewer(*topics), tmp_path / "history.sqlite")
        assert (row.topics, row.partitions, row.lag, row.committed_per_second) == figures


def test_a_group_is_listed_while_its_topic_has_no_leader(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite"
    (row,) = listed(viewer("orders"), path, without_leader=(SEEN,))
    assert (row.group, row.lag) == ("billing", None)
    assert listed(viewer("others"), path) == []
