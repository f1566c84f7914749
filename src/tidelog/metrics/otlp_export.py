"""Sends figures to an OpenTelemetry collector: OTLP over HTTP, in protobuf, packed with gzip.

For brokers (``broker/metrics/service``) and for pipelines (``pipelines/metrics_export``). Every interval
everything that ``/metrics`` has is collected in steps between which others
are served, and posted in a thread, some thousand points at a time. Nothing is queued: what cannot be sent is
dropped, and the next time brings newer values of the same figures. The first failure is logged, others at
most every ten minutes, and that it works again. Redirections are not followed: headers may hold a password.

Decision: the extra ``tidelog[otlp]`` installs nothing. OpenTelemetry's SDK would bring gRPC or requests,
protobuf and a registry of its own, each figure twice and a thread that collects; a POST of what
``metrics/otlp`` encodes needs Python's own ``http.client`` alone, which is loaded when there is an endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from tidelog.errors import ConfigError
from tidelog.metrics.otlp_page import POINTS_OF_A_REQUEST, OtlpPage
from tidelog.metrics.page import Page
from tidelog.version import __version__

if TYPE_CHECKING:
    from http.client import HTTPConnection

logger = logging.getLogger(__name__)

_STEP_S = 0.002
_QUIET_S = 600.0
_PATH = "/v1/metrics"
_ANSWER_BYTES = 64 * 1024
_LONGEST_PAUSE_S = 3600.0


class Endpoint(NamedTuple):
    """Where a collector listens."""

    is_secure: bool
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        where = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' if self.is_secure else ''}://{where}:{self.port}{self.path}"


class Target(NamedTuple):
    """Where figures go, and how often."""

    endpoint: Endpoint
    headers: Mapping[str, str]
    interval_s: float
    timeout_s: float
    newer_names: bool = False


class Outcome(NamedTuple):
    """What became of a request."""

    failure: str
    """Why it was not taken; empty if it was."""
    pause_s: float = 0.0
    """For how long the collector wants to hear nothing."""


class ExportCounts:
    """What has been sent, for the metrics."""

    __slots__ = ("failed", "points", "sent")

    def __init__(self) -> None:
        self.sent = 0
        self.failed = 0
        self.points = 0


class OtlpExport:
    """Runs from ``start`` to ``close``."""

    def __init__(
        self,
        target: Target,
        render: Callable[[Page], Iterator[str]],
        about: Callable[[], dict[str, str]],
    ) -> None:
        """``render`` writes all figures to a page; ``about`` says whose they are."""
        self._endpoint, self._headers, self._interval_s, self._timeout_s, self._newer_names = target
        self._render = render
        self._about = about
        self._start_ns = time.time_ns()
        self._task: asyncio.Task[None] | None = None
        self._complained_s: float | None = None
        self.counts = ExportCounts()

    def start(self) -> None:
        """Begin to send."""
        logger.info("Metrics are sent to %s every %g s", self._endpoint, self._interval_s)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def finish(self) -> None:
        """Send the figures as they are at last, however long ago the last ones went, and then no more."""
        await self.close()
        self._tell((await self._attempt()).failure)

    async def close(self) -> None:
        """Send no more; a request that is under way is left to itself."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            began_s = time.monotonic()
            outcome = await self._attempt()
            self._tell(outcome.failure)
            rest_s = self._interval_s - (time.monotonic() - began_s)
            await asyncio.sleep(max(rest_s, outcome.pause_s, 0.05))

    async def _attempt(self) -> Outcome:
        try:
            return await self._export()
        except Exception as error:
            logger.debug("Metrics could not be collected", exc_info=True)
            return Outcome(f"they could not be collected: {error!r}")

    async def _export(self) -> Outcome:
        """Send everything once; ends at the first request that is not taken."""
        page = OtlpPage(newer_names=self._newer_names, start_ns=self._start_ns, time_ns=time.time_ns())
        until_s = time.monotonic() + _STEP_S
        for _ in self._render(page):
            if page.points >= POINTS_OF_A_REQUEST:
                outcome = await self._send(page)
                if outcome.failure:
                    return outcome
            if time.monotonic() >= until_s:
                await asyncio.sleep(0)
                until_s = time.monotonic() + _STEP_S
        return await self._send(page) if page.points else Outcome("")

    async def _send(self, page: OtlpPage) -> Outcome:
        points = page.points
        message = page.take(self._about(), "tidelog", __version__)
        outcome = await asyncio.to_thread(post, self._endpoint, self._headers, message, self._timeout_s)
        if outcome.failure:
            self.counts.failed += 1
        else:
            self.counts.sent += 1
            self.counts.points += points
        return outcome

    def _tell(self, failure: str) -> None:
        now_s = time.monotonic()
        if not failure:
            if self._complained_s is not None:
                logger.info("Metrics are sent to %s again", self._endpoint)
            self._complained_s = None
        elif self._complained_s is None or now_s - self._complained_s >= _QUIET_S:
            self._complained_s = now_s
            logger.warning(
                "Metrics are not taken by %s: %s. It is tried again every %g s, silently for ten minutes",
                self._endpoint,
                failure,
                self._interval_s,
            )


def post(endpoint: Endpoint, headers: Mapping[str, str], message: bytes, timeout_s: float) -> Outcome:
    """Post a message and wait for the answer: to be called in a thread.

    ``timeout_s`` is for the connection, and once more for all that follows: a collector that answers byte by
    byte holds up nobody for longer.
    """
    # Loaded by those that send metrics.
    import gzip
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    kind = HTTPSConnection if endpoint.is_secure else HTTPConnection
    connection = kind(endpoint.host, endpoint.port, timeout=timeout_s)
    late: list[str] = []
    timer = threading.Timer(timeout_s, _hang_up, (connection, late))
    timer.daemon = True
    try:
        connection.connect()
        timer.start()
        connection.request(
            "POST",
            endpoint.path,
            gzip.compress(message, 1),
            {
                "Content-Type": "application/x-protobuf",
                "Content-Encoding": "gzip",
                "User-Agent": f"tidelog/{__version__}",
                **headers,
            },
        )
        answer = connection.getresponse()
        answer.read(_ANSWER_BYTES)
    except (OSError, HTTPException) as error:
        return Outcome("".join(late) or str(error) or type(error).__name__)
    finally:
        timer.cancel()
        connection.close()
    if late:
        # Python takes what had come by then for the whole.
        return Outcome(late[0])
    if 200 <= answer.status < 300:
        return Outcome("")
    return Outcome(f"it answers {answer.status} {answer.reason}", _pause_s(answer.getheader("Retry-After")))


def _hang_up(connection: HTTPConnection, late: list[str]) -> None:
    """End what waits for an answer, with the reason in ``late``."""
    late.append("it took too long to answer")
    sock = connection.sock
    if sock is not None:
        with contextlib.suppress(OSError):
            # Not what TLS makes of it, which would take the connection away under the thread that reads.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _pause_s(retry_after: str | None) -> float:
    seconds = (retry_after or "").strip()
    return min(float(seconds), _LONGEST_PAUSE_S) if seconds.isascii() and seconds.isdecimal() else 0.0


def endpoint_of(text: str, option: str = "tidelog.otlp.endpoint") -> Endpoint:
    """An endpoint as an option names it; raises ``ConfigError``."""
    # Loaded by those that send metrics.
    from urllib.parse import urlsplit

    wrong = f"{option} is {text!r}: give it as http://HOST:PORT or https://HOST:PORT/PATH"
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        raise ConfigError(wrong) from None
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    if parts.scheme not in ("http", "https") or not parts.hostname or not target.isprintable():
        raise ConfigError(wrong)
    if parts.username is not None or " " in target or not target.isascii():
        raise ConfigError(f"{wrong}; a user or a password belongs into a header")
    is_secure = parts.scheme == "https"
    path = target if parts.path not in ("", "/") else _PATH
    return Endpoint(is_secure, parts.hostname, port or (443 if is_secure else 4318), path)


def headers_of(text: str, option: str = "tidelog.otlp.headers") -> dict[str, str]:
    """Headers as an option has them, NAME=VALUE with commas between; raises ``ConfigError``."""
    found: dict[str, str] = {}
    for item in filter(None, (each.strip() for each in text.split(","))):
        name, equals, value = (part.strip() for part in item.partition("="))
        usable = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        if not equals or not usable or not value.isascii() or not value.isprintable():
            # Without the value, which may be a secret.
            raise ConfigError(
                f"{option}: header {name!r} cannot be sent; give headers as NAME=VALUE, with "
                "commas between them"
            )
        found[name] = value
    return found
