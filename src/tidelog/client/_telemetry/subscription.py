"""What a broker wants to know of a client (KIP-714), as it has answered GetTelemetrySubscriptions."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.ids import Uuid
from tidelog.records.compression import Codec

_ALL = ("*",)


class Subscription(NamedTuple):
    """What a broker wants to know."""

    instance_id: Uuid
    subscription_id: int
    interval_ms: int
    codecs: tuple[Codec, ...]
    delta: bool
    metrics: tuple[str, ...]
    """Prefixes of names; empty: nothing is wanted."""

    def wants(self, name: str) -> bool:
        """Whether a figure was asked for."""
        return self.metrics == _ALL or name.startswith(self.metrics)
