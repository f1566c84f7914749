"""What ``tidelog cluster start`` starts: its directories, and the options of each broker.

Under ``--data-dir`` each broker has its log directory ``broker-N``, its options in ``config`` and what it
says in ``logs``; ZooKeeper has ``zookeeper``, and what ``--secure`` makes is in ``security``. A next start
finds the data by these names.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.cli.cluster.secure import SecureCluster
from tidelog.cli.failure import WrongUsage
from tidelog.cli.foreground import HOST, ZOOKEEPER_PORT, is_free, require_free

REPLICAS = 3
_HEADING = "# Written by `tidelog cluster start`, anew at every start: change options with --set."
_MINE = {
    "zookeeper.connect": "--zookeeper",
    "listeners": "--port",
    "advertised.listeners": "--port",
    "log.dirs": "--data-dir",
    "log.dir": "--data-dir",
    "broker.id": "--brokers",
    "node.id": "--brokers",
}


@dataclass(frozen=True)
class ClusterSettings:
    """What a person chose; without ``zookeeper`` the cluster brings its own, on ``zookeeper_port``."""

    brokers: int
    directory: Path
    port: int
    zookeeper: str | None = None
    zookeeper_port: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    is_secure: bool = False

    @property
    def security(self) -> SecureCluster | None:
        """The certificates and passwords of a secure cluster."""
        return SecureCluster(self.directory.absolute() / "security") if self.is_secure else None

    @property
    def broker_ports(self) -> range:
        """The ports that the brokers take; none are known beforehand with ``--port 0``."""
        return range(self.port, self.port + self.brokers) if self.port else range(0)

    def own_zookeeper_port(self) -> int | None:
        """Where the cluster's own ZooKeeper listens, None for any port that is free."""
        if self.zookeeper_port is not None:
            return self.zookeeper_port or None
        usual = self.port and ZOOKEEPER_PORT not in self.broker_ports and is_free(ZOOKEEPER_PORT)
        return ZOOKEEPER_PORT if usual else None

    @property
    def zookeeper_directory(self) -> Path:
        return self.directory / "zookeeper"

    def log(self, broker_id: int) -> Path:
        """The file that a broker logs to."""
        return self.directory / "logs" / f"broker-{broker_id}.log"

    def log_dir(self, broker_id: int) -> Path:
        """The directory that a broker keeps its data in."""
        return self.directory / f"broker-{broker_id}"

    @property
    def broker_ids(self) -> range:
        return range(1, self.brokers + 1)

    def properties_file(self, broker_id: int) -> Path:
        """The file with a broker's options."""
        return self.directory / "config" / f"broker-{broker_id}.properties"

    def write_properties(self, broker_id: int, connect: str) -> None:
        """Write the options of one broker, for it and for a person who brings it back."""
        options = {
            "zookeeper.connect": connect,
            "broker.id": str(broker_id),
            "log.dirs": str(self.log_dir(broker_id)),
            **default_options(self.brokers),
            **({} if self.security is None else self.security.broker_options()),
            **self.options,
        }
        lines = [f"{name}={value}".replace("\\", "\\\\") for name, value in options.items()]
        file = self.properties_file(broker_id)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Options may hold passwords, and the file may be one of an earlier start that had none.
        file.touch(mode=0o600)
        file.chmod(0o600)
        file.write_text("\n".join((_HEADING, *lines, "")))

    def start_arguments(self, broker_id: int, port: int | None = None) -> list[str]:
        """``tidelog start …`` for one broker; ``port`` where it is known better than before its start."""
        if port is None:
            port = self.port + broker_id - 1 if self.port else 0
        return ["start", str(self.properties_file(broker_id)), "--listen", f"{HOST}:{port}"]

    def start_command(self, broker_id: int, port: int) -> str:
        """How a person brings back a broker that has ended."""
        return "tidelog " + shlex.join(self.start_arguments(broker_id, port))


def default_options(brokers: int) -> dict[str, str]:
    """Options that suit so many brokers on one machine, where Kafka's defaults do not."""
    replicas = str(min(brokers, REPLICAS))
    in_sync = "2" if brokers >= REPLICAS else "1"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        # On one machine silence means death: somebody who tries out a crash need not wait for 18 s.
        "zookeeper.session.timeout.ms": "6000",
        # They are mostly stopped together, and then nobody is left to take over.
        "controlled.shutdown.max.retries": "0",
        "controller.socket.timeout.ms": "10000",
    }


def check_options(options: Mapping[str, str]) -> None:
    """Refuse what ``cluster start`` sets itself, for each broker another value."""
    for name in options:
        if name in _MINE:
            raise WrongUsage(f"--set {name}: `cluster start` sets it for each broker; see {_MINE[name]}")


def check_ports(settings: ClusterSettings) -> None:
    """Say which port is taken, or asked for twice, before anything is started."""
    if settings.zookeeper_port is not None:
        if settings.zookeeper is not None:
            raise WrongUsage(
                "--zookeeper-port is for the ZooKeeper that the cluster starts, which --zookeeper "
                "replaces: use only one of them"
            )
        if settings.zookeeper_port in settings.broker_ports:
            ports = settings.broker_ports
            raise WrongUsage(
                f"--zookeeper-port {settings.zookeeper_port} conflicts with the brokers' ports "
                f"{ports[0]} to {ports[-1]} (--port {settings.port}): choose another"
            )
        if settings.zookeeper_port:
            require_free(range(settings.zookeeper_port, settings.zookeeper_port + 1), "--zookeeper-port")
    require_free(settings.broker_ports, "--port")


def earlier_brokers(directory: Path) -> Iterator[int]:
    """The ids of the brokers that have data in ``directory``."""
    for path in sorted(directory.glob("broker-*")):
        number = path.name.removeprefix("broker-")
        if path.is_dir() and number.isdecimal():
            yield int(number)
