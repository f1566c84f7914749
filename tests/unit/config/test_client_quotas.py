from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tidelog.config.client_quotas import QuotaEntity, parse_quotas
from tidelog.metadata.embedded.embedded_store import EmbeddedStore
from tidelog.metadata.empty_configs import drop_empty
from tidelog.metadata.feed import ImageDelta, MetadataFeed
from tidelog.metadata.store import put
from tidelog.metadata.znodes import znodes


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        ((("user", "alice"),), "/config/users/alice"),
        ((("user", None),), "/config/users/<default>"),
        ((("user", "<default>"),), "/config/users/%3Cdefault%3E"),
        ((("user", "a b/c*+~"), ("client-id", None)), "/config/users/a%20b%2Fc%2A%2B%7E/clients/<default>"),
        ((("user", None), ("client-id", "ü")), "/config/users/<default>/clients/%C3%BC"),
        ((("client-id", "app.1-x_y"),), "/config/clients/app.1-x_y"),
        ((("ip", "2001:db8::1"),), "/config/ips/2001%3Adb8%3A%3A1"),
        ((("ip", None),), "/config/ips/<default>"),
    ],
)
def test_an_entity_has_kafkas_node_and_is_known_by_it(entity: QuotaEntity, path: str) -> None:
    assert znodes.quota_path(entity) == path
    assert znodes.quota_entity_of(path) == entity


def test_other_nodes_have_no_quotas() -> None:
    assert znodes.quota_entity_of("/config/topics/orders") is None


def test_quotas_that_nobody_can_keep_to_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    entries = {
        "producer_byte_rate": "1024",
        "consumer_byte_rate": "0",
        "request_percentage": "NaN",
        "controller_mutation_rate": "many",
        "SCRAM-SHA-256": "salt=…",
    }
    assert parse_quotas("/config/users/alice", entries) == {"producer_byte_rate": 1024.0}
    assert len(caplog.records) == 3


def test_a_quota_of_nothing_holds_where_kafka_keeps_to_it() -> None:
    entries = {
        "producer_byte_rate": "0",
        "request_percentage": "0.0",
        "controller_mutation_rate": "0",
        "connection_creation_rate": "0",
    }
    assert parse_quotas("/config/users/alice", entries) == {
        "request_percentage": 0.0,
        "controller_mutation_rate": 0.0,
        "connection_creation_rate": 0.0,
    }


def test_the_image_follows_quotas_and_finds_them_again(tmp_path: Path) -> None:
    asyncio.run(_follow(tmp_path))


async def _follow(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    feed = await MetadataFeed.start(store)
    heard: list[ImageDelta] = []
    feed.subscribe(heard.append)
    alice: QuotaEntity = (("user", "alice"),)
    both: QuotaEntity = (("user", None), ("client-id", "app"))
    ip: QuotaEntity = (("ip", "192.0.2.1"),)
    scram = {"SCRAM-SHA-256": "salt=…"}
    await put(store, znodes.quota_path(alice), znodes.encode_config({**scram, "producer_byte_rate": "1024"}))
    await put(store, znodes.quota_path(both), znodes.encode_config({"request_percentage": "12.5"}))
    await put(store, znodes.quota_path(ip), znodes.encode_config({"connection_creation_rate": "5"}))
    await feed.caught_up()
    expected = {
        alice: {"producer_byte_rate": 1024.0},
        both: {"request_percentage": 12.5},
        ip: {"connection_creation_rate": 5.0},
    }
    assert feed.image.quotas == expected
    assert set().union(*(delta.quotas for delta in heard)) == expected.keys()
    assert feed.image.user_configs["alice"].keys() == {"SCRAM-SHA-256", "producer_byte_rate"}
    again = await MetadataFeed.start(store)
    assert again.image.quotas == expected
    await put(store, znodes.quota_path(alice), znodes.encode_config(scram))
    await feed.caught_up()
    assert alice not in feed.image.quotas
    assert feed.image.user_configs["alice"] == scram
    await feed.close()
    await store.close()


def test_a_node_of_which_nothing_is_kept_goes_with_what_it_leaves_empty(tmp_path: Path) -> None:
    asyncio.run(_drop(tmp_path))


async def _drop(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    quota = znodes.encode_config({"producer_byte_rate": "1"})
    nothing = znodes.encode_config({})

    async def users() -> list[str]:
        return await store.children(znodes.USER_CONFIGS)

    await put(store, "/config/users/alice/clients/a", nothing)
    await put(store, "/config/users/alice/clients/b", quota)
    assert await drop_empty(store, "/config/users/alice/clients/a")
    assert await store.children("/config/users/alice/clients") == ["b"]
    assert not await drop_empty(store, "/config/users/alice"), "it has children"
    assert await drop_empty(store, "/config/users/alice/clients/b")
    assert await users() == []
    await put(store, "/config/users/bob", quota)
    await put(store, "/config/users/bob/clients/a", nothing)
    assert await drop_empty(store, "/config/users/bob/clients/a")
    assert await users() == ["bob"]
    await put(store, "/config/clients/app", nothing)
    assert await drop_empty(store, "/config/clients/app")
    assert await store.children(znodes.CLIENT_CONFIGS) == []
    await store.close()
