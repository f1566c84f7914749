"""A real ZooKeeper for development and tests: one server, or an ensemble of several, each a process of its
own.

    with ZooKeeperEnsemble(tmp_path / "zookeeper", servers=3) as ensemble:
        store = await ZooKeeperStore.connect(ensemble.connect)

The servers are those in PySpark's jars (``pip install "tidelog[spark]"``) and need a Java 17 or newer; they
are ready in about a second and keep their data in the directory they are given. ``kill`` is SIGKILL,
``stop`` SIGTERM, ``pause`` and ``resume`` stop and continue a process. Whatever ends the process that started
them ends them, too. ``tidelog zookeeper start`` runs one for people.
"""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tidelog.errors import TidelogError
from tidelog.java import find_java
from tidelog.processes.watchdog import end_with_me

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0

# All that a server needs of PySpark's jars, by the beginnings of their names.
_JARS = (
    "zookeeper-",
    "slf4j-api-",
    "log4j-slf4j2-impl-",
    "log4j-api-",
    "log4j-core-",
    "metrics-core-",
    "snappy-java-",
    "netty-",
)
_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JVM = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dzookeeper.4lw.commands.whitelist=*")
_LOGGING = """
<Configuration status="error">
  <Appenders><Console name="out"><PatternLayout pattern="%d %p %m%n"/></Console></Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


class ZooKeeperUnavailableError(TidelogError):
    """There is no ZooKeeper to start on this machine."""


class ServerSecurity(NamedTuple):
    """What a server asks of its clients; each part by itself or both."""

    users: Mapping[str, str] = {}
    """Those who may log in by SASL/DIGEST-MD5, with their passwords."""
    key_and_certificates: Path | None = None
    """A PEM file: with it there is a second port, for TLS."""
    trusted: Path | None = None
    """A PEM file of authorities: with it clients have to show a certificate of theirs."""


class ZooKeeperProcess:
    """One server, alone or of an ensemble; ``port`` is where clients connect."""

    def __init__(
        self,
        directory: Path,
        port: int,
        *,
        number: int = 1,
        peers: Sequence[str] = (),
        security: ServerSecurity | None = None,
    ) -> None:
        self.directory = directory
        self.port = port
        self.log_file = directory / "zookeeper.log"
        self._number = number
        self._peers = list(peers)
        self._security = security or ServerSecurity()
        self.tls_port = _free_ports(1)[0] if self._security.key_and_certificates else None
        """Where clients connect that speak TLS."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """``host:port``, for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None, "this ZooKeeper server has not been started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process and wait for nothing."""
        self.directory.mkdir(parents=True, exist_ok=True)
        configuration = self.directory / "zoo.cfg"
        configuration.write_text(self._configuration())
        (self.directory / "log4j2.xml").write_text(_LOGGING)
        (self.directory / "data").mkdir(exist_ok=True)
        (self.directory / "data" / "myid").write_text(f"{self._number}\n")
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}"
        command = [str(find_java()), *_JVM, *self._security_flags(), logging]
        command += ["-cp", _class_path(), _MAIN, str(configuration)]
        with self.log_file.open("ab") as log:
            # A session of its own: Ctrl-C in a terminal is for the one who started it to pass on.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        end_with_me(self._process.pid)

    def wait_until_serving(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the server answers clients, which one of an ensemble does only with its quorum."""
        deadline = time.monotonic() + timeout_s
        while not self.is_serving():
            if not self.alive or time.monotonic() > deadline:
                said = self.log_file.read_text(errors="replace")[-2000:]
                raise ZooKeeperUnavailableError(f"ZooKeeper did not start; it said:\n{said}")
            time.sleep(0.02)

    def is_serving(self) -> bool:
        """Whether the server says that it serves clients (the command ``srvr``)."""
        return "Mode:" in self.ask("srvr")

    def is_leader(self) -> bool:
        """Whether the server leads its ensemble."""
        return "Mode: leader" in self.ask("srvr")

    def ask(self, command: str) -> str:
        """What the server answers to one of its four-letter commands; nothing while it is not up."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(command.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
        except OSError:
            return ""

    def terminate(self) -> None:
        """Ask the process to end in an orderly way and wait for nothing."""
        self._signal(signal.SIGTERM)

    def stop(self) -> None:
        """End the process in an orderly way."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the process without ending it."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._signal(signal.SIGCONT)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        self._signal(number)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        if self.alive and self._process is not None:
            self._process.send_signal(number)

    def _security_flags(self) -> list[str]:
        users = self._security.users
        if not users:
            return []
        jaas = self.directory / "jaas.conf"
        lines = "\n".join(f'  user_{name}="{password}"' for name, password in users.items())
        module = "org.apache.zookeeper.server.auth.DigestLoginModule"
        jaas.write_text(f"Server {{\n  {module} required\n{lines};\n}};\n")
        return [f"-Djava.security.auth.login.config={jaas}"]

    def _security_configuration(self) -> Iterator[str]:
        users, keys, trusted = self._security
        if users:
            yield "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
        if keys is not None:
            yield "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"
            yield "authProvider.x509=org.apache.zookeeper.server.auth.X509AuthenticationProvider"
            yield "secureClientPortAddress=127.0.0.1"
            yield f"secureClientPort={self.tls_port}"
            yield "ssl.keyStore.type=PEM"
            yield f"ssl.keyStore.location={keys}"
            yield "ssl.trustStore.type=PEM"
            yield f"ssl.trustStore.location={trusted or keys}"
            yield f"ssl.clientAuth={'need' if trusted is not None else 'none'}"

    def _configuration(self) -> str:
        lines = [
            "tickTime=500",
            "initLimit=20",
            "syncLimit=10",
            f"dataDir={self.directory / 'data'}",
            "clientPortAddress=127.0.0.1",
            f"clientPort={self.port}",
            "admin.enableServer=false",
            "maxClientCnxns=0",
            "minSessionTimeout=1000",
            "maxSessionTimeout=60000",
        ]
        lines += self._security_configuration()
        if len(self._peers) > 1:
            lines += [f"server.{number}={peer}" for number, peer in enumerate(self._peers, 1)]
        return "\n".join(lines) + "\n"


class ZooKeeperEnsemble:
    """Servers that form one ensemble; by default a single one."""

    def __init__(
        self,
        directory: Path,
        *,
        servers: int = 1,
        ports: Sequence[int] | None = None,
        security: ServerSecurity | None = None,
    ) -> None:
        free = _free_ports(3 * servers)
        clients = list(ports) if ports is not None else free[:servers]
        peers = [f"127.0.0.1:{free[servers + 2 * i]}:{free[servers + 2 * i + 1]}" for i in range(servers)]
        self.servers = [
            ZooKeeperProcess(directory / str(number), port, number=number, peers=peers, security=security)
            for number, port in enumerate(clients, 1)
        ]

    @property
    def connect(self) -> str:
        """For ``zookeeper.connect``."""
        return ",".join(server.address for server in self.servers)

    @property
    def connect_by_tls(self) -> str:
        """For ``zookeeper.connect`` with ``zookeeper.ssl.client.enable``."""
        return ",".join(f"127.0.0.1:{server.tls_port}" for server in self.servers)

    def start(self) -> ZooKeeperEnsemble:
        """Start all servers and wait until they serve."""
        try:
            for server in self.servers:
                server.launch()
            for server in self.servers:
                server.wait_until_serving()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop all servers."""
        for server in self.servers:
            server.resume()
            server.terminate()
        for server in self.servers:
            server.stop()

    @property
    def leader(self) -> ZooKeeperProcess:
        """The server that leads, or the only one."""
        return next((server for server in self.servers if server.is_leader()), self.servers[0])

    def __enter__(self) -> ZooKeeperEnsemble:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _class_path() -> str:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZooKeeperUnavailableError(
            "ZooKeeper's server comes with PySpark, which is not installed: pip install 'tidelog[spark]', or "
            "point zookeeper.connect at a ZooKeeper of your own"
        )
    jars = Path(spec.origin).parent / "jars"
    found = [jar for name in _JARS for jar in jars.glob(f"{name}*.jar")]
    return ":".join(map(str, found))


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
