"""Apache Cassandra from Maven Central as a single node on loopback: the witness of the table sink.

The jars of maven/cassandra-5.xml are the server; what a distribution adds (start scripts, a configuration) is
written here, for a small heap and a fast start. Java 11 or 17, which is what Cassandra 5.0 runs on. A guarded
node wants a login (of ``cassandra``, at first) and speaks TLS alone. Called by the tests of Cassandra and by
scripts/run_cassandra.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from foreign import toolchain
from foreign.broker_process import free_port
from foreign.java_server import JavaServer
from tidelog.spark.cassandra_options import CassandraOptions

MAIN = "org.apache.cassandra.service.CassandraDaemon"
JARS = "cassandra-5"

_EXPORTS = (
    *("java.base/java.lang.ref", "java.base/jdk.internal.misc", "java.base/sun.nio.ch"),
    *("java.management.rmi/com.sun.jmx.remote.internal.rmi", "java.rmi/sun.rmi.registry"),
    *("java.rmi/sun.rmi.server", "java.sql/java.sql", "jdk.attach/sun.tools.attach"),
    *("jdk.compiler/com.sun.tools.javac.file", "jdk.unsupported/sun.misc"),
)
_OPENS = (
    *(
        "java.base/java.io",
        "java.base/java.lang",
        "java.base/java.lang.module",
        "java.base/java.lang.reflect",
    ),
    *("java.base/java.util", "java.base/jdk.internal.loader", "java.base/jdk.internal.math"),
    *("java.base/jdk.internal.module", "java.base/jdk.internal.ref", "java.base/jdk.internal.reflect"),
    *("java.base/jdk.internal.util.jar", "java.base/sun.nio.ch", "jdk.compiler/com.sun.tools.javac"),
    "jdk.management/com.sun.management.internal",
)
_NEEDED = "Cassandra 5.0 runs on Java 11 or 17; install one, or set JAVA_HOME to it"
_LOGBACK = """<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date %-5level %logger{0}: %msg%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="OUT"/></root>
</configuration>
"""


class Guard(NamedTuple):
    """Who gets at a node: those who log in, by TLS, with a certificate of the authority."""

    authority: Path
    """PEM certificate."""
    node: Path
    """The node's PEM key and certificate, in one file."""
    options: CassandraOptions
    """How its first user connects."""


class Cassandra(JavaServer):
    """A node with all its files below ``directory``; a restart keeps the data."""

    name = "Cassandra"
    startup_timeout_s = 180.0

    def __init__(
        self, directory: Path, port: int | None = None, heap: str = "512m", guard: Guard | None = None
    ) -> None:
        super().__init__(directory, free_port() if port is None else port)
        self.guard = guard
        self.heap = heap
        self._storage_port = free_port()

    @property
    def contact_points(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _answers(self) -> bool:
        from tidelog.spark.sinks.cassandra_connection import (
            CassandraCluster,
            CassandraError,
            connect,
            disconnect,
        )

        options = self.guard.options if self.guard is not None else None
        cluster = CassandraCluster.at(self.contact_points, options)
        try:
            connect(cluster)
        except CassandraError:
            return False
        disconnect(cluster)
        return True

    def _command(self) -> list[str]:
        java = _java()
        self._write_configuration()
        jars = Path(toolchain.classpath(JARS).removesuffix("/*"))
        (agent,) = jars.glob("jamm-*.jar")
        return [
            java,
            *(f"-Xmx{self.heap}", f"-Xms{self.heap}", "-XX:+UseSerialGC", f"-javaagent:{agent}"),
            *(option for name in _EXPORTS for option in ("--add-exports", f"{name}=ALL-UNNAMED")),
            *(option for name in _OPENS for option in ("--add-opens", f"{name}=ALL-UNNAMED")),
            *("-Djdk.attach.allowAttachSelf=true", "-Dio.netty.tryReflectionSetAccessible=true"),
            f"-Dcassandra.config={(self.directory / 'cassandra.yaml').as_uri()}",
            f"-Dlogback.configurationFile={self.directory / 'logback.xml'}",
            f"-Dcassandra.storagedir={self.directory}",
            # A single node has nobody to wait for.
            *("-Dcassandra.skip_wait_for_gossip_to_settle=0", "-Dcassandra.ring_delay_ms=1000"),
            # Its first user is there as soon as it answers.
            "-Dcassandra.superuser_setup_delay_ms=0",
            "-Dcassandra-foreground=yes",
            *("-cp", f"{self.directory}:{jars}/*"),
            MAIN,
        ]

    def _write_configuration(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        seeds = [{"seeds": f"127.0.0.1:{self._storage_port}"}]
        settings: dict[str, object] = {
            "cluster_name": "tidelog",
            "num_tokens": 4,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            "endpoint_snitch": "SimpleSnitch",
            "seed_provider": [
                {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider", "parameters": seeds}
            ],
            "listen_address": "127.0.0.1",
            "rpc_address": "127.0.0.1",
            "storage_port": self._storage_port,
            "start_native_transport": True,
            "native_transport_port": self.port,
            "auto_bootstrap": False,
            "commitlog_sync": "periodic",
            "commitlog_sync_period": "10000ms",
            "commitlog_segment_size": "16MiB",
            "memtable_heap_space": "64MiB",
            "memtable_offheap_space": "64MiB",
            "file_cache_size": "32MiB",
            "concurrent_compactors": 1,
            # A dropped table is gone: no copy of it fills the disk.
            "auto_snapshot": False,
        }
        if self.guard is not None:
            settings |= {
                "authenticator": "PasswordAuthenticator",
                "authorizer": "CassandraAuthorizer",
                "role_manager": "CassandraRoleManager",
                "client_encryption_options": {
                    "enabled": True,
                    "optional": False,
                    "require_client_auth": True,
                    "ssl_context_factory": {
                        "class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"
                    },
                    "keystore": str(self.guard.node),
                    "truststore": str(self.guard.authority),
                },
            }
        # YAML holds all of JSON.
        (self.directory / "cassandra.yaml").write_text(json.dumps(settings, indent=1))
        (self.directory / "logback.xml").write_text(_LOGBACK)


def _java() -> str:
    """A Java that Cassandra runs on: that of JAVA_HOME, or else the one on the path."""
    home = os.environ.get("JAVA_HOME")
    found = [str(Path(home) / "bin" / "java")] if home and (Path(home) / "bin" / "java").exists() else []
    try:
        found.append(toolchain.program("java"))
    except toolchain.Missing:
        if not found:
            raise toolchain.Missing(f"`java` is not installed: {_NEEDED}") from None
    for java in found:
        version = subprocess.run([java, "-version"], capture_output=True, text=True).stderr
        if re.search(r'version "(11|17)[."]', version) is not None:
            return java
    raise toolchain.Missing(f"{found[-1]} is another Java: {_NEEDED}")
