"""Who invited whom: the invitations that form circles, chains or trees around somebody.

A :class:`Neighbourhood` holds invitations that were loaded, by who invited and by who was invited, and loads
what a search needs. What it finds depends on the set of invitations alone, never on where a search began: it
is found by each of its members. Searches are bounded; one that becomes too large is given up.

Plain Python without Spark. Called by ``detector`` in a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tidelog.pipelines.jobs.invite_fraud.schema import Rules
from tidelog.pipelines.jobs.invite_fraud.scoring import Invitation

Load = Callable[[set[str]], Iterable[Invitation]]
"""Gives the invitations by people and of people, all that there are."""


class SearchGivenUp(Exception):
    """A search that has become too large."""


class Neighbourhood:
    """The invitations around some people."""

    def __init__(self, load: Load, rules: Rules) -> None:
        self._load = load
        self._rules = rules
        self._loaded: set[str] = set()
        self._size = 0
        self._out: dict[str, dict[str, Invitation]] = {}
        self._in: dict[str, dict[str, Invitation]] = {}
        self._cyclic: dict[tuple[str, str], bool] = {}

    def load(self, people: Iterable[str]) -> None:
        """Make sure that the invitations of people are there."""
        missing = set(people) - self._loaded
        if not missing:
            return
        if self._size > self._rules.max_edges:
            raise SearchGivenUp
        self._loaded |= missing
        for edge in self._load(missing):
            if edge.inviter == edge.invitee:
                continue
            known = self._out.setdefault(edge.inviter, {}).get(edge.invitee)
            if known is None or edge < known:
                self._out[edge.inviter][edge.invitee] = edge
                self._in.setdefault(edge.invitee, {})[edge.inviter] = edge
                self._size += known is None

    def by(self, person: str) -> list[Invitation]:
        """The first invitation of each whom somebody invited; loaded before."""
        return list(self._out.get(person, {}).values())

    def of(self, person: str) -> list[Invitation]:
        """The first invitation by each who invited somebody; loaded before."""
        return list(self._in.get(person, {}).values())

    def touching(self, people: Iterable[str]) -> list[Invitation]:
        """All invitations by people and of them."""
        names = set(people)
        self.load(names)
        return sorted({edge for name in names for edge in (*self.by(name), *self.of(name))})

    def circle(self, person: str) -> list[Invitation]:
        """The invitations of all circles that hang together with one through somebody."""
        return self._grown(person, self._is_cyclic)

    def tree(self, person: str, network: str) -> list[Invitation]:
        """The invitations into one network that hang together around somebody."""
        return self._joined(person, lambda edge: edge.network == network)

    def chain(self, person: str, devices: frozenset[str]) -> list[Invitation]:
        """The invitations on some devices alone that hang together around somebody."""
        return self._joined(person, lambda edge: {edge.device, edge.inviter_device} <= devices)

    def _joined(self, person: str, is_part: Callable[[Invitation], bool]) -> list[Invitation]:
        """Invitations that have another one of them before or behind them.

        The others are nobody's matter: that of somebody whom nobody invited, of somebody who invites nobody.
        """

        def is_joined(edge: Invitation) -> bool:
            if not is_part(edge):
                return False
            self.load((edge.inviter, edge.invitee))
            return any(map(is_part, self.of(edge.inviter))) or any(map(is_part, self.by(edge.invitee)))

        return self._grown(person, is_joined)

    def _grown(self, person: str, is_part: Callable[[Invitation], bool]) -> list[Invitation]:
        members, waiting = {person}, [person]
        edges: set[Invitation] = set()
        while waiting:
            if len(edges) > self._rules.max_visits:
                raise SearchGivenUp
            self.load(waiting)
            touching = {edge for name in waiting for edge in (*self.by(name), *self.of(name))}
            self.load({name for edge in touching for name in (edge.inviter, edge.invitee)})
            found = {edge for edge in touching - edges if is_part(edge)}
            edges |= found
            waiting = sorted(members_of(found) - members)
            members |= set(waiting)
        return sorted(edges)

    def _is_cyclic(self, edge: Invitation) -> bool:
        """Whether there is a way from the invited back to the inviter, in as many steps as are looked at."""
        known = self._cyclic.get((edge.inviter, edge.invitee))
        if known is None:
            known = self._cyclic[edge.inviter, edge.invitee] = self._leads_back(edge)
        return known

    def _leads_back(self, edge: Invitation) -> bool:
        seen = {edge.invitee}
        here = [edge.invitee]
        visits = 0
        for _ in range(self._rules.max_cycle - 1):
            self.load(here)
            there = []
            for name in here:
                for invitee in self._out.get(name, ()):
                    visits += 1
                    if invitee == edge.inviter:
                        return True
                    if invitee not in seen:
                        seen.add(invitee)
                        there.append(invitee)
            if visits > self._rules.max_visits:
                raise SearchGivenUp
            here = there
        return False


def members_of(edges: Iterable[Invitation]) -> set[str]:
    """Who invites and who is invited."""
    return {name for edge in edges for name in (edge.inviter, edge.invitee)}


def cyclic(edges: Iterable[Invitation]) -> list[Invitation]:
    """Of some invitations those from which a way of these alone leads back."""
    known = sorted(edges)
    out: dict[str, list[str]] = {}
    back: dict[str, list[str]] = {}
    for edge in known:
        out.setdefault(edge.inviter, []).append(edge.invitee)
        back.setdefault(edge.invitee, []).append(edge.inviter)
    order: list[str] = []
    seen: set[str] = set()
    for name in sorted(members_of(known)):
        waiting = [(name, False)]
        while waiting:
            here, is_done = waiting.pop()
            if is_done:
                order.append(here)
            elif here not in seen:
                seen.add(here)
                waiting.append((here, True))
                waiting += [(there, False) for there in out.get(here, ()) if there not in seen]
    group: dict[str, int] = {}
    for number, name in enumerate(reversed(order)):
        stack = [name]
        while stack:
            here = stack.pop()
            if here not in group:
                group[here] = number
                stack += back.get(here, ())
    return [edge for edge in known if group[edge.inviter] == group[edge.invitee]]


def longest_path(edges: Iterable[Invitation], most: int) -> list[Invitation]:
    """The longest row of invitations, each by the one who was invited before; the first of several.

    ``most`` bounds the steps that are looked at; a search that goes beyond them gives what it has.
    """
    out: dict[str, list[Invitation]] = {}
    known = sorted(edges)
    for edge in known:
        out.setdefault(edge.inviter, []).append(edge)
    best: list[Invitation] = []
    steps = 0
    for first in known:
        waiting = [[first]]
        while waiting and steps < most:
            path = waiting.pop()
            steps += 1
            if len(path) > len(best):
                best = path
            met = {path[0].inviter, *(edge.invitee for edge in path)}
            waiting += [[*path, edge] for edge in out.get(path[-1].invitee, ()) if edge.invitee not in met]
    return best
