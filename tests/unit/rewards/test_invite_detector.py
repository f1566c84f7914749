"""invite-fraud: where points begin, who is told of what, rings that grow together, replays, ranges."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from itertools import count, pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from tests.unit.rewards.detecting import START, Detecting, event

from tidelog.spark.dead_letters.letter import CARRIED_BYTES
from tidelog_rewards.detection.alert_evidence import Window
from tidelog_rewards.detection.alert_state import StateReader
from tidelog_rewards.event_parser import MAX_STRING_CHARS
from tidelog_rewards.jobs.invite_fraud import detector
from tidelog_rewards.jobs.invite_fraud.detector import InviteDetector
from tidelog_rewards.jobs.invite_fraud.rings import judge_chain
from tidelog_rewards.jobs.invite_fraud.schema import SHOWN, USUAL
from tidelog_rewards.jobs.invite_fraud.scoring import Invitation, judge_block, judge_device, judge_inviter

RULES = USUAL.rules
EVERYTHING = msgspec.structs.replace(RULES, alert_score=1, regular_points=0, half_life_s=0)
MINUTE_US = 60_000_000
START_US = round(START.timestamp()) * 1_000_000
_numbers = count()


def invite(
    inviter: str,
    minute: float,
    *,
    invitee: str | None = None,
    device: str | None = None,
    own: str | None = None,
    ip: str | None = None,
) -> bytes:
    number = next(_numbers)
    return event(
        event_id=f"e{number:06d}",
        event_time=(START + timedelta(minutes=minute)).isoformat(),
        user_id=inviter,
        device_id=own or f"own {inviter}",
        ip="10.0.0.1",
        invitee_id=invitee or f"n{number}",
        invitee_phone=f"+86138{number * 7_919_317 % 10**8:08d}",
        invitee_device_id=device or f"d{number}",
        invitee_ip=ip or f"{number % 200}.{number // 200}.7.1",
        channel="link",
    )


def invitations(many: int, /, *, every: float = 2.0, **given: Any) -> list[Invitation]:
    """Invitations of strangers by u1, but for what is given."""
    made = []
    for at in range(many):
        known = {
            "inviter": "u1",
            "invitee": f"n{at:03d}",
            "inviter_device": "own",
            "device": f"d{at:03d}",
            "network": f"10.0.{at}",
            "block": f"8613800{at:04d}",
            "number": 8_613_800_000_000 + at * 20_000,
            **given,
        }
        made.append(Invitation(START_US + round(at * every * MINUTE_US), f"e{at:03d}", 0, at, **known))
    return made


def reasons(points: Any) -> dict[str, tuple[int, int]]:
    return {each.rule: (each.points, each.count) for each in points[-1].reasons} if points else {}


@pytest.mark.parametrize(
    ("given", "number", "expected"),
    [
        ({"device": "x"}, 3, {}),
        ({"device": "x"}, 4, {"device": (40, 4)}),
        ({"device": "x"}, 6, {"device": (70, 6)}),
        ({"device": "x", "every": 70}, 7, {"device": (40, 7)}),
        ({"device": "x", "every": 70}, 8, {"device": (65, 8)}),
        ({"device": "x", "every": 1500}, 11, {"device": (40, 11)}),
        ({"device": "x", "every": 1500}, 12, {"device": (65, 12)}),
        ({"network": "77.1.2", "every": 1}, 7, {}),
        ({"network": "77.1.2", "every": 1}, 8, {"address": (30, 8)}),
        ({"network": "77.1.2", "every": 1}, 13, {"address": (65, 13)}),
        ({"every": 0.3}, 7, {}),
        ({"every": 0.3}, 15, {"burst": (65, 15)}),
        ({"every": 5 / 7}, 8, {"burst": (30, 8)}),
        ({"every": 5 / 7 + 0.0001}, 8, {}),
        ({"invitee": "u1"}, 2, {}),
        ({"invitee": "u1"}, 3, {"self": (65, 3)}),
        ({"every": 20}, 40, {"volume": (30, 40)}),
        ({"number": None}, 20, {}),
        ({"invitee": "the same"}, 12, {}),
    ],
)
def test_points_begin_with_their_steps(
    given: dict[str, Any], number: int, expected: dict[str, tuple[int, int]]
) -> None:
    rules = msgspec.structs.replace(EVERYTHING, regular_invitations=10_000)
    found = judge_inviter("u1", invitations(number, **given), 0, rules)
    assert reasons(found.points) == expected


def test_numbers_count_within_a_span_whatever_block_they_are_in() -> None:
    near = [each._replace(number=8_613_800_000_990 + at * 9) for at, each in enumerate(invitations(8))]
    assert reasons(judge_inviter("u1", near, 0, RULES).points)["number-block"] == (70, 8)
    apart = [each._replace(number=each.number and each.number // 20) for each in invitations(12)]
    assert reasons(judge_inviter("u1", apart, 0, RULES).points)["number-block"] == (70, 10)


def test_what_comes_like_a_clock_gets_points() -> None:
    rules = msgspec.structs.replace(RULES, alert_score=1)
    assert reasons(judge_inviter("u1", invitations(10, every=20), 0, rules).points) == {"regular": (40, 10)}
    assert judge_inviter("u1", invitations(9, every=20), 0, rules).points == ()


@pytest.mark.parametrize(
    ("judge", "given"), [(judge_device, {"device": "x"}), (judge_block, {"number": 8_613_800_000_000})]
)
def test_a_device_or_block_with_one_inviter_is_that_inviters_matter(
    judge: Any, given: dict[str, Any]
) -> None:
    alone = invitations(12, **given)
    assert judge("x", alone, 0, RULES).points == ()
    several = [each._replace(inviter=f"u{at % 4}") for at, each in enumerate(alone)]
    found = judge("x", several, 0, RULES)
    assert found.points
    assert found.details["inviters"] == ["u0", "u1", "u2", "u3"]


def test_a_delivery_that_comes_twice_counts_once_in_any_order() -> None:
    once = invitations(6, device="x")
    again = [each._replace(offset=each.offset + 100) for each in once]
    assert judge_inviter("u1", [*again, *once], 0, RULES) == judge_inviter("u1", once, 0, RULES)
    assert judge_inviter("u1", [*once[:5], *again[:5]], 0, RULES).points == ()


def test_an_alert_says_who_and_what_and_proves_itself(tmp_path: Path) -> None:
    stream = Detecting(tmp_path, InviteDetector())
    told = stream.feed(*[invite("a", at * 0.5, device="x") for at in range(80)])["a"]
    assert [told[name] for name in ("pipeline", "subject_kind", "state", "devices", "inviters")] == [
        "invite-fraud",
        "inviter",
        "open",
        ["x"],
        ["a"],
    ]
    assert (told["invitations"], len(told["invitees"]), len(told["invites"])) == (80, SHOWN, SHOWN)
    assert set(told["invites"][0]) == {
        "event_id",
        "event_time",
        "inviter",
        "invitee",
        "partition",
        "offset",
    }


def test_rings_that_grow_together_are_one_and_the_other_name_is_taken_back(tmp_path: Path) -> None:
    stream = Detecting(tmp_path, InviteDetector())
    pairs = [("m", "n"), ("n", "o"), ("o", "m"), ("b", "c"), ("c", "d"), ("d", "b")]
    stream.feed(*[invite(one, at, invitee=other) for at, (one, other) in enumerate(pairs)])
    assert {told["subject"] for told in stream.incidents.values()} == {"m", "b"}
    stream.feed(invite("d", 20, invitee="m"), invite("o", 21, invitee="b"))
    assert [told["subject"] for told in stream.incidents.values()] == ["b"]
    (told,) = stream.incidents.values()
    assert told["inviters"] == ["b", "c", "d", "m", "n", "o"]


def test_a_circle_longer_than_the_rules_look_for_is_none(tmp_path: Path) -> None:
    for size, expected in ((RULES.max_cycle, 1), (RULES.max_cycle + 1, 0)):
        stream = Detecting(tmp_path / str(size), InviteDetector())
        stream.feed(*[invite(f"u{at}", at * 60, invitee=f"u{(at + 1) % size}") for at in range(size)])
        assert len(stream.incidents) == expected


def test_a_search_that_becomes_too_large_is_given_up_and_counted(tmp_path: Path) -> None:
    rules = msgspec.structs.replace(RULES, max_visits=20)
    stream = Detecting(tmp_path, InviteDetector(rules))
    stream.feed(*[invite("hub", at * 60, invitee=f"v{at}") for at in range(30)])
    stream.feed(invite("v29", 31 * 60, invitee="w"), invite("w", 32 * 60, invitee="hub"))
    assert stream.total("dropped") > 0
    assert not [told for told in stream.incidents.values() if told["subject_kind"] == "ring"]


def test_a_network_that_is_called_ring_hides_no_ring(tmp_path: Path) -> None:
    stream = Detecting(tmp_path, InviteDetector())
    pairs = [("0", "A"), ("A", "a"), ("a", "b"), ("b", "c"), ("c", "a")]
    stream.feed(*[invite(one, at, invitee=other, ip="ring") for at, (one, other) in enumerate(pairs)])
    assert [told["subject"] for told in stream.incidents.values() if told["subject_kind"] == "ring"] == ["a"]


def test_chains_on_two_devices_of_which_one_has_a_long_chain_are_one_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []

    def counted(devices: frozenset[str], edges: list[Invitation], rules: Any) -> Any:
        judged.append(len(edges))
        return judge_chain(devices, edges, rules)

    monkeypatch.setattr(detector, "judge_chain", counted)
    rules = msgspec.structs.replace(RULES, max_visits=200)
    stream = Detecting(tmp_path, InviteDetector(rules))
    row = [f"u{at:02d}" for at in range(60)]
    told = stream.feed(
        *(
            invite(one, at, invitee=other, own="d", device="d")
            for at, (one, other) in enumerate(pairwise(row))
        ),
        *(invite(name, 70 + at, own="d", device=f"x{at:02d}") for at, name in enumerate(row)),
    )
    assert "d u00" in told
    assert max(judged) == 60
    assert sum(judged) < 59 + 200 + 2 * 60
    assert stream.total("dropped") > 0


STEPS = [name for name in RULES.__struct_fields__ if isinstance(getattr(RULES, name), tuple)]


@pytest.mark.parametrize(
    "off", [*([name] for name in STEPS), ["device_hour", "device_day", "device_month"], STEPS], ids=str
)
def test_a_rule_without_steps_is_switched_off(tmp_path: Path, off: list[str]) -> None:
    stream = Detecting(tmp_path, InviteDetector(msgspec.structs.replace(RULES, **dict.fromkeys(off, ()))))
    told = stream.feed(
        *(invite("himself", at, invitee="himself") for at in range(4)),
        *(invite(f"u{at % 2}", at**1.1, device="shared") for at in range(16)),
    )
    assert ("himself" in told) == ("self" not in off)
    assert ("shared" in told) == (not {"device_hour", "device_day", "device_month"} <= set(off))


@pytest.mark.parametrize("rule", ["device_month", "wide_block", "address", "burst", "volume_day", "self"])
def test_low_steps_count(tmp_path: Path, rule: str) -> None:
    rules = msgspec.structs.replace(RULES, **{rule: ((1, 65),)})
    stream = Detecting(tmp_path, InviteDetector(rules))
    assert set(stream.feed(invite("u", 1, invitee="u" if rule == "self" else "n"))) == {"u"}


@pytest.mark.parametrize("rule", ["device_day", "device_month"])
def test_low_steps_of_a_device_count(tmp_path: Path, rule: str) -> None:
    rules = msgspec.structs.replace(RULES, **{rule: ((2, 65),)})
    stream = Detecting(tmp_path, InviteDetector(rules))
    assert set(stream.feed(*(invite(name, 1, device="shared") for name in ("u", "v")))) == {"shared"}


def test_honest_invitations_leave_nothing_to_judge(tmp_path: Path) -> None:
    stream = Detecting(tmp_path, InviteDetector())
    stream.feed(*[invite(f"u{at}", at, invitee=f"v{at}") for at in range(20)])
    stream.feed(*[invite(f"u{at}", 20 + at, invitee=f"w{at}") for at in range(20)])
    assert stream.total("follow_ups") == 0
    assert stream.total("events") == 20


def test_late_invitations_count_as_long_as_the_rules_say(tmp_path: Path) -> None:
    stream = Detecting(tmp_path, InviteDetector())
    stream.feed(*[invite("a", at, device="x") for at in range(5)], invite("other", 350))
    assert set(stream.feed(invite("a", 5, device="x"))) == {"a"}
    stream.feed(invite("other", 400))
    stream.feed(invite("b", 5))
    assert (stream.total("late"), stream.total("events")) == (1, 1)


def test_a_replayed_batch_reports_the_same_on_another_number_of_tasks(tmp_path: Path) -> None:
    draw = Random(8)
    straight, restarted = (Detecting(tmp_path / name, InviteDetector()) for name in ("straight", "restarted"))
    reported = 0
    for batch in range(5):
        values = [
            invite(
                f"u{draw.randrange(8)}",
                batch * 10 + draw.random() * 20,
                invitee=f"u{draw.randrange(8)}" if draw.random() < 0.4 else None,
                device=f"x{draw.randrange(3)}" if draw.random() < 0.5 else None,
            )
            for _ in range(30)
        ]
        records = straight.records(values)
        expected = straight.work_off(records)
        reported += len(expected)
        again = Detecting(restarted.directory, InviteDetector())
        again.batch_id = batch
        draw.shuffle(records)
        again.work_off(records[: draw.randrange(30)], tasks=1)
        assert again.work_off(records, tasks=1) == expected
        assert again.work_off(records, tasks=7) == expected
        straight.batch_id += 1
    assert reported > 5


def test_a_range_of_time_reports_what_has_evidence_in_it(tmp_path: Path) -> None:
    within = Window(START_US + 60 * MINUTE_US, START_US + 120 * MINUTE_US)
    stream = Detecting(tmp_path, InviteDetector(), within=within)
    values = [
        invite("a", 1, invitee="b"),
        invite("b", 66, invitee="c"),
        invite("c", 67, invitee="a"),
        *(invite(one, 10, invitee=other, own="d", device="d") for one, other in (("e", "f"), ("f", "e"))),
        *[invite("early", 2 + at, device="x") for at in range(6)],
        *[invite("inside", 70 + at, device="y") for at in range(6)],
    ]
    assert set(stream.feed(*values)) == {"a", "inside"}
    assert stream.total("events") == 8


def test_alerts_of_long_names_are_no_larger_than_a_broker_takes(tmp_path: Path) -> None:
    def long(name: str) -> str:
        return name.ljust(MAX_STRING_CHARS, "\x01")

    stream = Detecting(tmp_path, InviteDetector())
    hub, *others = (long(f"u{at:02d}") for at in range(60))
    pairs = [pair for name in others for pair in ((hub, name), (name, hub))]
    stream.feed(
        *[
            invite(one, at / 100, invitee=other, device=long("d"), own=long("d"), ip=long("10.0.0.1"))
            for at, (one, other) in enumerate(pairs)
        ]
    )
    rings = [told for told in stream.incidents.values() if told["subject_kind"] == "ring"]
    assert [told["subject"] for told in rings] == [hub]
    assert {told["subject_kind"] for told in stream.incidents.values()} > {"ring", "device"}
    for told in stream.incidents.values():
        assert len(json.dumps(told, ensure_ascii=False)) < CARRIED_BYTES


def test_people_around_suspects_are_loaded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    rows_of = StateReader.rows_of

    def counted(self: StateReader, keys: Iterable[int]) -> Any:
        nonlocal looks
        looks += 1
        return rows_of(self, keys)

    monkeypatch.setattr(StateReader, "rows_of", counted)
    looks_for = {}
    for many in (5, 50):
        stream = Detecting(tmp_path / str(many), InviteDetector())
        rows = [[f"{name}{number}" for name in "abc"] for number in range(many)]
        told = stream.feed(
            *(
                invite(inviter, at, invitee=invitee, device=f"d{inviter}", own=f"d{inviter}")
                for row in rows
                for at, (inviter, invitee) in enumerate(zip(row, [*row[1:], row[0]], strict=True))
            )
        )
        assert len(told) == many
        looks_for[many], looks = looks, 0
    assert looks_for[50] == looks_for[5]
