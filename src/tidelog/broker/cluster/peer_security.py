"""TLS and SASL of the connections to other brokers.

A broker is a client of the others with the keys and certificates of its own listener, and with the user name
and password, the keytab or the tokens of the JAAS line that the listener has for
``sasl.mechanism.inter.broker.protocol``. Stores that have changed are read again when a connection is opened,
and options of the login are asked for at each; ones that cannot be used leave those in use that were read
before. ``peer_settings`` loads this where brokers do not speak PLAINTEXT with each other.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, cast

from tidelog.broker.access.authentication.mechanisms import jaas_options, jaas_trust
from tidelog.client._address import Address
from tidelog.client._network.security import Security, SecurityProtocol
from tidelog.client._network.security.mechanisms import Dialogue, plain
from tidelog.client._network.security.sasl import SaslLogin, oauth_login
from tidelog.client._network.security.scram import scram
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.config.sasl_settings import BrokerLogin, TicketLogin, TokenLogin
from tidelog.errors import ConfigError
from tidelog.security.sasl.own_tokens import TokenSource, UnsecuredTokenMaker, token_source
from tidelog.security.sasl.plain import PLAIN
from tidelog.security.tls.context import TlsContext, client_context
from tidelog.security.tls.rotation import FileState, file_state
from tidelog.security.tls.settings import TlsSettings, read_settings

if TYPE_CHECKING:
    from tidelog.client._network.connection import Connection
    from tidelog.client._network.retry import Deadline

logger = logging.getLogger(__name__)


def peer_security(config: BrokerConfig, listener: Listener) -> Security:
    """What connections to others' ``listener`` do before their first request; raises ``ConfigError``."""
    return Security(
        cast("SecurityProtocol", listener.security_protocol),
        _PeerTls(config, listener.name) if listener.security_protocol.endswith("SSL") else None,
        _PeerLogin(config, listener.name) if listener.uses_sasl else None,
    )


class _PeerLogin:
    """The login of new connections, and of sessions that are renewed: made again when its options change.

    The listeners, of this broker and of others, take options that have changed at once; a login of before
    might be nobody's by now.
    """

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self._listener = listener
        login = self._look()
        self._made_of = _made_of(login)
        self._current = _sasl(login)

    async def __call__(self, connection: Connection, deadline: Deadline) -> None:
        try:
            login = self._look()
            made_of = _made_of(login)
            if made_of != self._made_of:
                self._current, self._made_of = _sasl(login), made_of
        except ConfigError as error:
            logger.error("Connections to other brokers go on with the login of before: %s", error)
        await self._current(connection, deadline)

    def _look(self) -> BrokerLogin:
        login = self._config.broker_login(self._listener)
        assert login is not None
        return login


def _made_of(login: BrokerLogin) -> object:
    """What a login is made of, to be compared: one by tokens keeps the token that it has while this stays."""
    if not isinstance(login, TokenLogin):
        return login
    allowed = login.settings.config.list("tidelog.oauthbearer.allowed.urls")
    return login.url, login.client, login.settings.jaas, allowed


def _sasl(login: BrokerLogin) -> SaslLogin:
    if isinstance(login, TicketLogin):
        # Not before: all of it is needed where there is Kerberos alone.
        from tidelog.client._network.security.gssapi import gssapi_login

        return gssapi_login(login.kerberos, login.service, login.option)

    if isinstance(login, TokenLogin):
        return _by_tokens(login)

    async def begin(_: Address) -> Dialogue:
        if login.mechanism == PLAIN:
            return plain(login.username, login.password)
        return scram(login.mechanism, login.username, login.password)

    return SaslLogin(login.mechanism, begin)


def _by_tokens(login: TokenLogin) -> SaslLogin:
    settings = login.settings
    source: TokenSource
    if login.url is None:
        source = UnsecuredTokenMaker(jaas_options(settings))
    else:
        allowed = settings.config.list("tidelog.oauthbearer.allowed.urls")
        source = token_source(login.url, login.client, allowed, jaas_trust(settings))

    async def token() -> str:
        return await asyncio.to_thread(source.token)

    return oauth_login(token)


class _PeerTls:
    """The context of new connections, made again when what it was made of has changed."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self._listener = listener
        self._seen = self._look()
        self._current = self._make(self._seen[0])

    def __call__(self) -> ssl.SSLContext:
        try:
            seen = self._look()
            if seen != self._seen:
                self._seen = seen
                self._current = self._make(seen[0])
        except ConfigError as error:
            logger.error("Connections to other brokers go on with the certificates of before: %s", error)
        return self._current.context

    def _look(self) -> tuple[TlsSettings, FileState]:
        options = self._config.for_listener(self._listener)
        settings = read_settings(options, options.name_of)
        return settings, file_state(settings)

    def _make(self, settings: TlsSettings) -> TlsContext:
        options = self._config.for_listener(self._listener)
        check_hostname = options.str("ssl.endpoint.identification.algorithm") != ""
        return client_context(settings, check_hostname=check_hostname)
