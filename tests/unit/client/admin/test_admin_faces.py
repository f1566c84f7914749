"""Both faces of the admin client: the same methods, options read at once, whose cluster it is."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.admin import Admin
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.errors import ClientClosedError
from tidelog.errors import ConfigError

OWN = {"of", "cluster", "is_closed"}
"""What the core alone has: the command line makes it of a cluster."""

CALLS = sorted(
    name
    for name, member in vars(AsyncAdmin).items()
    if inspect.iscoroutinefunction(member) and not name.startswith("_")
)


def public(face: type) -> set[str]:
    return {name for name in vars(face) if not name.startswith("_")}


def test_the_faces_have_the_same_methods() -> None:
    assert public(AsyncAdmin) - OWN == public(Admin) - {"config"}
    assert len(CALLS) > 30


@pytest.mark.parametrize("name", CALLS)
def test_the_faces_have_the_same_signatures(name: str) -> None:
    assert inspect.signature(getattr(Admin, name)) == inspect.signature(getattr(AsyncAdmin, name))
    assert not inspect.iscoroutinefunction(getattr(Admin, name))


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"close"}))
def test_the_synchronous_face_hands_on_every_argument(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    signature = inspect.signature(getattr(AsyncAdmin, name))
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    given = {each.name: object() for each in parameters}
    seen: dict[str, object] = {}

    async def record(self: AsyncAdmin, *args: object, **keywords: object) -> str:
        seen.update(signature.bind(self, *args, **keywords).arguments)
        return name

    monkeypatch.setattr(AsyncAdmin, name, record)
    with Admin(bootstrap_servers="127.0.0.1:9") as admin:
        positional = [given[each.name] for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
        keywords = {each.name: given[each.name] for each in parameters if each.kind is each.KEYWORD_ONLY}
        answer = getattr(admin, name)(*positional, **keywords)
    del seen["self"]
    assert seen == given
    assert answer == (None if signature.return_annotation == "None" else name)


@pytest.mark.parametrize("face", [Admin, AsyncAdmin])
def test_a_misspelt_option_is_refused_with_a_suggestion(face: Callable[..., object]) -> None:
    with pytest.raises(ConfigError, match="bootstrap"):
        face(bootstrap_server="127.0.0.1:9092")


def test_a_closed_client_refuses_calls_and_may_be_closed_again() -> None:
    admin = Admin({"bootstrap.servers": "127.0.0.1:9"})
    assert admin.metrics() == {}
    admin.close()
    admin.close()
    with pytest.raises(ClientClosedError):
        admin.describe_cluster()


def test_a_borrowed_cluster_stays_open(scripted_broker: Any) -> None:
    async def main() -> None:
        async with scripted_broker, Cluster(scripted_broker.address) as cluster:
            async with AsyncAdmin.of(cluster) as admin:
                assert (await admin.describe_cluster()).cluster_id == "scripted"
            with pytest.raises(ClientClosedError):
                await admin.describe_cluster()
            assert (await cluster.refresh([])).cluster_id == "scripted"

    asyncio.run(main())


def test_the_cluster_of_its_own_is_closed(scripted_broker: Any) -> None:
    async def main() -> None:
        async with scripted_broker:
            async with AsyncAdmin(bootstrap_servers=scripted_broker.address) as admin:
                await admin.describe_cluster()
                cluster = admin.cluster
            with pytest.raises(ClientClosedError):
                cluster.peers.at("127.0.0.1", 9)

    asyncio.run(main())
