"""Who is worth a search: what is left out in bulk is what searches around everybody do not find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pytest
from tests.unit.rewards.detecting import START, Detecting, event

from tidelog_rewards.jobs.invite_fraud import detector
from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector
from tidelog_rewards.jobs.invite_fraud.graph import SearchGivenUp
from tidelog_rewards.jobs.invite_fraud.schema import USUAL, Rules
from tidelog_rewards.jobs.invite_fraud.suspects import Edges, Suspects

COLUMNS = ("inviter", "invitee", "network", "inviter_device", "device")


def stranger(inviter: str, invitee: str) -> tuple[str, ...]:
    """An invitation that has nothing in common with others."""
    return inviter, invitee, f"network of {invitee}", f"own {inviter}", f"own {invitee}"


def around(known: Sequence[tuple[str, ...]], **given: Any) -> Suspects:
    """What is made of all who were invited and invite."""

    def edges(people: set[str]) -> tuple[pa.Table, pa.Table]:
        came = [each for each in known if each[1] in people]
        gone = [each for each in known if each[0] in people]
        return _table(came), _table(gone)

    rules = msgspec.structs.replace(USUAL.rules, **given)
    people = {each[0] for each in known} & {each[1] for each in known}
    return Suspects(edges, rules, people)


def _table(rows: Sequence[tuple[str, ...]]) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [()] * len(COLUMNS)
    return pa.table({name: pa.array(each, pa.string()) for name, each in zip(COLUMNS, columns, strict=True)})


def found(suspects: Suspects) -> tuple[set[str], ...]:
    return suspects.of_circles, suspects.of_trees, suspects.of_chains


def test_nobody_in_a_long_row_of_strangers_is_worth_a_search() -> None:
    row = [stranger(f"u{at}", f"u{at + 1}") for at in range(5000)]
    suspects = around(row)
    assert found(suspects) == (set(), set(), set())
    assert suspects.looked.invitations == 5000


@pytest.mark.parametrize("size", [2, 3, USUAL.rules.max_cycle])
def test_who_is_in_a_circle_is_worth_a_search_and_who_hangs_on_it_is_not(size: int) -> None:
    circle = [stranger(f"u{at}", f"u{(at + 1) % size}") for at in range(size)]
    others = [stranger("x", "y"), stranger("y", "u0"), stranger("u0", "v"), stranger("v", "w")]
    assert around([*circle, *others]).of_circles == {f"u{at}" for at in range(size)}


def test_oneself_is_no_circle() -> None:
    assert found(around([stranger("a", "a"), stranger("a", "b")])) == (set(), set(), set())


def test_who_came_and_invites_in_one_network_may_be_in_a_tree() -> None:
    known = [("a", "b", "n", "1", "2"), ("b", "c", "n", "3", "4"), ("c", "d", "m", "5", "6")]
    assert found(around(known)) == (set(), {"b"}, set())


@pytest.mark.parametrize(
    ("came", "gone", "is_worth"),
    [
        (("x", "y"), ("y", "x"), True),
        (("x", "x"), ("x", "z"), True),
        (("x", "z"), ("x", "x"), True),
        (("x", "y"), ("y", "z"), False),
    ],
)
def test_who_came_and_invites_on_two_devices_at_most_may_be_in_a_chain(
    came: tuple[str, str], gone: tuple[str, str], is_worth: bool
) -> None:
    known = [("a", "b", "n", *came), ("b", "c", "m", *gone)]
    assert found(around(known)) == (set(), set(), {"b"} if is_worth else set())


def test_who_is_before_many_is_worth_a_search_for_it_will_be_given_up() -> None:
    known = [
        *(stranger("hub", f"v{at}") for at in range(30)),
        stranger("a", "b"),
        stranger("b", "hub"),
        stranger("v0", "w"),
    ]
    assert around(known).of_circles == set()
    assert around(known, max_visits=20).of_circles == {"b", "hub"}


def test_with_too_much_around_people_it_is_given_up_or_nobody_is_left_out() -> None:
    row = [stranger(f"u{at}", f"u{at + 1}") for at in range(50)]
    with pytest.raises(SearchGivenUp):
        around(row, max_edges=49)
    assert around(row, max_edges=50).of_circles == set()
    # Whoever is looked at last may be missing: searches that do without them go on.
    assert around(row, max_edges=49, max_cycle=2).of_circles == {f"u{at}" for at in range(1, 50)}


class Everybody(Suspects):
    """Leaves nobody out."""

    def __init__(self, edges: Edges, rules: Rules, people: set[str]) -> None:
        super().__init__(edges, rules, people)
        self.of_circles = self.of_trees = self.of_chains = people


class Drawn:
    """Invitations of a few people, who have much to do with each other, or of many, who have not."""

    shapes: ClassVar[tuple[str, ...]] = ("any", "forest", "row", "hub", "circles")

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._people = draw.choice([4, 8, 20, 60])
        self._devices, self._networks = draw.choice([1, 3, 20, 400]), draw.choice([1, 5, 400])
        self._blocks = draw.choice([1, 20])
        self._pace = draw.choice([0.1, 10, 600])
        self._joined = 0
        self._number = 0
        self._minute = 0.0

    def values(self, many: int) -> Iterator[bytes]:
        draw = self._draw
        for _ in range(many):
            self._number += 1
            self._minute += draw.random() * self._pace
            inviter, invitee = self._pair(draw.choice(self.shapes))
            own = draw.choice([f"own {inviter}", f"x{draw.randrange(self._devices)}"])
            yield event(
                event_id=f"e{self._number:04d}",
                event_time=(START + timedelta(minutes=self._minute)).isoformat(),
                user_id=inviter,
                device_id=own,
                ip="10.0.0.1",
                invitee_id=invitee,
                invitee_phone=f"+86138{draw.randrange(self._blocks):05d}{draw.randrange(1000):03d}",
                invitee_device_id=draw.choice([own, f"own {invitee}", f"x{draw.randrange(self._devices)}"]),
                invitee_ip=f"10.{draw.randrange(self._networks)}.7.1",
                channel="link",
            )

    def _pair(self, shape: str) -> tuple[str, str]:
        draw, somebody = self._draw, f"u{self._draw.randrange(self._people)}"
        if shape == "hub":
            return "hub", somebody
        if shape == "circles":
            size = draw.randrange(2, 8)
            which, at = draw.randrange(self._people), draw.randrange(size)
            return f"c{size}-{which}-{at}", f"c{size}-{which}-{(at + 1) % size}"
        if shape == "any":
            return somebody, f"u{draw.randrange(self._people)}"
        self._joined += 1
        before = self._joined - 1 if shape == "row" else draw.randrange(self._joined)
        return f"j{before}", f"j{self._joined}"


def _searching_around_everybody(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(detector, "Suspects", Everybody)
    for name in ("told_of_device", "told_of_block"):
        patched.setattr(Rules, name, 0)


def _some_names_at_once(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(detector, "_NAMES_AT_ONCE", 2)


@pytest.mark.parametrize("other", [_searching_around_everybody, _some_names_at_once])
def test_incidents_and_searches_that_are_given_up_are_those_of_searches_around_everybody(
    tmp_path: Path, other: Callable[[pytest.MonkeyPatch], None]
) -> None:
    told: dict[str, int] = {}
    given_up = 0
    for seed in range(15):
        draw = Random(seed)
        rules = msgspec.structs.replace(
            USUAL.rules,
            max_cycle=draw.choice([2, 4, 6]),
            max_visits=draw.choice([3, 10, 60, 5000]),
            max_edges=draw.choice([20, 100, 500_000, 500_000]),
            alert_score=draw.choice([1, 60]),
            tree=draw.choice([((2, 65),), ((5, 65),)]),
            tree_inviters=draw.choice([1, 3]),
        )
        usual, patched = (Detecting(tmp_path / f"{seed} {at}", InviteDetector(rules)) for at in (0, 1))
        drawn = Drawn(draw)
        for _ in range(draw.randrange(1, 4)):
            values = list(drawn.values(draw.choice([5, 30, 80])))
            changed = usual.feed(*values)
            with pytest.MonkeyPatch.context() as patch:
                other(patch)
                assert patched.feed(*values) == changed
            assert patched.total("dropped") == usual.total("dropped")
            given_up += usual.total("dropped") > 0
            for each in changed.values():
                told[each["subject_kind"]] = told.get(each["subject_kind"], 0) + 1
    assert told.keys() == {"inviter", "device", "number-block", "ring", "chain", "tree"}
    assert given_up > 5
