"""The options of admin clients."""

from __future__ import annotations

from tidelog.client.options.common import (
    CLIENT,
    DEFAULT_API_TIMEOUT_MS,
    METRICS,
    NETWORK,
    NO_LIMIT,
    connections_max_idle_ms,
)
from tidelog.client.options.security import PROTOCOL, SASL, TLS
from tidelog.options import Option, at_least, option

_CALLS = (
    DEFAULT_API_TIMEOUT_MS,
    option(
        "retries",
        "int",
        NO_LIMIT,
        "How often a request may be sent again; `default.api.timeout.ms` is the better limit.",
        at_least(0),
        importance="low",
    ),
)

SUBJECTS: dict[str, tuple[Option, ...]] = {
    "Client": (*CLIENT, *_CALLS),
    "Metrics": METRICS,
    "Network": (*NETWORK, connections_max_idle_ms(300_000)),
    "Security": (*PROTOCOL, *TLS, *SASL),
}
