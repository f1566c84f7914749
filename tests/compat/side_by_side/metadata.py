"""Metadata and FindCoordinator: who is asked for, what is created on the way, and what is unknown."""

from __future__ import annotations

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.side import UNKNOWN_ID, Side

from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

VERSIONS = range(14)


def named(
    *names: str | None, create: bool = False, include_topic_authorized_operations: bool = False
) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=include_topic_authorized_operations,
    )


def only_mine(side: Side, answer: object) -> object:
    """Leaves out the topics of others."""
    if isinstance(answer, dict):
        answer["topics"] = [each for each in answer["topics"] if str(each["name"]).startswith(side.prefix)]
        answer["topics"].sort(key=lambda each: each["name"])
        for each in answer["topics"]:
            each["partitions"].sort(key=lambda partition: partition["partition_index"])
    return answer


@case(versions=VERSIONS)
def all_topics(side: Side, version: int) -> object:
    side.topic("a", 2)
    side.topic("b")
    request = MetadataRequest(topics=[] if version == 0 else None)
    return only_mine(side, side.ask(version, request))


@case(versions=range(1, 14))
def no_topics(side: Side, version: int) -> object:
    side.topic()
    return side.ask(version, MetadataRequest(topics=[]))


@case(versions=VERSIONS)
def known_topic(side: Side, version: int) -> object:
    return only_mine(side, side.ask(version, named(side.topic("t", 3), create=version < 4)))


@case(versions=range(4, 14))
def unknown_topic(side: Side, version: int) -> object:
    return side.ask(version, named(side.name_of("none")))


@case(("", ".", "..", "a b", "ä", "x" * 249, "x" * 250, "a/b"), versions=(4, 9, 13))
def impossible_topic(side: Side, name: str, version: int) -> object:
    return side.ask(version, named(name))


@case(("", ".", "a b", "x" * 250), versions=(1, 4, 13))
def impossible_topic_to_be_created(side: Side, name: str, version: int) -> object:
    return side.ask(version, named(name, create=True))


@case(versions=(4, 13))
def known_and_unknown(side: Side, version: int) -> object:
    known, none = side.topic("a"), side.name_of("none")
    return side.ask(version, named(none, known, "bad name"))


@case(versions=(4, 13))
def same_topic_twice(side: Side, version: int) -> object:
    topic = side.topic()
    return side.ask(version, named(topic, topic))


@case((True, False), versions=(8, 10))
def cluster_operations(side: Side, include: bool, version: int) -> object:
    return side.ask(version, MetadataRequest(topics=[], include_cluster_authorized_operations=include))


@case((True, False), versions=(8, 13))
def topic_operations(side: Side, include: bool, version: int) -> object:
    request = named(side.topic(), side.name_of("none"), include_topic_authorized_operations=include)
    return side.ask(version, request)


@case(("__consumer_offsets", "__transaction_state"))
def internal_topic(side: Side, name: str) -> object:
    side.ensure_topic(name)
    answer = side.ask(13, named(name))
    assert isinstance(answer, dict)
    answer["topics"][0]["partitions"] = answer["topics"][0]["partitions"][:0]
    return answer


@case(versions=(12, 13))
def by_id(side: Side, version: int) -> object:
    topic = side.topic("t", 2)
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=side.topic_id(topic), name=None)])
    return only_mine(side, side.ask(version, request))


@case(versions=(12, 13))
def by_unknown_id(side: Side, version: int) -> object:
    return side.ask(version, MetadataRequest(topics=[MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None)]))


@case(versions=(12, 13))
def by_unknown_id_with_operations(side: Side, version: int) -> object:
    wanted = [MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None)]
    return side.ask(version, MetadataRequest(topics=wanted, include_topic_authorized_operations=True))


@case(versions=(10, 11, 12, 13))
def by_id_and_name(side: Side, version: int) -> object:
    topic = side.topic()
    wanted = [MetadataRequestTopic(topic_id=side.topic_id(topic), name=topic)]
    return side.ask(version, MetadataRequest(topics=wanted))


@case(versions=(10, 12, 13))
def by_other_name_than_the_id_has(side: Side, version: int) -> object:
    topic, other = side.topic("a"), side.topic("b")
    wanted = [MetadataRequestTopic(topic_id=side.topic_id(topic), name=other)]
    return side.ask(version, MetadataRequest(topics=wanted))


@case(versions=(10, 11))
def neither_id_nor_name(side: Side, version: int) -> object:
    return side.ask(version, MetadataRequest(topics=[MetadataRequestTopic(name=None)]))


@case(versions=(12, 13))
def neither_id_nor_name_since_12(side: Side, version: int) -> object:
    return side.ask(version, MetadataRequest(topics=[MetadataRequestTopic(name=None)]))


@case(versions=(12, 13))
def some_by_id_some_by_name(side: Side, version: int) -> object:
    first, second = side.topic("a"), side.topic("b")
    wanted = [
        MetadataRequestTopic(topic_id=side.topic_id(first), name=None),
        MetadataRequestTopic(name=second),
    ]
    return side.ask(version, MetadataRequest(topics=wanted))


@case(versions=VERSIONS)
def created_on_the_way(side: Side, version: int) -> object:
    """What the second question shows; the first may come before the topic is there."""
    name = side.name_of("auto")
    side.ask(version, named(name, create=True))
    side.wait_until_led(name, 1)
    side.topic_id(name)
    return side.ask(version, named(name, create=version < 4))


@case(versions=(4, 13))
def created_on_the_way_first_answer(side: Side, version: int) -> object:
    return side.ask(version, named(side.name_of("auto"), create=True))


@case()
def created_on_the_way_only_if_asked(side: Side) -> object:
    name = side.name_of("not")
    side.ask(9, named(name))
    return side.ask(9, named(name))


@case((0, 1), versions=range(7))
def coordinator(side: Side, key_type: int, version: int) -> object:
    return None if version == 0 and key_type else _coordinator(side, key_type, version)


@case((0, 1), versions=(0, 3, 4, 6))
def coordinator_without_a_key(side: Side, key_type: int, version: int) -> object:
    if version < 4:
        return side.ask(version, FindCoordinatorRequest(key="", key_type=key_type if version else 0))
    return side.ask(version, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["", "a", "a"]))


@case((2, 3, -1), versions=range(1, 7))
def coordinator_of_odd_type(side: Side, key_type: int, version: int) -> object:
    return _coordinator(side, key_type, version)


def _coordinator(side: Side, key_type: int, version: int) -> object:
    if version < 4:
        return side.ask(version, FindCoordinatorRequest(key="some-group", key_type=key_type))
    return side.ask(
        version, FindCoordinatorRequest(key_type=key_type, coordinator_keys=["some-group", "other"])
    )


@case(versions=(4, 6))
def coordinator_of_nothing(side: Side, version: int) -> object:
    return side.ask(version, FindCoordinatorRequest(key_type=0, coordinator_keys=[]))
