"""Who is connected, what takes long, whom quotas hold back: JSON for ``tidelog clients`` and ``tidelog top``.

Numbers are counts since a connection, or the broker, began: whoever wants rates asks twice. Each page begins
with the broker's id and its cluster, so that nobody takes it for another's, and is written in pieces, one for
each row. There are never more rows than some thousand; ``left_out`` says how many there would have been.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tidelog.broker.quotas.rate_quota import rate_of_share
from tidelog.metrics import request_times
from tidelog.metrics.histogram import quantiles
from tidelog.metrics.request_times import COUNT_AT, SUM_AT
from tidelog.metrics.sampled_rate import SampledRate
from tidelog.version import __version__

if TYPE_CHECKING:
    from tidelog.broker.metrics.observed import ObservedBroker
    from tidelog.broker.metrics.request_figures import RequestFigures
    from tidelog.broker.network.connection import Connection
    from tidelog.broker.quotas.client_levels import Share

T = TypeVar("T")

_MOST_CONNECTIONS = 10_000
_MOST_THROTTLED = 1000
_LONGEST_NAME = 256
_SHOWN = {"0.50": "p50_ms", "0.99": "p99_ms"}


def client_page(broker: ObservedBroker) -> Iterator[str]:
    """Every connection, and what it has asked for."""
    now_s = broker.network.loop.time()
    found = (None if each.closed else each for each in broker.network.all_connections())
    yield from json_page(
        broker, "connections", found, lambda each: _connection(each, now_s), _MOST_CONNECTIONS
    )


def _connection(connection: Connection, now_s: float) -> dict[str, object]:
    times = connection.times
    software, version = connection.client_software or (None, None)
    session = connection.session
    told: dict[str, object] = {
        "client_id": None if times is None else times.client_id,
        "software": software and software[:_LONGEST_NAME],
        "software_version": version and version[:_LONGEST_NAME],
        "host": connection.peer[0],
        "port": connection.peer[1],
        "listener": connection.listener,
        "security_protocol": session.security_protocol,
        "principal": str(session.principal)[:_LONGEST_NAME],
        "follower": connection.is_follower,
        "producer_ids": list(connection.producer_ids),
        "idle_ms": round(max(now_s - connection.last_active, 0.0) * 1000),
        "requests": 0,
        "received_bytes": 0,
        "sent_bytes": connection.sent_bytes,
        "pauses": 0,
        "pause_left_ms": round(connection.pause_left_s * 1000),
    }
    if times is not None:
        told |= {
            "age_ms": round(max(time.monotonic() - times.since_s, 0.0) * 1000),
            "requests": times.requests,
            "received_bytes": times.received_bytes,
            "pauses": times.pauses,
        }
    return told


def request_page(broker: ObservedBroker, figures: RequestFigures) -> Iterator[str]:
    """Each API: how many requests, and how long the ones of the last minutes took, in parts."""
    yield from json_page(broker, "requests", figures.lately(), lambda each: _request(*each))


def _request(name: str, count: int, lately: list[list[int]]) -> dict[str, object]:
    recent = lately[request_times.BYTES][COUNT_AT]
    told: dict[str, object] = {"request": name, "count": count, "lately": recent}
    parts: dict[str, dict[str, float]] = {}
    for at, part in enumerate(request_times.PARTS[: request_times.BYTES]):
        found = quantiles(lately[at], count=recent)
        parts[part] = {_SHOWN[label]: round(us / 1000, 3) for label, us in found if label in _SHOWN}
        parts[part]["mean_ms"] = round(lately[at][SUM_AT] / recent / 1000, 3) if recent else 0.0
    return told | {"parts": parts}


def throttle_page(broker: ObservedBroker) -> Iterator[str]:
    """The shares of quotas that somebody had to pause for."""
    now_ms = broker.clock.monotonic_ms()
    yield from json_page(
        broker, "throttled", _shares(broker), lambda each: _share(*each, now_ms), _MOST_THROTTLED
    )


def _shares(broker: ObservedBroker) -> Iterator[tuple[str, Share[Any]] | None]:
    quotas = broker.quotas
    kinds = (
        ("producer_byte_rate", quotas.produce),
        ("consumer_byte_rate", quotas.fetch),
        ("request_percentage", None if quotas.request is None else quotas.request.quota),
        ("controller_mutation_rate", quotas.mutations),
    )
    for kind, quota in kinds:
        if quota is None:
            continue
        shares: list[Share[Any]] = yield from quota.levels.in_use(broker.clock.monotonic_ms())
        for number, share in enumerate(shares, 1):
            if share.throttled:
                yield kind, share
            elif not number % 100:
                yield None


def _share(kind: str, share: Share[Any], now_ms: float) -> dict[str, object]:
    return {
        "quota": kind,
        "user": share.user[:_LONGEST_NAME] or None,
        "client_id": share.client_id[:_LONGEST_NAME] or None,
        # Tokens have no rate.
        "used": rate_of_share(share, now_ms) if isinstance(share.meter, SampledRate) else None,
        "limit": share.limit,
        "pauses": share.throttled,
    }


def json_page(
    broker: ObservedBroker,
    name: str,
    found: Iterable[T | None],
    row_of: Callable[[T], dict[str, object]],
    most: int | None = None,
) -> Iterator[str]:
    """A page that says whose it is; None among what was ``found`` is for others to have their turn."""
    about = {"broker": broker.broker_id, "cluster": broker.image.cluster_id, "version": __version__}
    yield f"{msgspec.json.encode(about)[:-1].decode()},{msgspec.json.encode(name).decode()}:["
    shown = left_out = 0
    for each in found:
        if each is None:
            yield ""
        elif most is not None and shown >= most:
            left_out += 1
        else:
            shown += 1
            comma = ",\n" if shown > 1 else ""
            yield f"{comma}{msgspec.json.encode(row_of(each)).decode()}"
    yield f'],"left_out":{left_out}}}\n'
