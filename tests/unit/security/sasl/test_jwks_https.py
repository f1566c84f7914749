"""Keys of an issuer over real HTTPS: whom the broker trusts, and what a server of ill will can do to it."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from joserfc.jwk import RSAKey
from tests.rigs.tls_files import TlsFiles

from tidelog.clock import SystemClock
from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ConfigError
from tidelog.security.sasl import jwks
from tidelog.security.sasl.jwks import FetchTimes, JwksEndpoint, fetch_once, key_source
from tidelog.security.sasl.mechanism import Refused

DEADLINE_S = 20.0
JAAS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "


class Server:
    """An HTTPS server whose answers the test writes."""

    def __init__(self, pair: Path) -> None:
        self.answer: Callable[[http.server.BaseHTTPRequestHandler], None] = lambda _: None
        self.asked: list[str] = []
        self.over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = DEADLINE_S

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                outer.answer(self)

            def log_message(self, *_: object) -> None:
                return

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                return

        self._server = Quiet(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_port}/keys?realm=a"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()

    def serve(self, *keys: RSAKey) -> None:
        """Answer with these keys."""
        body = json.dumps({"keys": [each.as_dict(private=False) for each in keys]}).encode()

        def answer(request: http.server.BaseHTTPRequestHandler) -> None:
            request.send_response(200)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)

        self.answer = answer

    def drip(self, first: bytes, again: bytes) -> None:
        """Answer with ``first``, and then with a little more for ever."""

        def answer(request: http.server.BaseHTTPRequestHandler) -> None:
            request.wfile.write(first)
            while not self.over.wait(0.01):
                request.wfile.write(again)

        self.answer = answer


class Keys:
    """Made once: they take their time."""

    old: ClassVar[RSAKey] = RSAKey.generate_key(2048, {"kid": "old"})
    new: ClassVar[RSAKey] = RSAKey.generate_key(2048, {"kid": "new"})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def server(files: TlsFiles) -> Iterator[Server]:
    server = Server(files.server)
    yield server
    server.close()


def trusting(path: Path) -> Callable[[], ssl.SSLContext]:
    return lambda: ssl.create_default_context(cafile=str(path))


def test_keys_come_from_a_server_of_an_own_authority_and_rotate(server: Server, files: TlsFiles) -> None:
    server.serve(Keys.old)
    now_s = [0.0]
    source = JwksEndpoint(
        server.url,
        FetchTimes(),
        lambda url: fetch_once(url, trusting(files.trust)),
        lambda: now_s[0],
    )
    assert source.key_for("old", "RS256")
    server.serve(Keys.new)
    now_s[0] += 11
    assert source.key_for("new", "RS256")
    with pytest.raises(Refused):
        source.key_for("old", "RS256")
    assert server.asked == ["/keys?realm=a"] * 2


def test_a_server_that_is_not_trusted_is_told_nothing(server: Server, files: TlsFiles) -> None:
    server.serve(Keys.old)
    stranger = TlsFiles(files.directory / "elsewhere")
    for trust in (None, trusting(stranger.trust)):
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch_once(server.url, trust)
    # A certificate for another name.
    elsewhere = Server(files.pair("other.pem", files.authority.issue("other", ("elsewhere.test",))))
    try:
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch_once(elsewhere.url, trusting(files.trust))
    finally:
        elsewhere.close()
    assert server.asked == []


@pytest.mark.parametrize(
    ("first", "again"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ],
    ids=["status", "headers", "body", "chunks"],
)
def test_an_answer_that_never_ends_is_given_up(
    server: Server, files: TlsFiles, monkeypatch: pytest.MonkeyPatch, first: bytes, again: bytes
) -> None:
    """A byte now and then keeps a socket's own limit from ever being reached."""
    monkeypatch.setattr(jwks, "_FETCH_TIMEOUT_S", 0.3)
    server.drip(first, again)
    with pytest.raises(OSError):
        fetch_once(server.url, trusting(files.trust))


def test_a_huge_answer_is_not_kept(server: Server, files: TlsFiles) -> None:
    server.drip(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 300_000)
    with pytest.raises(ValueError, match="longer than"):
        fetch_once(server.url, trusting(files.trust))


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
        b"HTTP/1.1 500 No\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"SSH-2.0-OpenSSH\r\n",
        b"",
    ],
)
def test_other_answers_are_errors(server: Server, files: TlsFiles, raw: bytes) -> None:
    def answer(request: http.server.BaseHTTPRequestHandler) -> None:
        request.wfile.write(raw)

    server.answer = answer
    with pytest.raises(OSError):
        fetch_once(server.url, trusting(files.trust))


def test_after_an_answer_that_never_ends_keys_are_asked_for_again(
    server: Server, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "_FETCH_TIMEOUT_S", 0.2)
    server.drip(b"", b"H")
    times = FetchTimes(backoff_s=0.0, backoff_max_s=0.0)
    source = JwksEndpoint(server.url, times, lambda url: fetch_once(url, trusting(files.trust)))
    with pytest.raises(Refused):
        source.key_for("old", "RS256")
    server.serve(Keys.old)
    assert source.key_for("old", "RS256")


def options(url: str, jaas: str) -> BrokerConfig:
    prefix = "listener.name.closed.oauthbearer."
    return BrokerConfig(
        {
            "listeners": "OPEN://127.0.0.1:0,CLOSED://127.0.0.1:0",
            "listener.security.protocol.map": "OPEN:PLAINTEXT,CLOSED:SASL_PLAINTEXT",
            "inter.broker.listener.name": "OPEN",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}sasl.oauthbearer.jwks.endpoint.url": url,
            f"{prefix}sasl.jaas.config": f"{JAAS}{jaas};",
        }
    )


def source_of(config: BrokerConfig) -> JwksEndpoint:
    """Where a broker with these options has its keys from."""
    from tidelog.broker.access.authentication.mechanisms import MechanismParts, mechanisms_of
    from tidelog.security.sasl.jwt import SignedTokens
    from tidelog.security.sasl.oauthbearer import OAuthBearerMechanism

    parts = MechanismParts(None, b"", SystemClock())  # type: ignore[arg-type]
    mechanism = mechanisms_of(config.sasl["CLOSED"], parts)["OAUTHBEARER"]
    assert isinstance(mechanism, OAuthBearerMechanism)
    assert isinstance(mechanism.validator, SignedTokens)
    source = mechanism.validator._keys
    assert isinstance(source, JwksEndpoint)
    return source


def test_the_authority_of_the_server_stands_in_the_jaas_line_as_in_kafka(
    server: Server, files: TlsFiles
) -> None:
    server.serve(Keys.old)
    jaas = f'ssl.truststore.type="PEM" ssl.truststore.location="{files.trust}"'
    assert source_of(options(server.url, jaas)).key_for("old", "RS256")
    with pytest.raises(Refused):
        source_of(options(server.url, 'unsecuredLoginStringClaim_sub="x"')).key_for("old", "RS256")


@pytest.mark.parametrize(
    ("jaas", "words"),
    [
        ('ssl.truststore.location="/no/such/file.pem"', "no/such/file.pem"),
        ('ssl.trust.location="/x"', "ssl.trust.location"),
    ],
)
def test_an_authority_that_cannot_be_read_stops_the_start(jaas: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        source_of(options("https://localhost:1/keys", jaas))


def test_a_context_is_made_at_once_only_where_it_is_used() -> None:
    def fails() -> ssl.SSLContext:
        raise ConfigError("unreadable")

    assert isinstance(key_source("http://localhost:1/keys", FetchTimes(), tls=fails), JwksEndpoint)
    with pytest.raises(ConfigError, match="unreadable"):
        key_source("https://localhost:1/keys", FetchTimes(), tls=fails)
