"""A provider of OpenID Connect in a thread: real keys, codes and checks; it can be told to misbehave.

Everybody who comes to it is ``user``, at once. It checks what a provider checks: the client and its secret,
the address to send the browser back to, the PKCE verifier, and that a code is used once.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import hashlib
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT_ID = "tidelog-console"
SECRET = "s3cr3t:/?&"
_WAIT_S = 60.0

Claims = dict[str, Any]
Key = RSAKey | ECKey


@functools.cache
def _first_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "one"})


class OidcProvider:
    """Started by ``with``; its attributes may be changed while it runs."""

    def __init__(self, tls: Path | None = None, secret: str | None = SECRET, host: str = "127.0.0.1") -> None:
        """``tls`` is a file with a key and its certificate; without ``secret`` the client has none.

        By another name for this machine (``host``) browsers take it for another site than the console.
        """
        self._given_secret = secret
        self.reset()
        self._codes: dict[str, dict[str, str]] = {}
        self._over = asyncio.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        self.issuer = f"{'http' if tls is None else 'https'}://{host}:{port}/realm"
        self._server = uvicorn.Server(
            uvicorn.Config(
                self._app(),
                log_config=None,
                log_level="error",
                ws="none",
                timeout_graceful_shutdown=1,
                ssl_certfile=None if tls is None else str(tls),
            )
        )
        self._thread = threading.Thread(target=self._run, name="oidc-provider")

    def __enter__(self) -> Self:
        self._thread.start()
        deadline_s = time.monotonic() + _WAIT_S
        while not self._server.started:
            assert time.monotonic() < deadline_s, "the provider does not start"
            time.sleep(0.005)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._server.should_exit = True
        self._thread.join(_WAIT_S)
        assert not self._thread.is_alive(), "the provider does not end"
        self._listening.close()

    def reset(self) -> None:
        """Be as at the start."""
        self.secret = self._given_secret
        self.user = "alice"
        self.groups: object = ["staff"]
        self.key: Key = _first_key()
        self.published: list[Mapping[str, Any]] = [self.key.as_dict(private=False)]
        self.algorithm = "RS256"
        self.offers: dict[str, Any] = {}
        """What discovery says beside or instead of the truth; None leaves something out."""
        self.claims: Callable[[Claims], object] = lambda claims: None
        """Changes the claims of an ID token before it is signed."""
        self.id_token: Callable[[str], object] = lambda token: token
        """What is given in the place of an ID token."""
        self.answers: dict[str, Response] = {}
        """What is answered at a path, whatever is asked."""
        self.hangs: set[str] = set()
        """Paths that are answered when the test is over."""
        self.console_url = ""
        """Where browsers are sent, whatever address they were to be sent to: that has no port of its own."""
        self.asked: list[str] = []
        """The paths that were asked for, with what was posted or queried."""

    def rotate(self) -> None:
        """Sign by a new key from now on, and publish that alone."""
        self.key = RSAKey.generate_key(2048, {"kid": secrets.token_hex(4)})
        self.published = [self.key.as_dict(private=False)]

    def access_token(self, audience: str, **more: object) -> str:
        """A token for a program, as the provider gives them for an audience."""
        now_s = int(time.time())
        claims = {
            "iss": self.issuer,
            "sub": self.user,
            "aud": audience,
            "iat": now_s,
            "exp": now_s + 300,
            "groups": self.groups,
            **more,
        }
        return self._signed(claims)

    def _run(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._server.serve(sockets=[self._listening])

    def _app(self) -> Starlette:
        served = {
            "/realm/.well-known/openid-configuration": self._discovery,
            "/realm/authorize": self._authorize,
            "/realm/token": self._token,
            "/realm/keys": self._keys,
            "/realm/logout": self._logout,
        }
        return Starlette(
            routes=[
                Route(path, self._misbehaving(path, serve), methods=["GET", "POST"])
                for path, serve in served.items()
            ]
        )

    def _misbehaving(self, path: str, serve: Callable[[Request], Any]) -> Callable[[Request], Any]:
        name = path.rpartition("/")[2]

        async def answer(request: Request) -> Response:
            self.asked.append(f"{name} {request.url.query} {(await request.body()).decode()}")
            if name in self.hangs:
                await self._over.wait()
            if name in self.answers:
                return self.answers[name]
            response: Response = await serve(request)
            return response

        return answer

    async def _discovery(self, request: Request) -> Response:
        told = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "end_session_endpoint": f"{self.issuer}/logout",
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            **self.offers,
        }
        return JSONResponse({name: value for name, value in told.items() if value is not None})

    async def _authorize(self, request: Request) -> Response:
        query = dict(request.query_params)
        assert query["client_id"] == CLIENT_ID
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        answer = urlencode({"code": code, "state": query["state"], "iss": self.issuer})
        return RedirectResponse(f"{self._reached(query['redirect_uri'])}?{answer}", 302)

    async def _token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        if not self._is_client(request, form):
            return JSONResponse({"error": "invalid_client"}, 401)
        begun = self._codes.pop(form.get("code", ""), None)
        challenge = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            begun is None
            or form.get("grant_type") != "authorization_code"
            or form.get("redirect_uri") != begun["redirect_uri"]
            or base64.urlsafe_b64encode(challenge).decode().rstrip("=") != begun["code_challenge"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now_s = int(time.time())
        claims: Claims = {
            "iss": self.issuer,
            "sub": self.user,
            "aud": CLIENT_ID,
            "iat": now_s,
            "exp": now_s + 300,
            "nonce": begun["nonce"],
            "groups": self.groups,
        }
        self.claims(claims)
        token = self.id_token(self._signed(claims))
        return JSONResponse({"access_token": "opaque-access", "token_type": "Bearer", "id_token": token})

    def _is_client(self, request: Request, form: Mapping[str, str]) -> bool:
        if self.secret is None:
            return form.get("client_id") == CLIENT_ID and "authorization" not in request.headers
        pair = base64.b64decode(request.headers.get("authorization", "").removeprefix("Basic ")).decode()
        name, _, secret = pair.partition(":")
        return (unquote_plus(name), unquote_plus(secret)) == (CLIENT_ID, self.secret)

    async def _keys(self, request: Request) -> Response:
        return JSONResponse({"keys": self.published})

    async def _logout(self, request: Request) -> Response:
        return RedirectResponse(self._reached(request.query_params["post_logout_redirect_uri"]), 302)

    def _reached(self, url: str) -> str:
        return self.console_url + urlsplit(url).path if self.console_url else url

    def _signed(self, claims: Claims) -> str:
        header = {"alg": self.algorithm, "kid": self.key.as_dict(private=False).get("kid")}
        return jwt.encode(header, claims, self.key, algorithms=[self.algorithm])
