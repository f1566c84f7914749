"""Checks what somebody says about a schema registry, in the file or on the command line."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from tidelog.console.settings import RegistrySettings
from tidelog.errors import ConfigError


def registry_settings(
    url: str, where: str, *, user: str = "", password: str = "", token: str = "", ca: Path | None = None
) -> RegistrySettings:
    """Settings of a registry at ``url``, which may hold a user; ``where`` begins names in refusals."""
    parts = _parts(url, where)
    if parts.username is not None:
        if user or token:
            raise ConfigError(
                f"{where}url contains a user, and {where}user or {where}token is also set: keep one of them"
            )
        user, password = unquote(parts.username), unquote(parts.password or "")
    if user and token:
        raise ConfigError(f"{where}user and {where}token are both set: keep one of them")
    if password and not user:
        raise ConfigError(f"{where}password requires {where}user")
    if any(not each.isprintable() or not each.isascii() for each in token):
        raise ConfigError(f"{where}token contains characters that are not allowed in an HTTP header")
    if ca is not None:
        if parts.scheme != "https":
            raise ConfigError(f"{where}ca_file requires a {where}url that starts with https://")
        if not ca.is_file():
            raise ConfigError(f"{where}ca_file {ca} is not a file")
    host = parts.netloc.rpartition("@")[2]
    return RegistrySettings(f"{parts.scheme}://{host}{parts.path}", user, password, token, ca)


def _parts(url: str, where: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment:
        # Not the address itself: a password may be in it.
        raise ConfigError(f"{where}url must have the form https://HOST:PORT, without a query")
    return parts
