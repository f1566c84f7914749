"""The rules as tasks apply them: what is remembered of an invitation, and what a batch of them reports.

An invitation is a row in up to five places, each a bucket by the row's key:

    INVITER  by who invites     counts in the inviter's windows, and is an edge of the graph, for a day
    AGAIN    by who invites     counts in the inviter's windows; the two have their edge already
    DEVICE   by the device      counts in the windows of the device on which the newcomer came in
    BLOCK    by the block       counts in the windows of the newcomer's number block
    CHAIN    by the device      may be part of a chain: inviter and newcomer use the same device; for a day
    PROBE    by who is invited  asks whether the newcomer has invited somebody; is not kept

Windows are one bucket's matter. Rings are not: a circle runs through as many buckets as it has accounts. But
nearly all who are invited are new, and have invited nobody: an invitation can close a circle only if its
probe meets an invitation *by* the invited, and a chain only if its device has enough of them. These few are
left to a follow-up, a task that sees all buckets after the batch: it loads what can be reached from them, in
as many steps as the longest circle has, and searches in that (``graph``). What it gives up is counted.

Called by ``alert_tasks`` in Spark's Python workers; plain Python and Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.pipelines.framework.alert_evidence import SlidingWindows, Window, microseconds, window_alerts
from tidelog.pipelines.framework.alert_state import KEY, STATE_COLUMNS, UNTIL, key_of
from tidelog.pipelines.framework.alert_tasks import Batch, Bucket, FollowedUp, Found, RowsOf
from tidelog.pipelines.framework.events import INVITE, INVITE_FRAUD_ALERTS, EventKind
from tidelog.pipelines.jobs.invite_fraud.graph import Edge, InviteGraph
from tidelog.pipelines.jobs.invite_fraud.invitations import invitations
from tidelog.pipelines.jobs.invite_fraud.rings import ring_alerts
from tidelog.pipelines.jobs.invite_fraud.schema import NAME, RULES, Alert, Rules
from tidelog.pipelines.jobs.invite_fraud.scoring import Invitation, Subject, score

INVITER, AGAIN, DEVICE, BLOCK, CHAIN, PROBE = range(6)
_SUBJECTS = {
    INVITER: ("inviter", "inviter"),
    AGAIN: ("inviter", "inviter"),
    DEVICE: ("device", "device"),
    BLOCK: ("number-block", "block"),
}
"""The kind of subject in whose windows a row counts, and the column that names it."""
_TEXT = ("event_id", "inviter", "invitee", "inviter_device", "device", "network", "block")
_UNUSED: dict[int, tuple[str, ...]] = {
    INVITER: (),
    AGAIN: ("inviter_device",),
    DEVICE: ("inviter_device",),
    BLOCK: ("inviter_device",),
    CHAIN: ("event_id", "invitee", "network", "block"),
    PROBE: ("event_id", "inviter_device", "device", "network", "block"),
}
"""What rows of a kind are not asked for."""
_SCHEMA = pa.schema(
    [
        *STATE_COLUMNS,
        pa.field("kind", pa.uint8()),
        pa.field("pair", pa.uint32()),
        pa.field("batch", pa.int64()),
        pa.field("time_us", pa.int64()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        *(pa.field(name, pa.string()) for name in _TEXT),
    ]
)


class _Search(NamedTuple):
    """What is left to the follow-up: an invitation that may close a circle, or a device with a chain."""

    device: str | None
    inviter: str = ""
    invitee: str = ""


@dataclass(frozen=True)
class InviteDetector:
    """Finds invitations from one device, address or number block, in bursts, or in rings."""

    rules: Rules = RULES
    within: Window | None = None
    """Only what reaches into this time, with all that it takes to see it; None: as it comes."""
    name: str = NAME
    kind: EventKind = INVITE
    topic: str = INVITE_FRAUD_ALERTS
    schema: pa.Schema = _SCHEMA

    @property
    def watermark_delay_us(self) -> int:
        return microseconds(self.rules.watermark)

    @property
    def memory_us(self) -> int:
        """So long before the watermark an invitation may lie that still counts."""
        return microseconds(self.rules.horizon)

    @property
    def _windows(self) -> SlidingWindows:
        return SlidingWindows(microseconds(self.rules.window), microseconds(self.rules.slide))

    def rows(self, parsed: pa.StructArray, partitions: pa.Array, offsets: pa.Array) -> pa.Table:
        """The invitations among parsed events, in all their places."""
        found = invitations(parsed, partitions, offsets)
        if self.within is not None:
            start_us, end_us = self.within.start_us - self.memory_us, self.within.end_us + self.memory_us
            found = found.filter(_is_between(found["time_us"], start_us, end_us))
        is_edge = self._is_edge(found)
        edges, others = found.filter(is_edge), found.filter(pc.invert(is_edge))
        blocks = found.filter(pc.is_valid(found["block"]))
        chains = edges.filter(pc.equal(edges["inviter_device"], edges["device"]))
        return pa.concat_tables(
            [
                self._placed(edges, INVITER, _keys(edges, "inviter")),
                self._placed(others, AGAIN, _keys(others, "inviter")),
                self._placed(found, DEVICE, _keys(found, "device")),
                self._placed(blocks, BLOCK, _keys(blocks, "block")),
                self._placed(chains, CHAIN, map(_chain_key, chains["device"].to_pylist())),
                self._placed(edges, PROBE, _keys(edges, "invitee")),
            ]
        )

    def _placed(self, found: pa.Table, kind: int, keys: Iterable[int]) -> pa.Table:
        """Invitations as rows of one kind."""
        pairs: pa.Array = pa.nulls(found.num_rows, pa.uint32())
        until_us = self._windows.over_us(found["time_us"])
        if kind in {INVITER, CHAIN, PROBE}:
            # As long as it is no older than the horizon, measured from the newest event.
            forgotten_us = pc.add(found["time_us"], self.memory_us - self.watermark_delay_us + 1)
            until_us = pc.max_element_wise(forgotten_us, until_us)
        if kind == INVITER:
            names = zip(found["inviter"].to_pylist(), found["invitee"].to_pylist(), strict=True)
            pairs = pa.array((crc32("\n".join(pair).encode()) for pair in names), pa.uint32())
        columns = {
            **{name: found[name] for name in found.column_names},
            **{name: pa.nulls(found.num_rows, pa.string()) for name in _UNUSED[kind]},
            KEY: pa.array(keys, pa.uint32()),
            UNTIL: until_us,
            "kind": _repeated(kind, found.num_rows, pa.uint8()),
            "pair": pairs,
            "batch": pa.nulls(found.num_rows, pa.int64()),
        }
        return pa.table({name: columns[name] for name in _SCHEMA.names}, schema=_SCHEMA)

    def _is_edge(self, found: pa.Table) -> pa.ChunkedArray:
        """Of an invitation of oneself, and of one behind the range, the graph knows nothing."""
        is_edge = pc.not_equal(found["inviter"], found["invitee"])
        if self.within is not None:
            is_edge = pc.and_(is_edge, pc.less(found["time_us"], self.within.end_us))
        return is_edge

    def detect(self, bucket: Bucket) -> Found:
        """Alerts on those whose windows have got enough invitations, and what may be part of a ring."""
        rows = {kind: bucket.new.filter(pc.equal(bucket.new["kind"], kind)) for kind in range(PROBE + 1)}
        in_memory = {
            kind: rows[kind].filter(pc.greater(rows[kind][UNTIL], bucket.watermark_us))
            for kind in (INVITER, CHAIN, PROBE)
        }
        edges, repeated = self._first_of_pairs(bucket, in_memory[INVITER])
        counted = [rows[INVITER], rows[AGAIN]]
        again = [self._in_time(table, bucket.watermark_us) for table in (rows[AGAIN], repeated)]
        others = [self._in_time(rows[kind], bucket.watermark_us) for kind in (DEVICE, BLOCK)]
        fresh = pa.concat_tables([self._in_time(rows[INVITER], bucket.watermark_us), again[0], *others])
        kept = pa.concat_tables([edges, *again, *others, in_memory[CHAIN]])
        searches = [
            *self._met(bucket, in_memory[PROBE], edges),
            *self._chained(bucket, in_memory[CHAIN]),
        ]
        return Found(
            list(self._window_alerts(bucket, fresh)),
            kept.set_column(
                kept.column_names.index("batch"),
                _SCHEMA.field("batch"),
                _repeated(bucket.batch_id, kept.num_rows, pa.int64()),
            ),
            sum(self._in_range(table).num_rows for table in counted),
            sum(table.num_rows - self._in_time(table, bucket.watermark_us).num_rows for table in counted),
            tuple(msgspec.msgpack.encode(search) for search in searches),
        )

    def _in_time(self, rows: pa.Table, watermark_us: int) -> pa.Table:
        """The rows that count in a window which is not over."""
        return rows.filter(pc.greater(self._windows.over_us(rows["time_us"]), watermark_us))

    def _in_range(self, rows: pa.Table) -> pa.Table:
        if self.within is None:
            return rows
        return rows.filter(_is_between(rows["time_us"], self.within.start_us, self.within.end_us))

    def _first_of_pairs(self, bucket: Bucket, new: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The new invitations that are the first between two people, and the others, as rows AGAIN."""
        known = bucket.state.rows_of(pc.unique(new[KEY]), ("pair",))["pair"]
        counts = pc.value_counts(new["pair"])
        doubled = counts.field("values").filter(pc.greater(counts.field("counts"), 1))
        suspects = pa.chunked_array([*known.chunks, doubled], pa.uint32())
        is_suspect = pc.is_in(new["pair"], value_set=suspects)
        if not pc.any(is_suspect).as_py():
            return new, new.slice(0, 0)
        suspected = new.filter(is_suspect)
        old = bucket.state.rows_of(pc.unique(suspected[KEY]))
        old = old.filter(pc.and_(pc.equal(old["kind"], INVITER), pc.greater(old[UNTIL], bucket.watermark_us)))
        taken = set(zip(old["inviter"].to_pylist(), old["invitee"].to_pylist(), strict=True))
        firsts = []
        edges = _edges(suspected)
        for at in sorted(range(len(edges)), key=edges.__getitem__):
            pair = edges[at].inviter, edges[at].invitee
            if pair not in taken:
                taken.add(pair)
                firsts.append(at)
        is_first = pc.is_in(pa.array(range(len(edges)), pa.int64()), value_set=pa.array(firsts, pa.int64()))
        repeated = suspected.filter(pc.invert(is_first))
        columns = {
            **{name: repeated[name] for name in repeated.column_names},
            "kind": _repeated(AGAIN, repeated.num_rows, pa.uint8()),
            UNTIL: self._windows.over_us(repeated["time_us"]),
        }
        return (
            pa.concat_tables([new.filter(pc.invert(is_suspect)), suspected.filter(is_first)]),
            pa.table(columns, schema=_SCHEMA),
        )

    def _met(self, bucket: Bucket, probes: pa.Table, edges: pa.Table) -> Iterator[_Search]:
        """Invitations of somebody who has invited others before."""
        probes = self._in_range(probes)
        if not probes.num_rows:
            return
        held = pa.chunked_array(bucket.state.held(pc.unique(probes[KEY])), pa.uint32())
        first = edges.group_by(KEY).aggregate([("time_us", "min")])
        at = pc.index_in(probes[KEY], value_set=first[KEY])
        is_later = pc.greater_equal(probes["time_us"], first["time_us_min"].take(at)).fill_null(False)
        met = probes.filter(pc.or_(pc.is_in(probes[KEY], value_set=held), is_later))
        for inviter, invitee in zip(met["inviter"].to_pylist(), met["invitee"].to_pylist(), strict=True):
            yield _Search(None, inviter, invitee)

    def _chained(self, bucket: Bucket, chains: pa.Table) -> Iterator[_Search]:
        """Devices on which enough people have invited the next one."""
        chains = self._in_range(chains)
        if not chains.num_rows:
            return
        keys = bucket.frequent(chains, self.rules.chain[-1][0])
        devices = chains.filter(pc.is_in(chains[KEY], value_set=keys))["device"]
        for device in pc.unique(devices).to_pylist():
            yield _Search(device)

    def _window_alerts(self, bucket: Bucket, fresh: pa.Table) -> Iterator[tuple[bytes, bytes]]:
        keys = bucket.frequent(fresh, self.rules.least)
        if not len(keys):
            return
        asked: dict[Subject, set[Window]] = {}
        new = fresh.filter(pc.is_in(fresh[KEY], value_set=keys))
        for subject, time_us in zip(_subjects(new), new["time_us"].to_pylist(), strict=True):
            asked.setdefault(subject, set()).update(self._asked(time_us, bucket.watermark_us))
        oldest_us = min((window.start_us for windows in asked.values() for window in windows), default=0)
        rows = bucket.rows_with(keys)
        rows = rows.filter(
            pc.and_(pc.greater_equal(rows["time_us"], oldest_us), pc.less(rows["kind"], CHAIN))
        )
        by_subject: dict[Subject, list[Invitation]] = {}
        columns = [rows[name].to_pylist() for name in Invitation._fields]
        for subject, *invitation in zip(_subjects(rows), *columns, strict=True):
            if subject in asked:
                by_subject.setdefault(subject, []).append(Invitation(*invitation))
        for subject, windows in asked.items():
            alert = partial(self._score, subject)
            yield from window_alerts(by_subject[subject], sorted(windows), self.rules.least, alert)

    def _score(self, subject: Subject, window: Window, delivered: Sequence[Invitation]) -> Alert | None:
        return score(subject, window, delivered, self.rules)

    def _asked(self, time_us: int, watermark_us: int) -> Iterator[Window]:
        """The windows of a moment that are not over, or that reach into the range."""
        for window in self._windows.of(time_us):
            if self.within is None:
                if window.end_us > watermark_us:
                    yield window
            elif window.start_us < self.within.end_us and window.end_us > self.within.start_us:
                yield window

    def follow_up(self, left: list[bytes], rows_of: RowsOf, batch: Batch) -> FollowedUp:
        """The rings that the new invitations close."""
        searches = [msgspec.msgpack.decode(each, type=_Search) for each in left]
        graph = InviteGraph(self.rules)
        loaded = _Loaded(rows_of, batch.watermark_us)
        devices = {search.device for search in searches if search.device is not None}
        members = loaded.inviters_on(devices)
        starts = {search.invitee for search in searches if search.device is None}
        loaded.load({search.inviter for search in searches if search.device is None} | members)
        unfinished = 0
        reached = starts
        for _ in range(self.rules.max_cycle - 1):
            if len(loaded.rows) > self.rules.max_edges:
                unfinished = len(searches)
                break
            reached = loaded.load(reached)
        old: list[tuple[int, Edge]] = []
        new: list[tuple[int, Edge]] = []
        for at, edge in loaded.rows:
            (new if at == batch.batch_id and self._is_inside(edge) else old).append((at, edge))
        graph.restore(edge for _, edge in sorted(old))
        rings = graph.add(edge for _, edge in new)
        return FollowedUp(ring_alerts(rings, self.rules), graph.given_up + unfinished)

    def _is_inside(self, edge: Edge) -> bool:
        within = self.within
        return within is None or within.start_us <= edge.time_ms * 1000 < within.end_us


class _Loaded:
    """The edges of the graph that were asked for, with the batch that they came in."""

    def __init__(self, rows_of: RowsOf, watermark_us: int) -> None:
        self._rows_of = rows_of
        self._watermark_us = watermark_us
        self._invited: dict[str, list[str]] = {}
        self.rows: list[tuple[int, Edge]] = []

    def load(self, names: set[str]) -> set[str]:
        """Load the invitations by some people, and say whom they invited."""
        fresh = names - self._invited.keys()
        self._invited |= {name: [] for name in fresh}
        rows = self._found(INVITER, map(key_of, fresh))
        rows = rows.filter(pc.is_in(rows["inviter"], value_set=pa.array(fresh, pa.string())))
        for batch_id, edge in zip(rows["batch"].to_pylist(), _edges(rows), strict=True):
            self.rows.append((batch_id, edge))
            self._invited[edge.inviter].append(edge.invitee)
        return {invitee for name in names for invitee in self._invited[name]}

    def inviters_on(self, devices: set[str]) -> set[str]:
        """Who invited somebody on the inviter's own device."""
        rows = self._found(CHAIN, map(_chain_key, devices))
        rows = rows.filter(pc.is_in(rows["device"], value_set=pa.array(devices, pa.string())))
        return set(rows["inviter"].to_pylist())

    def _found(self, kind: int, keys: Iterable[int]) -> pa.Table:
        rows = self._rows_of(keys)
        return rows.filter(pc.and_(pc.equal(rows["kind"], kind), pc.greater(rows[UNTIL], self._watermark_us)))


def _edges(rows: pa.Table) -> list[Edge]:
    columns = ("event_id", "inviter", "invitee", "inviter_device", "device", "network", "partition", "offset")
    values = zip(rows["time_us"].to_pylist(), *(rows[name].to_pylist() for name in columns), strict=True)
    return [Edge(time_us // 1000, *others) for time_us, *others in values]


def _subjects(rows: pa.Table) -> Iterator[Subject]:
    """Whose windows the rows count in."""
    names = {column: rows[column].to_pylist() for column in ("inviter", "device", "block")}
    for at, kind in enumerate(rows["kind"].to_pylist()):
        subject, column = _SUBJECTS[kind]
        yield Subject(subject, names[column][at])


def _keys(rows: pa.Table, column: str) -> Iterator[int]:
    return map(key_of, rows[column].to_pylist())


def _repeated(value: int, times: int, type_: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, type_), times)


def _chain_key(device: str) -> int:
    return key_of(f"chain\n{device}")


def _is_between(times_us: pa.ChunkedArray, start_us: int, end_us: int) -> pa.ChunkedArray:
    return pc.and_(pc.greater_equal(times_us, start_us), pc.less(times_us, end_us))
