"""Opening a connection: address, socket, TLS, API versions, SASL; each failure with its own sentence.

``client._network.node_connection`` calls this. A connection that comes out of :func:`open_connection` is
ready for any request. Failures that a retry may fix are ``BrokerUnreachableError`` or
``RequestTimeoutError``; a broker that refuses who we are, or whom we do not trust, is an
``AuthenticationError``: another try is no use.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import ssl
from typing import Any

from tidelog.client._address import Address
from tidelog.client._network.connection import Connection, reason
from tidelog.client._network.receiver import FrameReceiver, TlsRecordError
from tidelog.client._network.retry import Deadline
from tidelog.client._network.settings import NetworkSettings
from tidelog.client._network.traffic import Traffic
from tidelog.client.errors import AuthenticationError, BrokerUnreachableError, ConnectionLostError

logger = logging.getLogger(__name__)

# OpenSSL's codes: a host or an address that the certificate does not name; one not yet or no longer valid.
_OTHER_NAME = frozenset({62, 64})
_OUT_OF_TIME = frozenset({9, 10})


async def open_connection(
    address: Address, settings: NetworkSettings, deadline: Deadline, traffic: Traffic | None = None
) -> Connection:
    """A connection to ``address`` that has greeted the broker and, where asked for, authenticated.

    What goes over it is counted in ``traffic``.
    """
    transport, receiver = await _connect(address, settings, deadline, traffic or Traffic())
    connection = Connection(address, transport, receiver, settings.client_id)
    try:
        await connection.negotiate(deadline)
        if settings.security is not None:
            await settings.security.authenticate(connection, deadline)
    except ConnectionLostError as error:
        await connection.close()
        if isinstance(error.__cause__, ssl.SSLError):
            # A server of TLS 1.3 looks at our certificate when the handshake is over for us.
            raise _tls_failure(address, settings, error.__cause__) from error
        raise BrokerUnreachableError(_no_broker(address, settings, error.__cause__)) from error
    except BaseException:
        await connection.close()
        raise
    return connection


async def _connect(
    address: Address, settings: NetworkSettings, deadline: Deadline, traffic: Traffic
) -> tuple[asyncio.Transport, FrameReceiver]:
    """The first of the host's addresses that answers; each has its share of the time that is left."""
    *others, last = await _resolve(address, deadline)
    for number, host in enumerate(others):
        share = deadline.remaining / (len(others) + 1 - number)
        try:
            return await _connect_to(host, share, address, settings, deadline, traffic)
        except BrokerUnreachableError as error:
            logger.debug("%s at %s: %s; its next address is tried", address, host, error)
    return await _connect_to(last, deadline.remaining, address, settings, deadline, traffic)


async def _resolve(address: Address, deadline: Deadline) -> list[str]:
    """The addresses of the host, at least one, in the order in which they are to be tried."""
    try:
        ipaddress.ip_address(address.host)
        return [address.host]
    except ValueError:
        pass
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(deadline.remaining):
            found = await loop.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise _unreachable(address, f"its name was not resolved within {_seconds(deadline)}") from None
    except (socket.gaierror, UnicodeError) as error:
        raise _unknown_host(address, error) from None
    return list(dict.fromkeys(_numeric(where) for *_, where in found)) or [address.host]


def _numeric(where: tuple[Any, ...]) -> str:
    """The address of a socket; of IPv6 with the interface that a link-local one belongs to."""
    host, scope = str(where[0]), where[3] if len(where) > 3 else 0
    return f"{host}%{scope}" if scope and "%" not in host else host


async def _connect_to(
    host: str,
    seconds: float,
    address: Address,
    settings: NetworkSettings,
    deadline: Deadline,
    traffic: Traffic,
) -> tuple[asyncio.Transport, FrameReceiver]:
    security = settings.security
    tls = None if security is None or security.tls is None else security.tls()
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            transport, receiver = await loop.create_connection(
                lambda: FrameReceiver(traffic),
                host,
                address.port,
                ssl=tls,
                server_hostname=None if tls is None else address.host,
            )
    except TimeoutError:
        if tls is not None:
            raise BrokerUnreachableError(
                f"cannot connect to {address}: no TLS connection within {_seconds(deadline)}; check that the "
                f"broker is up, and {_no_tls_remedy(settings)}"
            ) from None
        raise _unreachable(address, f"no answer within {_seconds(deadline)}") from None
    except ssl.SSLCertVerificationError as error:
        raise _untrusted(address, error) from error
    except ssl.SSLError as error:
        raise _tls_failure(address, settings, error) from error
    except OSError as error:
        if tls is not None and isinstance(error, ConnectionError) and not _refused(error):
            raise BrokerUnreachableError(
                f"cannot connect to {address}: it ended the TLS handshake ({reason(error)}); "
                f"{_no_tls_remedy(settings)}"
            ) from error
        raise _unreachable(address, reason(error)) from error
    _set_socket_options(transport, settings)
    return transport, receiver


def _seconds(deadline: Deadline) -> str:
    return f"{deadline.timeout_ms / 1000:.3g} s"


def _set_socket_options(transport: asyncio.Transport, settings: NetworkSettings) -> None:
    sock = transport.get_extra_info("socket")
    if sock is None:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if settings.send_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)
    if settings.receive_buffer_bytes >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.receive_buffer_bytes)


def _unknown_host(address: Address, error: socket.gaierror | UnicodeError) -> BrokerUnreachableError:
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN:
        return BrokerUnreachableError(
            f"cannot connect to {address}: the name service does not answer for {address.host!r} now; "
            "check the network and the address"
        )
    return BrokerUnreachableError(
        f"cannot connect to {address}: there is no host {address.host!r}; check the address"
    )


def _untrusted(address: Address, error: ssl.SSLCertVerificationError) -> AuthenticationError:
    why = error.verify_message
    if error.verify_code in _OTHER_NAME:
        return AuthenticationError(
            f"cannot connect to {address}: the broker's certificate is for another name ({why}); connect by "
            "a name that is in the certificate, or set ssl.endpoint.identification.algorithm to an empty "
            "value"
        )
    if error.verify_code in _OUT_OF_TIME:
        return AuthenticationError(
            f"cannot connect to {address}: the broker's certificate is not valid now ({why}); renew it, or "
            "check this machine's clock"
        )
    return AuthenticationError(
        f"cannot connect to {address}: the broker's certificate is not trusted ({why}); set "
        "ssl.truststore.location to the certificate of the authority that signed it"
    )


def _no_tls_remedy(settings: NetworkSettings) -> str:
    """What to change where a listener does not seem to be one for TLS."""
    assert settings.security is not None
    plain = "SASL_PLAINTEXT" if settings.security.sasl is not None else "PLAINTEXT"
    return f"if it is not a TLS listener, set security.protocol={plain}"


def _tls_failure(
    address: Address, settings: NetworkSettings, error: ssl.SSLError
) -> AuthenticationError | BrokerUnreachableError:
    words = (error.reason or str(error)).lower().replace("_", " ")
    if "certificate required" in words or "did not return a certificate" in words:
        return AuthenticationError(
            f"cannot connect to {address}: it requires a client certificate; set ssl.keystore.location to a "
            "file with a private key and its certificate"
        )
    if "alert handshake failure" in words:
        return AuthenticationError(
            f"cannot connect to {address}: it refused the TLS handshake; check ssl.keystore.location (it may "
            "require a client certificate), ssl.enabled.protocols and ssl.cipher.suites"
        )
    if "alert" in words or "certificate" in words:
        return AuthenticationError(
            f"cannot connect to {address}: it refused the TLS handshake ({words}); set ssl.keystore.location "
            "to a client certificate that it trusts"
        )
    return BrokerUnreachableError(
        f"cannot connect to {address}: no TLS handshake ({words}); {_no_tls_remedy(settings)}"
    )


def _no_broker(address: Address, settings: NetworkSettings, cause: BaseException | None) -> str:
    protocol = "PLAINTEXT" if settings.security is None else settings.security.protocol
    other = "SASL_SSL" if protocol.startswith("SASL") else "SSL"
    if isinstance(cause, TlsRecordError):
        return f"cannot connect to {address}: it is a TLS listener; set security.protocol={other}"
    hint = ""
    if not protocol.endswith("SSL"):
        hint = f", and if it is a TLS listener, set security.protocol={other}"
    elif isinstance(cause, ConnectionError):
        hint = ", and if it requires a client certificate, set ssl.keystore.location"
    return (
        f"cannot connect to {address}: it accepts connections but does not answer as a Kafka broker does "
        f"with security.protocol={protocol}; check the port{hint}"
    )


def _refused(error: OSError) -> bool:
    return isinstance(error, ConnectionRefusedError)


def _unreachable(address: Address, why: str) -> BrokerUnreachableError:
    return BrokerUnreachableError(
        f"cannot connect to {address}: {why}; is the broker running? try `tidelog start`"
    )
