"""The plan of `groups reset-offsets` as a file: Kafka's own tool reads what we write, and the other way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.cli.failure import WrongUsage
from tidelog.cli.groups.plan import read_plan, write_plan
from tidelog.client.admin.offset_reset import PlannedOffset, ResetPlan
from tidelog.ids import TopicPartition


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    offsets = {TopicPartition("orders", 0): 12, TopicPartition("a.b-c_d", 11): 0}
    plan = ResetPlan("g", tuple(PlannedOffset(each, None, new) for each, new in offsets.items()))
    path = tmp_path / "plan.csv"
    write_plan(plan, path)
    assert path.read_text() == "orders,0,12\na.b-c_d,11,0\n"
    assert read_plan(path, "g") == offsets


def test_a_file_may_hold_the_plans_of_several_groups(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text('g,orders,0,1\nother,orders,0,2\r\n\n"g",orders, 1,3\n')
    assert read_plan(path, "g") == {TopicPartition("orders", 0): 1, TopicPartition("orders", 1): 3}
    with pytest.raises(WrongUsage, match="no offsets for group 'nobody'"):
        read_plan(path, "nobody")


@pytest.mark.parametrize(
    "line", ["orders,0", "orders,zero,1", "orders,0,-1", "topic,partition,offset", "orders"]
)
def test_a_line_that_is_no_plan_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(f"orders,1,1\n{line}\n")
    with pytest.raises(WrongUsage, match=r"plan\.csv, line 2: .* topic,partition,offset"):
        read_plan(path, "g")


def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_plan(tmp_path / "none.csv", "g")
