"""Apache Kafka runs in the benchmarks as its own scripts start it: no other JVM flags, no other options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks import apache, contestants, perf_tools
from benchmarks.figures import OLD_PEER, OURS, PEER
from foreign import toolchain

ROOT = Path(__file__).resolve().parents[3]

# What kafka-run-class gives every JVM when nobody sets KAFKA_JVM_PERFORMANCE_OPTS or KAFKA_JMX_OPTS.
EVERY_JVM = {
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dcom.sun.management.jmxremote=true",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
}
LOG_LEVEL = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


@pytest.fixture(autouse=True)
def no_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Command lines can be looked at where there is neither Java nor a registry."""
    monkeypatch.setattr(toolchain, "program", lambda name: name)
    monkeypatch.setattr(toolchain, "classpath", lambda name: f"{name}/*")


def flags(command: list[str]) -> set[str]:
    """What a command line tells the JVM, without its class path and the log of its collector."""
    assert command[0] == "java"
    before_main = command[1 : command.index("-cp")]
    return {flag for flag in before_main if not flag.startswith("-Xlog:gc*:file=")} - {LOG_LEVEL}


def test_a_lone_broker_has_the_flags_of_kafka_server_start(tmp_path: Path) -> None:
    broker = contestants.make(PEER, tmp_path)
    assert flags(broker.command()) == EVERY_JVM | {"-Xmx1G", "-Xms1G"}


@pytest.mark.parametrize("name", [PEER, OLD_PEER])
def test_brokers_of_a_cluster_have_the_flags_of_kafka_server_start(tmp_path: Path, name: str) -> None:
    brokers = contestants._make_brokers(name, tmp_path, "127.0.0.1:2181")
    assert len(brokers) == contestants.BROKERS
    for broker in brokers:
        assert flags(broker.command()) == EVERY_JVM | {"-Xmx1G", "-Xms1G"}


def test_zookeeper_has_the_flags_of_zookeeper_server_start(tmp_path: Path) -> None:
    assert flags(apache.ZooKeeper(tmp_path).command()) == EVERY_JVM | {"-Xmx512M", "-Xms512M"}


def test_the_perf_tools_have_the_flags_of_their_scripts() -> None:
    assert flags(perf_tools.command("ProducerPerformance")) == EVERY_JVM | {"-Xmx512M"}


def test_flags_in_the_environment_reach_no_jvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in apache.FLAG_VARIABLES:
        monkeypatch.setenv(variable, "-XX:TieredStopAtLevel=1")
    environment = contestants.make(PEER, tmp_path).environment()
    assert not set(apache.FLAG_VARIABLES) & set(environment)
    assert "PATH" in environment


def test_no_other_module_of_the_benchmarks_names_a_jvm_flag() -> None:
    """Spark's JVM is that of the main job, whose flags come from the pipelines' own session."""
    named = {
        file.name
        for file in (ROOT / "benchmarks").glob("*.py")
        if re.search(r"""["' ]-(Xm[xsn]|XX:|Xss|Xint|Xlog|server)""", file.read_text())
    }
    assert named == {"apache.py"}


def test_no_benchmark_starts_the_kafka_of_the_test_suites() -> None:
    """Which has a small heap and only the first compiler, so that many of them fit on a small machine."""
    for file in (ROOT / "benchmarks").glob("*.py"):
        text = file.read_text()
        assert "mixed_cluster" not in text, file.name
        assert "compat.apache_kafka" not in text, file.name


def test_kafka_has_no_options_but_those_it_cannot_run_without(tmp_path: Path) -> None:
    needed = {
        "process.roles", "node.id", "controller.quorum.voters", "controller.listener.names",
        "listener.security.protocol.map", "listeners", "advertised.listeners", "log.dirs",
    }  # fmt: skip
    alone = apache.KRaftKafka(tmp_path / "alone")
    assert set(alone.settings()) == needed | set(apache.ALONE)
    several = contestants._make_brokers(PEER, tmp_path / "several", "")
    for broker in several:
        assert isinstance(broker, apache.KRaftKafka)
        assert set(broker.settings()) == needed
        assert broker.settings()["controller.quorum.voters"].count("@") == contestants.BROKERS
        assert broker.cluster_id == several[0].cluster_id  # type: ignore[attr-defined]
    old = contestants._make_brokers(OLD_PEER, tmp_path / "old", "127.0.0.1:2181")[0]
    assert isinstance(old, apache.ZooKeeperKafka)
    assert set(old.settings()) == {"listeners", "advertised.listeners", "log.dirs"}
    assert set(old.options) == {"zookeeper.connect", "broker.id"}


def test_tidelog_has_no_options_either(tmp_path: Path) -> None:
    assert contestants.make(OURS, tmp_path / "alone").options == {}
    for broker in contestants._make_brokers(OURS, tmp_path / "several", "127.0.0.1:2181"):
        assert set(broker.options) == {"zookeeper.connect", "broker.id"}
