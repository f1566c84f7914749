"""The live picture of ``tidelog top``, for a terminal of any size: made anew for every frame.

A line about the cluster, then brokers, topics, groups, Spark's queries, requests and throttled clients, each
a heading and as many rows as there is room for; wide terminals have two lists side by side. What brokers do
not tell, queries that are not there and nobody who is throttled take no room where there is little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tidelog.cli.output import bytes_text, counted, printable
from tidelog.cli.top.loads import ClusterLoad
from tidelog.cli.top.sections import Section, kept_columns, sections

WIDE = 150
HISTORY = 60
_ACCENT = "cyan"
_BLOCKS = "▁▂▃▄▅▆▇█"
_GAP = 2
_LEAST_NAME = 16
_AROUND_ROWS = 3
"""A blank line, the heading and the names of the columns."""


@dataclass
class Frame:
    """What the picture is made of."""

    load: ClusterLoad | None = None
    rates: list[float] = field(default_factory=list)
    """Records a second, the newest last."""
    age_s: float = 0.0
    trouble: str = ""
    """Why there is no newer sample."""
    due_s: float = math.inf
    """The age at which there should be a newer one."""

    def add(self, load: ClusterLoad) -> None:
        """A newer load."""
        self.load, self.trouble = load, ""
        self.rates = [*self.rates, load.records_per_second][-HISTORY:]


def draw(frame: Frame, width: int, height: int) -> RenderableType:
    """The whole picture, at most ``height`` lines."""
    load = frame.load
    if load is None:
        return Text("")
    lines: list[RenderableType] = [_headline(frame, load, width)]
    health = _health(frame, load)
    if health is not None:
        lines.append(health)
    # One line is left for how to end it.
    room = height - len(lines) - 1
    brokers, topics, groups, queries, requests, throttled = sections(load, for_people=True)
    watched = requests.rows or throttled.rows
    pairs: list[tuple[Section, ...]]
    if width >= WIDE:
        spark = [(queries,)] if queries.rows else []
        pairs = [(brokers,), (topics, groups), *spark, *([(requests, throttled)] if watched else [])]
    else:
        more = [(each,) for each in (queries, throttled, requests) if each.rows]
        pairs = [(brokers,), (topics,), (groups,), *more]
    rows = _shares(room, [max(1, *(len(each.rows) for each in pair)) for pair in pairs])
    for pair, count in zip(pairs, rows, strict=True):
        if count:
            lines.append(_beside(*pair, width, count) if len(pair) == 2 else _listed(pair[0], width, count))
    last = "Ctrl-C ends it" + (
        f" · requests and throttled clients: {load.unwatched}" if load.unwatched else ""
    )
    lines.append(Text(last, "dim", no_wrap=True, overflow="ellipsis"))
    return Group(*lines)


def _beside(left: Section, right: Section, width: int, count: int) -> Table:
    half = (width - 4) // 2
    table = Table.grid(padding=(0, 4, 0, 0))
    table.add_column(width=half)
    table.add_column(width=half)
    table.add_row(_listed(left, half, count), _listed(right, half, count))
    return table


def _shares(room: int, wanted: Sequence[int]) -> list[int]:
    """How many rows each list gets; those that need little leave it to the others."""
    shares = [0] * len(wanted)
    left = room
    for at in range(len(wanted)):
        if left < _AROUND_ROWS + 1:
            break
        waiting = len(wanted) - at
        fair = max(left // waiting - _AROUND_ROWS, 1)
        spare = sum(max(fair - each, 0) for each in wanted[at + 1 :])
        shares[at] = min(wanted[at], fair + spare, left - _AROUND_ROWS)
        left -= shares[at] + _AROUND_ROWS
    return shares


def _listed(section: Section, width: int, count: int) -> RenderableType:
    shown = [[printable(cell) for cell in row] for row in section.rows[:count]]
    heading = Text.assemble((section.title, f"bold {_ACCENT}"))
    if len(section.rows) > len(shown):
        heading.append(f"  {len(shown)} of {len(section.rows)}", "dim")
    if not section.rows:
        return Group(Text(""), heading, Text(section.nothing, "dim"))
    widths = [
        max([len(column.name), *(len(row[at]) for row in shown)]) for at, column in enumerate(section.columns)
    ]
    kept = kept_columns(section.columns, widths, width, gap=_GAP, least_first=_LEAST_NAME)
    table = Table.grid(padding=(0, _GAP, 0, 0))
    for at in kept:
        column = section.columns[at]
        room = width - sum(widths[each] for each in kept[1:]) - _GAP * (len(kept) - 1)
        table.add_column(
            justify="right" if column.number else "left",
            no_wrap=True,
            overflow="ellipsis",
            width=max(min(widths[at], room), 1) if at == 0 else widths[at],
        )
    table.add_row(*(Text(section.columns[at].name, "dim") for at in kept))
    for number, row in enumerate(shown):
        style = "bold red" if number in section.bad else ""
        table.add_row(*(Text(row[at], style) for at in kept))
    return Group(Text(""), heading, table)


def _headline(frame: Frame, load: ClusterLoad, width: int) -> Text:
    text = Text.assemble((" TIDELOG ", f"bold black on {_ACCENT}"), no_wrap=True, overflow="ellipsis")
    text.append(f"  {load.records_per_second:,.0f} records/s", "bold")
    if load.bytes_per_second is not None:
        text.append(f"  {bytes_text(load.bytes_per_second)}/s", "bold")
    text.append(f"  lag {load.total_lag:,}")
    rest = f"  {counted(len(load.brokers), 'broker')}, {counted(load.partitions, 'partition')}"
    if text.cell_len + len(rest) <= width:
        text.append(rest, "dim")
    room = width - text.cell_len - 2
    if room >= 10:
        text.append("  " + _curve(frame.rates[-min(room, HISTORY) :]), _ACCENT)
    return text


def _curve(rates: Sequence[float]) -> str:
    highest = max(rates, default=0.0)
    if not highest:
        return _BLOCKS[0] * len(rates)
    return "".join(_BLOCKS[min(int(rate / highest * 7.99), 7)] for rate in rates)


def _health(frame: Frame, load: ClusterLoad) -> Text | None:
    """What is wrong, in one line; None where nothing is."""
    told: list[str] = []
    if frame.trouble:
        told.append(f"no data for {frame.age_s:.0f} s: {frame.trouble}")
    elif frame.age_s > frame.due_s:
        told.append(f"no data for {frame.age_s:.0f} s: not all brokers have responded yet")
    down = [str(each.id) for each in load.brokers if not each.alive]
    if down:
        told.append(f"broker {', '.join(down)} is down")
    if load.offline:
        told.append(f"{counted(load.offline, 'partition')} offline")
    if load.under_replicated:
        told.append(f"{counted(load.under_replicated, 'partition')} under-replicated")
    told += load.problems
    if not told:
        return None
    return Text(" · ".join(told), "bold red", no_wrap=True, overflow="ellipsis")
