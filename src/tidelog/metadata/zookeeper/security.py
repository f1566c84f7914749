"""How a broker proves itself to ZooKeeper, and who may touch the nodes that it makes.

TLS and SASL (DIGEST-MD5, ZooKeeper's own use of it) as Kafka has them. With ``zookeeper.set.acl`` every node
belongs to whoever this broker is to ZooKeeper and can be read by all, except what holds secrets (users'
credentials, brokers' dynamic options, delegation tokens): that is for its owner alone. All brokers of a
cluster therefore have to be the same to ZooKeeper, which is why Kafka asks for one name in all of their
certificates or JAAS lines. What old consumers keep below ``/consumers`` stays open.

Used by ``zookeeper``; kazoo's own TLS is not, because it reads PEM files alone and cannot tell when a record
held two answers.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from tidelog.zookeeper_sockets import ZooKeeperSockets

# Kafka's, and what only Tidelog keeps: the secret that the salts of unknown users are made of.
SENSITIVE_ROOTS = ("/config/users", "/config/brokers", "/delegation_token/tokens", "/tidelog")
_OPEN_ROOTS = ("/consumers",)


@dataclass(frozen=True, slots=True)
class ZooKeeperLogin:
    """A user of ZooKeeper's SASL/DIGEST-MD5."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ZooKeeperSecurity:
    """What connections to ZooKeeper do besides connecting."""

    tls: Callable[[], ssl.SSLContext] | None = None
    """Asked for every connection, so that certificates can be replaced."""
    login: ZooKeeperLogin | None = None
    set_acl: bool = False

    def client_arguments(self, hosts: str) -> dict[str, Any]:
        """What kazoo's client for ``hosts`` is made with besides them."""
        handler = ZooKeeperSockets(hosts) if self.tls is None else TlsHandler(hosts, self.tls)
        arguments: dict[str, Any] = {"handler": handler}
        if self.login is not None:
            arguments["sasl_options"] = {
                "mechanism": "DIGEST-MD5",
                "username": self.login.username,
                "password": self.login.password,
            }
        return arguments

    def acl_of(self, path: str) -> list[ACL]:
        """Who may do what with a node that is made at ``path``, which is without chroot."""
        if not self.set_acl or path.startswith(_OPEN_ROOTS):
            return list(OPEN_ACL_UNSAFE)
        if path.startswith(SENSITIVE_ROOTS):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


OPEN = ZooKeeperSecurity()
"""Neither TLS nor a login, and nodes that are everybody's."""


class TlsHandler(ZooKeeperSockets):
    """kazoo's threads and sockets, with TLS on each connection."""

    def __init__(self, hosts: str, context: Callable[[], ssl.SSLContext]) -> None:
        super().__init__(hosts)
        self._context = context
        self.failure: str | None = None
        """Why there was no handshake on the last connection."""

    def create_connection(self, *, address: tuple[str, int], hostname: str, timeout: float, **_: Any) -> Any:
        """Connect and shake hands; ``hostname`` is what the certificate has to be for.

        The socket has its timeout still: an answer to the handshake is not waited for any longer either.
        """
        sock = super().create_connection(address=address, hostname=hostname, timeout=timeout)
        try:
            wrapped = self._context().wrap_socket(sock, server_hostname=hostname)
        except Exception as error:
            self.failure = str(error)
            sock.close()
            if isinstance(error, OSError):
                raise
            # A store that is being replaced cannot be read for a moment; kazoo tries again after these alone.
            raise OSError(0, self.failure) from error
        self.failure = None
        return wrapped

    def select(self, *args: Any, **kwargs: Any) -> Any:
        """As ``select``, which does not know that a record may have held more than was asked for."""
        readable = [each for each in args[0] if isinstance(each, ssl.SSLSocket) and each.pending()]
        return (readable, [], []) if readable else super().select(*args, **kwargs)
