"""What the console is told: clusters, where it listens, who may do what, which fields are masked.

The command line gives the clusters and the address; everything else is in a TOML file (``config_file``).
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

COLOURS = ("grey", "green", "blue", "amber", "red", "purple")
"""The colours that a cluster may have, so that nobody takes production for a playground."""


PATIENCE = {"default.api.timeout.ms": 10_000, "request.timeout.ms": 10_000}


class Role(enum.IntEnum):
    """What somebody may do; a greater one includes the smaller ones."""

    NONE = 0
    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """One cluster: its name in the console, the options of clients, its colour."""

    name: str
    options: Mapping[str, object] = field(repr=False)
    """In Kafka's names; passwords may be among them, which never leave this process."""
    colour: str = "grey"

    @property
    def patient_options(self) -> Mapping[str, object]:
        """The options, with times that suit somebody who waits for a page unless they name their own."""
        return self.options if self.options.keys() & PATIENCE.keys() else {**self.options, **PATIENCE}

    @property
    def bootstrap(self) -> str:
        """The brokers to ask first, as they were named."""
        return str(self.options["bootstrap.servers"])


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for a user on clusters and topics; names are patterns with ``*``."""

    user: str
    role: Role
    clusters: tuple[str, ...] = ("*",)
    topics: tuple[str, ...] = ("*",)

    @property
    def covers_all_topics(self) -> bool:
        """Whether it is a right on the cluster itself, not only on some of its topics."""
        return "*" in self.topics


@dataclass(frozen=True, slots=True)
class MaskRule:
    """Fields of JSON values, headers and keys of some topics that are hidden until somebody asks for them."""

    topics: tuple[str, ...] = ("*",)
    fields: tuple[str, ...] = ()
    """Names or paths with dots, with ``*``: ``phone``, ``user.*``."""
    headers: tuple[str, ...] = ()
    key: bool = False
    shown_to: Role = Role.OPERATOR
    """Who may ask to see them."""


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """People log in as SCRAM users of this cluster."""

    cluster: str
    session_hours: float = 12.0
    mechanism: str = "SCRAM-SHA-512"


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the console listens, and how browsers reach it."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    """Names that browsers may use for it, beside addresses and localhost."""
    behind_tls: bool = False
    """Another program ends TLS before us."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def is_https(self) -> bool:
        """Whether browsers come by TLS."""
        return self.behind_tls or self.tls_certificate is not None

    @property
    def url(self) -> str:
        """The address for people."""
        host = f"[{self.host}]" if ":" in self.host and not self.host.startswith("[") else self.host
        return f"{'https' if self.tls_certificate else 'http'}://{host}:{self.port}/"


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """One console."""

    clusters: tuple[ClusterSettings, ...]
    listen: Listen = Listen()
    data_dir: Path = Path("data/console")
    """Holds the history and the audit log."""
    read_only: bool = False
    login: LoginSettings | None = None
    grants: tuple[Grant, ...] = ()
    masks: tuple[MaskRule, ...] = ()
    pipelines: Path | None = None
    """The directory of `tidelog pipeline run`."""
    checkpoints: tuple[Path, ...] = ()
    """Checkpoints of Spark queries, or directories that hold some."""
    refresh_s: float = 5.0
    history_days: float = 7.0
