"""From ``security.protocol`` and the options of TLS and SASL to a :class:`Security`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, cast

from tidelog.client.security import Security, SecurityProtocol
from tidelog.client.security.mechanisms import Dialogue, plain
from tidelog.client.security.sasl import SaslLogin, oauth_login
from tidelog.client.security.scram import scram
from tidelog.client.security.tls import tls_context
from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.client.options import ClientConfig

_JAAS_OPTION = re.compile(r"""([A-Za-z_.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


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
        tls_context(config) if protocol.endswith("SSL") else None,
        _login(config) if protocol.startswith("SASL") else None,
    )


def _login(config: ClientConfig) -> SaslLogin:
    mechanism = config.str("sasl.mechanism")
    if mechanism == "OAUTHBEARER":
        return oauth_login(config.object("sasl.login.callback.handler.class"))
    username, password, tokenauth = _credentials(config)

    async def begin() -> Dialogue:
        if mechanism == "PLAIN":
            return plain(username, password)
        return scram(mechanism, username, password, tokenauth=tokenauth)

    return SaslLogin(mechanism, begin)


def _credentials(config: ClientConfig) -> Credentials:
    username, password = config.optional_str("sasl.username"), config.optional_str("sasl.password")
    if username is not None and password is not None:
        return Credentials(username, password)
    return parse_jaas(config.str("sasl.jaas.config"))


def parse_jaas(text: str) -> Credentials:
    """User name and password in ``sasl.jaas.config``."""
    found = {name: _value(*quoted) for name, *quoted in _JAAS_OPTION.findall(text)}
    if "username" not in found or "password" not in found:
        raise ConfigError(
            'sasl.jaas.config names no user: write `…LoginModule required username="…" password="…";`, '
            "or set sasl.username and sasl.password"
        )
    return Credentials(found["username"], found["password"], found.get("tokenauth", "").lower() == "true")


def _value(double: str, single: str, bare: str) -> str:
    return bare or re.sub(r"\\(.)", r"\1", double or single)
