"""The connection to one address: opened when it is wanted, with Kafka's reconnect back-off, closed when idle.

Owns at most one :class:`Connection` and at most one attempt to open it, which all who wait for it share. Used
by ``client._network.cluster``, which has one peer per broker and channel.

Back-off as in Kafka: after a failed attempt or a lost connection the next attempt waits
``reconnect.backoff.ms``, doubled per failure in a row up to ``reconnect.backoff.max.ms``, give or take a
fifth; the time allowed for an attempt grows in the same way. A connection that has become ready ends the
row.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Any

from tidelog.client._address import Address
from tidelog.client._network.connect import open_connection
from tidelog.client._network.connection import Connection, reason
from tidelog.client._network.ongoing_errors import ConnectionFailures
from tidelog.client._network.retry import Deadline, doubled_ms
from tidelog.client._network.settings import NetworkSettings
from tidelog.client._network.traffic import Traffic
from tidelog.client.errors import AuthenticationError, BrokerUnreachableError, RequestTimeoutError

logger = logging.getLogger(__name__)

_JITTER = 0.2


class NodeConnection:
    """One address and the connection to it."""

    def __init__(
        self,
        address: Address,
        settings: NetworkSettings,
        traffic: Traffic,
        failures: ConnectionFailures | None = None,
        *,
        is_advertised: bool = False,
    ) -> None:
        """``is_advertised``: the address comes from a broker, and is not one of ``bootstrap.servers``."""
        self.address = address
        self.traffic = traffic
        self._failed_attempts = failures or ConnectionFailures()
        self._is_advertised = is_advertised
        self.last_error: Exception | None = None
        """Why the last attempt failed; None once one has succeeded."""
        self.last_attempt_at = 0.0
        self.last_connection: Connection | None = None
        """The newest connection, open or not: what the broker offers is known from it."""
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._opening: asyncio.Task[Connection] | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._throttled_until = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._login_timer: asyncio.TimerHandle | None = None
        self._logging_in = False
        self._closed = False

    @property
    def connection(self) -> Connection | None:
        """The connection if requests may be sent on it: it is open and does not log in again just now."""
        connection = self.last_connection
        if connection is None or not connection.is_open or self._logging_in:
            return None
        return connection

    @property
    def in_flight(self) -> int:
        connection = self.connection
        return 0 if connection is None else connection.in_flight

    @property
    def is_opening(self) -> bool:
        return self._opening is not None

    @property
    def delay_ms(self) -> float:
        """How long until it makes sense to try again: back-off, or what a broker asked for by throttling."""
        until = self._throttled_until if self.connection is not None else self._retry_at
        return max(until - self._loop.time(), 0.0) * 1000

    def ready(self) -> bool:
        """Whether a request can be sent now; begins to connect where that makes sense."""
        if self.connection is not None:
            return self._throttled_until <= self._loop.time()
        if self._opening is None and self._retry_at <= self._loop.time():
            self._begin()
        return False

    def throttle(self, throttle_time_ms: int) -> None:
        """Send nothing for so long, as the broker asked (KIP-219)."""
        self._throttled_until = max(self._throttled_until, self._loop.time() + throttle_time_ms / 1000)
        self.traffic.throttle_ms.record(throttle_time_ms)

    async def connected(self, deadline: Deadline) -> Connection:
        """The open connection; opens it, once the back-off has passed."""
        connection = self.connection or await self._opened(deadline)
        pause = self._throttled_until - self._loop.time()
        if pause > deadline.remaining:
            raise RequestTimeoutError(
                f"{self.address} wants a pause of {pause:.3g} s (quota), longer than there is time"
            )
        if pause > 0:
            await asyncio.sleep(pause)
        return connection

    async def _opened(self, deadline: Deadline) -> Connection:
        if self._opening is None:
            await self._wait_for_back_off(deadline)
        # Somebody else may have opened it, or begun to, during the back-off.
        if self.connection is not None:
            return self.connection
        opening = self._opening or self._begin()
        # The attempt is everybody's: one who gives up does not end it, and its end cancels nobody.
        await asyncio.wait([opening], timeout=deadline.remaining)
        if not opening.done():
            raise self._not_in_time(deadline) from self.last_error
        if opening.cancelled():
            raise BrokerUnreachableError(f"the attempt to connect to {self.address} was given up")
        return opening.result()

    async def close(self) -> None:
        """Close the connection and end the attempt to open one."""
        self._closed = True
        for timer in (self._idle_timer, self._login_timer):
            if timer is not None:
                timer.cancel()
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self.last_connection is not None:
            await self.last_connection.close()

    def _begin(self) -> asyncio.Task[Connection]:
        if self._closed:
            raise BrokerUnreachableError(f"the client that talks to {self.address} is closed")
        return self._run(self._open(), f"connect to {self.address}")

    def _run(self, attempt: Coroutine[Any, Any, Connection], name: str) -> asyncio.Task[Connection]:
        self._opening = self._loop.create_task(attempt, name=name)
        self._opening.add_done_callback(_heard)
        return self._opening

    async def _open(self) -> Connection:
        settings = self._settings
        self.last_attempt_at = self._loop.time()
        limit = _growing(settings.connect_timeout_ms, settings.connect_timeout_max_ms, self._failures)
        try:
            connection = await open_connection(self.address, settings, Deadline(limit), self.traffic)
        except Exception as error:
            self.last_error = error
            self.traffic.failed_authentications += isinstance(error, AuthenticationError)
            self._report(error)
            self._back_off()
            raise
        finally:
            self._opening = None
        self.last_error, self._failures, self._retry_at = None, 0, 0.0
        self._failed_attempts.reached(self.address)
        self.last_connection = connection
        self.traffic.connections_opened += 1
        self.traffic.successful_authentications += settings.security is not None
        connection.on_lost = self._lost
        connection.on_throttle = self.throttle
        if not connection.is_open:
            self._lost(None)
        self._watch_idleness(connection)
        self._watch_session(connection)
        return connection

    def _report(self, error: Exception) -> None:
        hint = ""
        if self._is_advertised and self.last_connection is None:
            hint = " (a broker advertises this address: check its advertised.listeners)"
        self._failed_attempts.failed(self.address, error, hint)

    def _lost(self, error: Exception | None) -> None:
        logger.log(logging.DEBUG if self._closed else logging.INFO, "%s: %s", self.address, reason(error))
        self.traffic.connections_closed += 1
        self._back_off()

    def _back_off(self) -> None:
        settings = self._settings
        wait_ms = _growing(settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._failures)
        self._failures += 1
        self._retry_at = self._loop.time() + wait_ms / 1000

    async def _wait_for_back_off(self, deadline: Deadline) -> None:
        wait = self._retry_at - self._loop.time()
        if wait <= 0:
            return
        if wait > deadline.remaining:
            await asyncio.sleep(deadline.remaining)
            raise self._not_in_time(deadline) from self.last_error
        await asyncio.sleep(wait)

    def _not_in_time(self, deadline: Deadline) -> Exception:
        if isinstance(self.last_error, AuthenticationError):
            return self.last_error
        if self.last_error is not None:
            return BrokerUnreachableError(str(self.last_error))
        return RequestTimeoutError(
            f"no connection to {self.address} within {deadline.timeout_ms / 1000:.3g} s"
        )

    def _watch_idleness(self, connection: Connection) -> None:
        limit_ms = self._settings.connections_max_idle_ms
        if limit_ms < 0 or not connection.is_open:
            return
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        now = self._loop.time()
        idle_at = max(connection.last_used, self.last_attempt_at) + limit_ms / 1000
        if idle_at > now or connection.in_flight:
            when = max(idle_at, now + limit_ms / 1000) if connection.in_flight else idle_at
            self._idle_timer = self._loop.call_at(when, self._watch_idleness, connection)
            return
        self._idle_timer = None
        connection.abort(ConnectionAbortedError("it was idle"))
        # Nothing has gone wrong: the next request may connect at once.
        self._failures, self._retry_at = 0, 0.0

    def _watch_session(self, connection: Connection) -> None:
        """Log in again before the broker's limit for a session (KIP-368), at 85 to 95 % of it as Java."""
        if self._login_timer is not None:
            self._login_timer.cancel()
        if connection.session_lifetime_ms > 0 and connection.is_open:
            wait = connection.session_lifetime_ms / 1000 * random.uniform(0.85, 0.95)
            self._login_timer = self._loop.call_later(wait, self._renew_session, connection)

    def _renew_session(self, connection: Connection) -> None:
        self._login_timer = None
        if connection.is_open and self._opening is None and not self._closed:
            self._logging_in = True
            self._run(self._log_in(connection), f"log in to {self.address} again")

    async def _log_in(self, connection: Connection) -> Connection:
        security = self._settings.security
        assert security is not None
        began = self._loop.time()
        try:
            # Whoever wants to send waits; what is in flight is answered first, as brokers keep the order.
            await security.authenticate(connection, Deadline(self._settings.request_timeout_ms))
        except Exception as error:
            self.last_error = error
            self.traffic.failed_logins_again += 1
            connection.abort(error)
            raise
        finally:
            self._opening, self._logging_in = None, False
        self.traffic.login_again_ms.record((self._loop.time() - began) * 1000)
        self._watch_session(connection)
        return connection


def _growing(initial_ms: float, max_ms: float, failures: int) -> float:
    """Kafka's exponential back-off with jitter."""
    wait_ms = doubled_ms(initial_ms, max(max_ms, initial_ms), failures)
    return wait_ms * random.uniform(1 - _JITTER, 1 + _JITTER)


def _heard(task: asyncio.Task[Connection]) -> None:
    """Failures are kept in ``last_error`` and told to whoever waits; nobody has to."""
    if not task.cancelled():
        task.exception()
