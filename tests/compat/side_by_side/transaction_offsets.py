"""Offsets within transactions: TxnOffsetCommit, and when a group sees them."""

from __future__ import annotations

from typing import TypedDict

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.group_offset_requests import commit, delete_offsets, offsets, place
from tests.compat.side_by_side.group_requests import Member, alone, described, group_of
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.transaction_requests import Producer, with_retry

from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic

VERSIONS = range(6)


def begun(side: Side, version: int = 5, stem: str = "x") -> Producer:
    """A producer whose transaction knows the group, where this version needs it."""
    producer = Producer(side, stem, "tv2" if version >= 5 else "tv1").begun()
    if version < 5:
        producer.add_offsets(group_of(side))
    return producer


def after(side: Side, producer: Producer, topic: str) -> list[object]:
    """The transaction and the group's offsets, when all is done."""
    group_id = group_of(side)
    seen = [producer.settled(), with_retry(lambda: offsets(side, group_id), "UNSTABLE")]
    return [*seen, offsets(side, group_id, {topic: [0]}, require_stable=True), described(side, group_id)]


@case({f"{end}-v{version}": (end, version) for end in ("commit", "abort") for version in VERSIONS})
def by_version(side: Side, given: tuple[str, int]) -> object:
    """Seen when the transaction is committed, and forgotten when it is aborted."""
    end, version = given
    topic, group_id = side.topic(), group_of(side)
    commit(side, group_id, topic, place(1))
    producer = begun(side, version)
    seen = [producer.commit_offsets(group_id, topic, version=version), producer.described()]
    seen += [
        offsets(side, group_id, {topic: [0]}),
        offsets(side, group_id, {topic: [0]}, require_stable=True),
    ]
    return [*seen, producer.end(end == "commit"), *after(side, producer, topic)]


@case({f"{end}-v{version}": (end, version) for end in ("commit", "abort") for version in (3, 5)})
def to_a_group_that_was_not_there(side: Side, given: tuple[str, int]) -> object:
    end, version = given
    topic, group_id = side.topic(), group_of(side)
    producer = begun(side, version)
    seen = [producer.commit_offsets(group_id, topic, version=version), described(side, group_id)]
    seen += [offsets(side, group_id), offsets(side, group_id, {topic: [0]}, require_stable=True)]
    return [*seen, producer.end(end == "commit"), *after(side, producer, topic)]


@case(VERSIONS)
def without_adding_the_group(side: Side, version: int) -> object:
    """Up to version 4 the group has to be in the transaction already; since 5 committing adds it."""
    topic, group_id = side.topic(), group_of(side)
    producer = Producer(side, tv="tv1" if version < 5 else "tv2").begun()
    seen = [producer.commit_offsets(group_id, topic, version=version), producer.described()]
    return [*seen, producer.end(), *after(side, producer, topic)]


class Who(TypedDict, total=False):
    """The member of the group that commits."""

    member_id: str
    generation_id: int
    group_instance_id: str


WHO: dict[str, Who] = {
    "nobody": {},
    "stranger": {"member_id": "nobody", "generation_id": 1},
    "stranger-without-generation": {"member_id": "nobody"},
    "only-generation": {"generation_id": 1},
    "right": {"member_id": "me", "generation_id": 1},
    "older": {"member_id": "me", "generation_id": 0},
    "later": {"member_id": "me", "generation_id": 2},
    "without-generation": {"member_id": "me"},
    "instance": {"member_id": "me", "generation_id": 1, "group_instance_id": "one"},
    "other-instance": {"member_id": "me", "generation_id": 1, "group_instance_id": "two"},
    "only-instance": {"group_instance_id": "one"},
}


@case(WHO, versions=(3, 4, 5))
def who_commits_to_a_stable_group(side: Side, given: Who, version: int) -> object:
    """KIP-447: the group's generation fences, as well as the producer's epoch."""
    topic, member = side.topic(), alone(side, instance_id="one")
    who: Who = {**given, "member_id": member.member_id} if given.get("member_id") == "me" else given
    producer = begun(side, version)
    seen = [producer.commit_offsets(member.group_id, topic, version=version, **who)]
    return [*seen, producer.end(), producer.settled(), offsets(side, member.group_id), member.heartbeat()]


@case({name: given for name, given in WHO.items() if given.get("member_id") != "me"}, versions=(3, 5))
def who_commits_to_no_group(side: Side, given: Who, version: int) -> object:
    topic, group_id = side.topic(), group_of(side)
    producer = begun(side, version)
    return [producer.commit_offsets(group_id, topic, version=version, **given), described(side, group_id)]


@case((3, 5))
def fenced_instance(side: Side, version: int) -> object:
    topic = side.topic()
    old = alone(side, instance_id="one")
    new = Member(side, old.group_id, instance_id="one")
    new.join()
    producer = begun(side, version)
    who: Who = {"member_id": old.member_id, "generation_id": new.generation, "group_instance_id": "one"}
    return producer.commit_offsets(old.group_id, topic, version=version, **who)


PLACES: dict[str, dict[str, object]] = {
    "negative-offset": {"committed_offset": -1},
    "unknown-partition": {"partition_index": 7},
    "negative-partition": {"partition_index": -1},
    "longest-metadata": {"committed_metadata": "x" * 4096},
    "longer-metadata": {"committed_metadata": "x" * 4097},
    "no-metadata": {"committed_metadata": None},
}


@case(PLACES, versions=(0, 3, 5))
def places(side: Side, given: dict[str, object], version: int) -> object:
    topic, group_id = side.topic(), group_of(side)
    producer = begun(side, version)
    more = dict(given)
    offset = more.pop("committed_offset", 7)
    seen = [producer.commit_offsets(group_id, topic, offset, version, **more)]  # type: ignore[arg-type]
    return [*seen, producer.described(), producer.end(), producer.settled(), offsets(side, group_id)]


@case((0, 3, 5))
def unknown_topic(side: Side, version: int) -> object:
    producer = begun(side, version)
    seen = [producer.commit_offsets(group_of(side), side.name_of("none"), version=version)]
    return [*seen, producer.described()]


@case((0, 3, 5))
def no_group_id(side: Side, version: int) -> object:
    topic = side.topic()
    producer = begun(side, version)
    return [producer.commit_offsets("", topic, version=version), producer.described()]


@case((0, 3, 5))
def no_topics(side: Side, version: int) -> object:
    producer = begun(side, version)
    request = TxnOffsetCommitRequest(
        transactional_id=producer.name,
        group_id=group_of(side),
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
    seen = [side.ask(version, request), producer.described()]
    request.topics = [TxnOffsetCommitRequestTopic(name=side.topic())]
    return [*seen, side.ask(version, request), producer.described()]


@case((4, 5))
def last_of_one_transaction_counts(side: Side, version: int) -> object:
    topic, group_id = side.topic(), group_of(side)
    producer = begun(side, version)
    for offset in (5, 9, 3):
        producer.commit_offsets(group_id, topic, offset, version)
    return [producer.end(), *after(side, producer, topic)]


@case({f"{order}-{version}": (order, version) for order in ("ab", "ba") for version in (4, 5)})
def last_transaction_to_end_counts(side: Side, given: tuple[str, int]) -> object:
    """Two transactions for one partition: which of them was committed first is what matters."""
    order, version = given
    topic, group_id = side.topic(), group_of(side)
    producers = {stem: begun(side, version, stem) for stem in "ab"}
    for offset, producer in zip((10, 20), producers.values(), strict=True):
        producer.commit_offsets(group_id, topic, offset, version)
    seen = []
    for stem in order:
        seen += [producers[stem].end(), producers[stem].settled()]
    return [*seen, *after(side, producers["a"], topic)]


@case(("before", "after"))
def plain_commit_beside_a_transaction(side: Side, when: str) -> object:
    """What stands later in the log wins, and a transaction's offset counts from where it was written."""
    topic, group_id = side.topic(), group_of(side)
    producer = begun(side)
    if when == "before":
        commit(side, group_id, topic, place(50))
    producer.commit_offsets(group_id, topic, 7)
    if when == "after":
        commit(side, group_id, topic, place(50))
    seen = [offsets(side, group_id), offsets(side, group_id, {topic: [0]}, require_stable=True)]
    return [*seen, producer.end(), *after(side, producer, topic)]


@case((True, False))
def deleting_offsets_of_an_open_transaction(side: Side, end: bool) -> object:
    topic, group_id = side.topic(), group_of(side)
    commit(side, group_id, topic, place(50))
    producer = begun(side)
    producer.commit_offsets(group_id, topic)
    seen = [delete_offsets(side, group_id, {topic: [0]}), offsets(side, group_id)]
    return [*seen, producer.end(end), *after(side, producer, topic)]


@case((True, False))
def deleting_a_group_with_an_open_transaction(side: Side, end: bool) -> object:
    topic, group_id = side.topic(), group_of(side)
    commit(side, group_id, topic, place(50))
    producer = begun(side)
    producer.commit_offsets(group_id, topic)
    seen = [side.ask(2, DeleteGroupsRequest(groups_names=[group_id])), offsets(side, group_id)]
    return [*seen, producer.end(end), *after(side, producer, topic)]


@case({f"v{version}-{stable}": (version, stable) for version in (7, 8, 9, 10) for stable in (True, False)})
def unstable_offsets(side: Side, given: tuple[int, bool]) -> object:
    """KIP-447: who asks for stable offsets is told to wait, for some and for all partitions."""
    version, stable = given
    topic, group_id = side.topic("t", 2), group_of(side)
    commit(side, group_id, topic, place(50), place(60, 1))
    producer = begun(side)
    producer.commit_offsets(group_id, topic)
    seen = [
        offsets(side, group_id, {topic: [0, 1]}, version=version, require_stable=stable),
        offsets(side, group_id, None, version=version, require_stable=stable),
    ]
    return [*seen, producer.end(False), producer.settled()]
