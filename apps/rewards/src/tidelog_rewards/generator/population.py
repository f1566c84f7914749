"""Who uses the app: households with their users and devices, offices, and the networks they are behind.

People are made when they are first needed, in an order that only the seed decides. Some families share one
device, and switch accounts on it now and then; offices and mobile carriers put many people behind one
address. Both look a little like fraud and are none.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

from tidelog_rewards.generator.regions import REGIONS, Region, activity, invalid_phone

if TYPE_CHECKING:
    from tidelog_rewards.generator.truth import Truth

_VERSIONS = ("4.8.2", "4.9.0", "4.9.1", "5.0.0", "5.0.3")
_INVALID_PHONE_SHARE = 0.004
_NATIONAL_FORMAT_SHARE = 0.15
_RECENT_USERS = 2_000


class Device:
    """A telephone or tablet; ``holder`` is the user who is logged in on it, if several people share it."""

    __slots__ = ("device_id", "holder", "may_switch_ms", "shared")

    def __init__(self, device_id: str, shared: bool = False) -> None:
        self.device_id = device_id
        self.shared = shared
        self.holder: User | None = None
        self.may_switch_ms = 0


class User:
    """One account, the person's usual device and addresses, and the task in progress (number, next step).

    ``phone`` is None until somebody has asked for it: see ``Population.phone_of``.
    """

    __slots__ = ("device", "home_ip", "key", "office_ip", "phone", "region", "task", "user_id", "version")

    def __init__(
        self, user_id: str, phone: str | None, device: Device, home_ip: str, region: Region, version: str
    ) -> None:
        self.user_id = user_id
        self.key = user_id.encode()
        self.phone = phone
        self.device = device
        self.home_ip = home_ip
        self.office_ip: str | None = None
        self.region = region
        self.version = version
        self.task: tuple[int, int] | None = None


class Population:
    """Makes and finds users; about ``size`` of them are there from the start, invited ones join."""

    def __init__(self, size: int, random: Random, run: str, truth: Truth) -> None:
        self._random = random
        self._run = run
        self._truth = truth
        self._users_made = 0
        self._devices_made = 0
        self._households: list[dict[int, list[User]]] = [{} for _ in REGIONS]
        self._household_counts = [max(1, round(size * region.share / 1.5)) for region in REGIONS]
        self._recent: deque[User] = deque(maxlen=_RECENT_USERS)
        self._offices = [
            [f"{region.network(random)}.1" for _ in range(max(1, round(size * region.share / 120)))]
            for region in REGIONS
        ]
        self._carriers = [[f"{region.network(random)}.7" for _ in range(4)] for region in REGIONS]
        self._weights: list[float] = []
        self.follow_clock(0)

    def follow_clock(self, time_ms: int) -> float:
        """Have people be active by their local time; returns how active, 1.0 being the day's mean."""
        self._weights = list(accumulate(region.share * activity(region, time_ms) for region in REGIONS))
        return self._weights[-1]

    def somebody(self) -> User:
        """A user who picks up the telephone now."""
        draw = self._random.random
        if self._recent and draw() < 0.05:
            return self._recent[int(draw() * len(self._recent))]
        which = bisect(self._weights, draw() * self._weights[-1], hi=len(REGIONS) - 1)
        members = self._household(which, int(draw() * self._household_counts[which]))
        return members[int(draw() * len(members))] if len(members) > 1 else members[0]

    def _household(self, which: int, number: int) -> list[User]:
        members = self._households[which].get(number)
        if members is None:
            members = self._households[which][number] = self._new_household(which)
        return members

    def _new_household(self, which: int) -> list[User]:
        draw = self._random.random
        region = REGIONS[which]
        size = 1 if draw() < 0.72 else 2 + int(draw() * 3)
        shared = self.new_device(shared=True) if size > 1 and draw() < 0.35 else None
        home_ip = region.address(self._random)
        members = [self.new_user(region, shared or self.new_device(), home_ip) for _ in range(size)]
        for user in members:
            if draw() < 0.12:
                offices = self._offices[which]
                user.office_ip = offices[int(draw() * len(offices))]
        return members

    def new_device(self, shared: bool = False) -> Device:
        """A device that nobody has used yet."""
        self._devices_made += 1
        return Device(f"d{self._run}{self._devices_made:07x}", shared)

    def new_user(self, region: Region, device: Device, home_ip: str, phone: str | None = None) -> User:
        """A new account."""
        self._users_made += 1
        user_id = f"u{self._run}{self._users_made:07d}"
        version = _VERSIONS[int(self._random.random() * len(_VERSIONS))]
        return User(user_id, phone, device, home_ip, region, version)

    def phone_of(self, user: User) -> str:
        """The user's number: a valid one but for a few people's, which the truth names."""
        if user.phone is None:
            random = self._random
            if random.random() < _INVALID_PHONE_SHARE:
                user.phone, reason = invalid_phone(random)
                self._truth.invalid_phone(user.user_id, user.phone, reason)
            else:
                user.phone = user.region.phone(random)
                if user.region.code == "CN" and random.random() < _NATIONAL_FORMAT_SHARE:
                    user.phone = user.phone[3:]
        return user.phone

    def newcomer(self, region: Region) -> User:
        """A new user with a device and a home of their own, who will come again."""
        user = self.new_user(region, self.new_device(), region.address(self._random))
        self._recent.append(user)
        return user

    def address_of(self, user: User, time_ms: int) -> str:
        """Where ``user`` is now: at home, in the office by day, or in a mobile network."""
        where = self._random.random()
        if where < 0.25:
            carriers = self._carriers[REGIONS.index(user.region)]
            return carriers[int(where * 4 * len(carriers))]
        if user.office_ip is not None:
            hour = (time_ms // 3_600_000 + user.region.utc_offset_minutes // 60) % 24
            if 9 <= hour < 18:
                return user.office_ip
        return user.home_ip
