"""A provider of OpenID Connect as the console asks it: what it offers, its keys, who a code or a token names.

What it says is fetched within ten seconds and one megabyte, over TLS unless it is on this machine, and no
redirection is followed (``security.sasl.jwks.fetch_once``); keys are those of OAUTHBEARER
(``JwksEndpoint``). What it offers is kept for an hour, and longer while it does not answer. Everything here
waits for a network and belongs into a thread; ``oidc`` calls it. Tokens are looked at and dropped.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from tidelog.console.refusal import Refusal
from tidelog.console.settings import OidcSettings, is_loopback
from tidelog.errors import ConfigError
from tidelog.security.sasl.jwks import FetchTimes, Form, JwksEndpoint, fetch_once
from tidelog.security.sasl.jwt import ClaimRules, Claims, signed_claims
from tidelog.security.sasl.mechanism import Refused

logger = logging.getLogger(__name__)

DISCOVERY_PATH = "/.well-known/openid-configuration"
FETCH_TIMES = FetchTimes()
KEPT_S = 3600.0
FAILURE_KEPT_S = 2.0
OLD_KEPT_S = 60.0
_LONGEST_NAME = 256
_MOST_GROUPS = 5000


@dataclass(frozen=True, slots=True)
class Offer:
    """What a provider says of itself."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    end_session_endpoint: str | None
    sends_issuer: bool
    """Whether its answers say whose they are (RFC 9207)."""
    takes_basic: bool
    """Whether a secret may come in the header; in the form otherwise."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a token names."""

    user: str
    groups: frozenset[str]


class OidcProvider:
    """One provider."""

    def __init__(
        self,
        settings: OidcSettings,
        redirect_url: str,
        now_s: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises ``ConfigError`` where the authorities cannot be read."""
        self._settings = settings
        self._redirect_url = redirect_url
        self._now_s = now_s
        self._monotonic = monotonic
        self._tls = None if settings.ca_file is None else partial(_trusting, str(settings.ca_file))
        if self._tls is not None:
            self._tls()
        self._lock = threading.Lock()
        self._offer: Offer | None = None
        self._keys: tuple[str, JwksEndpoint] | None = None
        self._ask_again_s = monotonic()
        self._problem = ""

    @property
    def known_offer(self) -> Offer | None:
        """What it offered when it was asked last; nobody waits."""
        return self._offer

    def offer(self) -> Offer:
        """What it offers; raises a refusal."""
        with self._lock:
            if self._monotonic() >= self._ask_again_s:
                self._ask()
            if self._offer is None:
                raise Refusal(self._problem, 502, "PROVIDER_FAILED")
            return self._offer

    def identity(self, code: str, verifier: str, nonce: str) -> Identity:
        """Who has logged in, for the code that a browser brought; raises a refusal or ``Refused``."""
        claims = signed_claims(self._id_token(code, verifier), self._key_source(), self._settings.algorithms)
        found = self._identity(claims, self._settings.client_id)
        if claims.get("nonce") != nonce:
            raise Refused("the token is for another login (nonce)")
        audiences, party = claims.get("aud"), claims.get("azp")
        if party is None and isinstance(audiences, list) and len(audiences) > 1:
            raise Refused("the token has several audiences but no authorized party (azp)")
        if party is not None and party != self._settings.client_id:
            raise Refused("the token was issued to another client (azp)")
        return found

    def bearer(self, token: str, audience: str) -> Identity:
        """Whom an access token for ``audience`` names; raises a refusal or ``Refused``."""
        claims = signed_claims(token, self._key_source(), self._settings.algorithms)
        if "nonce" in claims:
            raise Refused("the token is an ID token, not an access token (nonce)")
        return self._identity(claims, audience)

    def _identity(self, claims: Claims, audience: str) -> Identity:
        settings = self._settings
        rules = ClaimRules(
            subject_claim=settings.user_claim,
            issuer=settings.issuer,
            audiences=frozenset({audience}),
            clock_skew_s=settings.clock_skew_s,
        )
        owner = rules.owner_of(claims, self._now_s())
        if float(claims["iat"]) > self._now_s() + settings.clock_skew_s:
            raise Refused("the token was issued in the future (iat): compare the clocks of both machines")
        if not isinstance(claims.get("sub"), str):
            raise Refused("the token has no subject (sub)")
        if settings.user_claim == "email" and claims.get("email_verified") is not True:
            raise Refused(
                "the token's email address is not verified (email_verified): choose another user_claim"
            )
        if len(owner.name) > _LONGEST_NAME or not owner.name.isprintable() or owner.name == "*":
            raise Refused(f"the token's user claim is not a valid name ({settings.user_claim})")
        return Identity(owner.name, _groups(claims, settings.groups_claim))

    def _id_token(self, code: str, verifier: str) -> str:
        settings, offer = self._settings, self.offer()
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_url,
            "code_verifier": verifier,
        }
        authorization = None
        if settings.client_secret is not None and offer.takes_basic:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
            authorization = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            fields["client_id"] = settings.client_id
            if settings.client_secret is not None:
                fields["client_secret"] = settings.client_secret
        try:
            answer = _object(
                fetch_once(offer.token_endpoint, self._tls, Form(urlencode(fields), authorization))
            )
        except (OSError, ValueError, ConfigError) as error:
            raise Refusal(
                f"the login provider rejected the login's code ({error}): start again; if the problem "
                "persists, compare client_id, client_secret and redirect_url with the provider's "
                "settings",
                502,
                "PROVIDER_FAILED",
            ) from None
        token = answer.get("id_token")
        if not isinstance(token, str) or str(answer.get("token_type", "")).lower() != "bearer":
            raise Refusal("the login provider's response contains no ID token", 502, "PROVIDER_FAILED")
        return token

    def _key_source(self) -> JwksEndpoint:
        url = self.offer().jwks_uri
        with self._lock:
            if self._keys is None or self._keys[0] != url:
                self._keys = url, JwksEndpoint(url, FETCH_TIMES, partial(fetch_once, tls=self._tls))
            return self._keys[1]

    def _ask(self) -> None:
        url = self._settings.issuer.rstrip("/") + DISCOVERY_PATH
        try:
            self._offer = _offer(_object(fetch_once(url, self._tls)), self._settings.issuer)
            self._ask_again_s = self._monotonic() + KEPT_S
        except (OSError, ValueError, ConfigError) as error:
            # Whoever comes next tries again, but not each of many that come at once; an old offer serves on.
            wait_s = FAILURE_KEPT_S if self._offer is None else OLD_KEPT_S
            self._ask_again_s = self._monotonic() + wait_s
            self._problem = f"cannot use the login provider {self._settings.issuer}: {error}"
            logger.error("cannot use %s as a login provider: %s", url, error)


def _offer(told: Mapping[str, Any], issuer: str) -> Offer:
    if told.get("issuer") != issuer:
        raise ValueError(
            f"its issuer is {str(told.get('issuer'))[:200]!r}: set login.oidc.issuer to exactly this "
            "value, if this is the provider you want"
        )
    challenges = told.get("code_challenge_methods_supported")
    if isinstance(challenges, list) and "S256" not in challenges:
        raise ValueError("it does not support PKCE with S256")
    methods = told.get("token_endpoint_auth_methods_supported")
    return Offer(
        _endpoint(told, "authorization_endpoint", issuer),
        _endpoint(told, "token_endpoint", issuer),
        _endpoint(told, "jwks_uri", issuer),
        _endpoint(told, "end_session_endpoint", issuer) if "end_session_endpoint" in told else None,
        told.get("authorization_response_iss_parameter_supported") is True,
        not isinstance(methods, list) or "client_secret_basic" in methods,
    )


def _endpoint(told: Mapping[str, Any], name: str, issuer: str) -> str:
    url = told.get(name)
    if not isinstance(url, str):
        raise ValueError(f"it has no {name}")
    parts = urlsplit(url)
    if not parts.hostname or parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"its {name} is not a valid URL")
    is_near = parts.scheme == "http" and issuer.startswith("http:") and is_loopback(parts.hostname)
    if parts.scheme != "https" and not is_near:
        raise ValueError(f"its {name} does not use TLS")
    return url


def _object(raw: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        raise ValueError("the response is not JSON") from None
    if not isinstance(found, dict):
        raise ValueError("the response is not a JSON object")
    return found


def _groups(claims: Claims, name: str) -> frozenset[str]:
    """The groups of a claim; its name is tried whole first, as some have dots and slashes in them."""
    found: Any = claims.get(name)
    if found is None and "." in name:
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        found = [found]
    if not isinstance(found, list):
        return frozenset()
    if len(found) > _MOST_GROUPS:
        raise Refused(f"the token has more than {_MOST_GROUPS} groups ({name})")
    return frozenset(each for each in found if isinstance(each, str) and each)


def _trusting(path: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"login.oidc.ca_file {path} contains no PEM certificates: {error}") from None
