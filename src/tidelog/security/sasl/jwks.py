"""Keys by which an issuer signs tokens: a JSON Web Key Set in a file or behind a URL.

Keys are for signatures and public: secrets (``oct``) in a set are passed over, and so is what cannot be
read. A key is good for the algorithms of its own type, or for the one that it names. A set may hold tens of
thousands: it is split into entries and indexed by key id, which takes milliseconds, and a key is read when
the first token names it. The last few hundred that were used are kept.

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
from codecs import BOM_UTF8
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as WaitTimeoutError
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from msgspec import UNSET, MsgspecError, Raw, Struct, ValidationError
from msgspec.json import Decoder as json_decoder

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
_ALONE = {name: (name,) for name in PUBLIC_KEY_ALGORITHMS}
_FETCH_TIMEOUT_S = 10.0
_MAX_SET_BYTES = 1024 * 1024
_MAX_FILE_BYTES = 16 * 1024 * 1024
_MOST_READ = 256
_AT_ONCE = 200
_PAUSE_S = 0.0005
_OK = 200
# Logins that wait for keys hold a thread each; the rest is told to come back.
_MAX_WAITING = 2


class KeySource(Protocol):
    """Where keys are looked up."""

    def key_for(self, key_id: str | None, algorithm: str) -> Key:
        """The key that a token claims to be signed by; raises :class:`Refused` if there is none."""


class _Set(Struct):
    """A JSON Web Key Set, as far as it is read at once."""

    keys: list[Raw]


class _Entry(Struct, gc=False):
    """What an entry says of its use; the key itself is read later."""

    kid: Any = None
    kty: Any = None
    crv: Any = None
    use: Any = "sig"
    alg: Any = UNSET

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The algorithms that the key is good for."""
        if self.use != "sig":
            return ()
        known = _BY_CURVE.get(str(self.crv), ()) if self.kty == "EC" else _BY_TYPE.get(str(self.kty), ())
        if self.alg is UNSET:
            return known
        return _ALONE[self.alg] if isinstance(self.alg, str) and self.alg in known else ()


class _KeyEntry(Struct, gc=False, eq=False):
    """A key of a set that is for signatures."""

    raw: Raw
    algorithms: tuple[str, ...]
    is_unreadable: bool = False


class KeySet:
    """The keys of one issuer, at one time."""

    def __init__(self, entries: Iterable[tuple[str | None, _KeyEntry]] = ()) -> None:
        self._entries: list[_KeyEntry] = []
        # Most ids are of one key: lists of one, tens of thousands of them, would keep the collector busy.
        self._by_id: dict[str | None, _KeyEntry] = {}
        self._others_by_id: defaultdict[str | None, list[_KeyEntry]] = defaultdict(list)
        for key_id, entry in entries:
            self._entries.append(entry)
            if self._by_id.setdefault(key_id, entry) is not entry:
                self._others_by_id[key_id].append(entry)
        self._lock = threading.Lock()
        self._read: OrderedDict[_KeyEntry, Key] = OrderedDict()

    @classmethod
    def parse(cls, raw: bytes) -> KeySet:
        """The keys of a set that are for signatures; raises ``ValueError`` for what is no set."""
        try:
            found = json_decoder(_Set).decode(raw.removeprefix(BOM_UTF8))
        except RecursionError:
            raise ValueError("it is nested without end") from None
        except ValidationError:
            raise ValueError("it has no list of keys") from None
        except MsgspecError as error:
            raise ValueError(f"it is not JSON: {error}") from None
        return cls(_entries(found.keys))

    def find(self, key_id: str | None, algorithm: str) -> Key | None:
        """The key with this id; a token that names none may be signed by the only one there is."""
        entries: Iterable[_KeyEntry] = self._entries
        if key_id is not None:
            first = self._by_id.get(key_id)
            entries = () if first is None else (first, *self._others_by_id.get(key_id, ()))
        fitting = self._keys(each for each in entries if algorithm in each.algorithms)
        found = next(fitting, None)
        return found if key_id is not None or next(fitting, None) is None else None

    @property
    def has_keys(self) -> bool:
        """Whether any key can be used."""
        return next(self._keys(self._entries), None) is not None

    def _keys(self, entries: Iterable[_KeyEntry]) -> Iterator[Key]:
        """The keys of some entries, each read when it is its turn."""
        for entry in entries:
            with self._lock:
                key = self._read.get(entry)
                if key is None and not entry.is_unreadable:
                    key = _key(entry)
                if key is not None:
                    self._read[entry] = key
                    self._read.move_to_end(entry)
                    if len(self._read) > _MOST_READ:
                        self._read.popitem(last=False)
            if key is not None:
                yield key


def _entries(raw: Iterable[Raw]) -> Iterator[tuple[str | None, _KeyEntry]]:
    """The entries that are keys for signatures, with their ids."""
    decoder = json_decoder(_Entry)
    for number, each in enumerate(raw, 1):
        if not number % _AT_ONCE:
            # This is a thread: what serves clients has to come by in between.
            time.sleep(_PAUSE_S)
        with suppress(MsgspecError, RecursionError):
            said = decoder.decode(each)
            if algorithms := said.algorithms:
                yield said.kid if isinstance(said.kid, str) else None, _KeyEntry(each, algorithms)


def _key(entry: _KeyEntry) -> Key | None:
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    # What it says of its uses is not always right, and was considered before.
    ignored = ("use", "key_ops", "alg", "x5c")
    try:
        parameters: dict[str, Any] = json.loads(bytes(entry.raw))
        return import_key({name: value for name, value in parameters.items() if name not in ignored})
    except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
        entry.is_unreadable = True
        logger.warning("A key of a JSON Web Key Set is passed over: %s", type(error).__name__)
        return None


class JwksFile:
    """Keys in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._problem: str | None = None
        self._keys = KeySet()

    def key_for(self, key_id: str | None, algorithm: str) -> Key:
        """The key; the file is read again if it has changed."""
        with self._lock:
            try:
                self._look()
            except (OSError, ValueError) as error:
                why = os.strerror(error.errno or 0) if isinstance(error, OSError) else str(error)
                if why != self._problem:
                    # Once, and not for each login: any client may try to log in.
                    logger.error("The keys in %s cannot be read, and stay as they were: %s", self._path, why)
                self._problem = why
            keys = self._keys
        key = keys.find(key_id, algorithm)
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
        if not self._keys.has_keys:
            raise ConfigError(f"{self._path} holds no public key for signatures")

    def _look(self) -> None:
        stat = self._path.stat()
        seen = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
        if seen != self._seen:
            self._seen = seen
            if stat.st_size > _MAX_FILE_BYTES:
                raise ValueError(f"it is longer than {_MAX_FILE_BYTES} bytes")
            self._keys = KeySet.parse(self._path.read_bytes())
            self._problem = None


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
        self._keys = KeySet()
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
