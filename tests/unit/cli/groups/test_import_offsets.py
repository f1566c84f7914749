"""Which of the offsets in ZooKeeper are carried over."""

from __future__ import annotations

from tidelog.cli.groups.import_offsets import Note, plan_import
from tidelog.ids import TopicPartition

A, B, C, D = (TopicPartition("orders", at) for at in range(4))
OFFSETS = {A: 10, B: 20, C: 30, D: 40}


def test_offsets_are_left_out_where_the_group_has_gone_on_since() -> None:
    plan = plan_import(OFFSETS, dict.fromkeys(OFFSETS, 100), {B: 25}, overwrite=False)
    assert [each.note for each in plan] == [Note.NONE, Note.COMMITTED, Note.NONE, Note.NONE]
    assert [each.is_wanted for each in plan] == [True, False, True, True]
    assert plan[1].committed == 25


def test_overwrite_takes_them_too() -> None:
    plan = plan_import(OFFSETS, dict.fromkeys(OFFSETS, 100), {B: 25}, overwrite=True)
    assert all(each.is_wanted for each in plan)


def test_partitions_that_are_gone_are_left_out_and_offsets_past_the_end_are_said() -> None:
    plan = plan_import(OFFSETS, {A: 5, B: None, C: 30}, {}, overwrite=False)
    assert [each.note for each in plan] == [Note.BEYOND_THE_END, Note.NONE, Note.NONE, Note.GONE]
    assert [each.is_wanted for each in plan] == [True, True, True, False]
