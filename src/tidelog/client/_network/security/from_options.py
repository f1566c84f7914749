"""From ``security.protocol`` and the options of TLS and SASL to a :class:`Security`."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from tidelog.client._network.security import Security, SecurityProtocol
from tidelog.client._network.security.mechanisms import Dialogue, plain
from tidelog.client._network.security.sasl import SaslLogin, oauth_login
from tidelog.client._network.security.scram import scram
from tidelog.client._network.security.tls import tls_context
from tidelog.errors import ConfigError
from tidelog.security.kerberos.login import (
    GSSAPI,
    IBM_MODULE,
    KEYTAB_LINE,
    MODULE,
    SERVICE_NAME,
    KerberosLogin,
    kerberos_login,
    service_name,
)
from tidelog.security.sasl import jaas

if TYPE_CHECKING:
    from tidelog.client._address import Address
    from tidelog.client.options import ClientConfig

_REMEDY = 'write `…LoginModule required username="…" password="…";`'


class Credentials(NamedTuple):
    """Who logs in."""

    username: str
    password: str
    tokenauth: bool = False


def security_from(config: ClientConfig) -> Security | None:
    """What connections do before their first request; None for PLAINTEXT."""
    protocol = config.str("security.protocol")
    if protocol == "PLAINTEXT":
        return None
    return Security(
        cast(SecurityProtocol, protocol),
        _always(tls_context(config)) if protocol.endswith("SSL") else None,
        _login(config) if protocol.startswith("SASL") else None,
    )


def _always(context: ssl.SSLContext) -> Callable[[], ssl.SSLContext]:
    return lambda: context


def _login(config: ClientConfig) -> SaslLogin:
    mechanism = config.str("sasl.mechanism")
    if mechanism == "OAUTHBEARER":
        return oauth_login(config.object("sasl.login.callback.handler.class"))
    if mechanism == GSSAPI:
        return _kerberos_login(config)
    username, password, tokenauth = _credentials(config)

    async def begin(_: Address) -> Dialogue:
        if mechanism == "PLAIN":
            return plain(username, password)
        return scram(mechanism, username, password, tokenauth=tokenauth)

    return SaslLogin(mechanism, begin, remedy="; check sasl.username and sasl.password, or sasl.jaas.config")


def _kerberos_login(config: ClientConfig) -> SaslLogin:
    # Not before: all of it is needed where there is Kerberos alone.
    from tidelog.client._network.security.gssapi import gssapi_login

    text = config.optional_str("sasl.jaas.config")
    options: Mapping[str, str] = {}
    if text is not None:
        try:
            line = jaas.parse_jaas(text)
        except jaas.JaasError as error:
            raise ConfigError(f"sasl.jaas.config cannot be read: {error}; write `{KEYTAB_LINE}`") from error
        if line.module not in (MODULE, IBM_MODULE):
            raise ConfigError(
                f"sasl.jaas.config is for the login module {line.module}, and sasl.mechanism is GSSAPI, "
                "the default: set sasl.mechanism"
            )
        options = line.options
    service = service_name(options, config.optional_str(SERVICE_NAME), "sasl.jaas.config")
    if service is None:
        raise ConfigError(f"sasl.mechanism=GSSAPI needs the name of the brokers' service: set {SERVICE_NAME}")
    login = KerberosLogin() if text is None else kerberos_login(options, "sasl.jaas.config")
    return gssapi_login(login, service, "sasl.jaas.config")


def _credentials(config: ClientConfig) -> Credentials:
    username, password = config.optional_str("sasl.username"), config.optional_str("sasl.password")
    tokenauth = config.bool("sasl.tokenauth")
    if username is not None and password is not None:
        return Credentials(username, password, tokenauth)
    found = parse_jaas(config.str("sasl.jaas.config"))
    return found._replace(tokenauth=found.tokenauth or tokenauth)


def parse_jaas(text: str) -> Credentials:
    """User name and password in ``sasl.jaas.config``."""
    try:
        found = jaas.parse_jaas(text).options
    except jaas.JaasError as error:
        raise ConfigError(
            f"sasl.jaas.config cannot be read: {error}; {_REMEDY}, or set sasl.username and sasl.password"
        ) from error
    if "username" not in found or "password" not in found:
        raise ConfigError(
            f"sasl.jaas.config names no user: {_REMEDY}, or set sasl.username and sasl.password"
        )
    return Credentials(found["username"], found["password"], found.get("tokenauth", "").lower() == "true")
