"""Reassignments as files in the form of Kafka's tool."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.cli.failure import WrongUsage
from tidelog.cli.partitions.file import read_assignment, write_assignment
from tidelog.ids import TopicPartition

Tidelog = Callable[..., tuple[int, str, str]]
ORDERS = {TopicPartition("orders", 0): (1, 2), TopicPartition("orders", 1): (2, 3)}


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    write_assignment(ORDERS, tmp_path / "plan.json")
    assert read_assignment(tmp_path / "plan.json") == ORDERS
    assert json.loads((tmp_path / "plan.json").read_text())["version"] == 1


def test_a_file_of_kafkas_tool_is_read(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    )
    assert read_assignment(file) == {TopicPartition("orders", 0): (1, 2)}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not a valid reassignment"),
        ('{"version":2,"partitions":[]}', "version 2"),
        ('{"partitions":[]}', "lists no partitions"),
        ('{"partitions":[{"topic":"a","partition":0}]}', "replicas"),
        ('{"partitions":[{"topic":"a","partition":0,"replicas":[]}]}', "no replicas for a-0"),
        ('{"partitions":[{"topic":"a","partition":0,"replicas":[1,1]}]}', "a broker twice for a-0"),
        (
            '{"partitions":[{"topic":"a","partition":0,"replicas":[1]},'
            '{"topic":"a","partition":0,"replicas":[2]}]}',
            "lists a-0 twice",
        ),
        ('{"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["/d"]}]}', '"log_dirs"'),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(content)
    with pytest.raises(WrongUsage, match=said) as refusal:
        read_assignment(file)
    assert str(file) in str(refusal.value)


@pytest.mark.parametrize("content", [b'{"partitions":[{"topic":"\xff"}]}', b"[" * 100_000])
def test_bytes_that_are_no_json_are_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(content)
    with pytest.raises(WrongUsage, match="is not a valid reassignment"):
        read_assignment(file)


@pytest.mark.parametrize(
    ("arguments", "mend"),
    [
        (["partitions", "reassign", "--topics", "a"], "--to ID"),
        (["partitions", "reassign", "--to", "1"], "--topics TOPIC"),
        (["partitions", "reassign", "--topics", "a", "--to", "1,x"], "write broker ids as 1,2,3"),
        (
            ["partitions", "reassign", "--topics", "a", "--to", "1", "--execute", "--cancel"],
            "one of --dry-run",
        ),
        (["partitions", "elect"], ""),
        (["partitions", "elect", "--unclean"], "--all-topics"),
        (["partitions", "elect", "--all-topics", "--topic", "a"], "--topic TOPIC[:0,1]"),
        (["partitions", "elect", "-t", "a", "-t", "b", "-p", "0"], "requires exactly one --topic"),
        (["cluster", "start", "--set", "broker.id=4"], "see --brokers"),
        (["cluster", "start", "--set", "zookeeper.connect=a:1"], "see --zookeeper"),
        (["zookeeper", "start", "--servers", "2"], "use 1 or 3"),
    ],
)
def test_wrong_command_lines_get_code_two_and_the_mend(
    tidelog: Tidelog, arguments: list[str], mend: str
) -> None:
    code, _, err = tidelog(*arguments)
    assert code == 2
    assert mend in err
