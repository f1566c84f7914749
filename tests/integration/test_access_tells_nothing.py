"""Who has no rights learns nothing: of what is there he is told the same as of what is not, by every API.

Each request of ``test_access_of_every_api``, in all versions that can carry it, is asked twice by somebody
without any rule: with the names of things that exist, and with names of none. The answers are the same but
for those names. On a broker alone, and on all brokers of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.integration.test_access_of_every_api import (
    BEGIN,
    CASES,
    COMMIT,
    DENIALS,
    GROUP,
    ID,
    TOPIC,
    Case,
    codes,
    find,
    names_in,
)
from tests.rigs.cluster_thread import ClusterThread
from tests.rigs.guarded_broker import ADDRESSES, ALICE, OPTIONS, ROOT, GuardedBroker, name_clients
from tests.rigs.raw_client import RawClient

from tidelog.broker.access.required_access import REQUIRED
from tidelog.broker.served import SERVED, SERVED_IN_CLUSTERS
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import Uuid
from tidelog.security.principal import Principal
from tidelog.wire.api import API_TABLE, ApiKey
from tidelog.wire.headers import RequestHeader, encode_request
from tidelog.wire.messages import create_topics as ct
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdResponse
from tidelog.wire.messages.offset_commit import OffsetCommitResponse
from tidelog.wire.schema import Payload

ABSENT = {TOPIC: "ghosts", GROUP: "phantom", "members": "spirits", ID: "no"}
PRESENT = {absent: name for name, absent in ABSENT.items()}

Connect = Callable[[Principal], RawClient]


def renamed(value: Any, names: dict[str, str]) -> Any:
    """The same request or answer with other names in it, also within sentences."""
    if isinstance(value, str):
        for name, other in names.items():
            value = value.replace(f"'{name}'", f"'{other}'")
        return names.get(value, value)
    if isinstance(value, list):
        return [renamed(each, names) for each in value]
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        return type(value)(**{each: renamed(getattr(value, each), names) for each in fields})
    return value


def versions(connect: Connect) -> dict[ApiKey, range]:
    asked = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    with connect(ROOT) as root:
        answer = root.ask(3, asked, ApiVersionsResponse)
    return {ApiKey(each.api_key): range(each.min_version, each.max_version + 1) for each in answer.api_keys}


def can_carry(version: int, request: Payload) -> bool:
    try:
        encode_request(RequestHeader(ApiKey(request.API_KEY), version, 1, "x"), request)
    except KafkaError as error:
        if error.code != ErrorCode.UNSUPPORTED_VERSION:
            raise
        return False
    return True


def differences(connect: Connect, each: Case, version: int, topic_id: Uuid) -> list[str]:
    request = each.request(topic_id)
    with connect(ALICE) as nobody:
        there = nobody.request(each.key, version, request)
        absent = nobody.request(each.key, version, renamed(request, ABSENT))
    found = [] if there == renamed(absent, PRESENT) else [f"{each} in version {version}: {there} {absent}"]
    if not names_in(there) & set(ABSENT) <= names_in(request):
        found.append(f"{each} in version {version} tells a name: {there}")
    return found


def fill(connect: Connect, replicas: int) -> Uuid:
    """A topic, a group with offsets and a transactional id; returns the topic's id."""
    with connect(ROOT) as root:
        wanted = ct.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=replicas)
        (made,) = root.ask(7, ct.CreateTopicsRequest(topics=[wanted]), ct.CreateTopicsResponse).topics
        assert made.error_code == 0
        for asked in (find(0, GROUP, many=True), find(1, ID, many=True)):
            root.request(ApiKey.FIND_COORDINATOR, 4, asked)
        return made.topic_id


@contextmanager
def alone(directory: Path) -> Iterator[tuple[list[Connect], Uuid]]:
    with GuardedBroker(directory / "data") as broker:
        topic_id = fill(broker.connect, 1)
        with broker.connect(ROOT) as root:
            assert root.ask(8, COMMIT, OffsetCommitResponse).topics[0].partitions[0].error_code == 0
            assert root.ask(4, BEGIN, InitProducerIdResponse).error_code == 0
        yield [broker.connect], topic_id


@contextmanager
def in_a_cluster(directory: Path) -> Iterator[tuple[list[Connect], Uuid]]:
    options = {
        **OPTIONS,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        # Brokers begin before clients are named by their addresses.
        "super.users": "User:root;User:ANONYMOUS",
        "default.replication.factor": "2",
    }
    with ClusterThread(directory, 2, options=options) as cluster:
        for each in cluster.brokers.values():
            cluster.call(lambda broker=each: name_clients(broker))  # type: ignore[misc]

        def connect_to(broker: int) -> Connect:
            port = cluster.brokers[broker].advertised[0].port
            return lambda principal: RawClient("127.0.0.1", port, source=ADDRESSES[principal])

        both = [connect_to(1), connect_to(2)]
        topic_id = fill(both[0], 2)
        cluster.wait_for(lambda: all(TOPIC in each.image.topics for each in cluster.brokers.values()))
        yield both, topic_id


@pytest.mark.parametrize("place", [alone, in_a_cluster])
def test_what_is_there_and_what_is_not_are_the_same_to_somebody_without_rights(
    tmp_path: Path, place: Callable[[Path], Any]
) -> None:
    found: list[str] = []
    asked: set[ApiKey] = set()
    with place(tmp_path) as (brokers, topic_id):
        for connect in brokers:
            offered = versions(connect)
            for each in CASES:
                for version in sorted({*offered[each.key], each.version}):
                    if can_carry(version, each.request(topic_id)):
                        asked.add(each.key)
                        found += differences(connect, each, version, topic_id)
    assert found == []
    assert asked == {key for key in SERVED if REQUIRED[key].needs}


def test_what_brokers_ask_of_each_other_is_refused_in_every_version(tmp_path: Path) -> None:
    with in_a_cluster(tmp_path) as (brokers, _):
        for connect in brokers:
            offered = versions(connect)
            for key in SERVED_IN_CLUSTERS:
                for version in offered[key]:
                    with connect(ALICE) as nobody:
                        answer = nobody.request(key, version, API_TABLE[key].request())
                    assert codes(answer) & {int(each) for each in DENIALS}, (key, version, answer)


def test_names_of_any_length_are_refused_in_an_answer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer holds no more than 32767 bytes of text, of which a name may take all."""
    longest = {name: name[0] * 32_767 for name in ABSENT}
    with alone(tmp_path) as ((connect,), topic_id):
        offered = versions(connect)
        for who in (ALICE, ROOT):
            for each in CASES:
                request = renamed(each.request(topic_id), longest)
                # One that is served need not be offered.
                numbers = {*offered[each.key], each.version}
                version = max(number for number in numbers if can_carry(number, request))
                with connect(who) as client:
                    client.request(each.key, version, request)
    assert [each.getMessage()[:200] for each in caplog.records if each.exc_info] == []
