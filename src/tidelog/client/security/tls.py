"""TLS from Kafka's options: PEM keys and certificates into an ``ssl.SSLContext``.

Text in options wins over files, as in Kafka. Nothing is read again while the client lives.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import ConfigError

if TYPE_CHECKING:
    from tidelog.client.options import ClientConfig

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(config: ClientConfig) -> ssl.SSLContext:
    """The context that all connections of a client share."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.str("ssl.endpoint.identification.algorithm") != ""
    versions = sorted(_VERSIONS[name] for name in config.list("ssl.enabled.protocols"))
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if ciphers := config.list("ssl.cipher.suites"):
        try:
            context.set_ciphers(":".join(ciphers))
        except ssl.SSLError as error:
            raise ConfigError(
                "ssl.cipher.suites names no cipher that OpenSSL knows: use its names"
            ) from error
    _trust(context, config)
    _identify(context, config)
    return context


def _trust(context: ssl.SSLContext, config: ClientConfig) -> None:
    text = config.optional_str("ssl.truststore.certificates")
    location = config.optional_str("ssl.truststore.location")
    if text is not None:
        try:
            context.load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError("ssl.truststore.certificates holds no PEM certificate") from error
    elif location is not None:
        _require_pem(config, "ssl.truststore", location)
        try:
            context.load_verify_locations(cafile=location)
        except ssl.SSLError as error:
            raise ConfigError(
                f"ssl.truststore.location: no PEM certificate can be read from {location}"
            ) from error
    else:
        context.load_default_certs()


def _identify(context: ssl.SSLContext, config: ClientConfig) -> None:
    key = config.optional_str("ssl.keystore.key")
    chain = config.optional_str("ssl.keystore.certificate.chain")
    location = config.optional_str("ssl.keystore.location")
    password = config.optional_str("ssl.key.password") or ""
    if key is not None or chain is not None:
        if key is None or chain is None:
            raise ConfigError("ssl.keystore.key and ssl.keystore.certificate.chain must be set together")
        with _private_file(f"{key}\n{chain}\n") as path:
            _load(context, path, password, "ssl.keystore.key")
    elif location is not None:
        _require_pem(config, "ssl.keystore", location)
        _load(context, location, password, "ssl.keystore.location")


def _load(context: ssl.SSLContext, path: str, password: str, option: str) -> None:
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(path, password=lambda: password)
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"{option}: no private key with its certificate can be read; "
            "is it PEM, do the two belong together, and is ssl.key.password right?"
        ) from error


class _private_file:
    """``ssl`` reads keys from files only: one that nobody else can read, for as long as that takes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __enter__(self) -> str:
        descriptor, self._path = tempfile.mkstemp(suffix=".pem")
        with os.fdopen(descriptor, "w") as file:
            file.write(self._text)
        return self._path

    def __exit__(self, *exc_info: object) -> None:
        Path(self._path).unlink()


def _require_pem(config: ClientConfig, prefix: str, location: str) -> None:
    kind = config.str(f"{prefix}.type").upper()
    if kind != "PEM":
        raise ConfigError(
            f"{prefix}.type={kind} cannot be read: convert {location} to PEM "
            "(keytool -importkeystore to PKCS12, then openssl pkcs12 -nodes)"
        )
    if not Path(location).is_file():
        raise ConfigError(f"{prefix}.location: there is no file {location}")
