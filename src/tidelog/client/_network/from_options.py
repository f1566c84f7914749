"""From the options of any client to the settings of its network side."""

from __future__ import annotations

from typing import cast

from tidelog.client._network.security.from_options import security_from
from tidelog.client._network.settings import DnsLookup, NetworkSettings, RecoveryStrategy
from tidelog.client.options.client_config import ADMIN, CONSUMER, PRODUCER, ClientConfig

_METRICS_OF = {PRODUCER.name: "producer", CONSUMER.name: "consumer", ADMIN.name: "admin-client"}


def network_settings(config: ClientConfig) -> NetworkSettings:
    """What ``client._network.cluster`` needs; reads the files of keys and certificates."""
    kind = config.kind
    auto_create = kind is PRODUCER or (kind is CONSUMER and config.bool("allow.auto.create.topics"))
    return NetworkSettings(
        client_id=config.str("client.id"),
        client_kind=_METRICS_OF[kind.name],
        metrics_sample_window_ms=config.int("metrics.sample.window.ms"),
        metrics_num_samples=config.int("metrics.num.samples"),
        request_timeout_ms=config.int("request.timeout.ms"),
        api_timeout_ms=config.int("max.block.ms" if kind is PRODUCER else "default.api.timeout.ms"),
        # A producer's retries are of batches, not of what its network side asks for by itself.
        retries=config.int("retries") if kind is ADMIN else None,
        retry_backoff_ms=config.int("retry.backoff.ms"),
        retry_backoff_max_ms=config.int("retry.backoff.max.ms"),
        reconnect_backoff_ms=config.int("reconnect.backoff.ms"),
        reconnect_backoff_max_ms=config.int("reconnect.backoff.max.ms"),
        connect_timeout_ms=config.int("socket.connection.setup.timeout.ms"),
        connect_timeout_max_ms=config.int("socket.connection.setup.timeout.max.ms"),
        connections_max_idle_ms=config.int("connections.max.idle.ms"),
        metadata_max_age_ms=config.int("metadata.max.age.ms"),
        metadata_max_idle_ms=config.int("metadata.max.idle.ms") if kind is PRODUCER else None,
        metadata_recovery_strategy=cast(RecoveryStrategy, config.str("metadata.recovery.strategy")),
        metadata_recovery_rebootstrap_trigger_ms=config.int("metadata.recovery.rebootstrap.trigger.ms"),
        allow_auto_create_topics=auto_create and kind is not ADMIN,
        send_buffer_bytes=config.int("send.buffer.bytes"),
        receive_buffer_bytes=config.int("receive.buffer.bytes"),
        client_dns_lookup=cast(DnsLookup, config.str("client.dns.lookup")),
        security=security_from(config),
    )
