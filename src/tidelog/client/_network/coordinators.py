"""Requests about groups and transactional ids: each goes to its coordinator, found by FindCoordinator.

Called by the modules whose requests name groups or transactional ids. A key whose coordinator has moved,
still loads or does not answer is asked for again, alone, until the deadline; each key ends with its own
result or error. Where no coordinator has answered at all, what kept them from it is raised.
Brokers before Kafka 3.0 (FindCoordinator 3 and older) find one coordinator per request.
"""

from __future__ import annotations

import asyncio
import enum
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Protocol, TypeVar

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.retry import Deadline
from tidelog.client._network.unanswered import Unanswered
from tidelog.client.errors import NO_ANSWER, error_from
from tidelog.client.metadata import Node
from tidelog.errors import ErrorCode, KafkaError
from tidelog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_BATCHED_SINCE = 4
_PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


class CoordinatorType(enum.IntEnum):
    """What a coordinator looks after."""

    GROUP = 0
    TRANSACTION = 1


class KeyOutcome(Protocol):
    """What a request says about one group or transactional id."""

    @property
    def error(self) -> KafkaError | None: ...


ResultT = TypeVar("ResultT", bound=KeyOutcome)
Ask = Callable[[Node, list[str]], Awaitable[Mapping[str, ResultT]]]
Refuse = Callable[[str, KafkaError], ResultT]


def will_pass(code: ErrorCode) -> bool:
    """Whether a coordinator that answers so may answer otherwise in a moment, or another one will."""
    return code in _PASSING


async def ask_coordinators(
    cluster: Cluster,
    kind: CoordinatorType,
    keys: Collection[str],
    ask: Ask[ResultT],
    refuse: Refuse[ResultT],
    deadline: Deadline,
) -> dict[str, ResultT]:
    """The answers of the keys' coordinators; ``refuse`` makes the result of a key that has none.

    ``ask`` sends once, with :meth:`Cluster.request_node_once`: what it raises leads to a new look for the
    coordinator. When time is up, what the coordinators said last says more than "timed out".
    """
    results: dict[str, ResultT] = {}
    unanswered: Unanswered[str] = Unanswered()
    todo = list(dict.fromkeys(keys))
    backoff = cluster.backoff()
    while todo:
        try:
            found = await find_coordinators(cluster, kind, todo, deadline)
        except NO_ANSWER:
            if not results:
                raise
            break
        by_node: dict[Node, list[str]] = defaultdict(list)
        for key, coordinator in found.items():
            if isinstance(coordinator, KafkaError):
                results[key] = refuse(key, coordinator)
            else:
                by_node[coordinator].append(key)
        asked = (unanswered.answer(partial(ask, node, part), part) for node, part in by_node.items())
        for answers in await asyncio.gather(*asked):
            results.update(answers or {})
        wait = backoff.next_ms() / 1000
        if wait >= deadline.remaining or backoff.is_exhausted:
            break
        todo = [key for key in todo if _is_worth_asking_again(results.get(key))]
        if todo:
            await asyncio.sleep(wait)
    return unanswered.filled_in(results, keys, refuse, lambda key: f"the coordinator of {key!r}")


async def find_coordinators(
    cluster: Cluster, kind: CoordinatorType, keys: Collection[str], deadline: Deadline
) -> dict[str, Node | KafkaError]:
    """The coordinator of each key, or why there is none now."""
    found: dict[str, Node | KafkaError] = {}
    while todo := [key for key in keys if key not in found]:

        def build(version: int, todo: list[str] = todo) -> FindCoordinatorRequest:
            if version < _BATCHED_SINCE:
                return FindCoordinatorRequest(key=todo[0], key_type=kind)
            return FindCoordinatorRequest(key_type=kind, coordinator_keys=todo)

        response = await cluster.request_any(build, FindCoordinatorResponse, deadline)
        coordinators = response.coordinators or [_only(todo[0], response)]
        found.update((each.key, _node(each, kind)) for each in coordinators)
        if not any(key in found for key in todo):
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, "the broker named no coordinator that was asked for"
            )
    return found


def _only(key: str, response: FindCoordinatorResponse) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )


def _node(found: Coordinator, kind: CoordinatorType) -> Node | KafkaError:
    subject = f"{'group' if kind is CoordinatorType.GROUP else 'transactional id'} {found.key!r}"
    error = error_from(found.error_code, found.error_message, subject)
    return error or Node(found.node_id, found.host, found.port)


def _is_worth_asking_again(result: KeyOutcome | None) -> bool:
    return result is None or (result.error is not None and will_pass(result.error.code))
