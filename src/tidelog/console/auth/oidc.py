"""Logs people in at a provider of OpenID Connect: the authorization code flow with PKCE, state and nonce.

A login begins on our own page, with the session's token, and is kept here for ten minutes under a name that
is in a cookie of its own; the provider sends the browser back with a code, which is good only together with
that cookie and with the state that went out. So nobody can finish a login in another's browser, begin one
from another site, or use an answer twice. Where the browser goes afterwards is a place within our own page,
never an address. Of tokens nothing is kept; who somebody is stands in his session.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlencode, urlsplit

from tidelog.console.auth.oidc_provider import Identity, OidcProvider
from tidelog.console.refusal import Refusal
from tidelog.console.settings import OidcSettings
from tidelog.security.sasl.mechanism import Refused

LOGIN_COOKIE = "tidelog-console-login"
"""Begins the cookie's name; the port ends it."""
PATIENCE_S = 600.0
_AT_ONCE = 4
_WAITING = 28
_REMEMBERED = 10_000
_LONGEST_CODE = 8192
_PLACE = re.compile(r"#/[A-Za-z0-9._~!$&'()*+,;=:@/?%-]{0,2000}")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Begun:
    """A login that has begun: the cookie's value, and where the browser goes."""

    id: str
    url: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A login that went well; ``session_id`` is the session in which it began."""

    identity: Identity
    place: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider had the browser bring: the query of the redirection, each parameter once."""

    state: str = ""
    code: str = ""
    iss: str | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Pending:
    state: str
    nonce: str
    verifier: str
    place: str
    session_id: str
    ends_at_s: float


class OidcLogin:
    """Logins at one provider, on the console's loop."""

    def __init__(self, settings: OidcSettings, redirect_url: str, now_s: Callable[[], float]) -> None:
        self._settings = settings
        self._redirect_url = redirect_url
        self._now_s = now_s
        self.provider = OidcProvider(settings, redirect_url)
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        # Its own threads: a provider that hangs holds up logins alone.
        self._threads = ThreadPoolExecutor(_AT_ONCE, "tidelog-oidc")
        self._running = 0

    @property
    def name(self) -> str:
        """What people call the provider."""
        return self._settings.name or urlsplit(self._settings.issuer).hostname or self._settings.issuer

    async def begin(self, session_id: str, place: str) -> Begun:
        """Begin a login; ``place`` is where on our page the person wants to be afterwards."""
        offer = await self._in_thread(self.provider.offer)
        verifier = secrets.token_urlsafe(48)
        pending = _Pending(
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(32),
            verifier,
            place if _PLACE.fullmatch(place) else "",
            session_id,
            self._now_s() + PATIENCE_S,
        )
        login_id = secrets.token_urlsafe(32)
        self._forget()
        self._pending[login_id] = pending
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_url,
            "scope": " ".join(self._settings.scopes),
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return Begun(login_id, _with_query(offer.authorization_endpoint, query))

    async def finish(self, login_id: str | None, answer: Answer) -> Finished:
        """Who has logged in; raises a refusal. A login can be finished once, also where that fails."""
        pending = self._pending.get(login_id or "")
        if pending is None or pending.ends_at_s <= self._now_s() or not answer.state:
            self._pending.pop(login_id or "", None)
            raise Refusal(
                "this login was started in another browser, is already complete, or took longer than "
                f"ten minutes: start again at {_origin(self._redirect_url)}",
                400,
                "LOGIN_FAILED",
            )
        if not hmac.compare_digest(pending.state.encode(), answer.state.encode()):
            raise Refusal("this response belongs to another login (state): start again", 400, "LOGIN_FAILED")
        del self._pending[login_id or ""]
        offer = await self._in_thread(self.provider.offer)
        if answer.iss != self._settings.issuer and (answer.iss is not None or offer.sends_issuer):
            raise Refusal("this response is from another login provider (iss)", 400, "LOGIN_FAILED")
        if answer.error:
            raise Refusal(f"the login provider refused: {answer.error[:200]}", 401, "LOGIN_FAILED")
        if not answer.code or len(answer.code) > _LONGEST_CODE:
            raise Refusal("the login provider's response contains no code", 400, "LOGIN_FAILED")
        identity = await self._in_thread(
            lambda: self.provider.identity(answer.code, pending.verifier, pending.nonce)
        )
        return Finished(identity, pending.place, pending.session_id)

    def _forget(self) -> None:
        """Drop logins that are over, and the oldest where there are too many."""
        now_s = self._now_s()
        while self._pending:
            oldest = next(iter(self._pending.values()))
            if oldest.ends_at_s > now_s and len(self._pending) < _REMEMBERED:
                return
            self._pending.popitem(last=False)

    async def bearer(self, token: str, audience: str) -> Identity:
        """Whom an access token names; raises a refusal."""
        return await self._in_thread(lambda: self.provider.bearer(token, audience))

    def logout_url(self) -> str | None:
        """Where the provider ends its own session, if it offers that.

        The client's id says who asks, and not the ID token: tokens do not belong into addresses.
        """
        offer = self.provider.known_offer
        if offer is None or offer.end_session_endpoint is None:
            return None
        query = {
            "client_id": self._settings.client_id,
            "post_logout_redirect_uri": f"{_origin(self._redirect_url)}/",
        }
        return _with_query(offer.end_session_endpoint, query)

    def close(self) -> None:
        """Wait for nobody."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._running >= _AT_ONCE + _WAITING:
            raise Refusal("too many concurrent logins: try again in a moment", 503, "BUSY")
        self._running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except Refused as refused:
            raise Refusal(
                f"the login provider's token was rejected: {refused}", 401, "LOGIN_FAILED"
            ) from None
        finally:
            self._running -= 1


def _with_query(url: str, query: dict[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(query)}"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
