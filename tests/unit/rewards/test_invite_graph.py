"""Who invited whom: circles, chains and trees are the same from wherever a search begins."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec
import pytest

from tidelog_rewards.jobs.invite_fraud.graph import (
    Neighbourhood,
    SearchGivenUp,
    cyclic,
    longest_path,
    members_of,
)
from tidelog_rewards.jobs.invite_fraud.schema import USUAL
from tidelog_rewards.jobs.invite_fraud.scoring import Invitation

RULES = USUAL.rules


def edge(
    at: int, inviter: str, invitee: str, *, own: str = "", device: str = "", network: str = "n"
) -> Invitation:
    return Invitation(
        at,
        f"e{at:03d}",
        0,
        at,
        inviter,
        invitee,
        own or f"own {inviter}",
        device or f"of {invitee}",
        network,
        None,
        None,
    )


def edges(*pairs: tuple[str, str]) -> list[Invitation]:
    return [edge(at, *pair) for at, pair in enumerate(pairs)]


def around(known: Iterable[Invitation], max_visits: int = 1000) -> Neighbourhood:
    every = list(known)

    def load(people: set[str]) -> Iterable[Invitation]:
        return [each for each in every if each.inviter in people or each.invitee in people]

    return Neighbourhood(load, msgspec.structs.replace(RULES, max_visits=max_visits))


def pairs(found: Iterable[Invitation]) -> set[tuple[str, str]]:
    return {(each.inviter, each.invitee) for each in found}


def test_a_circle_is_found_by_each_of_its_members_and_by_nobody_else() -> None:
    circle = [("a", "b"), ("b", "c"), ("c", "a")]
    known = edges(*circle, ("c", "d"), ("x", "a"))
    for name in "abc":
        assert pairs(around(known).circle(name)) == set(circle)
    for name in "dx":
        assert around(known).circle(name) == []


def test_circles_that_share_somebody_are_one() -> None:
    known = edges(("a", "b"), ("b", "a"), ("b", "c"), ("c", "d"), ("d", "b"))
    for name in "abcd":
        assert pairs(around(known).circle(name)) == pairs(known)


def test_a_circle_is_looked_for_up_to_its_longest() -> None:
    def ring(size: int) -> list[Invitation]:
        return edges(*((f"u{at}", f"u{(at + 1) % size}") for at in range(size)))

    assert len(around(ring(RULES.max_cycle)).circle("u0")) == RULES.max_cycle
    assert around(ring(RULES.max_cycle + 1)).circle("u0") == []


def test_invitations_that_stand_alone_are_no_tree() -> None:
    known = [
        edge(0, "root", "a"),
        edge(1, "root", "leaf"),
        edge(2, "a", "b"),
        edge(3, "a", "elsewhere", network="m"),
    ]
    for name in ("a", "b", "root"):
        assert pairs(around(known).tree(name, "n")) == {("root", "a"), ("a", "b")}
    assert around(known).tree("leaf", "n") == []


def test_a_chain_stays_on_its_devices() -> None:
    known = [
        edge(0, "a", "b", own="x", device="y"),
        edge(1, "b", "c", own="y", device="x"),
        edge(2, "c", "d", own="x", device="z"),
    ]
    assert pairs(around(known).chain("b", frozenset("xy"))) == {("a", "b"), ("b", "c")}
    assert pairs(around(known).chain("c", frozenset("xz"))) == set()


def test_the_first_invitation_of_two_people_is_their_edge() -> None:
    first, again = edge(3, "a", "b"), edge(7, "a", "b")
    graph = around([again, first])
    graph.load(["a"])
    assert graph.by("a") == [first]


def test_a_search_that_becomes_too_large_is_given_up() -> None:
    star = edges(*(("hub", f"v{at}") for at in range(50)), ("v0", "w"), ("w", "hub"))
    with pytest.raises(SearchGivenUp):
        around(star, max_visits=20).circle("w")


def test_of_some_invitations_those_in_circles_are_told() -> None:
    known = edges(("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("e", "e2"))
    assert pairs(cyclic(known)) == {("b", "c"), ("c", "b")}
    assert cyclic([]) == []


def test_the_longest_row_is_found_and_passes_nobody_twice() -> None:
    known = edges(("a", "b"), ("b", "c"), ("b", "x"), ("c", "a"), ("c", "d"))
    found = longest_path(known, 1000)
    assert [each.inviter for each in found] == ["a", "b", "c"]
    assert members_of(found) == {"a", "b", "c", "d"}


def test_the_longest_row_is_the_one_that_looking_at_all_of_them_finds() -> None:
    draw = Random(3)
    names = "abcdefg"
    for _ in range(150):
        drawn = {(draw.choice(names), draw.choice(names)) for _ in range(draw.randrange(1, 11))}
        known = edges(*sorted((one, other) for one, other in drawn if one != other))
        draw.shuffle(known)
        assert longest_path(known, 10_000) == first_of_the_longest(known)


def first_of_the_longest(known: Iterable[Invitation]) -> list[Invitation]:
    every = sorted(known)
    best: list[Invitation] = []
    for first in every:
        waiting = [[first]]
        while waiting:
            path = waiting.pop()
            if len(path) > len(best):
                best = path
            met = {path[0].inviter, *(each.invitee for each in path)}
            waiting += [
                [*path, each]
                for each in every
                if each.inviter == path[-1].invitee and each.invitee not in met
            ]
    return best


class Looked(Invitation):
    """Counts the looks at who is invited, and at devices."""

    looks = 0

    @property
    def invitee(self) -> str:
        Looked.looks += 1
        return str(self[5])

    @property
    def device(self) -> str:
        Looked.looks += 1
        return str(self[7])


def looked(known: Iterable[Invitation]) -> list[Invitation]:
    Looked.looks = 0
    return [Looked(*each) for each in known]


def test_the_longest_row_takes_some_looks_at_each_invitation_however_long_it_is() -> None:
    row = looked(edges(*((f"u{at:04d}", f"u{at + 1:04d}") for at in range(1000))))
    assert len(longest_path(row, 10)) == 1000
    assert Looked.looks < 10_000


def test_rows_with_circles_are_looked_at_as_often_as_is_allowed() -> None:
    names = [f"u{at:02d}" for at in range(30)]
    everybody = looked(edges(*((one, other) for one in names for other in names if one != other)))
    assert len(longest_path(everybody, 500)) == 29
    assert Looked.looks < 4 * 500 + 4 * len(everybody)


def test_a_chain_is_found_without_a_look_at_the_invitations_on_other_devices() -> None:
    known = looked(
        [
            edge(0, "a", "hub", own="d", device="d"),
            *(edge(at, "hub", f"v{at:04d}", own="d", device=f"x{at:04d}") for at in range(1, 2001)),
        ]
    )
    graph = around(known)
    graph.chain("hub", frozenset("d"))
    graph.load(["v0007"])
    Looked.looks = 0
    assert len(graph.chain("hub", frozenset(("d", "x0007")))) == 2
    assert Looked.looks < 50
