"""The tokens by which a broker itself logs in at others, as Kafka's options for OAUTHBEARER say it.

From a file, which whoever renews tokens writes anew; from the endpoint of an issuer, for a client's id and
secret (RFC 6749, client credentials); or made up and signed by nobody, for tests. A token of an endpoint is
kept until four fifths of its time are over. Everything here may wait for a disk or a network, and belongs
into a thread. Used by ``broker/cluster/peer_security``.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import unquote, urlencode, urlsplit

from tidelog.errors import ConfigError, TidelogError
from tidelog.security.sasl.jwks import Form, fetch_once

if TYPE_CHECKING:
    import ssl

_FRESH = 0.8
_MAX_TOKEN_BYTES = 64 * 1024
_CLAIM = "unsecuredLoginStringClaim_"
_LIFETIME_S = 3600


class NoTokenError(TidelogError):
    """There is no token; the text says why and shows no secret."""


class TokenSource(Protocol):
    """Where tokens come from."""

    def token(self) -> str:
        """One that is good now; raises :class:`NoTokenError`."""


class ClientCredentials(NamedTuple):
    """Who a broker is to an issuer of tokens."""

    client_id: str
    client_secret: str
    scope: str | None = None

    def __repr__(self) -> str:
        return f"ClientCredentials({self.client_id!r})"


class UnsecuredTokenMaker:
    """Tokens that say who the broker is, signed by nobody."""

    def __init__(self, options: Mapping[str, str], now_s: Callable[[], float] = time.time) -> None:
        """From the options of a JAAS line; raises ``ConfigError``."""
        self._claims = {
            name.removeprefix(_CLAIM): text for name, text in options.items() if name.startswith(_CLAIM)
        }
        self._now_s = now_s
        if not self._claims.get("sub"):
            raise ConfigError(f'it does not say whom its tokens name: add {_CLAIM}sub="…"')

    def token(self) -> str:
        """A new one."""
        now_s = int(self._now_s())
        claims = {**self._claims, "iat": now_s, "exp": now_s + _LIFETIME_S}
        parts = (json.dumps(each).encode() for each in ({"alg": "none"}, claims))
        return ".".join([*(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in parts), ""])


class TokenFile:
    """A file with a token, read each time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def token(self) -> str:
        """What is in it now."""
        try:
            with self._path.open("rb") as file:
                text = file.read(_MAX_TOKEN_BYTES).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise NoTokenError(f"{self._path} has no token: {error}") from error
        if not text or len(text.split()) != 1:
            raise NoTokenError(f"{self._path} has no token in it")
        return text


class TokenEndpoint:
    """An issuer that gives tokens to whoever has a secret."""

    def __init__(
        self,
        url: str,
        client: ClientCredentials,
        tls: Callable[[], ssl.SSLContext] | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = url
        self._client = client
        self._tls = tls
        self._now_s = now_s
        self._lock = threading.Lock()
        self._token = ""
        self._fresh_until_s = 0.0

    def token(self) -> str:
        """The last one, or a new one when that is no longer fresh; one at a time asks."""
        with self._lock:
            if not self._token or self._now_s() >= self._fresh_until_s:
                asked_s = self._now_s()
                self._token, lifetime_s = self._ask()
                self._fresh_until_s = asked_s + _FRESH * lifetime_s
            return self._token

    def _ask(self) -> tuple[str, float]:
        fields = {"grant_type": "client_credentials"}
        if self._client.scope:
            fields["scope"] = self._client.scope
        pair = f"{self._client.client_id}:{self._client.client_secret}".encode()
        form = Form(urlencode(fields), "Basic " + base64.b64encode(pair).decode())
        try:
            answer = json.loads(fetch_once(self._url, self._tls, form))
        except (OSError, ValueError, RecursionError) as error:
            raise NoTokenError(f"{self._url} gave no token: {error}") from error
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token:
            raise NoTokenError(f"{self._url} answered without an access_token")
        lifetime_s = answer.get("expires_in")
        is_number = isinstance(lifetime_s, int | float) and not isinstance(lifetime_s, bool)
        return token, max(float(lifetime_s), 0.0) if is_number else 0.0


def token_source(
    url: str,
    client: ClientCredentials | None,
    allowed_urls: Iterable[str] = (),
    tls: Callable[[], ssl.SSLContext] | None = None,
) -> TokenFile | TokenEndpoint:
    """The source that a URL names: ``https``, ``http`` or ``file``; raises ``ConfigError``."""
    allowed = tuple(allowed_urls)
    if allowed and url not in allowed:
        raise ConfigError(f"{url} is not among the URLs that are allowed ({', '.join(allowed)})")
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise ConfigError(f"{url} names no file of this machine: write it as file:///path/to/token")
        return TokenFile(Path(unquote(parts.path)))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url} is no URL that gives tokens: begin it with https:// or file://")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the URL that gives tokens must not hold a user or a password")
    if client is None:
        raise ConfigError(f'{url} asks who wants a token: add clientId="…" clientSecret="…" to the JAAS line')
    if tls is not None and parts.scheme == "https":
        # What cannot be used is found out now, and not when the first broker logs in.
        tls()
    return TokenEndpoint(url, client, tls)
