"""Keys by which an issuer signs tokens: a JSON Web Key Set in a file or behind a URL.

Keys are for signatures and public: secrets (``oct``) in a set are passed over, and so is what nobody can
read. A key is good for the algorithms of its own type, or for the one that it names.

``JwksFile`` reads its file again when it has changed. ``JwksEndpoint`` fetches from a URL: when the set has
become old it is fetched anew while the old one serves on; a key that is not known makes it look again, at
most once in a while, however many ask. Everything here may wait for a disk or a network, and runs in threads.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeoutError
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from tidelog.errors import ConfigError
from tidelog.security.sasl.mechanism import Refused

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPConnection

    from joserfc.jwk import Key

logger = logging.getLogger(__name__)

_BY_TYPE: dict[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "OKP": ("EdDSA", "Ed25519", "Ed448"),
}
_BY_CURVE: dict[str, tuple[str, ...]] = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}
PUBLIC_KEY_ALGORITHMS = tuple(name for each in (*_BY_TYPE.values(), *_BY_CURVE.values()) for name in each)
"""What tokens may be signed by: never a secret that both sides know, and never nothing."""
_FETCH_TIMEOUT_S = 10.0
_MAX_SET_BYTES = 1024 * 1024
_OK = 200
# Logins that wait for keys hold a thread each; the rest is told to come back.
_MAX_WAITING = 2


class KeySource(Protocol):
    """Where keys are looked up."""

    def key_for(self, key_id: str | None, algorithm: str) -> Key:
        """The key that a token claims to be signed by; raises :class:`Refused` if there is none."""


class SigningKey(NamedTuple):
    """One key of a set."""

    id: str | None
    algorithms: tuple[str, ...]
    key: Key


class KeySet:
    """The keys of one issuer, at one time."""

    def __init__(self, keys: Iterable[SigningKey]) -> None:
        self.keys = tuple(keys)

    @classmethod
    def parse(cls, raw: bytes) -> KeySet:
        """The usable keys of a set; raises ``ValueError`` for what is no set."""
        try:
            found = json.loads(raw)
        except RecursionError:
            raise ValueError("it is nested without end") from None
        entries = found.get("keys") if isinstance(found, dict) else None
        if not isinstance(entries, list):
            raise ValueError("it has no list of keys")
        return cls(key for entry in entries if (key := _signing_key(entry)) is not None)

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """The key with this id; a token that names none may be signed by the only one there is."""
        fitting = [
            each.key for each in self.keys if algorithm in each.algorithms and key_id in (None, each.id)
        ]
        return fitting[0] if len(fitting) == 1 or (fitting and key_id is not None) else None


def _signing_key(entry: object) -> SigningKey | None:
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    key_type, curve = str(entry.get("kty")), str(entry.get("crv"))
    algorithms = _BY_CURVE.get(curve, ()) if key_type == "EC" else _BY_TYPE.get(key_type, ())
    if "alg" in entry:
        algorithms = tuple(each for each in algorithms if each == entry["alg"])
    if not algorithms:
        return None
    key_id = entry.get("kid")
    # What it says of its uses is not always right, and was looked at.
    parameters: Mapping[str, Any] = {
        name: value for name, value in entry.items() if name not in ("use", "key_ops", "alg", "x5c")
    }
    try:
        key = import_key(dict(parameters))
    except (JoseError, ValueError, TypeError, KeyError) as error:
        logger.warning("A key of a JSON Web Key Set is passed over: %s", type(error).__name__)
        return None
    return SigningKey(key_id if isinstance(key_id, str) else None, algorithms, key)


class JwksFile:
    """Keys in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._keys = KeySet(())

    def key_for(self, key_id: str | None, algorithm: str) -> Key:
        """The key; the file is read again if it has changed."""
        with self._lock:
            try:
                self._look()
            except (OSError, ValueError) as error:
                why = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
                logger.error("The keys in %s cannot be read, and stay as they were: %s", self._path, why)
            key = self._keys.find(key_id, algorithm)
        if key is None:
            raise Refused("its token is signed by no key that is known here")
        return key

    def check(self) -> None:
        """Read the file for the first time; raises ``ConfigError`` where it holds no keys."""
        try:
            self._look()
        except (OSError, ValueError) as error:
            why = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
            raise ConfigError(f"{self._path} holds no JSON Web Key Set: {why}") from error
        if not self._keys.keys:
            raise ConfigError(f"{self._path} holds no public key for signatures")

    def _look(self) -> None:
        stat = self._path.stat()
        seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if seen != self._seen:
            self._keys = KeySet.parse(self._path.read_bytes())
            self._seen = seen


class FetchTimes(NamedTuple):
    """When to fetch keys again, in seconds."""

    refresh_s: float = 3600.0
    backoff_s: float = 0.1
    backoff_max_s: float = 10.0


class JwksEndpoint:
    """Keys behind a URL."""

    def __init__(
        self,
        url: str,
        times: FetchTimes,
        fetch: Callable[[str], bytes] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``fetch`` and ``monotonic`` are for tests."""
        self._url = url
        self._times = times
        self._fetch = fetch or fetch_once
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._waiting = threading.BoundedSemaphore(_MAX_WAITING)
        self._fetching: Future[None] | None = None
        self._keys = KeySet(())
        self._refresh_at = self._not_before = monotonic()
        self._failures = 0

    def key_for(self, key_id: str | None, algorithm: str) -> Key:
        """The key; one that is not known may have come since the set was fetched."""
        key = self._keys.find(key_id, algorithm)
        if key is None:
            self._wait_for(self._begin_fetch())
            key = self._keys.find(key_id, algorithm)
        elif self._monotonic() >= self._refresh_at:
            self._begin_fetch()
        if key is None:
            raise Refused("its token is signed by no key that is known here")
        return key

    def _wait_for(self, fetching: Future[None] | None) -> None:
        if fetching is None:
            return
        if not self._waiting.acquire(blocking=False):
            raise Refused("keys are being fetched, and enough others wait for them")
        try:
            fetching.result(2 * _FETCH_TIMEOUT_S)
        except WaitTimeoutError:
            raise Refused("the keys that tokens are signed by take too long to come") from None
        finally:
            self._waiting.release()

    def _begin_fetch(self) -> Future[None] | None:
        """The fetch that is under way, or a new one; ``None`` where the last was a moment ago."""
        with self._lock:
            if self._fetching is None:
                if self._monotonic() < self._not_before:
                    return None
                self._fetching = Future()
                threading.Thread(
                    target=self._run, args=(self._fetching,), name="tidelog-jwks", daemon=True
                ).start()
            return self._fetching

    def _run(self, done: Future[None]) -> None:
        times = self._times
        keys: KeySet | None = None
        try:
            keys = KeySet.parse(self._fetch(self._url))
        except (OSError, ValueError, ConfigError) as error:
            logger.error("The keys at %s cannot be fetched, and stay as they were: %s", self._url, error)
        except Exception:
            logger.exception("The keys at %s cannot be fetched", self._url)
        with self._lock:
            now_s = self._monotonic()
            if keys is not None:
                self._keys = keys
                self._failures = 0
                self._refresh_at = now_s + times.refresh_s
                self._not_before = now_s + times.backoff_max_s
            else:
                # After a failure anybody may try again soon: without keys nobody can log in.
                self._not_before = now_s + min(times.backoff_s * 2**self._failures, times.backoff_max_s)
                self._failures = min(self._failures + 1, 30)
            self._fetching = None
        done.set_result(None)


class Form(NamedTuple):
    """What is posted to a URL; ``authorization`` is None where the form itself says who asks."""

    body: str
    authorization: str | None


def fetch_once(url: str, tls: Callable[[], ssl.SSLContext] | None = None, form: Form | None = None) -> bytes:
    """What is behind an ``http`` or ``https`` URL, or answers a form; raises ``OSError`` or ``ValueError``.

    No proxy is asked and no redirection followed: somebody who may answer for one address must not choose
    another. ``tls`` makes the context by which the other side is trusted; without it the system's authorities
    are. All of it has ten seconds, however slowly it comes.
    """
    from http.client import HTTPException

    connection = _connection(url, tls)
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    deadline_s = time.monotonic() + _FETCH_TIMEOUT_S
    overdue = threading.Event()
    guard: threading.Timer | None = None
    try:
        connection.connect()
        guard = threading.Timer(max(deadline_s - time.monotonic(), 0.0), _hang_up, (connection.sock, overdue))
        guard.daemon = True
        guard.start()
        answer = _answer(connection, target, form)
    except HTTPException as error:
        if not overdue.is_set():
            raise OSError(f"the answer is not HTTP's ({type(error).__name__})") from error
    except OSError:
        if not overdue.is_set():
            raise
    finally:
        if guard is not None:
            guard.cancel()
        connection.close()
    if overdue.is_set():
        # What was hung up on may look whole.
        raise TimeoutError("the answer takes too long")
    return answer


def _connection(url: str, tls: Callable[[], ssl.SSLContext] | None) -> HTTPConnection:
    from http.client import HTTPConnection, HTTPSConnection

    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "https":
        return HTTPConnection(host, parts.port, timeout=_FETCH_TIMEOUT_S)
    context = None if tls is None else tls()
    return HTTPSConnection(host, parts.port, timeout=_FETCH_TIMEOUT_S, context=context)


def _answer(connection: HTTPConnection, target: str, form: Form | None) -> bytes:
    headers = {"Accept": "application/json", "Connection": "close"}
    if form is None:
        connection.request("GET", target, headers=headers)
    else:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        if form.authorization is not None:
            headers["Authorization"] = form.authorization
        connection.request("POST", target, form.body, headers)
    response = connection.getresponse()
    if response.status != _OK:
        raise OSError(f"the answer has the status {response.status}")
    body = bytearray()
    while piece := response.read1(64 * 1024):
        body += piece
        if len(body) > _MAX_SET_BYTES:
            raise ValueError(f"the answer is longer than {_MAX_SET_BYTES} bytes")
    if response.length:
        raise OSError("the answer ends before it is whole")
    return bytes(body)


def _hang_up(sock: socket.socket, overdue: threading.Event) -> None:
    """End a fetch from another thread: a socket's own limit begins anew with every byte."""
    overdue.set()
    with suppress(OSError):
        # Not that of TLS, which is in use by the thread that reads.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)


def key_source(
    url: str,
    times: FetchTimes,
    allowed_urls: Iterable[str] = (),
    tls: Callable[[], ssl.SSLContext] | None = None,
) -> JwksFile | JwksEndpoint:
    """The source that a URL names: ``https``, ``http`` or ``file``; raises ``ConfigError``.

    ``tls`` makes the context by which an ``https`` server is trusted, anew for each fetch.
    """
    allowed = tuple(allowed_urls)
    if allowed and url not in allowed:
        raise ConfigError(f"{url} is not among the URLs that are allowed ({', '.join(allowed)})")
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path:
            raise ConfigError(f"{url} names no file of this machine: write it as file:///path/to/keys.json")
        source = JwksFile(Path(unquote(parts.path)))
        source.check()
        return source
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"{url} is no URL of a JSON Web Key Set: begin it with https:// or file://")
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the URL of a JSON Web Key Set must not hold a user or a password")
    if tls is not None and parts.scheme == "https":
        # What cannot be used is found out now, and not when the first client logs in.
        tls()
    return JwksEndpoint(url, times, partial(fetch_once, tls=tls))
