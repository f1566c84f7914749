"""Access rules in the store: Kafka's bytes, changes under versions, and what brokers tell each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
from tests.rigs.clock import ManualClock
from tests.rigs.memory_zookeeper import MemorySession, MemoryZooKeeper

from tidelog.errors import StorageError
from tidelog.metadata.acl_store import AclStore
from tidelog.metadata.cluster_feed import NOTICE_AGE_MS
from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.metadata.store import (
    Create,
    MetadataStore,
    NoNode,
    Op,
    Result,
    SessionExpired,
    StoreError,
    put,
)
from tidelog.metadata.znodes import acl_znodes
from tidelog.security.acls.filters import AclFilter
from tidelog.security.acls.model import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "tx-", PatternType.PREFIXED)
READ = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
WRITE = AclEntry("User:bob", "10.0.0.1", Operation.DESCRIBE_CONFIGS, Permission.DENY)


def binding(pattern: ResourcePattern, entry: AclEntry = READ) -> AclBinding:
    return AclBinding(pattern, entry)


async def settled(*stores: AclStore) -> None:
    for _ in range(30):
        await asyncio.sleep(0)
        for store in stores:
            await store.caught_up()


def in_zookeeper(test: Callable[[MemoryZooKeeper, MemorySession], Awaitable[None]]) -> None:
    async def run() -> None:
        zookeeper = MemoryZooKeeper()
        await test(zookeeper, zookeeper.session())

    asyncio.run(run())


async def data(store: MetadataStore, path: str) -> bytes:
    return (await store.get(path))[0]


def test_nodes_and_notices_are_byte_for_byte_what_kafka_writes() -> None:
    async def test(_: MemoryZooKeeper, store: MemorySession) -> None:
        acls = await AclStore.open(store, store, ManualClock())
        await acls.add([binding(ORDERS), binding(PREFIX, WRITE), binding(ORDERS, WRITE)])
        assert await data(store, "/kafka-acl/Topic/orders") == (
            b'{"acls":['
            b'{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"},'
            b'{"principal":"User:bob","permissionType":"Deny","host":"10.0.0.1",'
            b'"operation":"DescribeConfigs"}],"version":1}'
        )
        assert await data(store, "/kafka-acl-extended/prefixed/TransactionalId/tx-") == (
            b'{"acls":[{"principal":"User:bob","permissionType":"Deny",'
            b'"host":"10.0.0.1","operation":"DescribeConfigs"}],"version":1}'
        )
        assert await data(store, "/kafka-acl-changes/acl_changes_0000000000") == b"TOPIC:orders"
        assert await data(store, "/kafka-acl-extended-changes/acl_changes_0000000000") == (
            b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"tx-","patternType":"PREFIXED"}'
        )
        assert await store.children("/kafka-acl") == [
            "Cluster",
            "DelegationToken",
            "Group",
            "Topic",
            "TransactionalId",
            "User",
        ]
        await acls.close()

    in_zookeeper(test)


def test_what_is_there_already_changes_nothing_and_is_not_told() -> None:
    async def test(_: MemoryZooKeeper, store: MemorySession) -> None:
        acls = await AclStore.open(store, store, ManualClock())
        await acls.add([binding(ORDERS)])
        changes: list[int] = []
        acls.on_change = lambda: changes.append(1)
        await acls.add([binding(ORDERS), binding(ORDERS)])
        assert await store.children("/kafka-acl-changes") == ["acl_changes_0000000000"]
        assert changes == []
        await acls.close()

    in_zookeeper(test)


def test_the_last_rule_takes_its_node_along() -> None:
    async def test(_: MemoryZooKeeper, store: MemorySession) -> None:
        acls = await AclStore.open(store, store, ManualClock())
        await acls.add([binding(ORDERS), binding(ORDERS, WRITE), binding(PREFIX)])
        everything = AclFilter()
        readers = AclFilter(operation=Operation.READ)
        first, second = await acls.remove([readers, everything])
        assert first == {binding(ORDERS): None, binding(PREFIX): None}
        assert second == {binding(ORDERS, WRITE): None}
        assert len(acls.rules) == 0
        with pytest.raises(NoNode):
            await store.get("/kafka-acl/Topic/orders")
        with pytest.raises(NoNode):
            await store.get("/kafka-acl-extended/prefixed/TransactionalId/tx-")
        await acls.close()

    in_zookeeper(test)


def test_brokers_hear_of_each_others_changes() -> None:
    async def test(zookeeper: MemoryZooKeeper, store: MemorySession) -> None:
        other_store = zookeeper.session()
        one = await AclStore.open(store, store, ManualClock())
        other = await AclStore.open(other_store, other_store, ManualClock())
        changes: list[int] = []
        other.on_change = lambda: changes.append(1)
        await one.add([binding(ORDERS), binding(PREFIX)])
        await settled(one, other)
        assert set(other.rules) == {binding(ORDERS), binding(PREFIX)}
        assert len(changes) == 2
        await other.remove([AclFilter()])
        await settled(one, other)
        assert len(one.rules) == 0
        await one.close()
        await other.close()

    in_zookeeper(test)


def test_a_rule_is_removed_together_with_the_notice_of_it_or_stays() -> None:
    async def test(zookeeper: MemoryZooKeeper, store: MemorySession) -> None:
        acls = await AclStore.open(store, store, ManualClock())
        elsewhere = zookeeper.session()
        other = await AclStore.open(elsewhere, elsewhere, ManualClock())
        await acls.add([binding(ORDERS)])
        await settled(acls, other)
        real = store.multi

        async def failing(ops: Sequence[Op]) -> list[Result]:
            if any(isinstance(op, Create) and op.sequential for op in ops):
                raise SessionExpired(ops[0].path)
            return await real(ops)

        store.multi = failing  # type: ignore[method-assign]
        [first] = await acls.remove([AclFilter()])
        assert isinstance(first[binding(ORDERS)], SessionExpired)
        store.multi = real  # type: ignore[method-assign]
        [second] = await acls.remove([AclFilter()])
        assert second == {binding(ORDERS): None}
        await settled(acls, other)
        for each in (acls, other):
            assert not list(each.rules.patterns())
            await each.close()

    in_zookeeper(test)


def test_both_writers_of_one_pattern_are_heard() -> None:
    async def test(zookeeper: MemoryZooKeeper, store: MemorySession) -> None:
        other_store = zookeeper.session()
        one = await AclStore.open(store, store, ManualClock())
        other = await AclStore.open(other_store, other_store, ManualClock())
        entries = [AclEntry(f"User:u{n}", "*", Operation.READ, Permission.ALLOW) for n in range(6)]
        await asyncio.gather(
            *((one, other)[n % 2].add([binding(ORDERS, entry)]) for n, entry in enumerate(entries))
        )
        await settled(one, other)
        expected = {binding(ORDERS, entry) for entry in entries}
        assert set(one.rules) == expected == set(other.rules)
        await one.close()
        await other.close()

    in_zookeeper(test)


def test_after_a_session_that_has_expired_everything_is_read_anew() -> None:
    async def test(zookeeper: MemoryZooKeeper, store: MemorySession) -> None:
        acls = await AclStore.open(store, store, ManualClock())
        await acls.add([binding(PREFIX)])
        zookeeper.suspend(store)
        other = zookeeper.session()
        # Without a notice, as if that had been removed for its age.
        await put(other, "/kafka-acl/Topic/orders", acl_znodes.encode_rules([WRITE]))
        await other.delete("/kafka-acl-extended/prefixed/TransactionalId/tx-")
        zookeeper.expire(store)
        zookeeper.resume(store)
        await settled(acls)
        assert set(acls.rules) == {binding(ORDERS, WRITE)}
        await acls.close()

    in_zookeeper(test)


@pytest.mark.parametrize("next_news", ["connection", "notice"])
def test_what_could_not_be_read_anew_is_read_with_the_next_news(
    next_news: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> None:
        raise StoreError("/", "connection lost")

    async def test(zookeeper: MemoryZooKeeper, store: MemorySession) -> None:
        acls = await AclStore.open(store, store, ManualClock())
        await acls.add([binding(ORDERS)])
        await settled(acls)
        zookeeper.suspend(store)
        other = zookeeper.session()
        await other.delete("/kafka-acl/Topic/orders")
        with monkeypatch.context() as patch:
            patch.setattr(AclStore, "_load", lost)
            zookeeper.expire(store)
            zookeeper.resume(store)
            await settled(acls)
        assert binding(ORDERS) in acls.rules
        if next_news == "connection":
            zookeeper.suspend(store)
            zookeeper.resume(store)
        else:
            others = await AclStore.open(other, other, ManualClock())
            await others.add([binding(PREFIX)])
            await others.close()
        await settled(acls)
        assert binding(ORDERS) not in acls.rules
        await acls.close()

    in_zookeeper(test)


def test_one_rule_that_cannot_be_read_keeps_nobody_from_the_others_after_an_expired_session() -> None:
    async def test(zookeeper: MemoryZooKeeper, store: MemorySession) -> None:
        acls = await AclStore.open(store, store, ManualClock())
        await acls.add([binding(ORDERS), binding(PREFIX)])
        await settled(acls)
        zookeeper.suspend(store)
        other = zookeeper.session()
        others = await AclStore.open(other, other, ManualClock())
        await put(other, "/kafka-acl/Cluster/kafka-cluster", b"nonsense")
        await other.delete("/kafka-acl/Topic/orders")
        zookeeper.expire(store)
        zookeeper.resume(store)
        await settled(acls)
        assert list(acls.rules) == [binding(PREFIX)]
        await others.remove([AclFilter()])
        await settled(acls)
        assert list(acls.rules) == []
        await acls.close()
        await others.close()

    in_zookeeper(test)


def test_old_notices_are_removed() -> None:
    async def test(_: MemoryZooKeeper, store: MemorySession) -> None:
        clock = ManualClock()
        acls = await AclStore.open(store, store, clock)
        await acls.add([binding(ORDERS), binding(PREFIX)])
        await settled(acls)
        clock.advance(NOTICE_AGE_MS + 1)
        await acls.add([binding(ORDERS, WRITE)])
        await settled(acls)
        assert await store.children("/kafka-acl-changes") == ["acl_changes_0000000001"]
        assert await store.children("/kafka-acl-extended-changes") == ["acl_changes_0000000000"]
        await acls.close()

    in_zookeeper(test)


def test_a_notice_that_nobody_can_read_is_passed_over() -> None:
    async def test(_: MemoryZooKeeper, store: MemorySession) -> None:
        acls = await AclStore.open(store, store, ManualClock())
        await store.create("/kafka-acl-changes/acl_changes_", b"nonsense", sequential=True)
        await store.create("/kafka-acl-extended-changes/acl_changes_", b"{}", sequential=True)
        await put(store, "/kafka-acl/Topic/orders", acl_znodes.encode_rules([READ]))
        await store.create("/kafka-acl-changes/acl_changes_", b"Topic:orders", sequential=True)
        await settled(acls)
        assert acls.rules.entries(ORDERS) == (READ,)
        await acls.close()

    in_zookeeper(test)


@pytest.mark.parametrize(
    "raw",
    [
        b"rubbish",
        b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny","operation":"Fly","host":"*"}]}',
    ],
)
def test_a_rule_that_cannot_be_read_stops_the_start(raw: bytes) -> None:
    async def test(_: MemoryZooKeeper, store: MemorySession) -> None:
        await put(store, "/kafka-acl/Topic/orders", raw)
        with pytest.raises(StorageError, match="/kafka-acl/Topic/orders"):
            await AclStore.open(store, store, ManualClock())

    in_zookeeper(test)


def test_a_broker_alone_keeps_its_rules_and_writes_no_notices(tmp_path: Path) -> None:
    async def run() -> None:
        store = EmbeddedStore(tmp_path)
        acls = await AclStore.open(store, None, ManualClock())
        await acls.add([binding(ORDERS), binding(PREFIX, WRITE)])
        assert await store.children("/kafka-acl-changes") == []
        await acls.close()
        await store.close()
        store = EmbeddedStore(tmp_path)
        acls = await AclStore.open(store, None, ManualClock())
        assert set(acls.rules) == {binding(ORDERS), binding(PREFIX, WRITE)}
        await store.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["a/b", "/", ".", "..", "a\0b"])
def test_names_that_make_no_node_are_known(name: str) -> None:
    assert acl_znodes.cannot_be_kept(name)
    assert not acl_znodes.cannot_be_kept(f"x{name}y".replace("/", "").replace("\0", ""))
