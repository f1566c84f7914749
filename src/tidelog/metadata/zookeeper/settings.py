"""From a broker's options to how it connects to ZooKeeper. ``broker/cluster/joining`` is the caller."""

from __future__ import annotations

import ssl

from tidelog.config.options.zookeeper_options import ZOOKEEPER_JAAS
from tidelog.errors import ConfigError
from tidelog.metadata.zookeeper.security import OPEN, ZooKeeperLogin, ZooKeeperSecurity
from tidelog.options import TypedValues
from tidelog.security.sasl.jaas import JaasError, parse_jaas
from tidelog.security.tls.context import client_context
from tidelog.security.tls.settings import read_settings


def zookeeper_security(config: TypedValues) -> ZooKeeperSecurity:
    """What the options ask for; raises ``ConfigError`` where it cannot be had."""
    set_acl = config.bool("zookeeper.set.acl")
    by_tls = config.bool("zookeeper.ssl.client.enable")
    login = _login(config)
    has_certificate = by_tls and config.optional_str("zookeeper.ssl.keystore.location") is not None
    if set_acl and login is None and not has_certificate:
        raise ConfigError(
            "zookeeper.set.acl is true, and this broker is nobody to ZooKeeper: set "
            f"{ZOOKEEPER_JAAS}, or zookeeper.ssl.client.enable with zookeeper.ssl.keystore.location"
        )
    if not by_tls and login is None:
        return OPEN
    if by_tls:
        # What cannot be read is found out now.
        _context(config)
    return ZooKeeperSecurity((lambda: _context(config)) if by_tls else None, login, set_acl)


def _login(config: TypedValues) -> ZooKeeperLogin | None:
    text = config.optional_str(ZOOKEEPER_JAAS)
    if text is None:
        return None
    try:
        options = parse_jaas(text).options
    except JaasError as error:
        raise ConfigError(f"{ZOOKEEPER_JAAS} cannot be read: {error}") from error
    if "username" not in options or "password" not in options:
        raise ConfigError(f'{ZOOKEEPER_JAAS} needs username="…" and password="…"')
    return ZooKeeperLogin(options["username"], options["password"])


def _context(config: TypedValues) -> ssl.SSLContext:
    settings = read_settings(_TlsOptions(config), lambda name: f"zookeeper.{name}")
    check_hostname = config.str("zookeeper.ssl.endpoint.identification.algorithm") != ""
    return client_context(settings, check_hostname=check_hostname).context


class _TlsOptions(TypedValues):
    """The options of ZooKeeper's TLS under the names of a listener's."""

    def __init__(self, config: TypedValues) -> None:
        enabled = config.optional_list("zookeeper.ssl.enabled.protocols")
        keystore_password = config.optional_str("zookeeper.ssl.keystore.password")
        self._values = {
            "ssl.keystore.type": config.optional_str("zookeeper.ssl.keystore.type") or "JKS",
            "ssl.keystore.location": config.optional_str("zookeeper.ssl.keystore.location"),
            "ssl.keystore.password": keystore_password,
            # ZooKeeper has one password for both.
            "ssl.key.password": keystore_password,
            "ssl.keystore.key": None,
            "ssl.keystore.certificate.chain": None,
            "ssl.truststore.type": config.optional_str("zookeeper.ssl.truststore.type") or "JKS",
            "ssl.truststore.location": config.optional_str("zookeeper.ssl.truststore.location"),
            "ssl.truststore.password": config.optional_str("zookeeper.ssl.truststore.password"),
            "ssl.truststore.certificates": None,
            # Where only zookeeper.ssl.protocol says something, TLS 1.3 is offered beside it: servers of today
            # may take nothing else.
            "ssl.enabled.protocols": enabled or (),
            "ssl.protocol": "TLSv1.3",
            "ssl.cipher.suites": config.optional_list("zookeeper.ssl.cipher.suites") or (),
        }
