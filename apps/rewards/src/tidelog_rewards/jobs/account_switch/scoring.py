"""The logins of one device or address → what they come to, hour by hour; plain Python without Spark.

Pure functions of the set of logins: these count in the order of event time, ties by event id, and a login
that was delivered twice counts once. A point is the verdict at the last login of an hour, on the day that
ends there; what is counted over thirty days is counted by whole days, of which the state keeps less, and
counts the less the longer ago it was.

Accounts that have a home elsewhere (two days before or earlier, on another device in another network which is
not crowded) do not count: a pupil at the tablet of the class, a customer at the shop's telephone. What is as
old as that does not change any more, however late events come.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tidelog_rewards.detection.alert_evidence import (
    cut_short,
    distinct_events,
    regular_pause_s,
    time_text,
)
from tidelog_rewards.detection.detection_rules import Steps, faded_count, points_of
from tidelog_rewards.detection.incidents import (
    DAY_US,
    HOUR_US,
    MONTH_DAYS,
    US_PER_S,
    Judged,
    Point,
    Reason,
    day_of,
    hour_of,
    point_of,
)
from tidelog_rewards.detection.networks import network
from tidelog_rewards.jobs.account_switch.schema import SHOWN, Login, Rules

Days = Mapping[int, set[str]]
"""Accounts by the day on which they were seen."""
HasHome = Callable[[str, int, set[str]], bool]
"""Whether an account has a home outside some networks, as seen long enough before a day."""


class DeliveredLogin(NamedTuple):
    """A login and the place of its record; the fields are those of the state."""

    time_us: int
    event_id: str
    partition: int
    offset: int
    user_id: str
    ip: str
    device_id: str
    success: bool

    @property
    def shown(self) -> Login:
        """As an alert shows it."""
        return Login(
            user_id=cut_short(self.user_id),
            event_id=cut_short(self.event_id),
            event_time=time_text(self.time_us),
            device_id=cut_short(self.device_id),
            ip=cut_short(self.ip),
            partition=self.partition,
            offset=self.offset,
        )


def nowhere(user_id: str, day: int, networks: set[str]) -> bool:
    """Nobody has a home elsewhere."""
    return False


def judge_device(
    device_id: str,
    delivered: Iterable[DeliveredLogin],
    days: Days,
    since_us: int,
    rules: Rules,
    has_home: HasHome = nowhere,
) -> Judged:
    """What a device's logins come to, from the hour of ``since_us`` on."""
    logins = distinct_events(delivered)
    points: list[Point] = []
    proof: Sequence[DeliveredLogin] = ()
    for hour_us, day in _hours(logins, since_us):
        today = day_of(day[-1].time_us)
        here = {network(each.ip) for each in day}
        homeless = [each for each in day if each.success and not has_home(each.user_id, today, here)]
        month = {user: at for at in range(today - MONTH_DAYS + 1, today) for user in days.get(at, ())}
        month = {user: at for user, at in month.items() if not has_home(user, today, here)}
        month |= {each.user_id: today for each in homeless}
        in_month = faded_count(((today - at) * DAY_US for at in month.values()), rules.half_life_s)
        reasons = [
            *_switching(homeless, hour_us, rules),
            *_most("accounts", _accounts(homeless, in_month, rules)),
            *_most("failed-logins", _failed(day, rules)),
            *_regular(homeless, rules),
        ]
        point = point_of(day[-1].time_us, reasons, rules.alert_score)
        if point is not None:
            points.append(point)
            proof = day
    return Judged("device", device_id, tuple(points), _details([device_id], proof) if proof else {})


def judge_address(
    ip: str,
    delivered: Iterable[DeliveredLogin],
    days: Mapping[str, Days],
    since_us: int,
    rules: Rules,
    has_home: HasHome = nowhere,
) -> Judged:
    """What logins behind one address come to, of devices that may be one that changes its name."""
    logins = [each for each in distinct_events(delivered) if each.success]
    points: list[Point] = []
    proof: list[DeliveredLogin] = []
    times_us = [each.time_us for each in logins]
    for hour_us, _ in _hours(logins, since_us):
        end_us = hour_us + HOUR_US
        today = day_of(hour_us)
        day = logins[bisect_left(times_us, end_us - DAY_US) : bisect_left(times_us, end_us)]
        homeless = [each for each in day if not has_home(each.user_id, today, {network(ip)})]
        part = _rotating(homeless, days, today, rules)
        accounts = {each.user_id for each in part}
        devices = {each.device_id for each in part}
        gained = points_of(len(accounts), rules.rotation_accounts)
        if not gained or len(devices) < rules.rotation_devices or part[-1].time_us < hour_us:
            continue
        reason = Reason("rotation", gained, len(accounts), f"{len(devices)} devices in 24 h")
        point = point_of(part[-1].time_us, [reason], rules.alert_score)
        if point is not None:
            points.append(point)
            proof = part
    devices = {each.device_id for each in proof}
    return Judged("address", ip, tuple(points), _details(sorted(devices), proof) if proof else {})


def _rotating(
    logins: Sequence[DeliveredLogin], days: Mapping[str, Days], today: int, rules: Rules
) -> list[DeliveredLogin]:
    """The logins on short-lived devices, of accounts that share them or go through several.

    Others do not matter, not even for how long a device lives: nobody looks here because of them.
    """
    part = _shared(logins, rules.rotation_devices)
    spans: dict[str, tuple[int, int]] = {}
    for each in part:
        first_us, _ = spans.get(each.device_id, (each.time_us, 0))
        spans[each.device_id] = first_us, each.time_us
    life_us = rules.rotation_life_s * US_PER_S
    short = {
        device
        for device, (first_us, last_us) in spans.items()
        if last_us - first_us <= life_us
        and not any(today - MONTH_DAYS < day < today - 1 for day in days.get(device, ()))
    }
    return _shared([each for each in part if each.device_id in short], rules.rotation_devices)


def _shared(logins: Sequence[DeliveredLogin], least: int) -> list[DeliveredLogin]:
    users_on: dict[str, set[str]] = defaultdict(set)
    devices_of: dict[str, set[str]] = defaultdict(set)
    for each in logins:
        users_on[each.device_id].add(each.user_id)
        devices_of[each.user_id].add(each.device_id)
    return [
        each
        for each in logins
        if len(users_on[each.device_id]) >= least or len(devices_of[each.user_id]) >= least
    ]


def _hours(logins: Sequence[DeliveredLogin], since_us: int) -> Iterator[tuple[int, Sequence[DeliveredLogin]]]:
    """Each hour that has logins, with those of the day up to its last one."""
    times_us = [each.time_us for each in logins]
    at = bisect_right(times_us, hour_of(since_us) - 1) if since_us > 0 else 0
    while at < len(times_us):
        hour_us = hour_of(times_us[at])
        at = bisect_right(times_us, hour_us + HOUR_US - 1)
        yield hour_us, logins[bisect_right(times_us, times_us[at - 1] - DAY_US) : at]


def _most(rule: str, found: Iterable[tuple[int, Steps, str]]) -> Iterator[Reason]:
    """The horizon that gives the most points, the shortest of several."""
    best: Reason | None = None
    for count, steps, horizon in found:
        points = points_of(count, steps)
        if points and (best is None or points > best.points):
            best = Reason(rule, points, count, horizon)
    if best is not None:
        yield best


def _switching(homeless: Sequence[DeliveredLogin], hour_us: int, rules: Rules) -> Iterator[Reason]:
    in_burst = _burst(homeless, hour_us, rules)
    in_day = switches_of(homeless) if _several(homeless, rules) else 0
    yield from _most(
        "switching", [(in_burst, rules.burst, f"{rules.burst_s} s"), (in_day, rules.day_switches, "24 h")]
    )


def _several(logins: Sequence[DeliveredLogin], rules: Rules) -> bool:
    return len({each.user_id for each in logins}) >= rules.burst_accounts


def switches_of(logins: Sequence[DeliveredLogin]) -> int:
    """Logins of another account than the one before."""
    return sum(before.user_id != after.user_id for before, after in pairwise(logins))


def _burst(logins: Sequence[DeliveredLogin], hour_us: int, rules: Rules) -> int:
    """The most switches within the burst's time that end in the hour, where enough accounts take part."""
    length_us = rules.burst_s * US_PER_S
    first = switches = most = 0
    accounts: Counter[str] = Counter()
    for at, login in enumerate(logins):
        if at and logins[at - 1].user_id != login.user_id:
            switches += 1
        accounts[login.user_id] += 1
        while logins[first].time_us < login.time_us - length_us:
            out = logins[first].user_id
            accounts[out] -= 1
            if not accounts[out]:
                del accounts[out]
            switches -= out != logins[first + 1].user_id
            first += 1
        if login.time_us >= hour_us and len(accounts) >= rules.burst_accounts:
            most = max(most, switches)
    return most


def _accounts(
    homeless: Sequence[DeliveredLogin], month: int, rules: Rules
) -> Iterator[tuple[int, Steps, str]]:
    yield len({each.user_id for each in homeless}), rules.day_accounts, "24 h"
    yield month, rules.month_accounts, "30 d"


def _failed(day: Sequence[DeliveredLogin], rules: Rules) -> Iterator[tuple[int, Steps, str]]:
    failed_us = [each.time_us for each in day if not each.success]
    if failed_us:
        in_hour = [time_us for time_us in failed_us if time_us > day[-1].time_us - HOUR_US]
        yield len(in_hour), rules.failed_hour, "1 h"
        yield len(failed_us), rules.failed_day, "24 h"


def _regular(homeless: Sequence[DeliveredLogin], rules: Rules) -> Iterator[Reason]:
    """Logins that come like a clock, by several accounts."""
    last = homeless[-rules.regular_logins :]
    if len(last) < rules.regular_logins or not _several(last, rules):
        return
    pause_s = regular_pause_s([each.time_us for each in last])
    if pause_s is not None:
        yield Reason("regular", rules.regular_points, len(last), f"every {round(pause_s)} s")


def _details(devices: Sequence[str], day: Sequence[DeliveredLogin]) -> dict[str, Any]:
    good = [each for each in day if each.success]
    accounts = sorted({each.user_id for each in good})
    return {
        "device_id": cut_short(devices[0]),
        "devices": [*map(cut_short, devices[:SHOWN])],
        "addresses": [*map(cut_short, sorted({each.ip for each in day})[:SHOWN])],
        "switches": switches_of(good),
        "account_count": len(accounts),
        "accounts": [*map(cut_short, accounts[:SHOWN])],
        "failed": len(day) - len(good),
        "first_login": time_text(day[0].time_us),
        "last_login": time_text(day[-1].time_us),
        "logins": [_plain(each.shown) for each in day[-SHOWN:]],
    }


def _plain(login: Login) -> dict[str, Any]:
    return {name: getattr(login, name) for name in login.__struct_fields__}
