"""Changes that a broker puts off because of a quota for controller mutations (KIP-599): tried again.

A broker answers such a change with THROTTLING_QUOTA_EXCEEDED and the time to wait. The connection is left
alone for that time (KIP-219); then only what was refused is asked for again, until the call's deadline.
Called by ``client.admin._topics``.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.retry import Deadline
from tidelog.client.errors import RequestTimeoutError
from tidelog.client.resources import TopicResult
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import Uuid

T = TypeVar("T")


class ThrottlingQuotaExceededError(KafkaError):
    """A change that a quota has put off; it was not made."""

    def __init__(self, message: str, throttle_time_ms: int) -> None:
        super().__init__(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message)
        self.throttle_time_ms = throttle_time_ms
        """How long the broker asked to wait, or what was left of it when the call gave up."""


class Answer(NamedTuple):
    """What a broker says of several changes, in its own order."""

    throttle_time_ms: int
    results: Sequence[TopicResult]


async def until_admitted(
    cluster: Cluster,
    wanted: Mapping[str | Uuid, T],
    ask: Callable[[Sequence[T]], Awaitable[Answer]],
    deadline: Deadline,
    *,
    retry: bool,
) -> list[TopicResult]:
    """The results of all that is ``wanted``, by name or id; what is put off is asked again if ``retry``."""
    results: list[TopicResult] = []
    pending = list(wanted.values())
    backoff = cluster.backoff()
    throttle_ms = 0
    while True:
        try:
            answer = await ask(pending)
        except RequestTimeoutError:
            if not results:
                raise
            break
        throttle_ms = answer.throttle_time_ms
        newer = {each.name or each.topic_id: each for each in answer.results}
        results = [newer.get(each.name or each.topic_id, each) for each in results] or _in_order(
            wanted, answer.results
        )
        put_off = {key for each in results if _is_put_off(each) for key in (each.name, each.topic_id) if key}
        pending = [item for key, item in wanted.items() if key in put_off]
        pause_ms = max(throttle_ms, backoff.next_ms())
        if not pending or not retry or backoff.is_exhausted or pause_ms >= deadline.remaining_ms:
            break
        await asyncio.sleep(pause_ms / 1000)
    return [_explained(each, throttle_ms, retry=retry) if _is_put_off(each) else each for each in results]


def _in_order(wanted: Mapping[str | Uuid, object], results: Sequence[TopicResult]) -> list[TopicResult]:
    """As they were asked for; a broker answers in its own order."""
    places = {key: place for place, key in enumerate(wanted)}
    last = len(places)
    return sorted(
        results,
        key=lambda each: min(places.get(each.name, last), places.get(each.topic_id or each.name, last)),
    )


def _is_put_off(result: TopicResult) -> bool:
    return isinstance(result.error, KafkaError) and result.error.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED


def _explained(result: TopicResult, throttle_ms: int, *, retry: bool) -> TopicResult:
    remedy = "give the call more time (default.api.timeout.ms)" if retry else "try again then"
    told = result.error.message if isinstance(result.error, KafkaError) else ""
    error = ThrottlingQuotaExceededError(
        f"{told.rstrip('.') or f'topic {result.name!r} was put off'}: the quota controller_mutation_rate of "
        f"this user or client is used up for {throttle_ms} ms; {remedy}, or raise the quota",
        throttle_ms,
    )
    return dataclasses.replace(result, error=error)
