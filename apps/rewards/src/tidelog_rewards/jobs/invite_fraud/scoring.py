"""The invitations of one subject → what they come to, hour by hour; plain Python without Spark.

A subject is an inviter, the device on which newcomers came in, or the block of their numbers. A device or
block with a single inviter is that inviter's matter, and is told there only. Addresses and bursts count per
inviter alone: a mobile carrier puts a whole town behind one address.

Pure functions of the set of invitations: these count in the order of event time, ties by event id; a delivery
that comes twice counts once, and so does a person who is invited twice. A point is the verdict at the last
invitation of an hour, on the hour, the day and the thirty days that end there; of those days, what lies
longer ago counts less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    MONTH_US,
    US_PER_S,
    Judged,
    Point,
    Reason,
    hour_of,
    point_of,
)
from tidelog_rewards.jobs.invite_fraud.invitations import BLOCK_DIGITS
from tidelog_rewards.jobs.invite_fraud.schema import SHOWN, Rules

_NARROW, _WIDE = 1_000, 10_000


class Invitation(NamedTuple):
    """An invitation as it was delivered; the fields are those of the state."""

    time_us: int
    event_id: str
    partition: int
    offset: int
    inviter: str
    invitee: str
    inviter_device: str
    device: str
    """The one on which the newcomer came in."""
    network: str
    block: str | None
    """None: the number is too short to have one."""
    number: int | None

    @property
    def shown(self) -> dict[str, Any]:
        """As an alert shows it."""
        return {
            "event_id": cut_short(self.event_id),
            "event_time": time_text(self.time_us),
            "inviter": cut_short(self.inviter),
            "invitee": cut_short(self.invitee),
            "partition": self.partition,
            "offset": self.offset,
        }


Invites = Sequence[Invitation]


class Horizons(NamedTuple):
    """The invitations of the month that ends with the last one of an hour, and those of parts of it."""

    hour_us: int
    month: Invites
    day: Invites
    hour: Invites

    @property
    def time_us(self) -> int:
        return self.month[-1].time_us


def judge_inviter(inviter: str, delivered: Iterable[Invitation], since_us: int, rules: Rules) -> Judged:
    """What the invitations of one person come to."""
    return _judged("inviter", inviter, delivered, since_us, rules, _of_inviter)


def judge_device(device: str, delivered: Iterable[Invitation], since_us: int, rules: Rules) -> Judged:
    """What the newcomers on one device come to, whom several people have invited."""
    return _judged("device", device, delivered, since_us, rules, _of_device)


def judge_block(block: str, delivered: Iterable[Invitation], since_us: int, rules: Rules) -> Judged:
    """What the newcomers of one block of numbers come to, whom several people have invited."""
    return _judged("number-block", block, delivered, since_us, rules, _of_block)


def _judged(
    kind: str,
    subject: str,
    delivered: Iterable[Invitation],
    since_us: int,
    rules: Rules,
    reasons_of: Callable[[Horizons, Rules], Iterable[Reason]],
) -> Judged:
    points: list[Point] = []
    proof: Invites = ()
    for horizons in horizons_of(distinct_events(delivered), since_us):
        reasons = list(reasons_of(horizons, rules))
        point = point_of(horizons.time_us, reasons, rules.alert_score)
        if point is not None:
            points.append(point)
            proof = horizons.month
    return Judged(kind, subject, tuple(points), details_of(proof) if proof else {})


def horizons_of(invites: Invites, since_us: int) -> Iterator[Horizons]:
    """Each hour that has invitations, with what lies before its last one."""
    times_us = [each.time_us for each in invites]
    at = bisect_right(times_us, hour_of(since_us) - 1) if since_us > 0 else 0
    while at < len(times_us):
        hour_us = hour_of(times_us[at])
        at = bisect_right(times_us, hour_us + HOUR_US - 1)
        last_us = times_us[at - 1]
        starts = (bisect_right(times_us, last_us - length_us) for length_us in (MONTH_US, DAY_US, HOUR_US))
        yield Horizons(hour_us, *(invites[start:at] for start in starts))


def details_of(invites: Invites) -> dict[str, Any]:
    """What an alert says of its invitations."""
    return {
        "inviters": _shown(each.inviter for each in invites),
        "invitees": _shown(each.invitee for each in invites),
        "devices": _shown(each.device for each in invites),
        "networks": _shown(each.network for each in invites),
        "invitations": len({each.invitee for each in invites}),
        "invites": [each.shown for each in invites[-SHOWN:]],
    }


def _shown(names: Iterable[str]) -> list[str]:
    return [*map(cut_short, sorted(set(names))[:SHOWN])]


def _people(invites: Invites) -> list[Invitation]:
    """The first invitation of each person but oneself, in the order of time."""
    first: dict[str, Invitation] = {}
    for each in invites:
        if each.invitee != each.inviter:
            first.setdefault(each.invitee, each)
    return list(first.values())


def _of_inviter(found: Horizons, rules: Rules) -> Iterator[Reason]:
    yield from _on_device(found, rules)
    day = _people(found.day)
    yield from _numbers(day, rules, wide=True)
    yield from _address(day, found.hour_us, rules)
    burst = _quickest([each.time_us for each in day], found.hour_us, rules.burst_s)
    yield from _most("burst", [(burst, rules.burst, f"{rules.burst_s} s")])
    yield from _most("volume", [(len(day), rules.volume_day, "24 h")])
    himself = sum(each.invitee == each.inviter for each in found.day)
    yield from _most("self", [(himself, rules.self, "24 h")])
    yield from _regular(day, rules)


def _of_device(found: Horizons, rules: Rules) -> Iterator[Reason]:
    for reason in _on_device(found, rules):
        if len({each.inviter for each in found.month if each.device == reason.value}) > 1:
            yield reason


def _of_block(found: Horizons, rules: Rules) -> Iterator[Reason]:
    if len({each.inviter for each in found.day}) > 1:
        yield from _numbers(_people(found.day), rules, wide=False)


def _on_device(found: Horizons, rules: Rules) -> Iterator[Reason]:
    """The device with the most newcomers, over the horizon that gives the most points."""
    best: Reason | None = None
    for invites, steps, half_life_s in (
        (found.hour, rules.device_hour, 0),
        (found.day, rules.device_day, 0),
        (found.month, rules.device_month, rules.half_life_s),
    ):
        # Steps rise, and nobody counts for more than one: it is no more than this.
        most = points_of(len(invites), steps)
        if not most or (best is not None and most <= best.points):
            continue
        device, count = _busiest(_people(invites), found.time_us, half_life_s)
        points = points_of(count, steps)
        if points and (best is None or points > best.points):
            best = Reason("device", points, count, device)
    if best is not None:
        yield best


def _busiest(people: Invites, now_us: int, half_life_s: int) -> tuple[str, int]:
    """The device with the most newcomers, the smallest name of several, and how many they are."""
    ages_us: dict[str, list[int]] = defaultdict(list)
    for each in people:
        ages_us[each.device].append(now_us - each.time_us)
    counts = {device: faded_count(ages, half_life_s) for device, ages in ages_us.items()}
    return min(counts.items(), key=lambda item: (-item[1], item[0]), default=("", 0))


def _numbers(people: Invites, rules: Rules, *, wide: bool) -> Iterator[Reason]:
    numbers = sorted(each.number for each in people if each.number is not None)
    narrow, first = _densest(numbers, _NARROW)
    found = [(narrow, rules.number_block, _block_of(first))]
    if wide:
        count, first = _densest(numbers, _WIDE)
        found.append((count, rules.wide_block, _block_of(first)))
    yield from _most("number-block", found)


def _block_of(number: int) -> str:
    return str(number)[:-BLOCK_DIGITS]


def _densest(numbers: Sequence[int], span: int) -> tuple[int, int]:
    """The most numbers that lie within a span, and the first of them."""
    most, first, start = 0, 0, 0
    for at, number in enumerate(numbers):
        while number - numbers[start] >= span:
            start += 1
        if at - start + 1 > most:
            most, first = at - start + 1, numbers[start]
    return most, first


def _address(people: Invites, hour_us: int, rules: Rules) -> Iterator[Reason]:
    if not points_of(len(people), rules.address):
        return
    times_us: dict[str, list[int]] = defaultdict(list)
    for each in people:
        times_us[each.network].append(each.time_us)
    counts = {name: _quickest(times, hour_us, rules.address_s) for name, times in times_us.items()}
    network, count = min(counts.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    yield from _most("address", [(count, rules.address, network)])


def _quickest(times_us: Sequence[int], hour_us: int, length_s: int) -> int:
    """The most moments within a length of time that ends in the hour."""
    most = 0
    within: deque[int] = deque()
    for time_us in times_us:
        within.append(time_us)
        while within[0] < time_us - length_s * US_PER_S:
            within.popleft()
        if time_us >= hour_us:
            most = max(most, len(within))
    return most


def _regular(people: Invites, rules: Rules) -> Iterator[Reason]:
    last = people[-rules.regular_invitations :]
    if len(last) < rules.regular_invitations:
        return
    pause_s = regular_pause_s([each.time_us for each in last])
    if pause_s is not None:
        yield Reason("regular", rules.regular_points, len(last), f"every {round(pause_s)} s")


def _most(rule: str, found: Iterable[tuple[int, Steps, str]]) -> Iterator[Reason]:
    best: Reason | None = None
    for count, steps, value in found:
        points = points_of(count, steps)
        if points and (best is None or points > best.points):
            best = Reason(rule, points, count, value)
    if best is not None:
        yield best
