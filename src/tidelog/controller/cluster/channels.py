"""How the controller reaches the brokers: the seam between deciding and sending.

Each broker gets its requests one after the other, in the order in which they were handed over, and the next
one only when the last is answered; a request is sent again until it is answered or the broker is gone.
``broker/cluster`` has the real channels, tests have others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tidelog.controller.cluster.context import LiveBroker
from tidelog.wire.schema import Payload

OnResponse = Callable[[Payload], None]


class BrokerChannels(Protocol):
    """Ways to all live brokers, this one included."""

    def set_brokers(self, brokers: Mapping[int, LiveBroker]) -> None:
        """Hold a channel to each of these; what waits for others, or for an earlier epoch of one, is
        dropped."""

    def send(self, broker_id: int, request: Payload, on_response: OnResponse) -> None:
        """Send in turn; ``on_response`` is called with the answer. To a broker that is not held, nothing is
        sent."""

    def close(self) -> None:
        """Drop everything."""
