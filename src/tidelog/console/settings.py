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
class RegistrySettings:
    """Where the schemas of a cluster's records are; its passwords never leave this process."""

    url: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    ca: Path | None = None
    """Certificates (PEM) of who may have signed its own, where the machine does not know them."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """One cluster: its name in the console, the options of clients, its colour."""

    name: str
    options: Mapping[str, object] = field(repr=False)
    """In Kafka's names; passwords may be among them, which never leave this process."""
    colour: str = "grey"
    registry: RegistrySettings | None = None

    @property
    def patient_options(self) -> Mapping[str, object]:
        """The options, with times that suit somebody who waits for a page unless they name their own."""
        return self.options if self.options.keys() & PATIENCE.keys() else {**self.options, **PATIENCE}

    @property
    def bootstrap(self) -> str:
        """The brokers to ask first, as they were named."""
        return str(self.options["bootstrap.servers"])


class Way(enum.Enum):
    """How somebody has logged in; two ways may know the same name for two people."""

    SCRAM = "scram"
    OIDC = "oidc"


@dataclass(frozen=True, slots=True)
class Grant:
    """A role for a user, or for a group of a login provider, on clusters and topics: patterns with ``*``."""

    user: str
    """``*`` is everybody who can log in; empty for a group."""
    role: Role
    clusters: tuple[str, ...] = ("*",)
    topics: tuple[str, ...] = ("*",)
    group: str = ""
    way: Way | None = None
    """The way by which that user logs in; None is any."""

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


OIDC_PATH = "/login/oidc"
"""Where a login provider sends browsers back to."""


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """A provider of OpenID Connect at which people log in."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    """None for a client that has none, which proves itself by PKCE alone."""
    name: str = ""
    """What the login page calls the provider."""
    scopes: tuple[str, ...] = ("openid", "profile")
    user_claim: str = "sub"
    groups_claim: str = "groups"
    """A claim, or a path with dots to one within others."""
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    redirect_url: str = ""
    """The console's own address with :data:`OIDC_PATH`."""
    ca_file: Path | None = None
    """Authorities by which the provider is trusted; the system's without it."""
    clock_skew_s: float = 30.0
    """By so much may the provider's clock differ from ours."""


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """How people log in: as SCRAM users of a cluster, at a provider of OpenID Connect, or either."""

    cluster: str
    """Whose users; empty is the first cluster."""
    session_hours: float = 12.0
    mechanism: str = "SCRAM-SHA-512"
    scram: bool = True
    oidc: OidcSettings | None = None


@dataclass(frozen=True, slots=True)
class McpSettings:
    """The endpoint for assistants."""

    allow_changes: bool = False
    """Whether tools are offered that change something; the person's role bounds them all the same."""
    audience: str = ""
    """The audience of access tokens of the login provider that are taken here; without it none is."""
    token_days: float = 30.0
    """How long a personal token lasts, at most."""


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
        return is_loopback(self.host)

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
    mcp: McpSettings | None = None
    """None: there is no such endpoint."""

    @property
    def oidc_redirect_url(self) -> str:
        """Where the login provider sends browsers back to."""
        given = self.login.oidc.redirect_url if self.login and self.login.oidc else ""
        return given or self.listen.url.rstrip("/") + OIDC_PATH


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, reached by nobody else."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
