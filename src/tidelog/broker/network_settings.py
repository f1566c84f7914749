"""The options of the network side, read from the broker's configuration.

Called by ``broker/app`` at start, and again for the quotas whenever a dynamic option has changed.
"""

from __future__ import annotations

from tidelog.broker.connection_quotas import ConnectionQuotas, resolve_ip_overrides
from tidelog.broker.network import NetworkLimits
from tidelog.errors import ConfigError
from tidelog.metadata.broker_config import BrokerConfig

QUOTA_OPTIONS = frozenset(
    {
        "max.connections",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
    }
)
# Kafka's default of 50 suits a thread that does nothing but accept; here others are served in between.
_BACKLOG = 4096
_LISTENER_PREFIX = "listener.name."
_LISTENER_SUFFIX = ".max.connections"


def network_limits(config: BrokerConfig) -> NetworkLimits:
    """All limits of the network side."""
    quotas = ConnectionQuotas(inter_broker_listener=config.inter_broker_listener_name)
    apply_quotas(config, quotas)
    return NetworkLimits(
        max_request_bytes=config.int("socket.request.max.bytes"),
        queued_request_bytes=config.int("queued.max.request.bytes"),
        max_idle_ms=config.int("connections.max.idle.ms"),
        send_buffer_bytes=socket_buffer(config, "socket.send.buffer.bytes"),
        receive_buffer_bytes=socket_buffer(config, "socket.receive.buffer.bytes"),
        backlog=config.int("socket.listen.backlog.size")
        if "socket.listen.backlog.size" in config.raw
        else _BACKLOG,
        quotas=quotas,
    )


def apply_quotas(config: BrokerConfig, quotas: ConnectionQuotas) -> None:
    """Give ``quotas`` the limits that the configuration has now."""
    quotas.max_connections = config.int("max.connections")
    quotas.max_per_ip = config.int("max.connections.per.ip")
    quotas.max_creation_rate = config.int("max.connection.creation.rate")
    quotas.per_ip_overrides = resolve_ip_overrides(config.max_connections_per_ip_overrides)
    quotas.max_per_listener = dict(_listener_limits(config))


def _listener_limits(config: BrokerConfig) -> list[tuple[str, int]]:
    """``listener.name.<listener>.max.connections``, which overrides nothing and only limits that listener."""
    limits = []
    for name, text in config.raw.items():
        if name.startswith(_LISTENER_PREFIX) and name.endswith(_LISTENER_SUFFIX):
            if not text.strip().isdecimal():
                raise ConfigError(f"{name} is {text!r}: write a whole number, 0 or more")
            listener = name[len(_LISTENER_PREFIX) : -len(_LISTENER_SUFFIX)].upper()
            limits.append((listener, int(text)))
    return limits


def socket_buffer(config: BrokerConfig, name: str) -> int:
    """The size to set; in place of Kafka's default of 100 or 64 KB the system sizes buffers by need, up to
    more."""
    return config.int(name) if name in config.raw else -1
