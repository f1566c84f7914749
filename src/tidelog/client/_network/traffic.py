"""What goes between a client and its brokers: counted per broker by the connections, told in all and by each.

Java's clients count by connection: a bootstrap server (``node--1``), a broker (``node-1``) and the same
broker as coordinator (``node-2147483646``) are three there. Here a broker is one, over all of its
connections, by its id (``node-1``); as long as that is not known, by its place among the bootstrap servers
(``node--1``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from tidelog.client.metrics import (
    Family,
    Kind,
    Latency,
    Metrics,
    Stat,
    Tags,
    gauge,
    merged,
    meter,
    spread,
    total,
)


class Traffic:
    """What went to and came from one broker, over all of its connections."""

    __slots__ = (
        "bytes_received",
        "connections_closed",
        "connections_opened",
        "failed_authentications",
        "failed_logins_again",
        "latency_ms",
        "login_again_ms",
        "responses",
        "sent",
        "successful_authentications",
        "throttle_ms",
    )

    def __init__(self) -> None:
        self.sent = Stat()
        """Requests and their sizes."""
        self.responses = 0
        self.bytes_received = 0
        self.connections_opened = 0
        self.connections_closed = 0
        self.successful_authentications = 0
        self.failed_authentications = 0
        self.failed_logins_again = 0
        self.login_again_ms = Stat()
        """How long logging in again took, before a session would have ended (KIP-368)."""
        self.latency_ms = Latency()
        self.throttle_ms = Stat()
        """For how long the broker asked to be left alone, because of quotas."""

    @property
    def requests(self) -> int:
        """How many were sent."""
        return self.sent.count

    @property
    def bytes_sent(self) -> int:
        """The sizes of all requests."""
        return int(self.sent.total)


class AllTraffic:
    """The traffic of all brokers, summed up when it is read."""

    def __init__(self, by_broker: Callable[[], Mapping[str, Traffic]]) -> None:
        self._by_broker = by_broker

    def rows(self) -> dict[Tags, Traffic]:
        """Each broker's, by its tag."""
        return {(node,): each for node, each in self._by_broker().items()}

    def summed(self, attribute: str) -> float:
        """A count over all brokers."""
        read = attrgetter(attribute)
        return float(sum(read(each) for each in self._by_broker().values()))

    def stat(self, attribute: str) -> Stat:
        """Sizes or durations over all brokers."""
        read = attrgetter(attribute)
        return merged(read(each) for each in self._by_broker().values())


def _sum(attribute: str) -> Callable[[AllTraffic], float]:
    return lambda traffic: traffic.summed(attribute)


def _all(attribute: str) -> Callable[[AllTraffic], Stat]:
    return lambda traffic: traffic.stat(attribute)


def _open_connections(traffic: AllTraffic) -> float:
    return traffic.summed("connections_opened") - traffic.summed("connections_closed")


_REQUESTS = _sum("requests")
_SENT = _all("sent")
_LOGIN_AGAIN = _all("login_again_ms")
_THROTTLE = _all("throttle_ms")

NETWORK = Family(
    "{client}-metrics",
    [
        *meter("connection-creation", _sum("connections_opened"), "Connections opened"),
        *meter("connection-close", _sum("connections_closed"), "Connections closed"),
        gauge("connection-count", _open_connections, "Connections that are open"),
        *meter(
            "network-io",
            lambda all_: all_.summed("requests") + all_.summed("responses"),
            "Requests and answers",
        ),
        *meter("request", _REQUESTS, "Requests sent"),
        *spread("request-size", _SENT, "Size of a request in bytes"),
        *meter("response", _sum("responses"), "Answers received"),
        *meter("outgoing-byte", _sum("bytes_sent"), "Bytes sent"),
        *meter("incoming-byte", _sum("bytes_received"), "Bytes received"),
        *meter(
            "successful-authentication",
            _sum("successful_authentications"),
            "Connections secured by TLS or SASL",
        ),
        *meter("failed-authentication", _sum("failed_authentications"), "Connections refused by TLS or SASL"),
        *meter(
            "successful-reauthentication", lambda all_: all_.stat("login_again_ms").count, "Sessions renewed"
        ),
        *meter("failed-reauthentication", _sum("failed_logins_again"), "Sessions that were not renewed"),
        *spread("reauthentication-latency", _LOGIN_AGAIN, "How long renewing a session took, in ms"),
        total(
            "throttle", lambda all_: all_.stat("throttle_ms").count, "Answers that asked for a pause (quota)"
        ),
        *spread("throttle-time", _THROTTLE, "Pause that such an answer asked for, in ms"),
    ],
)
"""Read from :class:`AllTraffic`."""

_LATENCY = attrgetter("latency_ms")
NODES = Family(
    "{client}-node-metrics",
    [
        *meter("request", attrgetter("requests"), "Requests sent"),
        *spread("request-size", attrgetter("sent"), "Size of a request in bytes"),
        *meter("response", attrgetter("responses"), "Answers received"),
        *meter("outgoing-byte", attrgetter("bytes_sent"), "Bytes sent"),
        *meter("incoming-byte", attrgetter("bytes_received"), "Bytes received"),
        *spread(
            "request-latency", _LATENCY, "From a request to its answer, in ms", Kind.AVG, Kind.MAX, Kind.P99
        ),
        *spread("throttle-time", attrgetter("throttle_ms"), "Pause that an answer asked for (quota), in ms"),
    ],
    ("node-id",),
)
"""Read from :class:`Traffic`."""


def network_metrics(metrics: Metrics, traffic: Callable[[], Mapping[str, Traffic]]) -> None:
    """The figures of a client's connections; ``traffic`` tells them by broker (``node-1``)."""
    all_traffic: Any = AllTraffic(traffic)
    metrics.add_one(NETWORK, all_traffic)
    metrics.add(NODES, all_traffic.rows)
