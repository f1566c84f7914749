"""The rules as tasks apply them: what is remembered of an invitation, and who is judged by a batch of them.

An invitation is a row in up to four places, each a bucket by the row's key, for a month:

    INVITER  by who invites     counts for the inviter, and is an edge of the graph
    INVITED  by who is invited  is the same edge from its other end
    DEVICE   by the device      counts for the device on which the newcomer came in
    BLOCK    by the block       counts for the newcomer's number block

What counts for one name is in one bucket. Circles, chains and trees run through as many buckets as they have
accounts; but in each of them somebody invites who was invited, and of this person both kinds of rows are in
one bucket. These people, and those who have enough invitations to score, are left to the follow-up, a task
that sees all buckets after the batch: it loads what hangs together with them, and judges that (``scoring``,
``rings``). What it gives up is counted.

Called by ``alert_tasks`` in Spark's Python workers; plain Python and Arrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog_rewards.detection.alert_state import KEY, STATE_COLUMNS, UNTIL, key_of, keys_of
from tidelog_rewards.detection.alert_tasks import Batch, Bucket, Findings, Found, RowsOf
from tidelog_rewards.detection.incidents import (
    DAY_US,
    MONTH_US,
    US_PER_S,
    IncidentBook,
    Judged,
    hour_of,
)
from tidelog_rewards.events import INVITE, INVITE_FRAUD_ALERTS, EventKind
from tidelog_rewards.jobs.invite_fraud.graph import (
    Neighbourhood,
    SearchGivenUp,
    devices_of,
    members_of,
)
from tidelog_rewards.jobs.invite_fraud.invitations import invitations
from tidelog_rewards.jobs.invite_fraud.rings import judge_chain, judge_ring, judge_tree
from tidelog_rewards.jobs.invite_fraud.schema import NAME, USUAL, Rules
from tidelog_rewards.jobs.invite_fraud.scoring import (
    Invitation,
    judge_block,
    judge_device,
    judge_inviter,
)
from tidelog_rewards.jobs.invite_fraud.suspects import Suspects

INVITER, INVITED, DEVICE, BLOCK = range(4)
_MEMBER = 4
"""Somebody who was invited and invites."""
_NAMES = {INVITER: "inviter", INVITED: "invitee", DEVICE: "device", BLOCK: "block"}
"""The column that names a row's subject."""
_NAMES_AT_ONCE = 50_000
"""The invitations of so many names are in memory together."""
_TEXT = ("event_id", "inviter", "invitee", "inviter_device", "device", "network", "block")
_RING = ("ring",)
_SCHEMA = pa.schema(
    [
        *STATE_COLUMNS,
        pa.field("kind", pa.uint8()),
        pa.field("pair", pa.uint64()),
        pa.field("time_us", pa.int64()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("number", pa.int64()),
        *(pa.field(name, pa.string()) for name in _TEXT),
    ]
)


@dataclass(frozen=True)
class InviteDetector:
    """Finds invitations that come from one hand."""

    rules: Rules = field(default_factory=lambda: USUAL.rules)
    name: str = NAME
    kind: EventKind = INVITE
    topic: str = INVITE_FRAUD_ALERTS
    schema: pa.Schema = _SCHEMA

    @property
    def watermark_delay_us(self) -> int:
        return self.rules.lateness_s * US_PER_S

    @property
    def memory_us(self) -> int:
        return MONTH_US + DAY_US

    @property
    def quiet_us(self) -> int:
        return self.rules.quiet_s * US_PER_S

    @property
    def allow(self) -> Mapping[str, Sequence[str]]:
        return self.rules.allow

    def ruled(self, rules: Rules) -> InviteDetector:
        """The same with other rules."""
        return replace(self, rules=rules)

    def rows(self, parsed: pa.StructArray, partitions: pa.Array, offsets: pa.Array) -> pa.Table:
        """The invitations among parsed events, in all their places."""
        found = invitations(parsed, partitions, offsets)
        inviters = keys_of(found["inviter"].to_pylist())
        keys = {
            INVITER: inviters,
            INVITED: keys_of(found["invitee"].to_pylist()),
            DEVICE: keys_of(found["device"].to_pylist()),
            BLOCK: keys_of(found["block"].fill_null("").to_pylist()),
        }
        until_us = pc.add(found["time_us"], MONTH_US + DAY_US)
        placed = []
        for kind, mine in keys.items():
            columns = {
                **{name: found[name] for name in found.column_names},
                KEY: mine,
                UNTIL: until_us,
                "kind": pa.repeat(pa.scalar(kind, pa.uint8()), found.num_rows),
                "pair": inviters,
            }
            placed.append(pa.table({name: columns[name] for name in _SCHEMA.names}, schema=_SCHEMA))
        placed[BLOCK] = placed[BLOCK].filter(pc.is_valid(placed[BLOCK]["block"]))
        return pa.concat_tables(placed)

    def detect(self, bucket: Bucket) -> Found:
        """Keep what is in time, and leave to be judged who has enough, or was invited and invites."""
        kept = bucket.new.filter(pc.greater_equal(bucket.new["time_us"], bucket.watermark_us))
        rows = {kind: kept.filter(pc.equal(kept["kind"], kind)) for kind in range(BLOCK + 1)}
        counted = bucket.new.filter(pc.equal(bucket.new["kind"], INVITER))
        rules = self.rules
        left = [
            *self._frequent(bucket, rows[INVITER], rules.least_of_inviter),
            *self._shared(bucket, rows[DEVICE], rules.least_of_device),
            *self._shared(bucket, rows[BLOCK], rules.least_of_block),
            *self._members(bucket, pa.concat_tables([rows[INVITER], rows[INVITED]])),
        ]
        return Found(
            kept,
            counted["time_us"],
            counted.num_rows - rows[INVITER].num_rows,
            tuple(msgspec.msgpack.encode(each) for each in left),
        )

    def _frequent(self, bucket: Bucket, new: pa.Table, least: int) -> Iterator[tuple[int, str]]:
        """Inviters with enough invitations."""
        keys = bucket.frequent(new, least)
        for name in pc.unique(new.filter(pc.is_in(new[KEY], value_set=keys))["inviter"]).to_pylist():
            yield INVITER, name

    def _shared(self, bucket: Bucket, new: pa.Table, least: int) -> Iterator[tuple[int, str]]:
        """Devices or blocks with enough invitations, by several inviters."""
        keys = bucket.frequent(new, least)
        if not len(keys):
            return
        kind = new["kind"][0].as_py()
        rows = self._of_keys(bucket, new, keys, (KEY, "kind", "pair"))
        rows = rows.filter(pc.equal(rows["kind"], kind))
        by_key = rows.group_by(KEY).aggregate([("pair", "count_distinct")])
        several = by_key.filter(pc.greater(by_key["pair_count_distinct"], 1))[KEY]
        names = new.filter(pc.is_in(new[KEY], value_set=several))[_NAMES[kind]]
        for name in pc.unique(names).to_pylist():
            yield kind, name

    def _members(self, bucket: Bucket, new: pa.Table) -> Iterator[tuple[int, str]]:
        """People who were invited and invite."""
        keys = bucket.frequent(new, 2)
        if not len(keys):
            return
        rows = self._of_keys(bucket, new, keys, (KEY, "kind"))
        rows = rows.filter(pc.less_equal(rows["kind"], INVITED))
        by_key = rows.group_by(KEY).aggregate([("kind", "count_distinct")])
        both = by_key.filter(pc.equal(by_key["kind_count_distinct"], 2))[KEY]
        met = new.filter(pc.is_in(new[KEY], value_set=both))
        kinds = (met.filter(pc.equal(met["kind"], kind))[_NAMES[kind]] for kind in (INVITER, INVITED))
        for name in sorted({name for names in kinds for name in pc.unique(names).to_pylist()}):
            yield _MEMBER, name

    @staticmethod
    def _of_keys(bucket: Bucket, new: pa.Table, keys: pa.Array, columns: Sequence[str]) -> pa.Table:
        mine = new.filter(pc.is_in(new[KEY], value_set=keys)).select(columns)
        return pa.concat_tables([bucket.state.rows_of(keys, columns), mine])

    def judge(self, left: list[bytes], rows_of: RowsOf, book: IncidentBook, batch: Batch) -> Findings:
        """The names that the new invitations have to do with, and what hangs together with them."""
        named: dict[int, set[str]] = {}
        for each in left:
            kind, name = msgspec.msgpack.decode(each, type=tuple[int, str])
            named.setdefault(kind, set()).add(name)
        judged = list(self._counted(named, rows_of, batch.since_us))
        searches = _Searches(rows_of, self.rules, batch.linked_us)
        judged += searches.around(named.get(_MEMBER, set()))
        return Findings(judged, searches.given_up)

    def _counted(self, named: Mapping[int, set[str]], rows_of: RowsOf, since_us: int) -> Iterator[Judged]:
        """Inviters, devices and blocks by their own invitations, some at a time."""
        rules = self.rules
        for kind, judge, told, horizon_us in (
            (INVITER, judge_inviter, 0, 0),
            (DEVICE, judge_device, rules.told_of_device, MONTH_US),
            (BLOCK, judge_block, rules.told_of_block, DAY_US),
        ):
            names = sorted(named.get(kind, ()))
            for start in range(0, len(names), _NAMES_AT_ONCE):
                mine = names[start : start + _NAMES_AT_ONCE]
                rows = _rows(rows_of, kind, mine)
                if told:
                    rows = _frequent_rows(rows, _NAMES[kind], told, hour_of(since_us) - horizon_us)
                invites = _by_name(rows, _NAMES[kind])
                yield from (judge(name, invites.get(name, ()), since_us, rules) for name in mine)


class _Searches:
    """Circles, chains and trees around people."""

    def __init__(self, rows_of: RowsOf, rules: Rules, linked_us: int) -> None:
        self._rows_of = rows_of
        self._rules = rules
        self._linked_us = linked_us
        self._done: set[tuple[tuple[str, ...], str]] = set()
        """What was found already, by kind and place and by member."""
        self._followed: Counter[str] = Counter()
        """How many invitations chains on two devices had, by either of them."""
        self._graph = Neighbourhood(self._load, rules)
        self.given_up = 0

    def _load(self, people: set[str]) -> Iterator[Invitation]:
        for rows in self._edges(people):
            yield from _made(rows)

    def _edges(self, people: set[str]) -> tuple[pa.Table, pa.Table]:
        """The invitations of people, and those by people."""
        rows = self._rows_of(map(key_of, people))
        rows = rows.filter(pc.greater_equal(rows["time_us"], self._linked_us))
        names = pa.array(people, pa.string())
        return _of_kind(rows, INVITED, names), _of_kind(rows, INVITER, names)

    def around(self, people: set[str]) -> list[Judged]:
        """What they are part of, each once."""
        if not people:
            return []
        try:
            suspects = Suspects(self._edges, self._rules, people)
        except SearchGivenUp:
            self.given_up += len(people)
            return []
        searches = (
            (self._ring, suspects.of_circles),
            (self._trees, suspects.of_trees),
            (self._chains, suspects.of_chains),
        )
        people = set[str]().union(*(mine for _, mine in searches))
        self._graph = Neighbourhood(self._load, self._rules, suspects.looked)
        reached = people
        for _ in range(self._rules.max_cycle - 1):
            self._graph.load(reached)
            reached = {edge.invitee for name in reached for edge in self._graph.by(name)}
        # What nearly all of them look at next, at once: one by one costs a look into every bucket each.
        with suppress(SearchGivenUp):
            self._graph.load(reached | {edge.inviter for name in people for edge in self._graph.of(name)})
        found: dict[tuple[str, str], Judged] = {}
        for person in sorted(people):
            for search, mine in searches:
                if person not in mine:
                    continue
                try:
                    for each in search(person):
                        # Devices may be called so that two have one name: what has no points hides nothing.
                        if each.points or (each.subject_kind, each.subject) not in found:
                            found[each.subject_kind, each.subject] = each
                except SearchGivenUp:
                    self.given_up += 1
        return list(found.values())

    def _ring(self, person: str) -> Iterator[Judged]:
        if self._is_new(_RING, person):
            edges = self._graph.circle(person)
            if edges:
                self._finish(_RING, edges)
                yield judge_ring(edges, self._rules)

    def _trees(self, person: str) -> Iterator[Judged]:
        came = {edge.network for edge in self._graph.of(person)}
        for network in sorted({edge.network for edge in self._graph.by(person)} & came):
            place = ("tree", network)
            if self._is_new(place, person):
                edges = self._graph.tree(person, network)
                self._finish(place, edges)
                yield judge_tree(network, edges, self._rules)

    def _chains(self, person: str) -> Iterator[Judged]:
        came = Counter(map(devices_of, self._graph.of(person)))
        gone = Counter(map(devices_of, self._graph.by(person)))
        both = {one | other for one in came for other in gone if len(one | other) <= 2}
        alone = sorted((each for each in both if len(each) == 1), key=sorted)
        for devices in alone:
            if self._is_new(("chain", *devices), person):
                yield from self._chain(person, devices)[0]
        pairs = Counter({each: came[each] + gone[each] for each in both if len(each) == 2})
        for devices in alone:
            place = ("pairs with", *devices)
            if self._is_new(place, person):
                edges = self._graph.chain(person, devices)
                # Of all members of a chain on one device the chains on two are the same.
                self._finish(place, edges)
                around = (devices_of(edge) | devices for edge in self._graph.touching(members_of(edges)))
                pairs.update(each for each in around if len(each) == 2)
        yield from self._chains_of_two(person, pairs)

    def _chains_of_two(self, person: str, pairs: Counter[frozenset[str]]) -> Iterator[Judged]:
        """The chains on two devices, the busiest first.

        A chain on one device is part of the chains on this and any other, and there may be as many of these
        as it has members: all that share a device follow together as many invitations as one search.
        """
        for devices in sorted(pairs, key=lambda each: (-pairs[each], sorted(each))):
            if not self._is_new(("chain", *sorted(devices)), person):
                continue
            if any(self._followed[device] > self._rules.max_visits for device in devices):
                self.given_up += 1
                continue
            judged, size = self._chain(person, devices)
            self._followed.update(dict.fromkeys(devices, size))
            yield from judged

    def _chain(self, person: str, devices: frozenset[str]) -> tuple[list[Judged], int]:
        """What a chain comes to, and how many invitations it has."""
        edges = self._graph.chain(person, devices)
        self._finish(("chain", *sorted(devices)), edges)
        return [judge_chain(devices, edges, self._rules)] if edges else [], len(edges)

    def _is_new(self, place: tuple[str, ...], person: str) -> bool:
        return (place, person) not in self._done

    def _finish(self, place: tuple[str, ...], edges: list[Invitation]) -> None:
        self._done |= {(place, name) for name in members_of(edges)}


def _rows(rows_of: RowsOf, kind: int, names: Collection[str]) -> pa.Table:
    """The rows of a kind that count for names."""
    return _of_kind(rows_of(map(key_of, names)), kind, pa.array(names, pa.string()))


def _of_kind(rows: pa.Table, kind: int, names: pa.Array) -> pa.Table:
    """Of rows that keys have found those of a kind, and none of other names that have one of the keys."""
    mine = rows.filter(pc.equal(rows["kind"], kind))
    return mine.filter(pc.is_in(mine[_NAMES[kind]], value_set=names))


def _frequent_rows(rows: pa.Table, column: str, least: int, after_us: int) -> pa.Table:
    """The rows of names that have at least so many after a moment."""
    counted = pc.value_counts(rows.filter(pc.greater(rows["time_us"], after_us))[column])
    names = counted.field("values").filter(pc.greater_equal(counted.field("counts"), least))
    return rows.filter(pc.is_in(rows[column], value_set=names))


def _by_name(rows: pa.Table, column: str) -> dict[str, list[Invitation]]:
    found: dict[str, list[Invitation]] = {}
    for name, invitation in zip(rows[column].to_pylist(), _made(rows), strict=True):
        found.setdefault(name, []).append(invitation)
    return found


def _made(rows: pa.Table) -> Iterator[Invitation]:
    make: Callable[..., Invitation] = Invitation
    return map(make, *(rows[name].to_pylist() for name in Invitation._fields))
