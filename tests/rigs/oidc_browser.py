"""A browser without a browser that logs in at a provider of OpenID Connect, step by step."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
from tests.rigs.console_thread import ConsoleThread
from tests.rigs.oidc_provider import CLIENT_ID, SECRET, OidcProvider

from tidelog.console.settings import OidcSettings

REDIRECT = "http://127.0.0.1:1/login/oidc"
"""Nobody is there: the browser of the tests knows where the console is."""


def settings_for(provider: OidcProvider, **more: Any) -> OidcSettings:
    given = {"client_secret": SECRET, "redirect_url": REDIRECT, "name": "Example", **more}
    return OidcSettings(provider.issuer, CLIENT_ID, **given)


class Browser:
    """A browser with cookies, which does each step of a login when it is told to."""

    def __init__(self, console: ConsoleThread) -> None:
        self.console = console
        self.http = httpx.Client(base_url=console.url, timeout=60.0)
        self.token = ""

    def session(self) -> Any:
        state = self.http.get("/api/session").json()
        self.token = state["token"]
        return state

    def try_begin(self, place: str = "") -> httpx.Response:
        self.session()
        return self.http.post(
            "/api/session/provider", json={"place": place}, headers={"X-Console-Token": self.token}
        )

    def begin(self, place: str = "") -> str:
        """Where the provider is to be visited."""
        answer = self.try_begin(place)
        assert answer.status_code == 200, answer.text
        url: str = answer.json()["url"]
        return url

    def visit(self, url: str, provider: OidcProvider) -> dict[str, str]:
        """What the provider sends the browser back with."""
        answer = httpx.get(url)
        assert answer.status_code == 302, answer.text
        location = urlsplit(answer.headers["location"])
        assert location._replace(query="").geturl() == REDIRECT
        return {name: values[0] for name, values in parse_qs(location.query).items()}

    def come_back(self, query: dict[str, str] | str, **headers: str) -> httpx.Response:
        text = query if isinstance(query, str) else urlencode(query)
        return self.http.get(f"/login/oidc?{text}", headers=headers)

    def log_in(self, provider: OidcProvider, place: str = "") -> httpx.Response:
        return self.come_back(self.visit(self.begin(place), provider))
