"""The options of the network side, read from the broker's configuration.

Called by ``broker/app`` at start, and again for the quotas whenever a dynamic option has changed; those of
single addresses are in ``ip_overrides``.
"""

from __future__ import annotations

from tidelog.broker.network.connection_quotas import ConnectionQuotas
from tidelog.broker.network.network import NetworkLimits
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.options.listener_options import bare_names

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


def network_limits(config: BrokerConfig) -> NetworkLimits:
    """All limits of the network side."""
    quotas = ConnectionQuotas(
        inter_broker_listener=config.inter_broker_listener_name,
        windows=config.int("quota.window.num"),
        window_ms=config.int("quota.window.size.seconds") * 1000.0,
    )
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
    quotas.max_per_listener = _of_listeners(config, "max.connections")
    rate = "max.connection.creation.rate"
    quotas.limit_rates(config.int(rate), _of_listeners(config, rate))


def _of_listeners(config: BrokerConfig, option: str) -> dict[str, int]:
    """``listener.name.<listener>.<option>``, which overrides nothing and only limits that listener."""
    limits = {}
    for listener in config.listeners:
        own = config.for_listener(listener.name)
        if own.is_own(option):
            limits[listener.name] = own.int(option)
    return limits


def is_quota(name: str) -> bool:
    """Whether a changed option is one of the quotas, of all listeners or of one."""
    return name in QUOTA_OPTIONS or any(each in QUOTA_OPTIONS for each in bare_names(name))


def socket_buffer(config: BrokerConfig, name: str) -> int:
    """The size to set; in place of Kafka's default of 100 or 64 KB the system sizes buffers by need, up to
    more."""
    return config.int(name) if name in config.raw else -1
