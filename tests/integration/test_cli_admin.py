"""`tidelog topics` and `tidelog configs` as a person runs them, against a running broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

NewName = Callable[[], str]


class CommandLine:
    """Runs ``tidelog`` as a process of its own."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {**os.environ, "TIDELOG_BOOTSTRAP": bootstrap}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tidelog", *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env=self._environment,
            stdin=subprocess.DEVNULL,
        )

    def ok(self, *arguments: str) -> str:
        done = self(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.ok(*arguments, "--json"))

    def refusal(self, *arguments: str) -> str:
        """The sentence on stderr of a command that fails."""
        done = self(*arguments)
        assert done.returncode == 1, done
        assert done.stderr.startswith("error: "), done
        assert "Traceback" not in done.stderr
        return done.stderr


@pytest.fixture
def tidelog(bootstrap: str) -> CommandLine:
    return CommandLine(bootstrap)


def test_a_topic_is_created_described_altered_and_deleted(tidelog: CommandLine, topic_name: NewName) -> None:
    topic = topic_name()
    assert tidelog.ok("topics", "create", topic, "--partitions", "3", "-c", "retention.ms=86400000") == (
        f"created topic {topic} with 3 partitions\n"
    )
    assert f"{topic}\t3\t1" in tidelog.ok("topics", "list").splitlines()

    [described] = tidelog.json("topics", "describe", topic)
    assert described["configs"]["retention.ms"] == "86400000"
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2]
    assert {(each["start_offset"], each["end_offset"]) for each in described["partitions"]} == {(0, 0)}

    changed = tidelog.ok("topics", "alter", topic, "--partitions", "5", "--delete-config", "retention.ms")
    assert changed == f"changed 1 config of topic {topic}\ntopic {topic} now has 5 partitions\n"
    [described] = tidelog.json("topics", "describe", topic)
    assert len(described["partitions"]) == 5
    assert "retention.ms" not in described["configs"]

    assert tidelog.ok("topics", "delete", topic) == f"deleted topic {topic}\n"
    assert "does not exist" in tidelog.refusal("topics", "describe", topic)


def test_one_topic_s_error_does_not_hide_the_others(tidelog: CommandLine, topic_name: NewName) -> None:
    there, missing = topic_name(), topic_name()
    tidelog.ok("topics", "create", there)
    done = tidelog("topics", "describe", there, missing)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].startswith(f"{there}\t0\t")
    assert missing in done.stderr
    done = tidelog("topics", "delete", missing, there)
    assert done.stdout == f"deleted topic {there}\n"
    assert done.returncode == 1


def test_what_exists_or_does_not_may_be_passed_over(tidelog: CommandLine, topic_name: NewName) -> None:
    topic = topic_name()
    tidelog.ok("topics", "create", topic)
    assert "--if-not-exists" in tidelog.refusal("topics", "create", topic)
    tidelog.ok("topics", "create", topic, "--if-not-exists")
    tidelog.ok("topics", "delete", topic)
    tidelog.ok("topics", "delete", topic, "--if-exists")


def test_refusals_name_the_mend(tidelog: CommandLine, topic_name: NewName) -> None:
    topic = topic_name()
    tidelog.ok("topics", "create", topic, "--partitions", "2")
    assert "INVALID_TOPIC" in tidelog.refusal("topics", "create", "no spaces")
    assert "the replication factor cannot exceed the number of brokers" in tidelog.refusal(
        "topics", "create", topic_name(), "-r", "9"
    )
    assert "INVALID_PARTITIONS" in tidelog.refusal("topics", "alter", topic, "--partitions", "1")
    misspelt = tidelog.refusal("topics", "create", topic_name(), "-c", "cleanup.plicy=compact")
    assert "did you mean 'cleanup.policy'?" in misspelt
    assert "retention.ms" in tidelog.refusal("topics", "alter", topic, "-c", "retention.ms=soon")


def test_configs_are_set_appended_subtracted_and_deleted(tidelog: CommandLine, topic_name: NewName) -> None:
    topic = topic_name()
    tidelog.ok("topics", "create", topic)

    def values() -> dict[str, str]:
        [resource] = tidelog.json("configs", "describe", "--topic", topic)
        own = [each for each in resource["configs"] if each["source"] == "DYNAMIC_TOPIC_CONFIG"]
        return {each["name"]: each["value"] for each in own}

    tidelog.ok(
        "configs", "alter", "-t", topic, "--set", "segment.ms=1000", "--append", "cleanup.policy=compact"
    )
    assert values() == {"segment.ms": "1000", "cleanup.policy": "delete,compact"}
    tidelog.ok(
        "configs", "alter", "-t", topic, "--delete", "segment.ms", "--subtract", "cleanup.policy=delete"
    )
    assert values() == {"cleanup.policy": "compact"}
    tidelog.ok("configs", "alter", "-t", topic, "--set", "segment.ms=5", "--dry-run")
    assert values() == {"cleanup.policy": "compact"}


def test_changes_are_reported_as_json(tidelog: CommandLine, topic_name: NewName) -> None:
    topic = topic_name()
    [created] = tidelog.json("topics", "create", topic, "--partitions", "1")
    assert (created["name"], created["partitions"]) == (topic, 1)
    assert tidelog.json("topics", "alter", topic, "--partitions", "3", "-c", "retention.ms=5000") == [
        {"topic": topic, "configs": {"retention.ms": "5000"}},
        {"topic": topic, "partitions": 3},
    ]
    assert tidelog.json("configs", "alter", "-t", topic, "--delete", "retention.ms", "--dry-run") == [
        {"type": "topic", "name": topic, "changed": False, "remark": None}
    ]
    assert tidelog.json("topics", "delete", topic) == [{"topic": topic}]
    done = tidelog("topics", "delete", topic, "--json")
    assert (done.returncode, done.stdout) == (1, "[]\n")


def test_configs_show_defaults_sources_and_docs_when_asked(tidelog: CommandLine, topic_name: NewName) -> None:
    topic = topic_name()
    tidelog.ok("topics", "create", topic)
    [resource] = tidelog.json("configs", "describe", "-t", topic, "--all", "--docs")
    entries = {each["name"]: each for each in resource["configs"]}
    assert entries["cleanup.policy"]["type"] == "LIST"
    assert entries["cleanup.policy"]["documentation"]
    named = ("--name", "max.message.bytes", "--headings")
    rows = tidelog.ok("configs", "describe", "-t", topic, *named).splitlines()
    assert rows[0].split("\t") == ["topic", "config", "value", "source"]
    assert rows[1].split("\t")[:2] == [topic, "max.message.bytes"]
    misspelt = tidelog.refusal("configs", "describe", "-t", topic, "--name", "retention.mss")
    assert "has no config 'retention.mss'; did you mean 'retention.ms'?" in misspelt
    [unset] = tidelog.json("configs", "describe", "--broker-defaults", "--name", "log.retention.ms")
    assert unset["configs"] == []


def test_broker_configs_are_changed_for_one_or_for_all(tidelog: CommandLine, topic_name: NewName) -> None:
    topic = topic_name()
    tidelog.ok("topics", "create", topic)
    broker = tidelog.json("topics", "describe", topic)[0]["partitions"][0]["leader"]
    option = "log.cleaner.io.buffer.load.factor"

    def value() -> tuple[str, str]:
        [resource] = tidelog.json("configs", "describe", "--broker", str(broker), "--name", option)
        [entry] = resource["configs"]
        return entry["value"], entry["source"]

    tidelog.ok("configs", "alter", "--broker-defaults", "--set", f"{option}=0.7")
    tidelog.ok("configs", "alter", "--broker", str(broker), "--set", f"{option}=0.8")
    assert value() == ("0.8", "DYNAMIC_BROKER_CONFIG")
    tidelog.ok("configs", "alter", "--broker", str(broker), "--delete", option)
    assert value() == ("0.7", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    tidelog.ok("configs", "alter", "--broker-defaults", "--delete", option)
    assert value()[1] in ("DEFAULT_CONFIG", "STATIC_BROKER_CONFIG")


def test_config_refusals_name_the_mend(tidelog: CommandLine, topic_name: NewName) -> None:
    topic = topic_name()
    tidelog.ok("topics", "create", topic)
    refused = tidelog.refusal("configs", "alter", "-t", topic, "--set", "retention.mss=1")
    assert "did you mean 'retention.ms'?" in refused
    assert "does not exist" in tidelog.refusal("configs", "describe", "-t", topic_name())
    assert "no broker 987" in tidelog.refusal("configs", "describe", "--broker", "987")


def test_configs_of_groups_are_set_described_and_listed(tidelog: CommandLine, topic_name: NewName) -> None:
    group, option = topic_name(), "consumer.session.timeout.ms"
    tidelog.ok("configs", "alter", "--group", group, "--set", f"{option}=50000")
    assert tidelog.ok("configs", "describe", "-g", group).splitlines()[0] == (
        f"{group}\t{option}\t50000\tdynamic group"
    )
    assert {"type": "group", "name": group} in tidelog.json("configs", "list", "--type", "group")
    refused = tidelog.refusal("configs", "alter", "-g", group, "--set", "consumer.sesion.timeout.ms=1")
    assert "did you mean" in refused
    tidelog.ok("configs", "alter", "--group", group, "--delete", option)
    assert tidelog.ok("configs", "describe", "-g", group) == ""


def test_one_reason_for_many_refusals_is_one_sentence(tidelog: CommandLine) -> None:
    refused = tidelog.refusal("acls", "add", "--principal", "User:a", "--producer", "--topic", "orders")
    assert refused.count("No Authorizer is configured") == 1, refused


def test_a_cancellation_without_moves_is_an_empty_list(tidelog: CommandLine) -> None:
    done = tidelog("partitions", "reassign", "--cancel", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, []), done
