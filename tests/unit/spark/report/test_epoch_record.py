"""The names under which brokers remember what tasks have written."""

from __future__ import annotations

import pytest

from tidelog.spark.report.epoch_record import GROUP_PREFIX, task_name, task_number


def test_a_task_is_known_by_the_name_of_its_group() -> None:
    assert [task_number("app", task_name("app", task)) for task in (0, 7, 2**31 - 1)] == [0, 7, 2**31 - 1]
    assert task_number("app", task_name("other", 7)) is None


@pytest.mark.parametrize("number", ["", "x", "-1", "1.5", "9" * 5000, "\u0663"])
def test_a_group_that_somebody_else_has_named_so_is_no_task(number: str) -> None:
    assert task_number("app", f"{GROUP_PREFIX}app.{number}") is None
