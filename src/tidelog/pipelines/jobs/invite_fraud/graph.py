"""Who invited whom: finds circles and same-device chains as invitations come, within bounds.

An edge goes from inviter to invitee. Adding one costs a bounded search: backwards along invitations on one
device for chains, forwards from the invitee to the inviter for circles. Edges older than the horizon, and
the oldest beyond the largest number, are dropped, so memory is bounded whatever comes. The graph is a
function of the batches that were added, in order: replaying them gives the same rings.

Plain Python without Spark. Called by ``detector`` in a task, with the part of the last day's invitations that
can be reached from those that are searched from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

import msgspec

from tidelog.pipelines.jobs.invite_fraud.schema import RULES, Rules


class Edge(msgspec.Struct, frozen=True, order=True):
    """One invitation: the first between these two people."""

    time_ms: int
    event_id: str
    inviter: str
    invitee: str
    inviter_device: str
    invitee_device: str
    network: str
    partition: int
    offset: int

    @property
    def on_one_device(self) -> bool:
        """Whether the newcomer came in on the inviter's own device."""
        return self.inviter_device == self.invitee_device


class Ring(msgspec.Struct, frozen=True):
    """Invitations that form a circle (``cycle``, ``mutual``) or a chain on one device, in order."""

    shape: str
    edges: tuple[Edge, ...]

    @property
    def members(self) -> tuple[str, ...]:
        """The accounts, in order; in a circle the first is the smallest name."""
        names = [edge.inviter for edge in self.edges]
        if self.shape == "chain":
            return (*names, self.edges[-1].invitee)
        first = names.index(min(names))
        return (*names[first:], *names[:first])


class InviteGraph:
    """The invitations of the last day, and the rings that new ones close."""

    def __init__(self, rules: Rules = RULES) -> None:
        self._rules = rules
        self._horizon_ms = round(rules.horizon.total_seconds() * 1000)
        self._out: dict[str, dict[str, Edge]] = {}
        self._in: dict[str, dict[str, Edge]] = {}
        self._by_age: list[tuple[int, str, str, str]] = []
        self._newest_ms = 0
        self.given_up = 0
        """Searches that ended at the largest number of visits."""

    def __len__(self) -> int:
        return len(self._by_age)

    def edges(self) -> Iterator[Edge]:
        """All edges held, for a snapshot; :meth:`restore` takes them back."""
        for targets in self._out.values():
            yield from targets.values()

    def restore(self, edges: Iterable[Edge]) -> None:
        """Take edges without looking for rings."""
        for edge in edges:
            self._put(edge)
        self._forget()

    def add(self, batch: Iterable[Edge]) -> list[Ring]:
        """Take a batch of invitations in any order; returns the rings that it closed or made longer."""
        rings: dict[tuple[str, ...], Ring] = {}
        for edge in sorted(batch):
            if edge.inviter == edge.invitee or edge.invitee in self._out.get(edge.inviter, ()):
                continue
            if edge.time_ms < self._newest_ms - self._horizon_ms:
                continue
            self._put(edge)
            for ring in self._closed_by(edge):
                rings[self._identity(ring)] = ring
        self._forget()
        return list(rings.values())

    def _put(self, edge: Edge) -> None:
        self._out.setdefault(edge.inviter, {})[edge.invitee] = edge
        self._in.setdefault(edge.invitee, {})[edge.inviter] = edge
        heappush(self._by_age, (edge.time_ms, edge.event_id, edge.inviter, edge.invitee))
        self._newest_ms = max(self._newest_ms, edge.time_ms)

    def _forget(self) -> None:
        oldest_ms = self._newest_ms - self._horizon_ms
        while self._by_age and (self._by_age[0][0] < oldest_ms or len(self._by_age) > self._rules.max_edges):
            _, _, inviter, invitee = heappop(self._by_age)
            for index, key, other in ((self._out, inviter, invitee), (self._in, invitee, inviter)):
                del index[key][other]
                if not index[key]:
                    del index[key]

    @staticmethod
    def _identity(ring: Ring) -> tuple[str, ...]:
        return (ring.shape, ring.members[0]) if ring.shape == "chain" else (ring.shape, *sorted(ring.members))

    def _closed_by(self, edge: Edge) -> Iterator[Ring]:
        way_back = self._path(edge.invitee, edge.inviter)
        if way_back is not None:
            shape = "mutual" if len(way_back) == 1 else "cycle"
            yield Ring(shape, (edge, *way_back))
        if edge.on_one_device:
            chain = self._chain(edge)
            if len(chain) >= self._rules.chain[-1][0]:
                yield Ring("chain", chain)

    def _path(self, start: str, end: str) -> tuple[Edge, ...] | None:
        """The shortest way from one account to another, of fewer edges than the longest circle."""
        came_by: dict[str, Edge | None] = {start: None}
        waiting = deque([(start, 0)])
        visits = 0
        while waiting:
            here, length = waiting.popleft()
            if length == self._rules.max_cycle - 1:
                continue
            for there, edge in self._out.get(here, {}).items():
                visits += 1
                if there in came_by:
                    continue
                came_by[there] = edge
                if there == end:
                    return self._traced(came_by, end)
                waiting.append((there, length + 1))
            if visits > self._rules.max_visits:
                self.given_up += 1
                return None
        return None

    @staticmethod
    def _traced(came_by: dict[str, Edge | None], end: str) -> tuple[Edge, ...]:
        path: list[Edge] = []
        edge = came_by[end]
        while edge is not None:
            path.append(edge)
            edge = came_by[edge.inviter]
        return tuple(reversed(path))

    def _chain(self, edge: Edge) -> tuple[Edge, ...]:
        """A row of invitations on one device that the edge is part of, followed both ways."""
        device, members = edge.inviter_device, {edge.inviter, edge.invitee}
        chain = deque([edge])
        for index, forwards in ((self._in, False), (self._out, True)):
            at = edge.invitee if forwards else edge.inviter
            while len(chain) < self._rules.max_visits:
                nearest = min(
                    (
                        other
                        for name, other in index.get(at, {}).items()
                        if other.on_one_device and other.inviter_device == device and name not in members
                    ),
                    default=None,
                )
                if nearest is None:
                    break
                at = nearest.invitee if forwards else nearest.inviter
                members.add(at)
                (chain.append if forwards else chain.appendleft)(nearest)
        return tuple(chain)
