"""The plan of ``groups reset-offsets``: as a table, as JSON, and as CSV in the form of Kafka's own tool.

A CSV line is ``topic,partition,offset``, or ``group,topic,partition,offset`` where a file holds the plans of
several groups; no header.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from tidelog.cli.failure import WrongUsage
from tidelog.cli.output import print_table
from tidelog.client.admin.offset_reset import Adjustment, PlannedOffset, ResetPlan
from tidelog.ids import TopicPartition

_COLUMNS = ("topic", "partition", "current", "new", "change", "note")
_NUMBERS = ("partition", "current", "new", "change")


def print_plan(plan: ResetPlan) -> None:
    """One row per partition; in a pipe it begins with the group."""
    rows = [_row(each) for each in plan.offsets]
    if rows:
        print_table(_COLUMNS, rows, right=_NUMBERS)


def _row(each: PlannedOffset) -> tuple[object, ...]:
    change = None if each.change is None else f"{each.change:+d}" if each.change else "0"
    note = None if each.adjustment is Adjustment.NONE else each.adjustment.value
    return (each.partition.topic, each.partition.partition, each.current, each.new, change, note)


def plan_json(plan: ResetPlan) -> dict[str, object]:
    """The plan for programs."""
    return {
        "group": plan.group_id,
        "offsets": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "current_offset": each.current,
                "new_offset": each.new,
                "change": each.change,
                "note": each.adjustment.value or None,
            }
            for each in plan.offsets
        ],
        "gone": [{"topic": each.topic, "partition": each.partition} for each in plan.gone],
    }


def write_plan(plan: ResetPlan, path: Path) -> None:
    """Write the plan as CSV to ``path``, or to stdout for ``-``."""
    rows = [(each.partition.topic, each.partition.partition, each.new) for each in plan.offsets]
    if str(path) == "-":
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)
        return
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def read_plan(path: Path, group: str) -> dict[TopicPartition, int]:
    """The offsets for ``group`` in a CSV file; lines about other groups are passed over."""
    offsets: dict[TopicPartition, int] = {}
    with path.open(newline="") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            cells = [cell.strip() for cell in row]
            if not any(cells):
                continue
            if len(cells) == 4:
                owner, *cells = cells
                if owner != group:
                    continue
            if len(cells) != 3 or not all(cell.isascii() and cell.isdigit() for cell in cells[1:]):
                line = f"{path}, line {number}: {','.join(row)!r}"
                raise WrongUsage(f"{line} is not of the form topic,partition,offset")
            offsets[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
    if not offsets:
        raise WrongUsage(f"{path} has no offsets for group {group!r}")
    return offsets
