"""What clients with quotas are answered: how long to pause, with what, and that nobody listens meanwhile.

Times of the first request are the same to the millisecond; of later ones, which depend on the moment and, for
fetches, on a few bytes of the answer, whole seconds are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.compat.side_by_side.batches import Batch, records
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.quota_requests import (
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    Entity,
    Ops,
    alter,
    entry,
)
from tests.compat.side_by_side.records_requests import (
    FETCH_VERSIONS,
    PRODUCE_VERSIONS,
    append,
    fetch_request,
    fetch_topic,
    produce_request,
    wanted,
)
from tests.compat.side_by_side.side import SILENCE, Side

from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.schema import Payload

ANONYMOUS = "ANONYMOUS"


@contextmanager
def limited(side: Side, *quotas: tuple[Entity, Ops]) -> Iterator[Side]:
    """Another client, whom quotas hold for."""
    alter(side, *(entry(entity, ops) for entity, ops in quotas))
    side.settle()
    client = side.another()
    client.client_id = f"{side.prefix}-client"
    try:
        yield client
    finally:
        client.reconnect()
        alter(side, *(entry(entity, [(key, None) for key, _ in ops]) for entity, ops in quotas))
        side.settle()


def sized(size: int) -> bytes:
    """A batch of one record of so many bytes."""
    return Batch(tuple(records(1, bytes(size)))).bytes()


def own(side: Side) -> Entity:
    return {"client-id": f"{side.prefix}-client"}


def is_muted(client: Side) -> bool:
    client.send(3, ApiVersionsRequest())
    return client.receive_frame(0.3) == SILENCE


def pause_ms(client: Side, version: int, message: Payload) -> int:
    found = client.expect(version, message)
    return int(found.throttle_time_ms)  # type: ignore[attr-defined]


@case(versions=PRODUCE_VERSIONS)
def produce(side: Side, version: int) -> object:
    topic = side.topic()
    request = produce_request(side, topic, sized(5000), version=version)
    with limited(side, (own(side), [(PRODUCE, 100.0)])) as client:
        return client.ask(version, request), is_muted(client)


@case()
def produce_within_the_quota(side: Side) -> object:
    topic = side.topic()
    request = produce_request(side, topic, sized(5000))
    with limited(side, (own(side), [(PRODUCE, 1000.0)])) as client:
        return client.ask(13, request), is_muted(client)


@case()
def produce_again_and_again(side: Side) -> object:
    topic = side.topic()
    request = produce_request(side, topic, sized(5000), version=9)
    pauses = []
    with limited(side, (own(side), [(PRODUCE, 1000.0)])) as client:
        for _ in range(5):
            pauses.append(pause_ms(client, 9, request) // 1000)
            client.reconnect()
    return pauses


@case()
def produce_refused(side: Side) -> object:
    topic = side.topic()
    request = produce_request(side, topic, sized(5000), partition=9)
    with limited(side, (own(side), [(PRODUCE, 100.0)])) as client:
        return client.ask(13, request)


@case((-1, 1, 0))
def produce_with_acks(side: Side, acks: int) -> object:
    topic = side.topic()
    request = produce_request(side, topic, sized(5000), acks=acks)
    with limited(side, (own(side), [(PRODUCE, 100.0)])) as client:
        client.send(13, request)
        answer = "none" if acks == 0 else client.receive_frame() != SILENCE
        return answer, is_muted(client) if acks else None


@case({"below": 9000, "at-the-limit": 1 << 20}, versions=FETCH_VERSIONS)
def fetch(side: Side, limit: int, version: int) -> object:
    topic = side.topic()
    for _ in range(3):
        append(side, topic, sized(8000))
    request = fetch_request(fetch_topic(side, topic, wanted(max_bytes=limit), version=version))
    with limited(side, (own(side), [(FETCH, 1000.0)])) as client:
        first, second = client.expect(version, request), client.expect(version, request)
        sizes = [
            len(each.responses[0].partitions[0].records or b"") if each.responses else 0  # type: ignore[attr-defined]
            for each in (first, second)
        ]
        pauses = [each.throttle_time_ms // 1000 for each in (first, second)]  # type: ignore[attr-defined]
        return sizes, pauses, is_muted(client)


@case(versions=(7, 12, 18))
def fetch_in_a_session(side: Side, version: int) -> object:
    topic = side.topic()
    part = fetch_topic(side, topic, wanted(max_bytes=9000), version=version)
    with limited(side, (own(side), [(FETCH, 1000.0)])) as client:
        opened = client.expect(version, fetch_request(part, session_epoch=0))
        session = opened.session_id  # type: ignore[attr-defined]
        for _ in range(3):
            append(side, topic, sized(8000))
        found = []
        for epoch in (1, 2):
            request = fetch_request(session_id=session, session_epoch=epoch)
            answer = client.expect(version, request)
            found.append((bool(answer.responses), answer.session_id == session, answer.error_code))  # type: ignore[attr-defined]
        return found


@case(versions=(7, 18))
def fetch_for_a_session_that_is_throttled(side: Side, version: int) -> object:
    topic = side.topic()
    for _ in range(2):
        append(side, topic, sized(8000))
    part = fetch_topic(side, topic, wanted(max_bytes=9000), version=version)
    with limited(side, (own(side), [(FETCH, 1000.0)])) as client:
        client.expect(version, fetch_request(part))
        answer = client.expect(version, fetch_request(part, session_epoch=0))
        return answer.responses, answer.session_id, answer.error_code  # type: ignore[attr-defined]


@case(versions=(0, 2, 3))
def requests(side: Side, version: int) -> object:
    with limited(side, (own(side), [(REQUEST, 1e-6)])) as client:
        answer = client.expect(version, ApiVersionsRequest())
        return answer.throttle_time_ms, is_muted(client)  # type: ignore[attr-defined]


@case()
def requests_of_metadata(side: Side) -> object:
    with limited(side, (own(side), [(REQUEST, 1e-6)])) as client:
        return pause_ms(client, 12, MetadataRequest(topics=[])), is_muted(client)


@case()
def requests_of_producers(side: Side) -> object:
    request = produce_request(side, side.topic(), sized(10), version=9)
    with limited(side, (own(side), [(REQUEST, 1e-6)])) as client:
        return pause_ms(client, 9, request), is_muted(client)


@case()
def requests_and_bytes_of_producers(side: Side) -> object:
    request = produce_request(side, side.topic(), sized(5000), version=9)
    with limited(side, (own(side), [(REQUEST, 1e-6), (PRODUCE, 100.0)])) as client:
        return pause_ms(client, 9, request)


# Whose quota it is


LEVELS: tuple[tuple[bool | None, bool | None], ...] = (
    (True, True),
    (True, False),
    (True, None),
    (False, True),
    (False, False),
    (False, None),
    (None, True),
    (None, False),
)


def _entity(side: Side, level: tuple[bool | None, bool | None]) -> Entity:
    user, client = level
    found: dict[str, str | None] = {}
    if user is not None:
        found["user"] = ANONYMOUS if user else None
    if client is not None:
        found["client-id"] = f"{side.prefix}-client" if client else None
    return found


@case((0, 1, 2, 3, 4, 6, 7))
def levels(side: Side, first: int) -> object:
    """From ``first`` on there are quotas at all levels; each is another."""
    request = produce_request(side, side.topic(), sized(50_000), version=9)
    quotas = [
        (_entity(side, level), [(PRODUCE, 1000.0 + 100 * number)])
        for number, level in enumerate(LEVELS)
        if number >= first
    ]
    with limited(side, *quotas) as client:
        return pause_ms(client, 9, request)


@case()
def level_of_the_default_user(side: Side) -> object:
    """Of the sixth level, by another kind of quota: what clients of a user share is remembered a while."""
    topic = side.topic()
    append(side, topic, sized(8000))
    request = fetch_request(fetch_topic(side, topic, wanted(max_bytes=9000), version=12))
    quotas = [
        (_entity(side, level), [(FETCH, 1000.0 / (number - 4))])
        for number, level in enumerate(LEVELS)
        if number >= 5
    ]
    with limited(side, *quotas) as client:
        return [pause_ms(client, 12, request) // 1000 for _ in range(2)]


# Changes of the cluster


def tens_of_seconds(pause_ms: int) -> int:
    """A pause of half a minute or so, which is shorter by what the change itself has taken."""
    return round(pause_ms / 10_000)


def _created(client: Side, version: int, name: str, partitions: int) -> object:
    wanted_topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    found = client.expect(version, CreateTopicsRequest(topics=[wanted_topic], timeout_ms=5000))
    (topic,) = found.topics  # type: ignore[attr-defined]
    return topic.error_code, topic.error_message, tens_of_seconds(found.throttle_time_ms)  # type: ignore[attr-defined]


@case(versions=range(2, 8))
def create_topics(side: Side, version: int) -> object:
    first, second, third = side.name_of("a"), side.name_of("b"), side.name_of("c")
    found = []
    with limited(side, (own(side), [(MUTATION, 0.1)])) as client:
        found.append(_created(client, version, first, 5))
        client.reconnect()
        found.append(_created(client, version, first, 5))
        client.reconnect()
        found.append(_created(client, version, second, 1))
        muted = is_muted(client)
        client.reconnect()
        found.append(_created(client, version, third, 1))
    return found, muted


@case(versions=range(4))
def create_partitions(side: Side, version: int) -> object:
    topic, other = side.topic("a"), side.topic("b")
    found = []
    with limited(side, (own(side), [(MUTATION, 0.1)])) as client:
        for name in (topic, other):
            more = CreatePartitionsTopic(name=name, count=6, assignments=None)
            answer = client.expect(version, CreatePartitionsRequest(topics=[more], timeout_ms=5000))
            (result,) = answer.results  # type: ignore[attr-defined]
            pause = tens_of_seconds(answer.throttle_time_ms)  # type: ignore[attr-defined]
            found.append((result.error_code, result.error_message, pause))
            client.reconnect()
    return found


@case(versions=range(1, 7))
def delete_topics(side: Side, version: int) -> object:
    found = []
    topic, other = side.topic("a", 5), side.topic("b")
    with limited(side, (own(side), [(MUTATION, 0.1)])) as client:
        for name in (topic, other):
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)
            if version >= 6:
                request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
            answer = client.expect(version, request)
            (result,) = answer.responses  # type: ignore[attr-defined]
            pause = tens_of_seconds(answer.throttle_time_ms)  # type: ignore[attr-defined]
            found.append((result.error_code, result.error_message, pause))
            client.reconnect()
    return found
