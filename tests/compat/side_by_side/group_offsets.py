"""OffsetCommit, OffsetFetch and OffsetDelete: who may, what is refused, what is kept."""

from __future__ import annotations

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.group_members import joining
from tests.compat.side_by_side.group_offset_requests import (
    COMMIT_VERSIONS,
    FETCH_VERSIONS,
    commit,
    commit_request,
    commit_topic,
    delete_offsets,
    offsets,
    offsets_request,
    place,
)
from tests.compat.side_by_side.group_requests import Member, alone, described, group_of, subscription
from tests.compat.side_by_side.side import UNKNOWN_ID, Side

from tidelog.ids import ZERO_UUID
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.offset_commit import OffsetCommitRequestTopic
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

LONGEST_METADATA = 4096


# OffsetCommit


@case(versions=COMMIT_VERSIONS)
def commit_of_nobody(side: Side, version: int) -> object:
    """Without members a group is a place to keep offsets."""
    topic, group_id = side.topic(), group_of(side)
    seen = [commit(side, group_id, topic, place(5, metadata="m", epoch=0), version=version)]
    return [*seen, offsets(side, group_id, {topic: [0]}), described(side, group_id)]


@case(versions=COMMIT_VERSIONS)
def commit_of_member(side: Side, version: int) -> object:
    topic, member = side.topic(), alone(side)
    who = {"member_id": member.member_id, "generation": member.generation}
    seen = [commit(side, member.group_id, topic, version=version, **who)]
    return [*seen, offsets(side, member.group_id, {topic: [0]})]


PLACES: dict[str, tuple[int, int, str | None, int]] = {
    "first": (0, 0, "", -1),
    "offset-negative": (-1, 0, "", -1),
    "offset-lowest": (-(2**63), 0, "", -1),
    "offset-highest": (2**63 - 1, 0, "", -1),
    "beyond-the-end": (100, 0, "", 0),
    "unknown-partition": (1, 7, "", -1),
    "negative-partition": (1, -1, "", -1),
    "no-metadata": (1, 0, None, -1),
    "longest-metadata": (1, 0, "x" * LONGEST_METADATA, -1),
    "longer-metadata": (1, 0, "x" * (LONGEST_METADATA + 1), -1),
    "longer-in-bytes": (1, 0, "\u00e9" * LONGEST_METADATA, -1),
    "epoch-unknown": (1, 0, "", 99),
    "epoch-negative": (1, 0, "", -7),
}


@case(PLACES, versions=(2, 5, 6, 9, 10))
def places(side: Side, given: tuple[int, int, str | None, int], version: int) -> object:
    topic, group_id = side.topic(), group_of(side)
    answer = commit(side, group_id, topic, place(*given), version=version)
    return [answer, offsets(side, group_id), described(side, group_id)]


@case(PLACES)
def odd_place_beside_a_good_one(side: Side, given: tuple[int, int, str | None, int]) -> object:
    topic, group_id = side.topic("t", 3), group_of(side)
    answer = commit(side, group_id, topic, place(1, 2), place(*given), place(9, 1))
    return [answer, offsets(side, group_id)]


@case(("none", "", "bad name", "."), versions=(2, 9))
def unknown_topic(side: Side, stem: str, version: int) -> object:
    name = side.name_of(stem) if stem == "none" else stem
    group_id = group_of(side)
    return [commit(side, group_id, name, version=version), described(side, group_id)]


@case({"zero": ZERO_UUID, "unknown": UNKNOWN_ID})
def odd_topic_id(side: Side, topic_id: object) -> object:
    good, group_id = side.topic(), group_of(side)
    wanted = [
        OffsetCommitRequestTopic(topic_id=topic_id, partitions=[place(), place(partition=1)]),  # type: ignore[arg-type]
        commit_topic(side, good, place(), version=10),
    ]
    return [side.ask(10, commit_request(group_id, *wanted)), offsets(side, group_id)]


@case(versions=COMMIT_VERSIONS)
def commit_without_topics(side: Side, version: int) -> object:
    group_id = group_of(side)
    return [side.ask(version, commit_request(group_id)), described(side, group_id)]


@case((2, 9, 10))
def commit_without_partitions(side: Side, version: int) -> object:
    topic, group_id = side.topic(), group_of(side)
    wanted = commit_topic(side, topic, version=version)
    return [side.ask(version, commit_request(group_id, wanted)), described(side, group_id)]


@case((2, 9, 10))
def same_partition_twice(side: Side, version: int) -> object:
    topic, group_id = side.topic(), group_of(side)
    return [commit(side, group_id, topic, place(1), place(2), version=version), offsets(side, group_id)]


@case((9, 10))
def same_topic_twice(side: Side, version: int) -> object:
    topic, group_id = side.topic("t", 2), group_of(side)
    twice = [commit_topic(side, topic, place(1, each), version=version) for each in (0, 1)]
    return [side.ask(version, commit_request(group_id, *twice)), offsets(side, group_id)]


@case(versions=COMMIT_VERSIONS)
def commit_without_group_id(side: Side, version: int) -> object:
    return commit(side, "", side.topic(), version=version)


WHO: dict[str, tuple[str, int]] = {
    "nobody-with-generation": ("", 1),
    "nobody-with-generation-0": ("", 0),
    "stranger-without-generation": ("nobody", -1),
    "stranger": ("nobody", 1),
    "member-without-generation": ("me", -1),
    "member-of-generation-0": ("me", 0),
    "member-of-next-generation": ("me", 2),
    "nobody-at-all": ("", -1),
}


@case(WHO, versions=COMMIT_VERSIONS)
def who_commits_to_a_stable_group(side: Side, given: tuple[str, int], version: int) -> object:
    topic, member = side.topic(), alone(side)
    who = {"member_id": member.member_id if given[0] == "me" else given[0], "generation": given[1]}
    answer = commit(side, member.group_id, topic, version=version, **who)
    return [answer, offsets(side, member.group_id), member.heartbeat()]


@case(WHO, versions=(2, 8, 9, 10))
def who_commits_to_an_empty_group(side: Side, given: tuple[str, int], version: int) -> object:
    topic, member = side.topic(), alone(side)
    member.leave()
    who = {"member_id": member.member_id if given[0] == "me" else given[0], "generation": given[1]}
    return [commit(side, member.group_id, topic, version=version, **who), offsets(side, member.group_id)]


@case({name: given for name, given in WHO.items() if given[0] != "me"}, versions=(2, 8, 9, 10))
def who_commits_to_no_group(side: Side, given: tuple[str, int], version: int) -> object:
    topic, group_id = side.topic(), group_of(side)
    answer = commit(side, group_id, topic, version=version, member_id=given[0], generation=given[1])
    return [answer, described(side, group_id)]


@case(WHO, versions=(2, 9))
def who_commits_while_others_join(side: Side, given: tuple[str, int], version: int) -> object:
    topic = side.topic()
    member, _ = joining(side)
    for name, generation in (given, ("me", 1)):
        who = {"member_id": member.member_id if name == "me" else name, "generation": generation}
        answer = commit(side, member.group_id, topic, version=version, **who)
    return [answer, offsets(side, member.group_id)]


@case((2, 9))
def commit_before_the_sync(side: Side, version: int) -> object:
    topic, member = side.topic(), Member(side, group_of(side))
    member.join()
    who = {"member_id": member.member_id, "generation": member.generation}
    answer = commit(side, member.group_id, topic, version=version, **who)
    return [answer, offsets(side, member.group_id), described(side, member.group_id)]


@case((7, 9, 10))
def fenced_instance_commits(side: Side, version: int) -> object:
    topic = side.topic()
    old = alone(side, instance_id="one")
    new = Member(side, old.group_id, instance_id="one")
    new.join()
    answers = [
        commit(
            side,
            old.group_id,
            topic,
            version=version,
            member_id=who,
            generation=new.generation,
            instance_id=inst,
        )
        for who, inst in ((old.member_id, "one"), (new.member_id, "two"), (new.member_id, "one"), ("", "one"))
    ]
    return [answers, offsets(side, old.group_id)]


@case((0, 1, -1, -5, 2**62), versions=(2, 4))
def retention_time(side: Side, retention_ms: int, version: int) -> object:
    topic, group_id = side.topic(), group_of(side)
    answer = commit(side, group_id, topic, version=version, retention_time_ms=retention_ms)
    return [answer, described(side, group_id)]


# OffsetFetch


@case({"some": {"t": [0, 1, 7]}, "none": {}, "all": None, "other": {"none": [0]}}, versions=FETCH_VERSIONS)
def fetch(side: Side, given: dict[str, list[int]] | None, version: int) -> object:
    topic, group_id = side.topic("t", 2), group_of(side)
    commit(side, group_id, topic, place(5, metadata="m", epoch=0))
    if given is None and version < 2:
        return None
    wanted = given and {side.name_of(stem): parts for stem, parts in given.items()}
    return offsets(side, group_id, wanted, version=version)


@case({"some": {"t": [0]}, "all": None}, versions=FETCH_VERSIONS)
def fetch_of_unknown_group(side: Side, given: dict[str, list[int]] | None, version: int) -> object:
    side.topic()
    if given is None and version < 2:
        return None
    wanted = given and {side.name_of(stem): parts for stem, parts in given.items()}
    return [offsets(side, group_of(side), wanted, version=version), described(side, group_of(side))]


@case({"some": {"t": [0]}, "all": None}, versions=FETCH_VERSIONS)
def fetch_without_group_id(side: Side, given: dict[str, list[int]] | None, version: int) -> object:
    side.topic()
    if given is None and version < 2:
        return None
    wanted = given and {side.name_of(stem): parts for stem, parts in given.items()}
    return offsets(side, "", wanted, version=version)


@case((8, 9, 10))
def fetch_of_several_groups(side: Side, version: int) -> object:
    topic = side.topic()
    groups = [group_of(side, each) for each in "abc"]
    for number, group_id in enumerate(groups[:2]):
        commit(side, group_id, topic, place(number))
    wanted = offsets_request(side, groups[0], {topic: [0]}, version=version)
    for each in groups[1:]:
        wanted.groups += offsets_request(side, each, None, version=version).groups
    wanted.groups += offsets_request(side, "", None, version=version).groups
    return side.ask(version, wanted)


@case((8, 9, 10))
def fetch_of_no_groups(side: Side, version: int) -> object:
    return side.ask(version, OffsetFetchRequest(groups=[]))


@case((8, 9))
def fetch_of_the_same_group_twice(side: Side, version: int) -> object:
    topic, group_id = side.topic(), group_of(side)
    commit(side, group_id, topic)
    wanted = offsets_request(side, group_id, None, version=version)
    wanted.groups *= 2
    return side.ask(version, wanted)


MEMBERS: dict[str, tuple[str | None, int]] = {
    "nobody": (None, -1),
    "empty": ("", -1),
    "stranger": ("nobody", 1),
    "stranger-without-epoch": ("nobody", -1),
    "only-epoch": (None, 3),
    "right": ("me", 1),
    "stale": ("me", 0),
}


@case(MEMBERS, versions=(9, 10))
def fetch_of_a_classic_member(side: Side, given: tuple[str | None, int], version: int) -> object:
    """The epoch is the consumer protocol's: a classic group does not look at it."""
    topic, member = side.topic(), alone(side)
    who = (member.member_id if given[0] == "me" else given[0], given[1])
    return offsets(side, member.group_id, {topic: [0]}, version=version, member=who)


@case({"zero": ZERO_UUID, "unknown": UNKNOWN_ID})
def fetch_of_odd_topic_id(side: Side, topic_id: object) -> object:
    topic, group_id = side.topic(), group_of(side)
    commit(side, group_id, topic)
    wanted = OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 1])  # type: ignore[arg-type]
    good = OffsetFetchRequestTopics(topic_id=side.topic_id(topic), partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id=group_id, topics=[wanted, good])
    return side.ask(10, OffsetFetchRequest(groups=[group]))


@case((True, False), versions=(7, 8, 9))
def fetch_of_what_is_stable(side: Side, stable: bool, version: int) -> object:
    topic, group_id = side.topic(), group_of(side)
    commit(side, group_id, topic)
    return offsets(side, group_id, {topic: [0]}, version=version, require_stable=stable)


@case()
def offsets_go_with_their_topic(side: Side) -> object:
    topic, kept, group_id = side.topic("gone"), side.topic("kept"), group_of(side)
    commit(side, group_id, topic)
    commit(side, group_id, kept)
    side.ask(6, DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5000))
    side.wait_until_gone(topic)
    side.settle()
    return [offsets(side, group_id), offsets(side, group_id, {topic: [0]}, version=7)]


@case(("simple", "left"))
def group_without_offsets_after_its_topic(side: Side, kind: str) -> object:
    """Whether anything is left of a group when the only topic it had offsets of is deleted."""
    topic, group_id = side.topic("gone"), group_of(side)
    if kind == "left":
        alone(side).leave()
    commit(side, group_id, topic)
    side.ask(6, DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=5000))
    side.wait_until_gone(topic)
    side.settle()
    return [offsets(side, group_id), described(side, group_id)]


# OffsetDelete


@case(
    {
        "some": {"t": [0]},
        "unknown-partition": {"t": [7]},
        "unknown": {"none": [0]},
        "none": {},
        "all": {"t": [0, 1]},
    }
)
def delete_from_empty_group(side: Side, given: dict[str, list[int]]) -> object:
    topic, group_id = side.topic("t", 2), group_of(side)
    commit(side, group_id, topic, place(1), place(2, 1))
    answer = delete_offsets(side, group_id, {side.name_of(stem): parts for stem, parts in given.items()})
    return [answer, offsets(side, group_id), described(side, group_id)]


@case(("subscribed", "other"))
def delete_from_stable_group(side: Side, stem: str) -> object:
    """Nobody takes the offsets of a topic from under its readers."""
    subscribed, other = side.topic("subscribed"), side.topic("other")
    member = alone(side, metadata=subscription(subscribed))
    for topic in (subscribed, other):
        commit(side, member.group_id, topic, member_id=member.member_id, generation=1)
    answer = delete_offsets(side, member.group_id, {side.name_of(stem): [0]})
    return [answer, offsets(side, member.group_id), member.heartbeat()]


@case()
def delete_from_stable_group_of_another_kind(side: Side) -> object:
    """Only consumers tell what they read."""
    topic, member = side.topic(), Member(side, group_of(side))
    member.join(protocol_type="connect")
    member.sync((member.member_id, b""))
    commit(side, member.group_id, topic, member_id=member.member_id, generation=1)
    return [delete_offsets(side, member.group_id, {topic: [0]}), offsets(side, member.group_id)]


@case(("none", ""))
def delete_from_unknown_group(side: Side, stem: str) -> object:
    topic = side.topic()
    return delete_offsets(side, group_of(side, stem) if stem else "", {topic: [0]})
