"""Figures of quotas: what clients that have one use, what they may, and how often they had to pause."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.broker.quotas.rate_quota import rate_of_share
from tidelog.clock import Clock
from tidelog.metrics import catalog
from tidelog.metrics.page import Page, Sample, labels

T = TypeVar("T")

_MOST_SHARES = 5000


def quota_figures(page: Page, quotas: ClientQuotas, clock: Clock) -> Iterator[str]:
    """The families of quotas; of some thousand clients at most, those that were there last."""
    now_ms = clock.monotonic_ms()
    bytes_used: list[Sample] = []
    time_used: list[Sample] = []
    limits: list[Sample] = []
    throttled: list[Sample] = []
    request = None if quotas.request is None else quotas.request.quota
    for resource, quota, used in (
        ("Produce", quotas.produce, bytes_used),
        ("Fetch", quotas.fetch, bytes_used),
        ("Request", request, time_used),
    ):
        if quota is None:
            continue
        shares = yield from _in_steps(quota.levels.in_use(now_ms))
        for share in shares[:_MOST_SHARES]:
            where = labels(resource=resource, user=share.user, clientId=share.client_id)
            used.append((where, rate_of_share(share, now_ms)))
            limits.append((where, float(share.limit)))
            throttled.append((where, share.throttled))
            if not len(limits) % 100:
                yield ""
    yield from page.family(catalog.QUOTA_BYTE_RATE, bytes_used)
    yield from page.family(catalog.QUOTA_REQUEST_TIME, time_used)
    yield from page.family(catalog.QUOTA_LIMIT, limits)
    yield from page.family(catalog.QUOTA_THROTTLED, throttled)


def _in_steps(work: Generator[None, None, T]) -> Generator[str, None, T]:
    """What comes of the work, with an empty piece of the page for each of its steps."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
        yield ""
