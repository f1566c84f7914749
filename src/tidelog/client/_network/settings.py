"""What the network side of a client may be told, with the defaults of Kafka's clients.

One immutable value, shared by a client's cluster and all of its connections. ``from_options`` makes it from
option tables in Kafka's names; tests and the command line make it by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tidelog.client._network.security import Security

RecoveryStrategy = Literal["none", "rebootstrap"]
DnsLookup = Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]

OS_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Time limits, back-off, sockets and security of one client."""

    client_id: str = "tidelog"
    client_kind: str = "client"
    """How the groups of its metrics begin: ``producer``, ``consumer``, ``admin-client``."""
    metrics_sample_window_ms: int = 30_000
    metrics_num_samples: int = 2
    request_timeout_ms: int = 30_000
    """How long one request may take (``request.timeout.ms``)."""
    api_timeout_ms: int = 60_000
    """How long one whole operation may take, retries included (``default.api.timeout.ms``)."""
    retries: int | None = None
    """How often one operation may be tried again (admin clients' ``retries``); None: while there is time."""
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000
    connect_timeout_ms: int = 10_000
    """``socket.connection.setup.timeout.ms``; doubles with every failure up to the next."""
    connect_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    """Connections unused for so long are closed; negative: never."""
    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int | None = None
    """Topics unused for so long are forgotten (producers); None: never."""
    metadata_recovery_strategy: RecoveryStrategy = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    allow_auto_create_topics: bool = False
    """Whether asking for a topic in use may create it."""
    send_buffer_bytes: int = OS_DEFAULT
    receive_buffer_bytes: int = OS_DEFAULT
    client_dns_lookup: DnsLookup = "use_all_dns_ips"
    security: Security | None = None
    """TLS and SASL; None: neither."""
