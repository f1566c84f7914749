"""The main job with its tables in Cassandra: whose keyspace, and what is said about the tables at the end."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tidelog_rewards.demo import directory
from tidelog_rewards.demo.cassandra_tables import TableFigures
from tidelog_rewards.demo.directory import DemoError
from tidelog_rewards.demo.settings import DemoSettings
from tidelog_rewards.demo.summary import next_steps


def settings(tmp_path: Path, **given: object) -> DemoSettings:
    return dataclasses.replace(DemoSettings(tmp_path / "demo", rate=1, cassandra="db:9043"), **given)  # type: ignore[arg-type]


def test_a_fresh_run_has_a_keyspace_of_its_own_and_a_resumed_one_its_old(tmp_path: Path) -> None:
    names = []
    for resume in (False, True, False):
        chosen = settings(tmp_path, resume=resume)
        with directory.prepared(chosen):
            names.append(directory.keyspace(chosen))
    assert names[0] == names[1] != names[2]
    assert all(name.startswith("tidelog_demo_") for name in names)
    assert any(names[2] in command for _, command in next_steps(chosen, "127.0.0.1:9092"))


def test_a_run_is_not_resumed_with_its_tables_elsewhere(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    with directory.prepared(chosen):
        directory.keyspace(chosen)
    with pytest.raises(DemoError, match="the tables of that run are in Cassandra; name it with --cassandra"):
        directory.keyspace(settings(tmp_path, resume=True, cassandra=None))
    with directory.prepared(settings(tmp_path, cassandra=None)):
        pass
    with pytest.raises(DemoError, match="had no Cassandra; leave --cassandra out"):
        directory.keyspace(settings(tmp_path, resume=True))


@pytest.mark.parametrize(
    ("paid", "said"),
    [
        ({"a": 5, "b": 1200}, ["all 2 users have exactly the cents that were paid to them"]),
        ({"a": 6, "b": 1200}, ["1 of 2 users differ from what was paid to them"]),
        ({"a": 5}, ["1 of 1 users differ from what was paid to them"]),
        ({}, []),
    ],
)
def test_what_is_in_the_tables_is_held_to_what_was_paid(paid: dict[str, int], said: list[str]) -> None:
    figures = TableFigures("db:9042", "k", {"credit": 1234, "user_earnings": 2}, {"a": 5, "b": 1200})
    lines = figures.sentences(paid)
    assert lines[:2] == [
        "Cassandra at db:9042, rows in keyspace k: credit 1,234, user_earnings 2",
        "Cassandra's user_earnings: top earners b 12.00, a 0.05",
    ]
    assert lines[2:] == [f"Cassandra's user_earnings: {each}" for each in said]
