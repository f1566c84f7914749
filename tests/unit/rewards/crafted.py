"""Cheats and honest people by hand, event by event: what the rules must find and what they must leave alone.

Each case gives the events of one pattern, as logins or invitations with the minute of each. The table in
docs/pipelines/detection.md is held against these (``test_detection_patterns``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

from tests.unit.rewards.detecting import START, event

DAY = 1440.0


class Case(NamedTuple):
    """A pattern, whether it is found, and the kinds of subject that are reported."""

    name: str
    events: Callable[[Crafted], None]
    kinds: tuple[str, ...]
    """None of them: silence."""
    missed: bool = False
    """A cheat that the rules do not see; silence, too."""


class Crafted:
    """Collects events; ``minute`` counts from a Monday noon."""

    def __init__(self) -> None:
        self.draw = Random(3)
        self.logins: list[tuple[float, bytes]] = []
        self.invitations: list[tuple[float, bytes]] = []

    def login(
        self, minute: float, user: str, device: str, *, ip: str = "10.0.0.1", success: bool = True
    ) -> None:
        value = event(
            event_id=f"l{len(self.logins):05d}",
            event_time=_time(minute),
            user_id=user,
            device_id=device,
            ip=ip,
            phone="+8613800000000",
            method="password",
            success=success,
        )
        self.logins.append((minute, value))

    def invite(self, minute: float, inviter: str, invitee: str | None = None, **given: Any) -> None:
        """An invitation of a stranger with everything of its own, but for what is given."""
        at = len(self.invitations)
        value = event(
            event_id=f"i{at:05d}",
            event_time=_time(minute),
            user_id=inviter,
            device_id=given.get("own", f"own {inviter}"),
            ip="10.9.9.9",
            invitee_id=invitee or f"n{at}",
            invitee_phone=given.get("phone", f"+86138{self.draw.randrange(10**8):08d}"),
            invitee_device_id=given.get("device", f"device {at}"),
            invitee_ip=given.get(
                "ip", f"{self.draw.randrange(1, 220)}.{self.draw.randrange(250)}.{at % 250}.1"
            ),
            channel="link",
        )
        self.invitations.append((minute, value))

    def home(self, users: Iterable[str], *, days_before: float = 3.0) -> None:
        """People log in on telephones of their own, days before."""
        for at, user in enumerate(users):
            self.login(-days_before * DAY + at, user, f"phone of {user}", ip=f"77.1.{at % 250}.9")

    def pause(self, low: float, high: float) -> float:
        return low + self.draw.random() * (high - low)


def _time(minute: float) -> str:
    return (START + timedelta(minutes=minute)).isoformat()


def _paced(count: int, low: float, high: float, made: Crafted) -> Iterable[tuple[int, float]]:
    minute = 0.0
    for at in range(count):
        yield at, minute
        minute += made.pause(low, high)


# -- logins


def four_per_ten_minutes(made: Crafted) -> None:
    for at, minute in _paced(144, 2.2, 2.8, made):
        made.login(minute, f"u{at % 4}", "d")


def fifty_accounts_one_per_six_minutes(made: Crafted) -> None:
    for at, minute in _paced(50, 5, 7, made):
        made.login(minute, f"u{at}", "d")


def rotating_devices(made: Crafted) -> None:
    for at, minute in _paced(30, 3, 9, made):
        made.login(minute, f"u{at}", f"d{at // 3}")


def a_fresh_device_for_each_login(made: Crafted) -> None:
    for at, minute in _paced(120, 2, 5, made):
        made.login(minute, f"u{at % 30}", f"d{at}")


def over_window_edges(made: Crafted) -> None:
    for at in range(6):
        made.login(6 + at * 1.8, f"u{at % 3}", "d")


def failed_logins(made: Crafted) -> None:
    for at, minute in _paced(100, 0.1, 0.5, made):
        made.login(minute, f"u{at % 7}", "d", success=False)


def failed_logins_slowly(made: Crafted) -> None:
    for at, minute in _paced(150, 4, 9, made):
        made.login(minute, f"u{at % 40}", "d", success=False)


def one_new_account_a_day(made: Crafted) -> None:
    for at in range(25):
        made.login(at * DAY + made.pause(0, 400), f"u{at}", "d")


def night_shift(made: Crafted) -> None:
    for night in range(5):
        for at, minute in _paced(4, 20, 50, made):
            made.login(night * DAY + 720 + minute, f"u{night * 4 + at}", "d")


def over_midnight(made: Crafted) -> None:
    for at, minute in _paced(14, 3, 8, made):
        made.login(680 + minute, f"u{at}", "d")


def clockwork(made: Crafted) -> None:
    for at in range(24):
        made.login(at * 30.0, f"u{at % 9}", "d")


def two_farms_in_turn(made: Crafted) -> None:
    for at, minute in _paced(40, 4, 9, made):
        made.login(minute, f"u{at // 2}", f"d{at % 2}", ip=f"10.{at % 2}.0.1")


def burst_in_a_quiet_month(made: Crafted) -> None:
    for day in range(20):
        made.login(day * DAY, "owner", "d")
    for at in range(12):
        made.login(20 * DAY + at * 0.4, f"u{at % 5}", "d")


def failed_then_through(made: Crafted) -> None:
    for at in range(60):
        made.login(at * 0.3, f"u{at % 12}", "d", success=at % 3 == 0)


def two_children(made: Crafted) -> None:
    for at, minute in _paced(120, 0.3, 2, made):
        made.login(minute, f"child {at % 2}", "tablet")


def family_evening(made: Crafted) -> None:
    for at, minute in _paced(25, 2.4, 4, made):
        made.login(minute, f"child {at % 4}", "tablet")


def family_month(made: Crafted) -> None:
    for day in range(30):
        for at, minute in _paced(9, 10, 60, made):
            made.login(day * DAY + minute, f"member {at % 5}", "tablet")


def classroom_tablet(made: Crafted) -> None:
    made.home([f"pupil {at}" for at in range(28)])
    for day in range(3):
        for at, minute in _paced(28, 0.8, 1.8, made):
            made.login(day * DAY + minute, f"pupil {at}", "tablet")


def demo_phone(made: Crafted) -> None:
    made.home([f"customer {at}" for at in range(60)])
    for day in range(4):
        for at, minute in _paced(15, 2, 40, made):
            made.login(day * DAY + minute, f"customer {day * 15 + at}", "demo")


def office_network(made: Crafted) -> None:
    for at, minute in _paced(80, 0.2, 2, made):
        made.login(minute, f"worker {at % 40}", f"phone {at % 40}")


def carrier_address(made: Crafted) -> None:
    for day in (-4, -3, -2, 0):
        for at in range(60):
            made.login(day * DAY + at, f"person {at}", f"family phone {at // 2}")


def forgotten_password(made: Crafted) -> None:
    for at, minute in _paced(15, 0.2, 3, made):
        made.login(minute, "forgetful", "d", success=at == 14)


def second_telephone(made: Crafted) -> None:
    for at in range(30):
        made.login(at * DAY / 3, "owner", f"d{at % 2}", ip=f"10.0.{at % 2}.1")


def repair_shop(made: Crafted) -> None:
    made.home([f"customer {at}" for at in range(20)], days_before=8)
    for at, minute in _paced(20, 10, 60, made):
        made.login(minute, f"customer {at}", "bench")


def one_account_per_fresh_device(made: Crafted) -> None:
    for at, minute in _paced(30, 3, 20, made):
        made.login(minute, f"u{at}", f"d{at}")


def rotating_devices_two_each(made: Crafted) -> None:
    for at, minute in _paced(30, 3, 9, made):
        made.login(minute, f"u{at}", f"d{at // 2}")


def seven_accounts_a_day(made: Crafted) -> None:
    for at, minute in _paced(21, 40, 70, made):
        made.login(minute, f"u{at % 7}", "d")


def homes_faked_by_proxy(made: Crafted) -> None:
    made.home([f"u{at}" for at in range(20)])
    for at, minute in _paced(20, 4, 8, made):
        made.login(minute, f"u{at}", "d")


# -- invitations


def newcomers_five_an_hour(made: Crafted) -> None:
    for _, minute in _paced(40, 9, 15, made):
        made.invite(minute, "a", device="x")


def newcomers_two_a_day(made: Crafted) -> None:
    for at in range(20):
        made.invite(at * DAY / 2 + made.pause(0, 300), "a", device="x")


def block_with_gaps(made: Crafted) -> None:
    for at, minute in _paced(30, 4, 20, made):
        made.invite(minute, "a", phone=f"+861391234{(at * 337) % 10_000:04d}")


def block_over_the_edge(made: Crafted) -> None:
    for at, minute in _paced(12, 4, 20, made):
        made.invite(minute, "a", phone=f"+861391{239_994 + at:06d}000"[:14])


def block_of_many_inviters(made: Crafted) -> None:
    for at, minute in _paced(12, 4, 20, made):
        made.invite(minute, f"a{at}", phone=f"+861391234{5000 + at * 7:04d}")


def oneself(made: Crafted) -> None:
    for _, minute in _paced(200, 0.1, 0.8, made):
        made.invite(minute, "a", "a", device="own a")


def oneself_now_and_then(made: Crafted) -> None:
    for at in range(5):
        made.invite(at * 200.0, "a", "a")


def ring_over_days(made: Crafted) -> None:
    for at, (inviter, invitee) in enumerate((("a", "b"), ("b", "c"), ("c", "a"))):
        made.invite(at * DAY * 1.2, inviter, invitee)


def ring_of_six_over_weeks(made: Crafted) -> None:
    for at in range(6):
        made.invite(at * DAY * 4, f"u{at}", f"u{(at + 1) % 6}")


def pair_on_one_device(made: Crafted) -> None:
    made.invite(0, "a", "b", own="d", device="d")
    made.invite(3 * DAY, "b", "a", own="d", device="d")


def chain_on_two_devices(made: Crafted) -> None:
    for at in range(6):
        made.invite(at * 60.0, f"u{at}", f"u{at + 1}", own=f"d{at % 2}", device=f"d{(at + 1) % 2}")


def chain_on_one_device_over_days(made: Crafted) -> None:
    for at in range(5):
        made.invite(at * DAY, f"u{at}", f"u{at + 1}", own="d", device="d")


def chain_of_pairs(made: Crafted) -> None:
    for at in range(6):
        made.invite(at * 300.0, f"u{at}", f"u{at + 1}", own=f"d{at // 2 % 2}", device=f"d{(at + 1) // 2 % 2}")


def tree_in_one_network(made: Crafted) -> None:
    for at in range(1, 31):
        made.invite(at * 45.0, f"u{(at - 1) // 2}", f"u{at}", ip=f"88.1.2.{at}")


def vine_in_one_network(made: Crafted) -> None:
    for at in range(20):
        made.invite(at * 200.0, f"u{at}", f"u{at + 1}", ip=f"88.1.2.{at}")


def farm_of_inviters(made: Crafted) -> None:
    for at, minute in _paced(12, 2, 6, made):
        made.invite(minute, f"a{at % 6}", device="farm")


def farm_of_inviters_over_days(made: Crafted) -> None:
    for at in range(16):
        made.invite(at * 500.0, f"a{at}", device="farm")


def script_burst(made: Crafted) -> None:
    for _, minute in _paced(30, 0.01, 0.2, made):
        made.invite(minute, "a")


def address_in_minutes(made: Crafted) -> None:
    for at, minute in _paced(18, 0.2, 1, made):
        made.invite(minute, "a", ip=f"88.1.2.{at}")


def inviting_clock(made: Crafted) -> None:
    for at in range(60):
        made.invite(at * 10.0, "a")


def twelve_colleagues(made: Crafted) -> None:
    for _, minute in _paced(12, 1.5, 6, made):
        made.invite(minute, "a", ip="88.1.2.1")


def colleagues_who_invite_colleagues(made: Crafted) -> None:
    for at in range(1, 13):
        made.invite(at * 90.0, f"u{(at - 1) // 4}", f"u{at}", ip="88.1.2.1")


def fair_booth(made: Crafted) -> None:
    for _, minute in _paced(35, 2, 8, made):
        made.invite(minute, "booth", ip="88.1.2.1")


def family_tablet(made: Crafted) -> None:
    for at in range(3):
        made.invite(at * 10.0, "parent", f"child {at}", own="tablet", device="tablet")


def friends_of_a_week(made: Crafted) -> None:
    for _, minute in _paced(25, 60, 600, made):
        made.invite(minute, "popular")


def two_friends(made: Crafted) -> None:
    made.invite(0, "a", "b")
    made.invite(20, "b", "a")


def long_line_of_friends(made: Crafted) -> None:
    for at in range(20):
        made.invite(at * 400.0, f"u{at}", f"u{at + 1}", own=f"device {at - 1}")


def family_chain(made: Crafted) -> None:
    made.invite(0, "mother", "father", own="phone", device="tablet")
    made.invite(60, "father", "child", own="tablet", device="phone")


def strangers_one_by_one(made: Crafted) -> None:
    for at, minute in _paced(39, 20, 70, made):
        made.invite(minute, f"mule {at % 13}")


CASES = (
    Case("4 switches in 10 minutes, for 6 hours", four_per_ten_minutes, ("device",)),
    Case("50 accounts on a device, one in 6 minutes", fifty_accounts_one_per_six_minutes, ("device",)),
    Case("30 accounts, 3 to a device id, behind one address", rotating_devices, ("address",)),
    Case("30 accounts, a fresh device id for each login", a_fresh_device_for_each_login, ("address",)),
    Case("5 switches in 9 minutes over an edge of windows", over_window_edges, ("device",)),
    Case("100 failed logins on a device", failed_logins, ("device",)),
    Case("150 failed logins over half a day", failed_logins_slowly, ("device",)),
    Case("a new account each day for 25 days", one_new_account_a_day, ("device",)),
    Case("4 new accounts each night for 5 nights", night_shift, ("device",)),
    Case("14 accounts over midnight", over_midnight, ("device",)),
    Case("9 accounts in turn like a clock, every half hour", clockwork, ("device",)),
    Case("20 accounts on two devices in turn", two_farms_in_turn, ("device",)),
    Case("a burst of 5 accounts on a device that was quiet for weeks", burst_in_a_quiet_month, ("device",)),
    Case("40 failed and 20 successful logins of 12 accounts", failed_then_through, ("device",)),
    Case("40 newcomers on a device at 5 an hour", newcomers_five_an_hour, ("inviter",)),
    Case("20 newcomers on a device at 2 a day", newcomers_two_a_day, ("inviter",)),
    Case("30 numbers of a block with gaps", block_with_gaps, ("inviter",)),
    Case("12 consecutive numbers over the edge of a block", block_over_the_edge, ("inviter",)),
    Case("12 numbers of a block by 12 inviters", block_of_many_inviters, ("number-block",)),
    Case("200 invitations of oneself", oneself, ("inviter",)),
    Case("5 invitations of oneself in a day", oneself_now_and_then, ("inviter",)),
    Case("a ring of 3 over days", ring_over_days, ("ring",)),
    Case("a ring of 6 over three weeks", ring_of_six_over_weeks, ("ring",)),
    Case("two who invite each other on one device, days apart", pair_on_one_device, ("ring",)),
    Case("a chain over two devices", chain_on_two_devices, ("chain",)),
    Case("a chain on a device over days", chain_on_one_device_over_days, ("chain",)),
    Case("a chain that changes device every second time", chain_of_pairs, ("chain",)),
    Case("a tree of 30 in one network", tree_in_one_network, ("tree",)),
    Case("a vine of 20 in one network", vine_in_one_network, ("tree",)),
    Case("12 newcomers on a device by 6 inviters", farm_of_inviters, ("device",)),
    Case("16 newcomers on a device by 16 inviters over days", farm_of_inviters_over_days, ("device",)),
    Case("30 newcomers within minutes", script_burst, ("inviter",)),
    Case("18 newcomers of one network within minutes", address_in_minutes, ("inviter",)),
    Case("60 newcomers like a clock", inviting_clock, ("inviter",)),
    Case("two children with two accounts", two_children, ()),
    Case("a family of four passes a tablet around", family_evening, ()),
    Case("a family of five for a month", family_month, ()),
    Case("a tablet for a class of 28, who have telephones", classroom_tablet, ()),
    Case("a shop's demo phone, customers have telephones", demo_phone, ()),
    Case("a repair shop's bench", repair_shop, ()),
    Case("40 people of an office behind one address", office_network, ()),
    Case("30 families behind a carrier's address", carrier_address, ()),
    Case("a forgotten password", forgotten_password, ()),
    Case("one person with two telephones", second_telephone, ()),
    Case("12 colleagues behind one address", twelve_colleagues, ()),
    Case("12 colleagues who invite one another", colleagues_who_invite_colleagues, ()),
    Case("35 visitors of a fair's booth on its network", fair_booth, ()),
    Case("a parent and 3 children on a tablet", family_tablet, ()),
    Case("25 friends within a week", friends_of_a_week, ()),
    Case("two friends with each other's code", two_friends, ()),
    Case("20 friends in a row, each with a telephone", long_line_of_friends, ()),
    Case("a family of three on two devices", family_chain, ()),
    Case("30 accounts, each with a device id of its own", one_account_per_fresh_device, (), missed=True),
    Case("30 accounts, 2 to a device id", rotating_devices_two_each, (), missed=True),
    Case("7 accounts on a device, a few times a day", seven_accounts_a_day, (), missed=True),
    Case("20 accounts that were elsewhere before", homes_faked_by_proxy, (), missed=True),
    Case("39 newcomers by 13 mules, with nothing in common", strangers_one_by_one, (), missed=True),
)
