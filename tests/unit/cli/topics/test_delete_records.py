"""`tidelog topics delete-records` without a broker: files and options."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.cli.failure import WrongUsage
from tidelog.cli.topics.delete_records import Target, read_offsets
from tidelog.ids import TopicPartition

Tidelog = Callable[..., tuple[int, str, str]]


def test_a_file_of_kafkas_tool_is_read(tmp_path: Path) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(
        '{"partitions":[{"topic":"a","partition":0,"offset":7},{"topic":"a","partition":1,"offset":-1}],'
        '"version":1}'
    )
    assert read_offsets(file) == {
        TopicPartition("a", 0): Target(offset=7),
        TopicPartition("a", 1): Target(offset=-1),
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[", "is not a valid list of offsets"),
        ('{"version":2,"partitions":[]}', "version 2"),
        ('{"partitions":[]}', "lists no partitions"),
        ('{"partitions":[{"topic":"a","partition":0,"offset":-2}]}', "-1 for the end"),
        (
            '{"partitions":[{"topic":"a","partition":0,"offset":1},{"topic":"a","partition":0,"offset":2}]}',
            "lists a-0 twice",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "offsets.json"
    file.write_text(content)
    with pytest.raises(WrongUsage, match=said):
        read_offsets(file)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("orders",), "specify topics with one of"),
        (("--all",), "specify topics with one of"),
        (("orders", "--all", "--before-offset", "3"), "use only one of"),
        (("orders", "--before", "yesterday"), "write milliseconds since 1970"),
        (("orders", "--older-than", "week"), "write a duration"),
    ],
)
def test_it_is_said_what_to_delete(tidelog: Tidelog, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = tidelog("topics", "delete-records", *arguments)
    assert code == 2
    assert said in err
