"""Apache Kafka from Maven Central as a single KRaft node: oracle of the suites, peer of the benchmarks."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from foreign import toolchain
from foreign.broker_process import BrokerProcess, free_port

DEFAULTS = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


class ApacheKafka(BrokerProcess):
    """A broker and controller in one JVM. `jars` names the version: `kafka-4` or `kafka-3.9`."""

    label = "apache"

    def __init__(
        self,
        directory: Path,
        options: Mapping[str, str] | None = None,
        *,
        jars: str = "kafka-4",
        heap: str = "512m",
    ) -> None:
        super().__init__(directory, options)
        self.jars = jars
        self.heap = heap
        self.controller_port = free_port()
        self.properties = directory / "server.properties"

    def prepare(self) -> None:
        formatted = self.properties.exists()
        settings = {
            **DEFAULTS,
            "node.id": str(self.node_id),
            "controller.quorum.voters": f"{self.node_id}@127.0.0.1:{self.controller_port}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "log.dirs": str(self.data_dir),
            **self.options,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        if not formatted:
            self._format()

    def _format(self) -> None:
        # A leading dash, which base64 may bring, would look like an option.
        cluster_id = "c" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]
        command = toolchain.java(self.jars, "-Xmx128m", "-XX:TieredStopAtLevel=1")
        subprocess.run(
            [*command, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(self.properties)],
            check=True,
            capture_output=True,
        )

    def command(self) -> list[str]:
        return [
            *toolchain.java(self.jars, f"-Xmx{self.heap}", f"-Xms{self.heap}"),
            *("kafka.Kafka", str(self.properties)),
        ]
