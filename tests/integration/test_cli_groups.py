"""`tidelog groups` as a person runs it, with groups of real clients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.command_line import CommandLine
from tests.rigs.group_members.team import Team
from tests.rigs.group_members.topics import create, fill

from tidelog.cli.groups.command import INTERNAL_PREFIX
from tidelog.spark.report.epoch_record import GROUP_PREFIX

NewName = Callable[[], str]
RECORDS = 20


@pytest.fixture
def tidelog(group_bootstrap: str) -> CommandLine:
    return CommandLine(group_bootstrap)


@pytest.fixture
def topic(group_bootstrap: str, topic_name: NewName) -> str:
    """A topic with 20 records in each of two partitions."""
    name = topic_name()
    fill(group_bootstrap, create(group_bootstrap, name, 2), RECORDS)
    return name


def commit(bootstrap: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Commit as a client does that never joins."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "client.id": "simple",
        }
    )
    places = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(tidelog: CommandLine, group: str) -> dict[tuple[str, int], int]:
    [described] = tidelog.json("groups", "describe", group)
    return {(each["topic"], each["partition"]): each["committed_offset"] for each in described["partitions"]}


def plan(tidelog: CommandLine, group: str, *arguments: str) -> list[tuple[Any, ...]]:
    found = tidelog.json("groups", "reset-offsets", group, *arguments)
    return [
        (each["partition"], each["current_offset"], each["new_offset"], each["note"])
        for each in found["offsets"]
    ]


def test_groups_in_which_sinks_keep_notes_are_shown_only_when_asked_for(
    tidelog: CommandLine, group_bootstrap: str, topic: str
) -> None:
    assert GROUP_PREFIX.startswith(INTERNAL_PREFIX)
    notes = f"{GROUP_PREFIX}{topic}.0"
    for group in (notes, topic):
        commit(group_bootstrap, group, {(topic, 0): 3})

    def listed(*arguments: str) -> set[str]:
        return {each["group"] for each in tidelog.json("groups", *arguments)} & {notes, topic}

    for command in (
        ("list",),
        ("list", "--members"),
        ("describe", "--all"),
        ("describe", "--all", "--state"),
    ):
        assert listed(*command) == {topic}
        assert listed(*command, "--internal") == {topic, notes}
    assert listed("describe", notes) == {notes}
    _, seen = tidelog.on_terminal("groups", "list", columns=200)
    assert "internal group" in seen
    assert "not shown; use --internal to show" in seen
    assert notes not in seen


@pytest.mark.parametrize(
    ("client", "protocol", "kind"),
    [
        ("confluent", "classic", "Classic"),
        ("kafka-python", "classic", "Classic"),
        ("aiokafka", "classic", "Classic"),
        ("confluent", "consumer", "Consumer"),
    ],
)
def test_a_living_group_is_shown_with_members_assignments_and_lag(
    tidelog: CommandLine, group_bootstrap: str, topic: str, client: str, protocol: str, kind: str
) -> None:
    places = [(topic, 0), (topic, 1)]
    with Team(group_bootstrap, topic, [topic], protocol=protocol) as team:
        team.join(client)
        team.join(client)
        team.wait_for_owners(places)
        team.wait_for_records(dict.fromkeys(places, RECORDS))
        [group] = tidelog.wait_for(
            lambda found: all(each["lag"] == 0 for each in found[0]["partitions"]),
            "groups",
            "describe",
            topic,
        )
        assert (group["type"], group["state"], group["members"]) == (kind, "Stable", 2)
        assert [each["committed_offset"] for each in group["partitions"]] == [RECORDS, RECORDS]
        assert (group["total_lag"], len({each["member"] for each in group["partitions"]})) == (0, 2)

        [group] = tidelog.json("groups", "describe", topic, "--members")
        assigned = sorted(
            tuple(each.values()) for member in group["members"] for each in member["assignment"]
        )
        assert assigned == places
        assert {tuple(member["topics"]) for member in group["members"]} == {(topic,)}
        assert {member["host"] for member in group["members"]} == {"127.0.0.1"}
        [group] = tidelog.json("groups", "describe", topic, "--state")
        assert group["coordinator"]["port"] == int(group_bootstrap.rpartition(":")[2])
        assert group["assignor"]

        assert f"{topic}\t{kind}\tStable\tconsumer\t2\n" in tidelog.ok("groups", "list", "--members")
        listed = tidelog.json("groups", "list", "--type", kind, "--state", "Stable")
        assert topic in [each["group"] for each in listed]
        assert topic not in [each["group"] for each in tidelog.json("groups", "list", "--state", "empty")]

        assert "stop its consumers" in tidelog.refusal(
            "groups", "reset-offsets", topic, "--all-topics", "--to-latest", "--execute"
        )
        assert "stop its consumers" in tidelog.refusal("groups", "delete", topic)
        assert "stop the members" in tidelog.refusal("groups", "delete-offsets", topic, "-t", topic)
        for member in team.members:
            member.leave()
    [group] = tidelog.wait_for(lambda found: found[0]["state"] == "Empty", "groups", "describe", topic)
    assert (group["members"], group["total_lag"]) == (0, 0)
    assert tidelog.ok("groups", "delete", topic) == f"deleted group {topic}\n"


def test_what_a_person_sees_fits_the_terminal(tidelog: CommandLine, group_bootstrap: str, topic: str) -> None:
    with Team(group_bootstrap, topic, [topic]) as team:
        team.join("confluent")
        team.wait_for_owners([(topic, 0), (topic, 1)])
        team.wait_for_records({(topic, 0): RECORDS, (topic, 1): RECORDS})
        tidelog.wait_for(lambda found: found[0]["total_lag"] == 0, "groups", "describe", topic)
        for arguments in ((), ("--members",), ("--members", "-v"), ("--state",)):
            code, seen = tidelog.on_terminal("groups", "describe", topic, *arguments, columns=80)
            assert code == 0
            assert all(len(line) <= 80 for line in seen.splitlines() if not line.startswith(topic))
        code, seen = tidelog.on_terminal("groups", "describe", topic, columns=200)
        assert seen.splitlines()[0] == f"{topic}  (Classic, Stable, 1 member, assignor range)"
        assert seen.splitlines()[-1] == "total lag 0 in 2 partitions"
        assert {"committed", "end", "lag", "client", "host", "member"} <= set(seen.split())


def test_a_group_of_commits_alone_is_described_with_its_lag(
    tidelog: CommandLine, group_bootstrap: str, topic: str
) -> None:
    commit(group_bootstrap, topic, {(topic, 0): 5, (topic, 1): RECORDS})
    rows = tidelog.ok("groups", "describe", topic, "--headings").splitlines()
    assert rows[0].split("\t")[:6] == ["group", "topic", "partition", "committed", "end", "lag"]
    assert [row.split("\t")[2:] for row in rows[1:]] == [
        ["0", "5", "20", "15", "-", "-", "-"],
        ["1", "20", "20", "0", "-", "-", "-"],
    ]
    code, seen = tidelog.on_terminal("groups", "describe", topic)
    assert code == 0
    assert "Empty, no members" in seen
    assert "total lag 15 in 2 partitions" in seen
    listed = {each["group"]: each for each in tidelog.json("groups", "list", "--state", "Empty")}
    assert listed[topic]["protocol"] == ""


def test_a_topic_that_was_deleted_does_not_hide_the_others(
    tidelog: CommandLine, group_bootstrap: str, topic: str, topic_name: NewName
) -> None:
    other = topic_name()
    create(group_bootstrap, other, 1)
    commit(group_bootstrap, topic, {(topic, 0): 5, (other, 0): 0})
    tidelog.ok("topics", "delete", other)
    assert committed(tidelog, topic)[topic, 0] == 5
    planned = tidelog.json("groups", "reset-offsets", topic, "--all-topics", "--to-latest")
    assert [(each["topic"], each["new_offset"]) for each in planned["offsets"]] == [(topic, RECORDS)]


def test_a_group_that_does_not_exist_is_one_sentence_beside_the_others(
    tidelog: CommandLine, group_bootstrap: str, topic: str, topic_name: NewName
) -> None:
    missing = topic_name()
    commit(group_bootstrap, topic, {(topic, 0): 5})
    for option in ((), ("--members",), ("--state",)):
        done = tidelog("groups", "describe", topic, missing, *option)
        assert done.returncode == 1
        assert missing not in done.stdout
        assert missing in done.stderr
        assert "run `tidelog groups list` to see the groups" in done.stderr
    done = tidelog("groups", "delete", missing, topic)
    assert (done.returncode, done.stdout) == (1, f"deleted group {topic}\n")
    tidelog.ok("groups", "delete", missing, "--if-exists")


def test_a_plan_changes_nothing_until_it_is_executed(
    tidelog: CommandLine, group_bootstrap: str, topic: str, tmp_path: Path
) -> None:
    commit(group_bootstrap, topic, {(topic, 0): 5, (topic, 1): 12})
    backup = tmp_path / "backup.csv"
    arguments = ("groups", "reset-offsets", topic)
    done = tidelog(*arguments, "--all-topics", "--to-current", "--export", str(backup))
    assert "nothing was changed: add --execute" in done.stderr
    assert backup.read_text() == f"{topic},0,5\n{topic},1,12\n"

    done = tidelog(*arguments, "--topic", f"{topic}:0", "--shift-by", "-100", "--execute")
    assert done.returncode == 0, done
    rows = [row.split("\t") for row in done.stdout.splitlines()]
    assert rows[0] == [topic, "0", "5", "0", "-5", "clamped to the start"]
    assert f"reset 1 offset of group {topic}" in done.stderr
    assert committed(tidelog, topic) == {(topic, 0): 0, (topic, 1): 12}

    assert tidelog(*arguments, "--from-file", str(backup), "--execute").returncode == 0
    assert committed(tidelog, topic) == {(topic, 0): 5, (topic, 1): 12}
    assert tidelog(*arguments, "--all-topics", "--to-latest", "--export", "-").stdout == (
        f"{topic},0,{RECORDS}\n{topic},1,{RECORDS}\n"
    )


def test_offsets_go_to_every_place_that_can_be_named(
    tidelog: CommandLine, group_bootstrap: str, topic: str
) -> None:
    commit(group_bootstrap, topic, {(topic, 0): 5})
    everywhere = ("--topic", topic)
    late = "no record that young: the end"
    assert plan(tidelog, topic, *everywhere, "--to-earliest") == [(0, 5, 0, None), (1, None, 0, None)]
    assert plan(tidelog, topic, *everywhere, "--to-latest") == [(0, 5, 20, None), (1, None, 20, None)]
    assert plan(tidelog, topic, "-t", f"{topic}:1", "--to-offset", "99") == [
        (1, None, 20, "clamped to the end")
    ]
    assert plan(tidelog, topic, "-t", f"{topic}:1", "--to-offset", "7") == [(1, None, 7, None)]
    assert plan(tidelog, topic, "--all-topics", "--shift-by", "3") == [(0, 5, 8, None)]
    assert plan(tidelog, topic, *everywhere, "--to-datetime", "2020-01-01T00:00:00Z") == [
        (0, 5, 0, None),
        (1, None, 0, None),
    ]
    assert plan(tidelog, topic, "--all-topics", "--to-datetime", "2999-01-01") == [(0, 5, 20, late)]
    assert plan(tidelog, topic, "--all-topics", "--by-duration", "P1D") == [(0, 5, 0, None)]
    assert plan(tidelog, topic, "--all-topics", "--by-duration", "PT0S") == [(0, 5, 20, late)]
    assert plan(tidelog, topic, *everywhere, "--to-current") == [
        (0, 5, 5, None),
        (1, None, 20, "no commit: the end"),
    ]
    assert "cannot be shifted" in tidelog.refusal(
        "groups", "reset-offsets", topic, *everywhere, "--shift-by", "1"
    )
    refused = tidelog.refusal("groups", "reset-offsets", topic, "-t", f"{topic}:7", "--to-latest")
    assert "no partition 7" in refused
    assert committed(tidelog, topic) == {(topic, 0): 5}


def test_resetting_makes_a_group_that_does_not_exist(tidelog: CommandLine, topic: str) -> None:
    arguments = ("groups", "reset-offsets", topic, "--topic", topic, "--to-offset", "3")
    assert "does not exist and would be created" in tidelog(*arguments).stderr
    assert topic not in [each["group"] for each in tidelog.json("groups", "list")]
    assert tidelog(*arguments, "--execute").returncode == 0
    assert committed(tidelog, topic) == {(topic, 0): 3, (topic, 1): 3}
    assert "no offsets to reset" in tidelog.refusal(
        "groups", "reset-offsets", f"{topic}-none", "--all-topics", "--to-latest"
    )


def test_offsets_are_forgotten_partition_by_partition(
    tidelog: CommandLine, group_bootstrap: str, topic: str
) -> None:
    commit(group_bootstrap, topic, {(topic, 0): 5, (topic, 1): 6})
    done = tidelog.ok("groups", "delete-offsets", topic, "--topic", f"{topic}:1")
    assert done == f"deleted the committed offsets of group {topic} for 1 partition\n"
    assert committed(tidelog, topic) == {(topic, 0): 5}
    assert "does not exist" in tidelog.refusal("groups", "delete-offsets", f"{topic}-none", "-t", topic)


def test_deleting_asks_a_person_first(tidelog: CommandLine, group_bootstrap: str, topic: str) -> None:
    commit(group_bootstrap, topic, {(topic, 0): 5})
    code, seen = tidelog.on_terminal("groups", "delete", topic, typed=b"n\n")
    assert code == 1
    assert "and all committed offsets?" in seen
    code, seen = tidelog.on_terminal("groups", "delete", topic, typed=b"y\n")
    assert code == 0
    assert f"deleted group {topic}" in seen
