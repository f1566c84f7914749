"""Passwords among the dynamic options of brokers: encrypted in the store of a cluster, plain in memory.

A cluster's metadata are read by whoever reaches ZooKeeper, so that brokers refuse to put a password there
unless ``password.encoder.secret`` is set, as in Kafka. A broker alone keeps what it is told in its own files,
as its configuration is, and encrypts it where there is a secret. ``dynamic_config`` is the caller.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.options.broker_options import option_of
from tidelog.errors import ConfigError
from tidelog.security.password_encoder import KEY_LENGTHS, PasswordEncoder

_ENCRYPTED = "encryptedPassword:"


class SecretEntries:
    """Encrypts and decrypts those entries that are secret."""

    def __init__(self, config: BrokerConfig) -> None:
        self._is_needed = config.optional_str("zookeeper.connect") is not None
        old = config.optional_str("password.encoder.old.secret")
        secret = config.optional_str("password.encoder.secret")
        self._encoder = None if secret is None else _encoder(config, secret)
        self._old = None if old is None else _encoder(config, old)

    def hidden(self, entries: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
        """``entries`` as they are kept; those that are in ``known``, as they are kept now, stay as they are.

        Raises ``ConfigError`` if there is nothing to encrypt with.
        """
        kept: dict[str, str] = {}
        for name, text in entries.items():
            if not _is_secret(name):
                kept[name] = text
            elif name in known and self._shown(known[name]) == text:
                kept[name] = known[name]
            elif self._encoder is not None:
                kept[name] = self._encoder.encode(text)
            elif self._is_needed:
                raise ConfigError(
                    f"{name} is a password, which is not put into ZooKeeper as it is: set "
                    "password.encoder.secret on all brokers"
                )
            else:
                kept[name] = text
        return kept

    def shown(self, entries: Mapping[str, str]) -> dict[str, str]:
        """What is kept as it was given, without what cannot be decrypted."""
        found: dict[str, str] = {}
        for name, text in entries.items():
            value = self._shown(text) if _is_secret(name) else text
            if value is not None:
                found[name] = value
        return found

    def _shown(self, text: str) -> str | None:
        if _ENCRYPTED not in text:
            return text
        for encoder in (self._encoder, self._old):
            try:
                if encoder is not None:
                    return encoder.decode(text)
            except ConfigError:
                continue
        return None


def _encoder(config: BrokerConfig, secret: str) -> PasswordEncoder:
    bits = config.int("password.encoder.key.length")
    if bits not in KEY_LENGTHS:
        allowed = ", ".join(map(str, KEY_LENGTHS))
        raise ConfigError(f"password.encoder.key.length is {bits}, which AES does not have: use {allowed}")
    return PasswordEncoder(
        secret,
        config.optional_str("password.encoder.keyfactory.algorithm") or PasswordEncoder.KEY_FACTORY,
        config.str("password.encoder.cipher.algorithm"),
        bits,
        config.int("password.encoder.iterations"),
    )


def _is_secret(name: str) -> bool:
    option = option_of(name)
    return option is not None and option.sensitive
