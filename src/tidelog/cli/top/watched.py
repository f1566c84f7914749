"""Which requests take long and whom quotas hold back, of what brokers tell beside Kafka's protocol. Pure.

Brokers of Tidelog with a metrics listener have the pages ``/requests`` and ``/throttled``
(``cli/broker_pages``); of others nothing of this is known. Time that a client asked to wait, for records or
for other members, does not make a request slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

_WAITS = {"FetchConsumer", "FetchFollower", "JoinGroup", "SyncGroup"}
_REMOTE, _TOTAL, _THROTTLE = "remote", "total", "throttle"
_METRICS = "start brokers with --metrics HOST:PORT"

T = TypeVar("T")


class Part(msgspec.Struct, frozen=True):
    """How long a part of the time of requests was, lately."""

    p50_ms: float
    p99_ms: float
    mean_ms: float


class RequestReport(msgspec.Struct, frozen=True):
    """One API of one broker, as it tells of it."""

    request: str
    count: int
    lately: int
    parts: dict[str, Part]


class ThrottleReport(msgspec.Struct, frozen=True):
    """A quota that somebody had to pause for, as a broker tells of it."""

    quota: str
    limit: float | None
    """None if it has been lifted since."""
    pauses: int
    user: str | None = None
    client_id: str | None = None
    used: float | None = None


@dataclass(frozen=True)
class Watched:
    """What brokers told at one moment, by their ids."""

    requests: Mapping[int, list[RequestReport]] = field(default_factory=dict)
    throttled: Mapping[int, list[ThrottleReport]] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    """Why some brokers did not."""
    silent: tuple[int, ...] = ()
    """Those that have no metrics listener."""

    @classmethod
    def of(
        cls,
        requests: Mapping[int, Mapping[str, Any]],
        throttled: Mapping[int, Mapping[str, Any]],
        reasons: tuple[str, ...],
        silent: tuple[int, ...],
    ) -> Watched:
        """Of the pages that were read; those of another release may not be readable."""
        unreadable: list[str] = []
        return cls(
            _told(requests, "requests", list[RequestReport], unreadable),
            _told(throttled, "throttled", list[ThrottleReport], unreadable),
            (*reasons, *unreadable),
            silent,
        )

    @property
    def missing(self) -> str:
        """Why there is less than all, in a few words; empty if there is all."""
        told = list(self.reasons)
        if self.silent and not self.requests:
            told.append(f"no broker reports them ({_METRICS})")
        elif self.silent:
            told.append(f"broker {', '.join(map(str, self.silent))} does not report them ({_METRICS})")
        return "; ".join(told)


def _told(
    pages: Mapping[int, Mapping[str, Any]], name: str, rows: type[list[T]], unreadable: list[str]
) -> dict[int, list[T]]:
    found: dict[int, list[T]] = {}
    for broker, page in pages.items():
        try:
            found[broker] = msgspec.convert(page.get(name), rows)
        except msgspec.ValidationError as error:
            unreadable.append(f"cannot read /{name} of broker {broker}: {error}")
    return found


@dataclass(frozen=True)
class RequestLoad:
    """One API of one broker; times are without those that clients asked to wait."""

    request: str
    broker: int
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    slowest_part: str
    """Where most of the time goes: queue, local, remote, response_queue, send."""
    slowest_share: float


@dataclass(frozen=True)
class ThrottledLoad:
    """A quota that holds somebody back on one broker; None for a user or client id that does not matter."""

    user: str | None
    client_id: str | None
    broker: int
    quota: str
    used: float | None
    limit: float | None
    pauses_per_second: float


def request_loads(before: Watched, now: Watched, seconds: float) -> list[RequestLoad]:
    """The APIs that were asked for of late, the slowest first."""
    earlier = {
        (broker, each.request): each.count for broker, told in before.requests.items() for each in told
    }
    loads = [
        _request(broker, each, max(each.count - earlier.get((broker, each.request), each.count), 0) / seconds)
        for broker, told in now.requests.items()
        for each in told
        if each.lately
    ]
    return sorted(loads, key=lambda each: (-each.p99_ms, -each.p50_ms, each.request, each.broker))


def _request(broker: int, told: RequestReport, per_second: float) -> RequestLoad:
    left_out = {_TOTAL, _THROTTLE, *((_REMOTE,) if told.request in _WAITS else ())}
    parts = {name: part for name, part in told.parts.items() if name not in left_out}
    slowest = max(parts, key=lambda name: parts[name].mean_ms)
    mean_ms = sum(part.mean_ms for part in parts.values())
    total = told.parts[_TOTAL]
    waits = told.request in _WAITS
    return RequestLoad(
        told.request,
        broker,
        per_second,
        # Of sums there are no quantiles: this is as much as it can have been.
        min(sum(part.p50_ms for part in parts.values()), total.p50_ms) if waits else total.p50_ms,
        min(sum(part.p99_ms for part in parts.values()), total.p99_ms) if waits else total.p99_ms,
        slowest,
        parts[slowest].mean_ms / mean_ms if mean_ms else 0.0,
    )


def throttled_loads(before: Watched, now: Watched, seconds: float) -> list[ThrottledLoad]:
    """Who had to pause between the two moments, or uses too much now, most often first."""
    earlier = {
        (broker, each.quota, each.user, each.client_id): each.pauses
        for broker, told in before.throttled.items()
        for each in told
    }
    loads = [
        ThrottledLoad(
            each.user,
            each.client_id,
            broker,
            each.quota,
            each.used,
            each.limit,
            # Who is not in the earlier list had not paused by then.
            max(each.pauses - earlier.get((broker, each.quota, each.user, each.client_id), 0), 0) / seconds
            if broker in before.throttled
            else 0.0,
        )
        for broker, told in now.throttled.items()
        for each in told
    ]
    held = [each for each in loads if each.pauses_per_second or _uses_too_much(each)]
    return sorted(held, key=lambda each: (-each.pauses_per_second, each.user or "", each.client_id or ""))


def _uses_too_much(load: ThrottledLoad) -> bool:
    return load.limit is not None and (load.used or 0.0) > load.limit
