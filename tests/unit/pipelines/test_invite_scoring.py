"""invite-fraud, one window at a time: what each rule counts, where its points begin, what an alert says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tidelog.pipelines.framework.alert_evidence import Window
from tidelog.pipelines.jobs.invite_fraud.schema import SHOWN, Alert, Rules
from tidelog.pipelines.jobs.invite_fraud.scoring import Invitation, Subject, score

MINUTE_US = 60_000_000
START_US = 1_767_614_400_000_000
"""2026-01-05T12:00:00Z."""
WINDOW = Window(START_US, START_US + 60 * MINUTE_US)
INVITER = Subject("inviter", "u1")
EVERYTHING = Rules(alert_score=1)


def invite(at: int, minute: float, **given: Any) -> Invitation:
    """An invitation of a stranger, but for what is given."""
    known = {
        "inviter": "u1",
        "invitee": f"n{at:03d}",
        "device": f"d{at:03d}",
        "network": f"10.0.{at}",
        "block": f"86138{at:06d}",
        **given,
    }
    return Invitation(START_US + round(minute * MINUTE_US), f"e{at:03d}", 0, at, **known)


def invites(number: int, *, every: float = 2.0, **given: Any) -> list[Invitation]:
    return [invite(at, at * every, **given) for at in range(number)]


def reasons(found: Alert | None) -> dict[str, tuple[int, int, str]]:
    told = () if found is None else found.reasons
    return {reason.rule: (reason.points, reason.count, reason.value) for reason in told}


@pytest.mark.parametrize(
    ("given", "number", "expected"),
    [
        ({"device": "x"}, 3, {}),
        ({"device": "x"}, 4, {"device": (40, 4, "x")}),
        ({"device": "x"}, 5, {"device": (40, 5, "x")}),
        ({"device": "x"}, 6, {"device": (70, 6, "x")}),
        ({"block": "8613912345"}, 3, {}),
        ({"block": "8613912345"}, 7, {"number-block": (40, 7, "8613912345")}),
        ({"block": "8613912345"}, 8, {"number-block": (70, 8, "8613912345")}),
        ({"network": "77.1.2"}, 5, {}),
        ({"network": "77.1.2"}, 6, {"address": (20, 6, "77.1.2")}),
        ({"network": "77.1.2"}, 10, {"address": (40, 10, "77.1.2")}),
        ({"network": "77.1.2"}, 12, {"address": (65, 12, "77.1.2")}),
        ({"every": 0.3}, 7, {}),
        ({"every": 0.3}, 14, {"burst": (30, 8, "300 s")}),
        ({"every": 0.3}, 15, {"burst": (65, 15, "300 s")}),
        ({"every": 5 / 7}, 8, {"burst": (30, 8, "300 s")}),
        ({"every": 5 / 7 + 0.0001}, 8, {}),
        ({"block": None}, 20, {}),
    ],
)
def test_points_begin_with_their_steps(
    given: dict[str, Any], number: int, expected: dict[str, tuple[int, int, str]]
) -> None:
    assert reasons(score(INVITER, WINDOW, invites(number, **given), EVERYTHING)) == expected


def test_one_strong_sign_or_two_weak_ones_are_an_alert_and_the_score_ends_at_100() -> None:
    strong = score(INVITER, WINDOW, invites(6, device="x"))
    assert strong is not None
    assert strong.score == 70
    assert score(INVITER, WINDOW, invites(5, device="x")) is None
    weak = score(INVITER, WINDOW, invites(4, device="x", block="8613912345"))
    assert weak is not None
    assert weak.score == 80
    all_signs = score(INVITER, WINDOW, invites(20, device="x", block="8613912345", network="n", every=0.1))
    assert all_signs is not None
    assert (all_signs.score, len(all_signs.reasons)) == (100, 4)


@pytest.mark.parametrize(("kind", "given"), [("device", {"device": "x"}), ("number-block", {"block": "x"})])
def test_a_device_or_block_with_one_inviter_is_that_inviters_matter(kind: str, given: dict[str, Any]) -> None:
    subject = Subject(kind, "x")
    alone = invites(12, **given)
    assert score(subject, WINDOW, alone) is None
    several = [each._replace(inviter=f"u{at % 4}") for at, each in enumerate(alone)]
    found = score(subject, WINDOW, several)
    assert found is not None
    assert (found.subject_kind, found.subject) == (kind, "x")
    assert found.inviters == ["u0", "u1", "u2", "u3"]


def test_addresses_and_bursts_count_per_inviter_alone() -> None:
    crowd = [invite(at, at * 0.1, inviter=f"u{at}", device="x", network="77.1.2") for at in range(20)]
    assert set(reasons(score(Subject("device", "x"), WINDOW, crowd))) == {"device"}


def test_a_person_who_is_invited_again_counts_once_by_the_first_invitation() -> None:
    assert score(INVITER, WINDOW, invites(12, invitee="the same", device="x"), EVERYTHING) is None
    first = invites(4, device="x")
    again = [invite(at + 10, 30 + at, invitee=f"n{at:03d}", device="y") for at in range(4)]
    found = score(INVITER, WINDOW, [*again, *first], EVERYTHING)
    assert found is not None
    assert reasons(found) == {"device": (40, 4, "x")}
    assert (found.invitations, len(found.invites)) == (4, 8)


def test_a_delivery_that_comes_twice_counts_once_and_the_first_is_the_evidence() -> None:
    once = invites(6, device="x")
    again = [each._replace(offset=each.offset + 100) for each in once]
    assert score(INVITER, WINDOW, [*again, *once]) == score(INVITER, WINDOW, once)
    assert score(INVITER, WINDOW, [*once[:5], *again[:5]]) is None


def test_any_order_of_deliveries_gives_the_same_alert() -> None:
    tied = [
        *(invite(at, 1, device=device) for at, device in enumerate(("b", "a") * 4)),
        *(invite(at + 20, 1, invitee="twice at once", block=block) for at, block in enumerate((None, "9"))),
    ]
    found = score(INVITER, WINDOW, tied, EVERYTHING)
    assert score(INVITER, WINDOW, tied[::-1], EVERYTHING) == found
    assert reasons(found)["device"] == (40, 4, "a")


def test_the_alert_of_a_window_is_written_as_documented() -> None:
    value = msgspec.json.encode(score(INVITER, WINDOW, invites(6, device="x"))).decode()
    people = ",".join(f'"n{at:03d}"' for at in range(6))
    assert value.startswith(
        '{"alert_id":"ebb285e3e345f1192796184b3b2f25c4","pipeline":"invite-fraud","subject_kind":"inviter","subject":"u1",'
        '"window_start":"2026-01-05T12:00:00.000Z","window_end":"2026-01-05T13:00:00.000Z","score":70,'
        '"reasons":[{"rule":"device","points":70,"count":6,"value":"x"}],'
        f'"inviters":["u1"],"invitees":[{people}],"devices":["x"],"invitations":6,'
        '"invites":[{"event_id":"e000","event_time":"2026-01-05T12:00:00.000Z","inviter":"u1",'
        '"invitee":"n000","partition":0,"offset":0},'
    )


def test_an_alert_shows_the_first_and_counts_all() -> None:
    found = score(INVITER, WINDOW, invites(80, every=0.5, device="x"))
    assert found is not None
    assert found.invitations == 80
    assert [len(shown) for shown in (found.invitees, found.invites)] == [SHOWN, SHOWN]
    assert found.invites[-1].event_id == f"e{SHOWN - 1:03d}"
