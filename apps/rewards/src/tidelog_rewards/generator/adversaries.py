"""Cheats of many kinds, patient ones too, and honest people who look like them, by a seed.

The rules were not written from these: each pattern draws its sizes, paces and disguises anew from ranges that
reach beyond what the rules can see. ``tidelog events score --adversaries`` holds the rules against them, with
precision and recall for each pattern. Seeds below :data:`HELD_OUT` are for whoever tunes rules; those from it
on are for measuring, and nothing may be tuned on them.

Plain Python. A month of event time, and events alone: sessions and credits have no part in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec

from tidelog_rewards.events import INVITE, LOGIN

HELD_OUT = 1000
"""The first seed that no rule was tuned on."""

_START = datetime(2026, 3, 2, 6, tzinfo=UTC)
_MINUTE = 60.0
_HOUR = 3600.0
_DAY = 86_400.0


@dataclass
class Case:
    """One cheat or honest case: its pattern, and the names by which an incident accuses it."""

    pattern: str
    is_fraud: bool
    names: set[str] = field(default_factory=set)


class Adversaries:
    """The events of a seed: every pattern a few times, among ordinary people."""

    def __init__(self, seed: int, *, repeats: int = 3, people: int = 400) -> None:
        self.draw = Random(seed)
        self.cases: list[Case] = []
        self._made: list[tuple[float, str, dict[str, Any]]] = []
        self._names = 0
        for _ in range(people):
            self._ordinary()
        for _ in range(repeats):
            for name, (pattern, is_fraud) in PATTERNS.items():
                self._case = Case(name, is_fraud)
                self.cases.append(self._case)
                pattern(self)
        self._made.sort(key=lambda each: each[0])

    def records(self, topic: str) -> Iterator[tuple[datetime, bytes]]:
        """The events of a topic in the order of their time, each with its time."""
        for number, (second, of_topic, fields) in enumerate(self._made):
            if of_topic == topic:
                moment = _START + timedelta(seconds=second)
                text = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
                yield (
                    moment,
                    msgspec.json.encode({"event_id": f"e{number:07d}", "event_time": text, **fields}),
                )

    # -- what patterns are made of

    def number(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return self.draw.randint(low, high)

    def between(self, low: float, high: float) -> float:
        """Some number."""
        return self.draw.uniform(low, high)

    def moment(self) -> float:
        """Some time of a working day within four weeks."""
        return self.number(5, 24) * _DAY + self.between(2, 12) * _HOUR

    def name(self, kind: str) -> str:
        """A name that nobody else has; who bears it is part of the case."""
        self._names += 1
        found = f"{kind}-{self._names:06d}"
        self._case.names.add(found)
        return found

    def address(self) -> str:
        """An address of somewhere."""
        return f"{self.number(11, 220)}.{self.number(0, 250)}.{self.number(0, 250)}.{self.number(1, 250)}"

    def phone(self) -> str:
        """A Chinese number."""
        return f"+861{self.number(3, 9)}{self.number(0, 10**9 - 1):09d}"

    def login(self, second: float, user: str, device: str, ip: str, *, success: bool = True) -> None:
        """A login."""
        own = {"phone": "+8613800000000", "method": "password", "success": success}
        self._made.append((second, LOGIN.topic, {"user_id": user, "device_id": device, "ip": ip, **own}))

    def invite(self, second: float, inviter: str, own: str, invitee: str, **given: str) -> None:
        """An invitation of somebody with everything of their own, but for what is given."""
        fields = {
            "user_id": inviter,
            "device_id": own,
            "ip": "10.0.0.1",
            "invitee_id": invitee,
            "invitee_phone": given.get("phone") or self.phone(),
            "invitee_device_id": given.get("device") or self.name("device"),
            "invitee_ip": given.get("ip") or self.address(),
            "channel": "link",
        }
        self._made.append((second, INVITE.topic, fields))

    def times(self, count: int, low_s: float, high_s: float) -> Iterator[tuple[int, float]]:
        """So many moments with pauses between two lengths."""
        second = self.moment()
        for at in range(count):
            yield at, second
            second += self.between(low_s, high_s)

    def at_home(self, users: list[str], before: float) -> None:
        """People log in on telephones of their own on earlier days."""
        for user in users:
            phone, ip = self.name("phone"), self.address()
            for _ in range(self.number(1, 3)):
                self.login(before - self.between(1, 4) * _DAY, user, phone, ip)

    def _ordinary(self) -> None:
        """Somebody with a telephone, at home and elsewhere, and a friend or two."""
        self._case = Case("ordinary", is_fraud=False)
        user, phone, home = self.name("user"), self.name("phone"), self.address()
        for _ in range(self.number(2, 12)):
            ip = home if self.draw.random() < 0.7 else self.address()
            self.login(self.between(0, 28) * _DAY, user, phone, ip)
        for _ in range(self.number(0, 2)):
            self.invite(self.between(0, 28) * _DAY, user, phone, self.name("user"))
        self.cases.append(self._case)


# -- logins


def quick_switching(made: Adversaries) -> None:
    """A hand or a script that changes accounts within minutes."""
    device, ip = made.name("device"), made.address()
    users = [made.name("user") for _ in range(made.number(3, 9))]
    pace = made.between(5, 110)
    for at, second in made.times(made.number(6, 40), pace * 0.4, pace * 1.6):
        made.login(second, users[at % len(users)], device, ip)


def patient_switching(made: Adversaries) -> None:
    """The same below the limit of a burst, for hours."""
    device, ip = made.name("device"), made.address()
    users = [made.name("user") for _ in range(made.number(3, 8))]
    pace = made.between(110, 400)
    for _, second in made.times(made.number(60, 250), pace * 0.7, pace * 1.3):
        made.login(second, made.draw.choice(users), device, ip)


def many_accounts_slowly(made: Adversaries) -> None:
    """One account after the other on a device, each once."""
    device, ip = made.name("device"), made.address()
    pace = made.between(2, 90) * _MINUTE
    for _, second in made.times(made.number(10, 60), pace * 0.5, pace * 1.5):
        made.login(second, made.name("user"), device, ip)


def accounts_by_the_day(made: Adversaries) -> None:
    """A few new accounts each day for weeks."""
    device, ip = made.name("device"), made.address()
    day = made.number(1, 4) * _DAY
    for _ in range(made.number(12, 24)):
        for _ in range(made.number(1, 4)):
            made.login(day + made.between(0, 14) * _HOUR, made.name("user"), device, ip)
        day += _DAY


def rotating_devices(made: Adversaries) -> None:
    """A device that changes its id after a few accounts."""
    ip, shared = made.address(), made.number(2, 6)
    device = made.name("device")
    for at, second in made.times(made.number(12, 45), 1 * _MINUTE, 15 * _MINUTE):
        if at % shared == 0:
            device = made.name("device")
        made.login(second, made.name("user"), device, ip)


def fresh_device_each_time(made: Adversaries) -> None:
    """Accounts in turn, each login with an id that nobody has seen."""
    ip = made.address()
    users = [made.name("user") for _ in range(made.number(8, 40))]
    for at, second in made.times(len(users) * made.number(2, 6), 30, 4 * _MINUTE):
        made.login(second, users[at % len(users)], made.name("device"), ip)


def failing(made: Adversaries) -> None:
    """Passwords that are tried out."""
    device, ip = made.name("device"), made.address()
    users = [made.name("user") for _ in range(made.number(1, 60))]
    for _, second in made.times(made.number(50, 300), 5, made.between(20, 600)):
        made.login(second, made.draw.choice(users), device, ip, success=made.draw.random() < 0.05)


def a_device_of_its_own_each(made: Adversaries) -> None:
    """Each account once, with a device id of its own, behind one address."""
    ip = made.address()
    for _, second in made.times(made.number(20, 50), 2 * _MINUTE, 20 * _MINUTE):
        made.login(second, made.name("user"), made.name("device"), ip)


def household(made: Adversaries) -> None:
    """A family that shares a tablet."""
    tablet, ip = made.name("tablet"), made.address()
    users = [made.name("user") for _ in range(made.number(2, 8))]
    for _ in range(made.number(4, 20)):
        for _, second in made.times(made.number(2, 14), 2.5 * _MINUTE, 40 * _MINUTE):
            made.login(second, made.draw.choice(users), tablet, ip)


def two_children(made: Adversaries) -> None:
    """Two accounts that take turns all day."""
    tablet, ip = made.name("tablet"), made.address()
    users = [made.name("user") for _ in range(2)]
    for at, second in made.times(made.number(20, 150), 10, 3 * _MINUTE):
        made.login(second, users[at % 2], tablet, ip)


def office(made: Adversaries) -> None:
    """Many people behind one address, each with a telephone."""
    ip = made.address()
    phones = [(made.name("user"), made.name("phone")) for _ in range(made.number(10, 60))]
    for _, second in made.times(made.number(60, 200), 5, 10 * _MINUTE):
        made.login(second, *made.draw.choice(phones), ip)


def classroom(made: Adversaries) -> None:
    """A tablet for a class; most pupils have telephones."""
    tablet, ip = made.name("tablet"), made.address()
    pupils = [made.name("user") for _ in range(made.number(12, 32))]
    begun = made.moment()
    made.at_home([each for each in pupils if made.draw.random() < 0.85], begun)
    for day in range(made.number(1, 4)):
        for at, pupil in enumerate(pupils):
            made.login(begun + day * _DAY + at * made.between(40, 120), pupil, tablet, ip)


def shop(made: Adversaries) -> None:
    """A telephone on display; most customers have their own."""
    demo, ip = made.name("phone"), made.address()
    begun = made.moment()
    for day in range(made.number(1, 3)):
        customers = [made.name("user") for _ in range(made.number(5, 25))]
        made.at_home([each for each in customers if made.draw.random() < 0.8], begun)
        for customer in customers:
            made.login(begun + day * _DAY + made.between(0, 9) * _HOUR, customer, demo, ip)


def forgetful(made: Adversaries) -> None:
    """A forgotten password."""
    phone, ip, user = made.name("phone"), made.address(), made.name("user")
    for _, second in made.times(made.number(5, 30), 5, 3 * _MINUTE):
        made.login(second, user, phone, ip, success=False)


# -- invitations


def newcomers_on_a_device(made: Adversaries) -> None:
    """Newcomers on one device, quickly or over days."""
    inviter, own, device = made.name("user"), made.name("phone"), made.name("device")
    pace = made.between(0.5, 600) * _MINUTE
    for _, second in made.times(made.number(7, 45), pace * 0.5, pace * 1.5):
        made.invite(second, inviter, own, made.name("user"), device=device)


def farm_of_inviters(made: Adversaries) -> None:
    """The same by several inviters."""
    device = made.name("device")
    inviters = [(made.name("user"), made.name("phone")) for _ in range(made.number(3, 12))]
    pace = made.between(1, 600) * _MINUTE
    for at, second in made.times(made.number(7, 40), pace * 0.5, pace * 1.5):
        made.invite(second, *inviters[at % len(inviters)], made.name("user"), device=device)


def number_block(made: Adversaries) -> None:
    """Numbers that were bought together, with gaps."""
    inviter, own = made.name("user"), made.name("phone")
    first, gap = 13_000_000_000 + made.number(0, 10**9 - 1), made.number(1, 1200)
    for at, second in made.times(made.number(8, 30), 1 * _MINUTE, 60 * _MINUTE):
        made.invite(second, inviter, own, made.name("user"), phone=f"+86{first + at * gap}")


def burst(made: Adversaries) -> None:
    """A script that invites."""
    inviter, own = made.name("user"), made.name("phone")
    for _, second in made.times(made.number(16, 60), 0.3, made.between(1, 30)):
        made.invite(second, inviter, own, made.name("user"))


def himself(made: Adversaries) -> None:
    """Invitations of oneself."""
    inviter, own = made.name("user"), made.name("phone")
    for _, second in made.times(made.number(3, 200), 10, 90 * _MINUTE):
        made.invite(second, inviter, own, inviter, device=own)


def ring(made: Adversaries) -> None:
    """A circle, closed within minutes or weeks."""
    users = [made.name("user") for _ in range(made.number(3, 7))]
    second, pace = made.number(1, 4) * _DAY, made.between(0.01, 4) * _DAY
    for at, user in enumerate(users):
        made.invite(second, user, made.name("phone"), users[(at + 1) % len(users)])
        second += made.between(0.3, 1) * pace


def chain(made: Adversaries) -> None:
    """Each newcomer invites the next, on one device or two."""
    devices = [made.name("device") for _ in range(made.number(1, 2))]
    inviter, at_device = made.name("user"), devices[0]
    for _, second in made.times(made.number(3, 10), 5 * _MINUTE, made.between(1, 40) * _HOUR):
        invitee = made.name("user")
        device = devices[-1] if at_device == devices[0] else devices[0]
        made.invite(second, inviter, at_device, invitee, device=device)
        inviter, at_device = invitee, device


def tree(made: Adversaries) -> None:
    """Newcomers who invite newcomers, all in one network."""
    base = made.address().rpartition(".")[0]
    grown = [(made.name("user"), made.name("phone"))]
    for _, second in made.times(made.number(12, 40), 10 * _MINUTE, 12 * _HOUR):
        invitee, device = made.name("user"), made.name("phone")
        inviter, own = made.draw.choice(grown[-6:])
        made.invite(second, inviter, own, invitee, device=device, ip=f"{base}.{made.number(1, 250)}")
        grown.append((invitee, device))


def mules(made: Adversaries) -> None:
    """People who are paid to invite strangers, three each."""
    for _ in range(made.number(5, 12)):
        inviter, own = made.name("user"), made.name("phone")
        for _, second in made.times(3, 2 * _HOUR, 20 * _HOUR):
            made.invite(second, inviter, own, made.name("user"))


def colleagues(made: Adversaries) -> None:
    """People of an office, whom one of them invites."""
    inviter, own, ip = made.name("user"), made.name("phone"), made.address()
    for _, second in made.times(made.number(6, 25), 30, 8 * _MINUTE):
        made.invite(second, inviter, own, made.name("user"), ip=ip)


def booth(made: Adversaries) -> None:
    """Visitors of a fair, most of them on its network."""
    inviter, own, ip = made.name("user"), made.name("phone"), made.address()
    for _, second in made.times(made.number(15, 80), 40, 10 * _MINUTE):
        made.invite(second, inviter, own, made.name("user"), ip=ip if made.draw.random() < 0.7 else "")


def popular(made: Adversaries) -> None:
    """Somebody with many friends."""
    inviter, own = made.name("user"), made.name("phone")
    for _, second in made.times(made.number(8, 40), 2 * _MINUTE, 20 * _HOUR):
        made.invite(second, inviter, own, made.name("user"))


def family_tablet(made: Adversaries) -> None:
    """A parent who invites children on a tablet."""
    parent, tablet = made.name("user"), made.name("tablet")
    for _, second in made.times(made.number(2, 4), 2 * _MINUTE, 9 * _HOUR):
        made.invite(second, parent, tablet, made.name("user"), device=tablet)


def friends_in_a_row(made: Adversaries) -> None:
    """Each friend invites the next, with telephones of their own."""
    inviter, own = made.name("user"), made.name("phone")
    for _, second in made.times(made.number(4, 15), 1 * _HOUR, 30 * _HOUR):
        invitee, device = made.name("user"), made.name("phone")
        made.invite(second, inviter, own, invitee, device=device)
        inviter, own = invitee, device


def two_friends(made: Adversaries) -> None:
    """Two who entered each other's codes."""
    one, other = made.name("user"), made.name("user")
    made.invite(second := made.moment(), one, made.name("phone"), other)
    made.invite(second + made.between(60, _DAY), other, made.name("phone"), one)


Pattern = Callable[[Adversaries], None]
PATTERNS: dict[str, tuple[Pattern, bool]] = {
    **{
        name: (pattern, True)
        for name, pattern in {
            "quick switching": quick_switching,
            "patient switching": patient_switching,
            "many accounts slowly": many_accounts_slowly,
            "accounts by the day": accounts_by_the_day,
            "rotating devices": rotating_devices,
            "a fresh device each time": fresh_device_each_time,
            "failed logins": failing,
            "a device of its own each": a_device_of_its_own_each,
            "newcomers on a device": newcomers_on_a_device,
            "farm of inviters": farm_of_inviters,
            "number block": number_block,
            "burst": burst,
            "oneself": himself,
            "ring": ring,
            "chain": chain,
            "tree": tree,
            "mules": mules,
        }.items()
    },
    **{
        name: (pattern, False)
        for name, pattern in {
            "household": household,
            "two children": two_children,
            "office": office,
            "classroom": classroom,
            "shop": shop,
            "forgotten password": forgetful,
            "colleagues": colleagues,
            "booth": booth,
            "popular": popular,
            "family tablet": family_tablet,
            "friends in a row": friends_in_a_row,
            "two friends": two_friends,
        }.items()
    },
}
"""Patterns, and whether they are fraud."""

BEYOND_REACH = ("a device of its own each", "mules")
"""Cheats that leave nothing in these logs by which they could be told from honest people."""
