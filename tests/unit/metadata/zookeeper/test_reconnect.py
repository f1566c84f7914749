"""How long a broker waits before it looks for ZooKeeper again."""

from __future__ import annotations

import asyncio

from kazoo.exceptions import ConnectionLoss

from tidelog.metadata.zookeeper.zookeeper_store import ZooKeeperStore

ATTEMPTS = 200


class Away:
    """A ZooKeeper that answers at last."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> str:
        self.asked += 1
        if self.asked < ATTEMPTS:
            raise ConnectionLoss
        return "back"


def test_a_zookeeper_that_was_away_for_long_is_found_as_soon_as_one_that_was_away_for_a_moment() -> None:
    async def policy_of_a_store() -> object:
        return ZooKeeperStore("127.0.0.1:1", session_timeout_ms=2000)._client._conn_retry

    policy = asyncio.run(policy_of_a_store()).copy()  # type: ignore[attr-defined]
    pauses: list[float] = []
    policy.sleep_func, policy.interrupt = pauses.append, None
    away = Away()
    assert policy(away) == "back"
    assert away.asked == ATTEMPTS
    assert len(pauses) == ATTEMPTS - 1
    assert max(pauses) < 2.0
