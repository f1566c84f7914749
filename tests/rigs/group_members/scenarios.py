"""What may happen to a group, for the members of any library: the tests say which, and what else must hold.

Records flow where it says so; each must reach exactly one live member, and none may be lost. The members that
a scenario returns have ended; what they told is still there.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka.admin import AdminClient
from tests.rigs.group_members.member import Member, Place
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import Stream, create, fill, grow


def share(member: Member) -> int:
    return len(member.assignment)


# The classic protocol


def members_come_and_go(
    bootstrap: str, topic: str, client: str, assignor: str, *, exactly_once: bool = True
) -> Team:
    places = create(bootstrap, topic, 5)
    with Team(bootstrap, topic, [topic], assignor=assignor) as team:
        with Stream(bootstrap, places) as stream:
            one = team.join(client)
            team.wait_for_owners(places)
            team.wait_for_commits(places)
            two = team.join(client)
            team.wait_for_owners(places)
            three = team.join(client)
            team.wait_for_owners(places)
            assert sorted(map(share, (one, two, three))) == [1, 2, 2]
            team.leave(one)
            team.wait_for_owners(places)
            assert {share(two), share(three)} == {2, 3}
            team.leave(three)
            team.wait_for_owners(places)
            assert two.assignment == set(places)
        team.wait_for_records(stream.ends)
        if exactly_once:
            team.check_exactly_once(stream.ends)
        else:
            team.check_ownership()
    return team


def a_member_is_killed(bootstrap: str, topic: str, client: str, assignor: str | None = None) -> None:
    places = create(bootstrap, topic, 4)
    with Team(bootstrap, topic, [topic], session_ms=1000, assignor=assignor) as team:
        with Stream(bootstrap, places) as stream:
            members = [team.join(client) for _ in range(3)]
            team.wait_for_owners(places)
            team.wait("records for everybody", lambda: all(member.delivered for member in members))
            members[0].kill()
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)


def a_member_freezes_and_thaws(
    bootstrap: str, topic: str, client: str, assignor: str | None = None
) -> Member:
    places = create(bootstrap, topic, 4)
    with Team(bootstrap, topic, [topic], session_ms=1000, assignor=assignor) as team:
        one, two = team.join(client), team.join(client)
        team.wait_for_owners(places)
        with Stream(bootstrap, places) as stream:
            team.wait("records for everybody", lambda: one.delivered and two.delivered)
            one.freeze()
            team.wait("all partitions with the other", lambda: two.assignment == set(places))
            one.thaw()
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)
    return one


def a_member_does_not_poll_for_a_while(
    bootstrap: str, topic: str, client: str, assignor: str | None = None
) -> Member:
    places = create(bootstrap, topic, 4)
    ends = fill(bootstrap, places, 50)
    with Team(bootstrap, topic, [topic], max_poll_ms=1000, assignor=assignor) as team:
        one, two = team.join(client), team.join(client)
        team.wait_for_owners(places)
        team.wait_for_records(ends)
        one.idle()
        team.wait("all partitions with the one that polls", lambda: two.assignment == set(places))
        one.work()
        team.wait("both at work again", lambda: share(one) == share(two) == 2)
        team.wait_for_owners(places)
    return one


def topics_of_a_pattern_come_later(bootstrap: str, stem: str, client: str) -> None:
    first = create(bootstrap, f"{stem}-a", 2)
    create(bootstrap, f"other-{stem}", 1)
    with Team(bootstrap, stem, pattern=f"^{stem}-[ab]$") as team:
        team.join(client)
        team.join(client)
        team.wait_for_owners(first)
        second = create(bootstrap, f"{stem}-b", 2)
        create(bootstrap, f"{stem}-c", 1)
        team.wait_for_owners([*first, *second])
        ends = fill(bootstrap, [*first, *second], 20)
        team.wait_for_records(ends)
        team.check_exactly_once(ends)


def a_topic_grows(bootstrap: str, topic: str, client: str) -> None:
    places = create(bootstrap, topic, 1)
    with Team(bootstrap, topic, [topic]) as team:
        team.join(client)
        team.wait_for_owners(places)
        team.join(client)
        more = grow(bootstrap, topic, 4)
        team.wait_for_owners(more)
        ends = fill(bootstrap, more, 20)
        team.wait_for_records(ends)
        team.check_exactly_once(ends)


# Two libraries


def two_libraries_share_by_the_rules(
    bootstrap: str, topics: Sequence[str], clients: tuple[str, str], assignor: str
) -> None:
    """Which partitions each gets is known: range and round robin go by the ids that the broker gives."""
    places = [*create(bootstrap, topics[0], 3), *create(bootstrap, topics[1], 2)]
    with Team(bootstrap, topics[0], topics, assignor=assignor) as team:
        with Stream(bootstrap, places) as stream:
            first = team.join(clients[0])
            team.wait_for_owners(places)
            team.wait_for_commits(places)
            second = team.join(clients[1])
            team.wait_for_owners(places)
            ordered = in_order_of_ids(bootstrap, team.group, [first, second])
            expected = (ranges if assignor == "range" else round_robin)(ordered, places)
            assert [member.assignment for member in ordered] == expected
            team.leave(first)
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_exactly_once(stream.ends)


def in_order_of_ids(bootstrap: str, group: str, members: Sequence[Member]) -> list[Member]:
    """The members in the order of the ids that the broker gave them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([group])[group].result(20)
    by_name = {member.name: member for member in members}
    return [by_name[each.client_id] for each in sorted(described.members, key=lambda m: m.member_id)]


def ranges(members: Sequence[Member], places: Sequence[Place]) -> list[set[Place]]:
    """Each topic cut into consecutive pieces, the first ones one longer."""
    shares: list[set[Place]] = [set() for _ in members]
    for topic in {topic for topic, _ in places}:
        of_topic = sorted(place for place in places if place[0] == topic)
        each, more = divmod(len(of_topic), len(members))
        for number in range(len(members)):
            start = number * each + min(number, more)
            shares[number] |= set(of_topic[start : start + each + (number < more)])
    return shares


def round_robin(members: Sequence[Member], places: Sequence[Place]) -> list[set[Place]]:
    """All partitions dealt out like cards."""
    ordered = sorted(places)
    return [set(ordered[number :: len(members)]) for number in range(len(members))]


# The consumer protocol


def consumer_members_come_and_go(bootstrap: str, topic: str, client: str, assignor: str) -> None:
    places = create(bootstrap, topic, 5)
    with Team(bootstrap, topic, [topic], protocol="consumer", assignor=assignor) as team:
        with Stream(bootstrap, places) as stream:
            one = team.join(client)
            team.wait_for_owners(places)
            team.wait_for_commits(places)
            two, three = team.join(client), team.join(client)
            team.wait_for_owners(places)
            team.wait("fair shares", lambda: sorted(map(share, (one, two, three))) == [1, 2, 2])
            if assignor == "range":
                assert all(_consecutive(member.assignment) for member in (one, two, three))
            team.leave(one)
            team.wait_for_owners(places)
            team.leave(three)
            team.wait_for_owners(places)
            assert two.assignment == set(places)
        team.wait_for_records(stream.ends)
        team.check_exactly_once(stream.ends)


def consumer_members_are_killed_and_frozen(bootstrap: str, topic: str, clients: tuple[str, str, str]) -> None:
    places = create(bootstrap, topic, 4)
    with Team(bootstrap, topic, [topic], protocol="consumer") as team:
        with Stream(bootstrap, places) as stream:
            one, two, three = map(team.join, clients)
            team.wait_for_owners(places)
            team.wait("records for everybody", lambda: all(each.delivered for each in team.members))
            one.kill()
            two.freeze()
            team.wait("all partitions with the third", lambda: three.assignment == set(places))
            two.thaw()
            team.wait_for_owners(places)
        team.wait_for_records(stream.ends)
        team.check_ownership()
        team.check_nothing_lost(stream.ends)


def a_consumer_member_does_not_poll_for_a_while(bootstrap: str, topic: str, client: str) -> None:
    places = create(bootstrap, topic, 4)
    with Team(bootstrap, topic, [topic], protocol="consumer", max_poll_ms=1000) as team:
        one, two = team.join(client), team.join(client)
        team.wait_for_owners(places)
        one.idle()
        team.wait("all partitions with the one that polls", lambda: two.assignment == set(places))
        one.work()
        team.wait("both at work again", lambda: share(one) == share(two) == 2)


def the_broker_matches(bootstrap: str, stem: str, pattern: str, clients: tuple[str, str]) -> None:
    """``pattern`` is to match topics ``<stem>-a`` and not ``<stem>-cc``."""
    first = create(bootstrap, f"{stem}-a", 2)
    create(bootstrap, f"{stem}-cc", 1)
    with Team(bootstrap, stem, pattern=pattern, protocol="consumer") as team:
        for client in clients:
            team.join(client)
        team.wait_for_owners(first)
        ends = fill(bootstrap, first, 20)
        team.wait_for_records(ends)
        team.check_exactly_once(ends)


def _consecutive(places: set[Place]) -> bool:
    numbers = sorted(index for _, index in places)
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))
