"""Where a broker sends its figures, out of its options ``tidelog.otlp.*``."""

from __future__ import annotations

from tidelog.config.broker_config import BrokerConfig
from tidelog.metrics.otlp_export import Target, endpoint_of, headers_of


def otlp_target(config: BrokerConfig) -> Target:
    """The collector that the options name; raises ``ConfigError``."""
    return Target(
        endpoint_of(config.str("tidelog.otlp.endpoint")),
        headers_of(config.optional_str("tidelog.otlp.headers") or ""),
        config.int("tidelog.otlp.interval.ms") / 1000,
        config.int("tidelog.otlp.timeout.ms") / 1000,
        config.str("tidelog.metrics.names") == "reporter",
    )
