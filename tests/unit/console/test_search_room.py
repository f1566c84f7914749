"""How many searches may run at once: of all, and of one person."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tidelog.console.auth.person import Account
from tidelog.console.refusal import Refusal
from tidelog.console.settings import ClusterSettings, Way
from tidelog.console.watching.history import History
from tidelog.console.watching.watched_cluster import WatchedCluster

ALL = 20
OF_ONE = 10


@pytest.fixture
def cluster(tmp_path: Path) -> WatchedCluster:
    settings = ClusterSettings("main", {"bootstrap.servers": "127.0.0.1:1"})
    return WatchedCluster(settings, History(tmp_path / "history.db", 7), refresh_s=60.0)


def begin(cluster: WatchedCluster, account: Account | None, searches: int) -> contextlib.ExitStack:
    running = contextlib.ExitStack()
    for _ in range(searches):
        running.enter_context(cluster.room(account))
    return running


def test_one_person_leaves_room_for_another(cluster: WatchedCluster) -> None:
    ann, bob = Account("ann"), Account("bob")
    with begin(cluster, ann, OF_ONE):
        with pytest.raises(Refusal, match="you already run 10 searches"), cluster.room(ann):
            pass
        with pytest.raises(Refusal), cluster.room(Account("ann", groups=frozenset({"staff"}))):
            pass  # with a token from before she left the group, say
        with cluster.room(Account("ann", Way.OIDC)):
            pass  # somebody else, by another way
        with begin(cluster, bob, OF_ONE):
            with pytest.raises(Refusal, match="20 searches already run"), cluster.room(Account("eve")):
                pass
            assert cluster.searches.total() == ALL
        with cluster.room(bob):
            assert cluster.searches == {ann: OF_ONE, bob: 1}
    assert not cluster.searches


def test_without_logins_everybody_shares_all(cluster: WatchedCluster) -> None:
    with (
        begin(cluster, None, ALL),
        pytest.raises(Refusal, match="20 searches already run"),
        cluster.room(None),
    ):
        pass
    assert not cluster.searches
