"""Apache Kafka's own command line tools, of 3.9 and 4.x, against the broker."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from foreign.broker_process import BrokerProcess

TOOLS = "org.apache.kafka.tools."
CONFIGS = "kafka.admin.ConfigCommand"

Tool = Callable[..., subprocess.CompletedProcess[str]]
Run = Callable[..., str]


@pytest.fixture
def run(kafka_tool: Tool, broker: BrokerProcess) -> Run:
    """Runs a tool with the broker's address; it must end well. Returns what it printed."""

    def call(main: str, *arguments: str | Path, **options: str) -> str:
        done = kafka_tool(main, "--bootstrap-server", broker.address, *arguments, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return call


@pytest.fixture
def made(run: Run, topic: str) -> str:
    """A topic of two partitions, made with kafka-topics."""
    printed = run(TOOLS + "TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    assert f"Created topic {topic}." in printed
    return topic


def console_produce(run: Run, topic: str, lines: list[str]) -> None:
    run(
        TOOLS + "ConsoleProducer",
        *("--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:"),
        stdin="".join(line + "\n" for line in lines),
    )


def test_kafka_broker_api_versions_finds_every_client_api_usable(run: Run) -> None:
    printed = run(TOOLS + "BrokerApiVersionsCommand")
    found = {
        name: (int(low), int(high))
        for name, low, high in re.findall(r"(\w+)\(\d+\): (?:(\d+) to )?(\d+) \[usable", printed)
        if low
    }
    assert found["Produce"] == (0, 13)
    assert found["Fetch"] == (4, 18)
    assert found["ListOffsets"] == (1, 11)
    assert found["Metadata"] == (0, 13)
    assert found["ApiVersions"] == (0, 4)
    assert found["CreateTopics"] == (2, 7)
    assert found["DescribeConfigs"] == (1, 4)


def test_kafka_topics_creates_describes_grows_and_deletes(run: Run, made: str) -> None:
    described = run(TOOLS + "TopicCommand", "--describe", "--topic", made)
    assert re.search(
        rf"Topic: {made}\s+TopicId: \S{{22}}\s+PartitionCount: 2\s+ReplicationFactor: 1", described
    )
    run(TOOLS + "TopicCommand", "--alter", "--topic", made, "--partitions", "3")
    assert "PartitionCount: 3" in run(TOOLS + "TopicCommand", "--describe", "--topic", made)
    assert made in run(TOOLS + "TopicCommand", "--list").split()
    run(TOOLS + "TopicCommand", "--delete", "--topic", made)
    assert made not in run(TOOLS + "TopicCommand", "--list").split()


def test_kafka_topics_reports_a_topic_that_is_there_already(
    kafka_tool: Tool, broker: BrokerProcess, made: str
) -> None:
    again = kafka_tool(
        TOOLS + "TopicCommand", "--bootstrap-server", broker.address, "--create", "--topic", made
    )
    assert again.returncode == 1
    assert f"Topic '{made}' already exists." in again.stdout + again.stderr


def test_kafka_configs_alters_and_describes_topics(run: Run, made: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", made)
    run(CONFIGS, "--alter", *entity, "--add-config", "cleanup.policy=[compact,delete],segment.ms=70000")
    described = run(CONFIGS, "--describe", *entity)
    assert "cleanup.policy=compact,delete sensitive=false" in described
    assert "segment.ms=70000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.ms=70000" in described
    run(CONFIGS, "--alter", *entity, "--delete-config", "segment.ms")
    assert "segment.ms=" not in run(CONFIGS, "--describe", *entity)


def test_kafka_configs_alters_one_broker_and_all_brokers(run: Run, broker: BrokerProcess) -> None:
    for entity in (("--entity-name", str(broker.node_id)), ("--entity-default",)):
        run(CONFIGS, "--alter", "--entity-type", "brokers", *entity, "--add-config", "log.cleaner.threads=1")
        described = run(CONFIGS, "--describe", "--entity-type", "brokers", *entity)
        assert "log.cleaner.threads=1 sensitive=false" in described
        run(CONFIGS, "--alter", "--entity-type", "brokers", *entity, "--delete-config", "log.cleaner.threads")
        assert "log.cleaner.threads=1 s" not in run(
            CONFIGS, "--describe", "--entity-type", "brokers", *entity
        )


def test_kafka_configs_lists_all_configs_of_a_broker(run: Run, broker: BrokerProcess) -> None:
    described = run(
        CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", str(broker.node_id)
    )
    assert re.search(r"log\.segment\.bytes=1073741824 sensitive=false synonyms=\{DEFAULT_CONFIG:", described)


def test_the_console_producer_writes_what_the_console_consumer_reads(run: Run, topic: str) -> None:
    run(TOOLS + "TopicCommand", "--create", "--topic", topic, "--partitions", "1")
    console_produce(run, topic, ["a:1", "b:2", "c:3"])
    printed = run(
        TOOLS + "consumer.ConsoleConsumer",
        *("--topic", topic, "--partition", "0", "--offset", "earliest", "--max-messages", "3"),
        *("--timeout-ms", "10000", "--property", "print.key=true", "--property", "print.offset=true"),
    )
    assert [line.split("\t") for line in printed.splitlines() if line.startswith("Offset:")] == [
        ["Offset:0", "a", "1"],
        ["Offset:1", "b", "2"],
        ["Offset:2", "c", "3"],
    ]


def test_kafka_get_offsets_knows_ends_and_times(run: Run, topic: str) -> None:
    run(TOOLS + "TopicCommand", "--create", "--topic", topic, "--partitions", "1")
    console_produce(run, topic, [f"k{i}:v" for i in range(7)])
    for moment, offset in (("latest", 7), ("earliest", 0), ("max-timestamp", 6), ("1", 0)):
        printed = run(TOOLS + "GetOffsetShell", "--topic", topic, "--time", moment)
        found = [int(line.split(":")[2]) for line in printed.splitlines() if line.startswith(topic + ":0:")]
        # all seven may carry one millisecond, and then the first of them has the largest timestamp
        assert found == [offset] or (moment == "max-timestamp" and 0 <= found[0] <= 6)


def test_the_verifiable_producer_has_everything_acknowledged(run: Run, made: str) -> None:
    lines = [json.loads(each) for each in run(
        TOOLS + "VerifiableProducer", "--topic", made, "--max-messages", "200", "--acks", "-1"
    ).splitlines()]  # fmt: skip
    assert sum(line["name"] == "producer_send_success" for line in lines) == 200
    assert lines[-1]["name"] == "tool_data"
    assert (lines[-1]["sent"], lines[-1]["acked"]) == (200, 200)


def test_kafka_producer_perf_test_sends_all_its_records(
    kafka_tool: Tool, broker: BrokerProcess, made: str
) -> None:
    done = kafka_tool(
        TOOLS + "ProducerPerformance",
        *("--topic", made, "--num-records", "20000", "--record-size", "100", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.address}", "compression.type=lz4"),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^20000 records sent, .* 50th", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_the_end_to_end_latency_tool_gets_its_records_back(
    kafka_tool: Tool, broker: BrokerProcess, made: str
) -> None:
    done = kafka_tool(TOOLS + "EndToEndLatency", broker.address, made, "50", "all", "100")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Percentiles: 50th" in done.stdout


def test_kafka_delete_records_moves_the_start(run: Run, topic: str, tmp_path: Path) -> None:
    run(TOOLS + "TopicCommand", "--create", "--topic", topic, "--partitions", "1")
    console_produce(run, topic, [f"k{i}:v" for i in range(5)])
    wanted = tmp_path / "delete.json"
    wanted.write_text(
        json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 3}], "version": 1})
    )
    printed = run(TOOLS + "DeleteRecordsCommand", "--offset-json-file", wanted)
    assert f"partition: {topic}-0\tlow_watermark: 3" in printed
    assert f"{topic}:0:3" in run(TOOLS + "GetOffsetShell", "--topic", topic, "--time", "earliest").split()


def test_kafka_log_dirs_lists_the_partitions(run: Run, broker: BrokerProcess, made: str) -> None:
    printed = run(TOOLS + "LogDirsCommand", "--describe", "--topic-list", made)
    (directory,) = json.loads(printed.splitlines()[-1])["brokers"][0]["logDirs"]
    assert directory["logDir"] == str(broker.data_dir)
    assert directory["error"] is None
    assert {each["partition"] for each in directory["partitions"]} == {f"{made}-0", f"{made}-1"}


def test_kafka_cluster_and_features_answer(kafka_tool: Tool, run: Run, broker: BrokerProcess) -> None:
    cluster = kafka_tool(TOOLS + "ClusterTool", "cluster-id", "--bootstrap-server", broker.address)
    assert re.search(r"Cluster ID: \S{22}$", cluster.stdout.strip()), cluster.stdout + cluster.stderr
    run(TOOLS + "FeatureCommand", "describe")


def test_kafka_transactions_describes_idempotent_producers(run: Run, made: str) -> None:
    console_produce(run, made, [f"k{i}:v" for i in range(9)])  # the console producer is idempotent by default
    states = [
        run(
            TOOLS + "TransactionsCommand",
            "describe-producers",
            "--topic",
            made,
            "--partition",
            str(partition),
        )
        for partition in (0, 1)
    ]
    rows = [line.split() for state in states for line in state.splitlines() if re.match(r"\d+\s", line)]
    assert rows
    assert all(row[5] == "None" for row in rows)


def test_kafka_leader_election_finds_nothing_to_do(run: Run, made: str) -> None:
    printed = run(
        TOOLS + "LeaderElectionCommand",
        *("--election-type", "preferred", "--topic", made, "--partition", "0"),
    )
    assert f"Valid replica already elected for partitions {made}-0" in printed


def test_kafkas_client_compatibility_test_passes(
    kafka_tool: Tool, run: Run, broker: BrokerProcess, made: str
) -> None:
    if "newtopic" in run(TOOLS + "TopicCommand", "--list").split():  # the tool creates it under a fixed name
        run(TOOLS + "TopicCommand", "--delete", "--topic", "newtopic")
    done = kafka_tool(
        TOOLS + "ClientCompatibilityTest",
        *("--bootstrap-server", broker.address, "--topic", made, "--num-cluster-nodes", "1"),
        *("--offsets-for-times-supported", "True", "--cluster-id-supported", "True"),
        *("--expect-record-too-large-exception", "False", "--create-topics-supported", "True"),
        *("--describe-acls-supported", "True", "--describe-configs-supported", "True"),
        *("--idempotent-producer-supported", "True"),
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
