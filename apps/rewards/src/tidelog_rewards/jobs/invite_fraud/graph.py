"""Who invited whom: the invitations that form circles, chains or trees around somebody.

A :class:`Neighbourhood` holds invitations that were loaded, by who invited and by who was invited, and loads
what a search needs. What it finds depends on the set of invitations alone, never on where a search began: it
is found by each of its members. Searches are bounded; one that becomes too large is given up.

Plain Python without Spark. Called by ``detector`` in a task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import product
from typing import NamedTuple

from tidelog_rewards.jobs.invite_fraud.schema import Rules
from tidelog_rewards.jobs.invite_fraud.scoring import Invitation

Load = Callable[[set[str]], Iterable[Invitation]]
"""Gives the invitations by people and of people, all that there are."""


class SearchGivenUp(Exception):
    """A search that has become too large."""


class Looked(NamedTuple):
    """Whose invitations were looked at before, and how many there were: they count as loaded."""

    people: Set[str] = frozenset()
    invitations: int = 0


NOBODY = Looked()


class _OnDevices(NamedTuple):
    """The invitations of one person, and those by one person, by the devices that they touch."""

    came: dict[frozenset[str], list[Invitation]]
    gone: dict[frozenset[str], list[Invitation]]


class Neighbourhood:
    """The invitations around some people."""

    def __init__(self, load: Load, rules: Rules, looked: Looked = NOBODY) -> None:
        self._load = load
        self._rules = rules
        self._looked = looked.people
        self._loaded: set[str] = set()
        self._size = looked.invitations
        self._out: dict[str, dict[str, Invitation]] = {}
        self._in: dict[str, dict[str, Invitation]] = {}
        self._devices: dict[str, _OnDevices] = {}
        self._cyclic: dict[tuple[str, str], bool] = {}

    def load(self, people: Iterable[str]) -> None:
        """Make sure that the invitations of people are there."""
        missing = set(people) - self._loaded
        if not missing:
            return
        if self._size > self._rules.max_edges and not missing <= self._looked:
            raise SearchGivenUp
        self._loaded |= missing
        for edge in self._load(missing):
            if edge.inviter == edge.invitee:
                continue
            known = self._out.setdefault(edge.inviter, {}).get(edge.invitee)
            if known is None or edge < known:
                self._out[edge.inviter][edge.invitee] = edge
                self._in.setdefault(edge.invitee, {})[edge.inviter] = edge
                if known is None and edge.inviter not in self._looked and edge.invitee not in self._looked:
                    self._size += 1

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
        return self._grown(person, self._is_cyclic, self._edges_of)

    def tree(self, person: str, network: str) -> list[Invitation]:
        """The invitations into one network that hang together around somebody."""
        return self._joined(person, lambda edge: edge.network == network)

    def chain(self, person: str, devices: frozenset[str]) -> list[Invitation]:
        """The invitations on some devices alone that hang together around somebody.

        They are looked up by their devices: an inviter may have thousands of others.
        """
        kinds = {frozenset(each) for each in product(devices, repeat=2)}

        def is_joined(edge: Invitation) -> bool:
            before, behind = self._on_devices(edge.inviter).came, self._on_devices(edge.invitee).gone
            return any(kind in before or kind in behind for kind in kinds)

        def edges_of(name: str) -> Iterator[Invitation]:
            came, gone = self._on_devices(name)
            for kind in kinds:
                yield from (*came.get(kind, ()), *gone.get(kind, ()))

        return self._grown(person, is_joined, edges_of)

    def _on_devices(self, person: str) -> _OnDevices:
        self.load((person,))
        known = self._devices.get(person)
        if known is None:
            known = self._devices[person] = _OnDevices({}, {})
            for edge in self.of(person):
                known.came.setdefault(devices_of(edge), []).append(edge)
            for edge in self.by(person):
                known.gone.setdefault(devices_of(edge), []).append(edge)
        return known

    def _joined(self, person: str, is_part: Callable[[Invitation], bool]) -> list[Invitation]:
        """Invitations that have another one of them before or behind them.

        The others are nobody's matter: that of somebody whom nobody invited, of somebody who invites nobody.
        """

        def is_joined(edge: Invitation) -> bool:
            if not is_part(edge):
                return False
            self.load((edge.inviter, edge.invitee))
            return any(map(is_part, self.of(edge.inviter))) or any(map(is_part, self.by(edge.invitee)))

        return self._grown(person, is_joined, self._edges_of)

    def _edges_of(self, person: str) -> list[Invitation]:
        return [*self.by(person), *self.of(person)]

    def _grown(
        self,
        person: str,
        is_part: Callable[[Invitation], bool],
        edges_of: Callable[[str], Iterable[Invitation]],
    ) -> list[Invitation]:
        members, waiting = {person}, [person]
        edges: set[Invitation] = set()
        while waiting:
            if len(edges) > self._rules.max_visits:
                raise SearchGivenUp
            self.load(waiting)
            touching = {edge for name in waiting for edge in edges_of(name)}
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


def devices_of(edge: Invitation) -> frozenset[str]:
    """The device of who invites and that of the newcomer: one or two."""
    return frozenset((edge.device, edge.inviter_device))


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

    It passes nobody twice. Where there are no circles it takes a look at each invitation. Where there are,
    ``most`` bounds the looks; a search that goes beyond them gives what it has.
    """
    known = sorted(edges)
    row = _longest_without_circles(known)
    return _longest_with_circles(known, most) if row is None else row


def _longest_without_circles(known: Sequence[Invitation]) -> list[Invitation] | None:
    """The longest row; None where there is a circle. Begins with those who invite nobody."""
    into: dict[str, list[Invitation]] = {}
    for edge in known:
        into.setdefault(edge.invitee, []).append(edge)
    unsettled = Counter(edge.inviter for edge in known)
    onward: dict[str, tuple[int, Invitation]] = {}
    """How long the longest row from somebody is, and how it begins; of several the last."""
    settled = [name for name in into if name not in unsettled]
    for name in settled:
        length = onward[name][0] if name in onward else 0
        for edge in into.get(name, ()):
            onward[edge.inviter] = max(onward.get(edge.inviter, (0, edge)), (length + 1, edge))
            unsettled[edge.inviter] -= 1
            if not unsettled[edge.inviter]:
                settled.append(edge.inviter)
    if any(unsettled.values()):
        return None
    longest = max((length for length, _ in onward.values()), default=0)
    row: list[Invitation] = []
    for edge in known:
        if 1 + (onward[edge.invitee][0] if edge.invitee in onward else 0) == longest:
            row.append(edge)
            break
    while row and row[-1].invitee in onward:
        row.append(onward[row[-1].invitee][1])
    return row


def _longest_with_circles(known: Sequence[Invitation], most: int) -> list[Invitation]:
    """The longest row that some looks find: from each invitation on, back and on again where it ends."""
    out: dict[str, list[Invitation]] = {}
    for edge in known:
        out.setdefault(edge.inviter, []).append(edge)
    best: list[Invitation] = []
    longest = len(members_of(known)) - 1
    looks = 0
    for first in known:
        row, met = [first], {first.inviter, first.invitee}
        onward = [reversed(out.get(first.invitee, ()))]
        while onward and looks < most and len(best) < longest:
            looks += 1
            following = next(onward[-1], None)
            if following is None:
                if len(row) > len(best):
                    best = [*row]
                onward.pop()
                met.discard(row.pop().invitee)
            elif following.invitee not in met:
                row.append(following)
                met.add(following.invitee)
                onward.append(reversed(out.get(following.invitee, ())))
        if len(row) > len(best):
            best = [*row]
        if looks >= most or len(best) == longest:
            break
    return best
