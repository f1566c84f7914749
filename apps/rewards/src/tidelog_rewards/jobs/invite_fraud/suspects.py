"""Who of many people may be part of a circle, a chain or a tree, found out in bulk.

A batch may name hundreds of thousands of people who were invited and invite, and next to none of them is part
of anything. So before anybody is searched around (``graph``), all of them are looked at together: Arrow
compares devices and networks, and of the graph there are names alone. Who is left out has no circle, chain or
tree, and no search around them would be given up; who is left may have some.

``Suspects`` looks at whom the searches would have loaded first, and says whom and how much that was, so that
they are bounded as if they had loaded it. Plain Python and Arrow. Called by ``detector`` in a task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from tidelog_rewards.jobs.invite_fraud.graph import Looked, SearchGivenUp
from tidelog_rewards.jobs.invite_fraud.schema import Rules

Edges = Callable[[set[str]], tuple[pa.Table, pa.Table]]
"""Gives the invitations of people, and those by people, all that there are: columns of the state."""


class Suspects:
    """The names around some people, and who of these is worth a search.

    :raises SearchGivenUp: there is too much around them.
    """

    def __init__(self, edges: Edges, rules: Rules, people: set[str]) -> None:
        self._edges = edges
        self._rules = rules
        self._people = people
        self._seen: set[str] = set()
        self._size = 0
        self._out: dict[str, list[str]] = {}
        came, gone = self._look(people)
        self.of_trees, self.of_chains = _of_trees(came, gone), _of_chains(came, gone)
        self.of_circles = self._of_circles() if self._look_on(set(came["inviter"].to_pylist())) else people

    @property
    def looked(self) -> Looked:
        """Whose invitations were seen, and how many these were."""
        return Looked(self._seen, self._size)

    def _of_circles(self) -> set[str]:
        """Who may be in a circle, or be where a search for one is given up."""
        return self._people & (_in_circles(self._out) | self._before_many())

    def _look_on(self, inviters: set[str]) -> bool:
        """Look at who can be reached, and at who invited the people; whether these were not too many."""
        fresh = self._people
        for _ in range(self._rules.max_cycle - 2):
            fresh = self._behind(fresh)
            self._look(fresh)
        last = self._behind(fresh) | inviters - self._seen
        try:
            self._look(last)
        except SearchGivenUp:
            return False
        return True

    def _behind(self, people: Iterable[str]) -> set[str]:
        return set(chain.from_iterable(self._out.get(name, ()) for name in people)) - self._seen

    def _look(self, people: set[str]) -> tuple[pa.Table, pa.Table]:
        """See the invitations of and by people who were not looked at before."""
        if people and self._size > self._rules.max_edges:
            raise SearchGivenUp
        came, gone = (_of_others(rows) for rows in self._edges(people))
        both = pa.concat_tables([each.select(["inviter", "invitee"]) for each in (came, gone)])
        pairs = both.group_by(["inviter", "invitee"], use_threads=False).aggregate([])
        for inviter, invitee in zip(pairs["inviter"].to_pylist(), pairs["invitee"].to_pylist(), strict=True):
            if inviter not in self._seen and invitee not in self._seen:
                self._out.setdefault(inviter, []).append(invitee)
                self._size += 1
        self._seen |= people
        return came, gone

    def _before_many(self) -> set[str]:
        """From whom more invitations may be followed than one search does: ways are counted, not people."""
        most = max(map(len, self._out.values()), default=0)
        bound = 0
        for _ in range(self._rules.max_cycle):
            bound = most * (1 + bound)
        if bound <= self._rules.max_visits:
            return set()
        ways: dict[str, int] = {}
        for _ in range(self._rules.max_cycle):
            ways = {
                name: len(there) + sum(ways.get(each, 0) for each in there)
                for name, there in self._out.items()
            }
        return {name for name, many in ways.items() if many > self._rules.max_visits}


def _of_others(rows: pa.Table) -> pa.Table:
    """Without those who invited themselves."""
    return rows.filter(pc.not_equal(rows["inviter"], rows["invitee"]))


def _of_trees(came: pa.Table, gone: pa.Table) -> set[str]:
    """Who was invited and invites in one network."""
    return _alike(_places(came, "invitee"), _places(gone, "inviter"), ["person", "network"])


def _of_chains(came: pa.Table, gone: pa.Table) -> set[str]:
    """Who was invited and invites on two devices together, or on one in either of these.

    What touches two devices makes a chain with what touches the same two. What touches one may make one with
    many others; there is so little of it that it is left to the search.
    """
    places = _places(came, "invitee"), _places(gone, "inviter")
    on_one = [each.filter(pc.equal(each["one"], each["other"]))["person"].to_pylist() for each in places]
    return _alike(*places, ["person", "one", "other"]).union(*on_one)


def _alike(came: pa.Table, gone: pa.Table, columns: list[str]) -> set[str]:
    met = came.join(gone, columns, join_type="left semi", use_threads=False)
    return set(met["person"].to_pylist())


def _places(rows: pa.Table, person: str) -> pa.Table:
    devices = rows["inviter_device"], rows["device"]
    return pa.table(
        {
            "person": rows[person],
            "network": rows["network"],
            "one": pc.min_element_wise(*devices),
            "other": pc.max_element_wise(*devices),
        }
    )


def _in_circles(out: Mapping[str, Sequence[str]]) -> set[str]:
    """Who is in a circle of whatever length, or between two of them."""
    behind = _behind_circles(out)
    back: dict[str, list[str]] = {}
    for name in behind:
        for each in out.get(name, ()):
            back.setdefault(each, []).append(name)
    return _behind_circles(back)


def _behind_circles(out: Mapping[str, Sequence[str]]) -> set[str]:
    """Who is left when those go to whom no way leads, again and again."""
    ways = Counter(chain.from_iterable(out.values()))
    waiting = [name for name in out if name not in ways]
    while waiting:
        for each in out.get(waiting.pop(), ()):
            ways[each] -= 1
            if not ways[each]:
                waiting.append(each)
    return {name for name, many in ways.items() if many}
