"""Apache Kafka as it ships: its brokers, its ZooKeeper and its tools, JVMs as Kafka's own scripts start them.

`kafka-server-start`, `zookeeper-server-start` and `kafka-*-perf-test` give every JVM a heap and all of them
the same collector; :func:`command` gives the same and nothing else, and is the only place of the benchmarks
that names a JVM flag (a test holds them to that). Flags that the environment would add are taken out of it.
Options of brokers are what they cannot run without: ids, listeners, directories and, where a broker is alone,
a replication factor of 1 for its internal topics, as the `server.properties` in Kafka's archive have it.
What they log are warnings.

Called by contestants.py and by the benchmarks that run Kafka's own tools.
"""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from foreign import toolchain
from foreign.broker_process import BrokerProcess, free_port

KRAFT_JARS, ZOOKEEPER_JARS = "kafka-4", "kafka-3.9"

# KAFKA_HEAP_OPTS where nobody sets it, by script.
BROKER_HEAP = ("-Xmx1G", "-Xms1G")
ZOOKEEPER_HEAP = ("-Xmx512M", "-Xms512M")
PERF_HEAP = ("-Xmx512M",)
TOOL_HEAP = ("-Xmx256M",)
# KAFKA_JVM_PERFORMANCE_OPTS and KAFKA_JMX_OPTS. (3.9 adds MaxInlineLevel=15, which Java 17 has by default.)
PERFORMANCE = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
JMX = (
    "-Dcom.sun.management.jmxremote=true",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
)
# Where Java takes further flags from.
FLAG_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")

# What a lone broker needs so that its internal topics can be made.
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def command(jars: str, heap: Sequence[str], main: str, *, gc_log: Path | None = None) -> list[str]:
    """The start of a command line; servers log their collections (`-loggc`), tools do not."""
    logged = () if gc_log is None else (f"-Xlog:gc*:file={gc_log}:time,tags:filecount=10,filesize=100M",)
    return [*toolchain.java(jars, *heap, *PERFORMANCE, *logged, *JMX), main]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in FLAG_VARIABLES}


def new_cluster_id() -> str:
    # A leading dash, which base64 may bring, would look like an option.
    return "c" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]


class _Server(BrokerProcess):
    """A JVM with a file of properties."""

    startup_timeout_s = 180.0  # on a busy machine
    heap: Sequence[str]
    jars: str
    main: str

    def __init__(self, directory: Path, options: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, options)
        self.properties = directory / "server.properties"

    def settings(self) -> dict[str, str]:
        raise NotImplementedError

    def prepare(self) -> None:
        settings = {**self.settings(), **self.options}
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def command(self) -> list[str]:
        gc_log = self.directory / "gc.log"
        return [*command(self.jars, self.heap, self.main, gc_log=gc_log), str(self.properties)]

    def environment(self) -> dict[str, str]:
        return environment()


class KRaftKafka(_Server):
    """Apache Kafka 4.3: broker and controller in one process, alone or one of several."""

    label = "apache"
    heap, jars, main = BROKER_HEAP, KRAFT_JARS, "kafka.Kafka"

    def __init__(self, directory: Path, options: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, options)
        self.controller_port = free_port()
        self.cluster_id = new_cluster_id()
        self.voters: Sequence[KRaftKafka] = [self]

    def settings(self) -> dict[str, str]:
        voters = [f"{each.node_id}@127.0.0.1:{each.controller_port}" for each in self.voters]
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data_dir),
            **(ALONE if len(self.voters) == 1 else {}),
        }

    def prepare(self) -> None:
        formatted = self.properties.exists()
        super().prepare()
        if not formatted:
            tool = command(self.jars, TOOL_HEAP, "kafka.tools.StorageTool")
            arguments = ["format", "-t", self.cluster_id, "-c", str(self.properties)]
            subprocess.run([*tool, *arguments], check=True, capture_output=True, env=environment())


class ZooKeeperKafka(_Server):
    """Apache Kafka 3.9, one of several that ZooKeeper coordinates."""

    label = "apache-3.9"
    heap, jars, main = BROKER_HEAP, ZOOKEEPER_JARS, "kafka.Kafka"

    def settings(self) -> dict[str, str]:
        return {
            "listeners": f"PLAINTEXT://{self.address}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data_dir),
        }


class ZooKeeper(_Server):
    """The ZooKeeper that comes with Kafka 3.9, with the settings of its `zookeeper.properties`."""

    label = "zookeeper"
    heap, jars = ZOOKEEPER_HEAP, ZOOKEEPER_JARS
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"

    def settings(self) -> dict[str, str]:
        return {
            "dataDir": str(self.data_dir),
            "clientPortAddress": "127.0.0.1",
            "clientPort": str(self.port),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
        }

    def serves(self) -> bool:
        """Whether it answers the one command that is allowed by default."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False
