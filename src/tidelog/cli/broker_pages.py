"""What brokers tell of themselves over HTTP, beside Kafka's protocol: where that is, and how it is read.

A broker of Tidelog names the place in its config ``metrics.listeners``, which any client may ask for that may
describe configs; one that listens on every address, or on a port that the system chose, has to be named with
``--metrics``. Pages say which broker of which cluster they are of: a loopback address that was meant for
another machine does not lead to somebody else's figures. Used by ``tidelog clients`` and ``tidelog top``.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import math
import socket
import ssl
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tidelog.cli.failure import WrongUsage, sentence
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.resources import ConfigResource, ConfigResult, ResourceType
from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import TidelogError

LISTENERS = "metrics.listeners"
_TIMEOUT_S = 3.0
_WHOLE_S = 10.0
"""How long a page may take in all, from somebody who sends it byte by byte."""
_TRY_AGAIN_S = 30.0
_LARGEST_BYTES = 64 * 1024 * 1024
_EVERYWHERE = ("", "0.0.0.0", "::")


class PageError(TidelogError):
    """A page that cannot be read; the text says which and why."""


@dataclass(frozen=True)
class Place:
    """Where one broker has its pages."""

    host: str
    port: int
    is_tls: bool = False
    broker: int | None = None
    """Which broker has to be there; None if it is not known."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}"


@dataclass
class Pages:
    """The same page of several brokers, by their ids, and why others have none."""

    by_broker: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    silent: list[int] = field(default_factory=list)
    """Brokers that tell nothing over HTTP: they have no ``metrics.listeners``."""


def parse_place(text: str, *, broker: int | None = None, default_host: str = "") -> Place:
    """``HOST:PORT``, with http:// or https:// before it; raises ``WrongUsage``."""
    scheme, found, rest = text.strip().rstrip("/").rpartition("://")
    host, colon, port = rest.rpartition(":")
    if (found and scheme not in ("http", "https")) or not colon or not port.isdecimal() or int(port) > 65535:
        raise WrongUsage(f"--metrics {text!r} is not of the form HOST:PORT, for example 127.0.0.1:9404")
    host = host.strip("[]")
    return Place(
        default_host if default_host and host in _EVERYWHERE else host or "127.0.0.1",
        int(port),
        scheme == "https",
        broker,
    )


class BrokerPages:
    """Finds the places once, but for brokers that do not say where, and reads pages from them."""

    def __init__(self, admin: AsyncAdmin, named: Sequence[str] | None = None) -> None:
        """``named`` are places that somebody names: no others are looked for then."""
        self._admin = admin
        self._named = [parse_place(text) for text in named or ()]
        self._places: list[Place] = []
        self._look_again_s = -math.inf
        """When the places are looked for again: later, where some brokers have not said where they are."""
        self._cluster_id: str | None = None
        self._missing = Pages()
        self._failed: dict[Place, tuple[float, PageError]] = {}
        self._tls: ssl.SSLContext | None = None

    async def read(self, path: str, silent: Collection[int] = ()) -> Pages:
        """The page at ``path`` of every broker that has one; those that are ``silent`` are not asked."""
        places = [each for each in await self._find(silent) if each.broker not in silent]
        found = await asyncio.gather(*(self._read(place, path) for place in places), return_exceptions=True)
        pages = Pages({}, list(self._missing.problems), list(self._missing.silent))
        for page in found:
            if isinstance(page, PageError):
                pages.problems.append(str(page))
            elif isinstance(page, BaseException):
                raise page
            else:
                pages.by_broker[int(page["broker"])] = page
        return pages

    async def _find(self, silent: Collection[int]) -> list[Place]:
        if time.monotonic() < self._look_again_s:
            return self._places
        cluster = await self._admin.describe_cluster()
        self._cluster_id = cluster.cluster_id
        if self._named:
            self._places, self._look_again_s = self._named, math.inf
            return self._places
        hosts = {str(node.id): node.host for node in cluster.nodes}
        resources = [ConfigResource(ResourceType.BROKER, each) for each in hosts if int(each) not in silent]
        missing = Pages()
        missing.problems += [
            f"the metrics address of broker {each} is unknown: it does not respond" for each in sorted(silent)
        ]
        try:
            configs = await self._admin.describe_configs(resources, names=[LISTENERS])
        except TidelogError as error:
            missing.problems.append(f"cannot find the metrics addresses: {sentence(error)}")
            configs = []
        places = [
            place
            for each in configs
            if (place := _place_of(each, hosts[each.resource.name], missing)) is not None
        ]
        if any(each.is_tls for each in places):
            self._tls = self._tls_context()
        have_all_told = bool(configs) and not silent and all(each.error is None for each in configs)
        self._look_again_s = math.inf if have_all_told else time.monotonic() + _TRY_AGAIN_S
        self._places, self._missing = places, missing
        return places

    def _tls_context(self) -> ssl.SSLContext:
        from tidelog.client._network.security.tls import tls_context

        assert self._admin.config is not None
        return tls_context(self._admin.config)

    async def _read(self, place: Place, path: str) -> Mapping[str, Any]:
        """A page; where nobody answered a moment ago nobody is waited for again."""
        until_s, failed = self._failed.get(place, (0.0, None))
        if failed is not None and time.monotonic() < until_s:
            raise failed
        try:
            return await self._read_now(place, path)
        except PageError as error:
            self._failed[place] = time.monotonic() + _TRY_AGAIN_S, error
            raise

    async def _read_now(self, place: Place, path: str) -> Mapping[str, Any]:
        if place.is_tls and self._tls is None:
            self._tls = self._tls_context()
        opened: list[socket.socket] = []
        try:
            async with asyncio.timeout(_WHOLE_S) as deadline:
                page = await asyncio.to_thread(_get, place, path, self._tls, opened)
        except (OSError, UnicodeError, http.client.HTTPException) as error:
            reason = f"incomplete after {_WHOLE_S:.0f} seconds" if deadline.expired() else _reason(error)
            raise PageError(f"cannot read {_whose(place)} at {place}: {reason}") from error
        finally:
            _hang_up(opened)
        if place.broker is not None and page["broker"] != place.broker:
            raise PageError(
                f"{_whose(place)} should be at {place}, but broker {page['broker']} is there: set the "
                "right addresses with --metrics HOST:PORT"
            )
        if self._cluster_id is not None and page["cluster"] not in (None, self._cluster_id):
            raise PageError(f"the broker at {place} belongs to another cluster, {page['cluster']}")
        return page


def _place_of(config: ConfigResult, host: str, missing: Pages) -> Place | None:
    """Where a broker on ``host`` has its pages by its configs; if nowhere, ``missing`` is told why."""
    name = config.resource.name
    if config.error is not None:
        missing.problems.append(f"the metrics address of broker {name} is unknown: {sentence(config.error)}")
        return None
    value = next((each.value for each in config.entries if each.name == LISTENERS), None)
    if not value:
        missing.silent.append(int(name))
        return None
    place = parse_place(value.split(",")[0], broker=int(name), default_host=host)
    if not place.port:
        missing.problems.append(
            f"broker {name} serves metrics on a port chosen by the system: take it from the broker's "
            "log and set it with --metrics HOST:PORT"
        )
        return None
    return place


def _whose(place: Place) -> str:
    return "the metrics" if place.broker is None else f"the metrics of broker {place.broker}"


def _reason(error: OSError | UnicodeError | http.client.HTTPException) -> str:
    if isinstance(error, TimeoutError):
        return f"no response within {_TIMEOUT_S:.0f} seconds"
    if isinstance(error, ssl.SSLError):
        return f"TLS handshake failed ({error.reason or error})"
    if isinstance(error, UnicodeError):
        return "invalid host name"
    if isinstance(error, http.client.HTTPException):
        return f"the response is not HTTP ({type(error).__name__})"
    return (error.strerror or str(error)).lower()


def _connection(place: Place, tls: ssl.SSLContext | None) -> http.client.HTTPConnection:
    if place.is_tls:
        return http.client.HTTPSConnection(place.host, place.port, timeout=_TIMEOUT_S, context=tls)
    return http.client.HTTPConnection(place.host, place.port, timeout=_TIMEOUT_S)


def _hang_up(opened: list[socket.socket]) -> None:
    """End a reading that still goes on in its thread."""
    for each in opened:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            each.shutdown(socket.SHUT_RDWR)


def _get(
    place: Place, path: str, tls: ssl.SSLContext | None, opened: list[socket.socket]
) -> Mapping[str, Any]:
    """One page; blocks for some seconds at most between two pieces of it, or until ``opened`` is shut."""
    connection = _connection(place, tls)
    try:
        connection.connect()
        opened.append(connection.sock)
        connection.request("GET", path, headers={"Accept": "application/json", "Connection": "close"})
        answer = connection.getresponse()
        body = answer.read(_LARGEST_BYTES + 1)
    finally:
        connection.close()
    if answer.status == 404:
        raise PageError(f"{place} does not serve {path}: it is another program or an older version")
    if answer.status != 200 or len(body) > _LARGEST_BYTES:
        raise PageError(f"{place} responded with {answer.status} {answer.reason} and {len(body)} bytes")
    try:
        page = msgspec.json.decode(body)
    except DECODE_ERRORS:
        page = None
    if not isinstance(page, dict) or not isinstance(page.get("broker"), int) or "cluster" not in page:
        raise PageError(f"{place} is not a Tidelog broker")
    return page
