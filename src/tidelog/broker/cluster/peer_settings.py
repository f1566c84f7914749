"""How this broker connects to others: the settings of connections, by the listener that they lead to.

Made by ``membership``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.network.network_settings import socket_buffer
from tidelog.client._network.settings import NetworkSettings
from tidelog.config.broker_config import BrokerConfig

if TYPE_CHECKING:
    from tidelog.client._network.security import Security


class PeerSettings:
    """Settings that are the same for all peers and all of their connections to one listener."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._known: dict[str, NetworkSettings] = {}

    def of(self, listener: str) -> NetworkSettings:
        """For connections to others' listeners of this name; raises ``ConfigError`` if it cannot be."""
        found = self._known.get(listener)
        if found is None:
            found = self._known[listener] = NetworkSettings(
                client_id=f"broker-{self._config.node_id}",
                receive_buffer_bytes=socket_buffer(self._config, "replica.socket.receive.buffer.bytes"),
                security=self._security(listener),
            )
        return found

    def _security(self, name: str) -> Security | None:
        listener = next(each for each in self._config.listeners if each.name == name)
        if listener.security_protocol == "PLAINTEXT":
            return None
        # A cluster without TLS and logins starts without them.
        from tidelog.broker.cluster.peer_security import peer_security

        return peer_security(self._config, listener)
