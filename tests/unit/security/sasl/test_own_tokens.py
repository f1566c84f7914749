from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tidelog.errors import ConfigError
from tidelog.security.sasl.jwt import ClaimRules, UnsecuredTokens
from tidelog.security.sasl.own_tokens import (
    ClientCredentials,
    NoTokenError,
    TokenEndpoint,
    UnsecuredTokenMaker,
    token_source,
)

BROKER = ClientCredentials("broker", "hush", "all of it")


class Issuer:
    """An endpoint that answers what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answer = b""
        self.status = 200
        self.asked: list[tuple[str, str | None, str | None]] = []
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                issuer.asked.append((body, self.headers["Authorization"], self.headers["Content-Type"]))
                self.send_response(issuer.status)
                self.send_header("Content-Length", str(len(issuer.answer)))
                self.end_headers()
                self.wfile.write(issuer.answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_an_endpoint_is_asked_for_a_token_until_four_fifths_of_its_time_are_over(issuer: Issuer) -> None:
    now_s = 0.0
    source = TokenEndpoint(issuer.url, BROKER, now_s=lambda: now_s)
    issuer.answer = b'{"access_token": "one", "expires_in": 100}'
    assert source.token() == "one"
    basic = base64.b64encode(b"broker:hush").decode()
    assert issuer.asked == [
        (
            "grant_type=client_credentials&scope=all+of+it",
            f"Basic {basic}",
            "application/x-www-form-urlencoded",
        )
    ]
    issuer.answer = b'{"access_token": "two"}'
    now_s = 79.0
    assert source.token() == "one"
    now_s = 80.0
    assert source.token() == "two"
    issuer.answer = b'{"access_token": "three"}'
    # of the second it was not said how long it is good
    assert source.token() == "three"


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (401, b'{"error": "invalid_client"}'),
        (302, b""),
        (200, b""),
        (200, b"[]"),
        (200, b'{"access_token": 5}'),
        (200, b'{"access_token": ""}'),
        (200, b"\xff"),
    ],
)
def test_what_is_no_token_is_told_without_the_secret(issuer: Issuer, status: int, answer: bytes) -> None:
    issuer.status, issuer.answer = status, answer
    with pytest.raises(NoTokenError, match="/token") as error:
        TokenEndpoint(issuer.url, BROKER).token()
    assert "hush" not in str(error.value)


def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    source = token_source(f"file://{path}", None)
    with pytest.raises(NoTokenError, match="has no token"):
        source.token()
    for text in ("one", "two"):
        path.write_text(f"{text}\n")
        assert source.token() == text
    for wrong in ("", "a b", "é"):
        path.write_text(wrong)
        with pytest.raises(NoTokenError, match="has no token"):
            source.token()


def test_tokens_that_are_made_up_are_taken_where_unsigned_ones_are() -> None:
    token = UnsecuredTokenMaker({"unsecuredLoginStringClaim_sub": "broker"}, lambda: 1000.0).token()
    owner = UnsecuredTokens(ClaimRules(), lambda: 1000.0).validate(token)
    assert (owner.name, owner.expires_at_ms) == ("broker", 4600_000)
    with pytest.raises(ConfigError, match="unsecuredLoginStringClaim_sub"):
        UnsecuredTokenMaker({"unsecuredLoginStringClaim_scope": "x"})
