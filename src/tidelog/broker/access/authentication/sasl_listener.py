"""What all connections of one SASL listener share: mechanisms, limits, and threads for what is slow.

``begin`` is what the network calls for each new connection of the listener. A client that takes too long to
log in is closed (``tidelog.authentication.timeout.ms``): those who wait are looked at once a second, so that
a crowd of them costs no timers and those who have gone no memory.

``Authentication`` has all of a broker's SASL listeners. Options that change while the broker runs are in
force for the next login; sessions stay as they are. Wired by ``broker/app``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tidelog.broker.access.authentication.authenticator import (
    MAX_RECEIVE,
    LoginOptions,
    SaslAuthenticator,
    session_lifetime_ms,
)
from tidelog.broker.access.authentication.credentials import salt_secret
from tidelog.broker.access.authentication.mechanisms import MechanismParts, mechanisms_of
from tidelog.broker.network.connection import Connection, RequestHandler
from tidelog.broker.network.rate_limited_log import RateLimitedLog
from tidelog.clock import Clock
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.sasl_settings import SaslSettings, concerns_logins
from tidelog.errors import ConfigError
from tidelog.metadata.store import MetadataStore
from tidelog.metrics.connection_counts import ConnectionCounts
from tidelog.security.sasl.mechanism import Mechanism, Proven
from tidelog.security.sasl.scram import ScramCredentials

logger = logging.getLogger(__name__)

_THREADS = 4
_SWEEP_S = 1.0

T = TypeVar("T")


class LoginThreads:
    """A few threads for steps that are slow; begun when the first of them is."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool: ThreadPoolExecutor | None = None

    def run(self, step: Callable[[bytes], T], token: bytes) -> asyncio.Future[T]:
        """``step(token)`` in one of them."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tidelog-login")
        return self._loop.run_in_executor(self._pool, step, token)

    def close(self) -> None:
        """Begin nothing more."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


class SaslListener:
    """One listener on which clients log in."""

    def __init__(
        self,
        settings: SaslSettings,
        mechanisms: Mapping[str, Mechanism],
        dispatcher: RequestHandler,
        threads: LoginThreads,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        timeout_ms: int,
    ) -> None:
        self.name = settings.listener.name
        self.dispatcher = dispatcher
        self.loop = loop
        self._protocol = settings.listener.security_protocol
        self._threads = threads
        self._clock = clock
        self._timeout_s = timeout_ms / 1000
        self._log = RateLimitedLog(logger, clock)
        self.counts = ConnectionCounts()
        """Those of the listener's connections, once they are known."""
        self._waiting: dict[Connection, float] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self.options = LoginOptions.of(settings, mechanisms)
        """Those of logins from now on."""

    def begin(self, connection: Connection) -> None:
        """A client has connected: it has to log in first."""
        connection.session.security_protocol = self._protocol
        connection.limit_frames(self.options.max_receive_bytes, MAX_RECEIVE)
        connection.serve_by(SaslAuthenticator(self))
        self._waiting[connection] = self.loop.time() + self._timeout_s
        if self._sweep is None:
            self._sweep = self.loop.call_later(_SWEEP_S, self._look_at_waiting)

    def is_known(self, connection: Connection) -> None:
        """A client has logged in, for the first time or again."""
        if self._waiting.pop(connection, None) is not None:
            connection.limit_frames(None)
            self.counts.succeeded += 1
        else:
            self.counts.succeeded_again += 1

    def refused(self, connection: Connection, why: str) -> None:
        """A client could not log in."""
        if connection in self._waiting:
            self.counts.failed += 1
        else:
            self.counts.failed_again += 1
        self._log.warn("login", "Failed authentication with %s: %s", connection, why, level=logging.INFO)

    def in_thread(self, step: Callable[[bytes], T], token: bytes) -> asyncio.Future[T]:
        """Run a slow step where it keeps nobody waiting."""
        return self._threads.run(step, token)

    def lifetime_ms(self, mechanism: str, proven: Proven) -> float | None:
        """For how long a login is good; ``None`` for ever."""
        limit_ms = self.options.max_reauth_ms.get(mechanism, 0)
        return session_lifetime_ms(limit_ms, proven.expires_at_ms, self._clock.time_ms())

    def close(self) -> None:
        """Look at nobody any more."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._waiting.clear()

    def _look_at_waiting(self) -> None:
        """Forget those who have gone, close those whose time is up."""
        now_s = self.loop.time()
        self._waiting = {each: end_s for each, end_s in self._waiting.items() if not each.closed}
        overdue = [each for each, end_s in self._waiting.items() if end_s <= now_s]
        for connection in overdue:
            del self._waiting[connection]
            connection.refuse("it has not logged in within tidelog.authentication.timeout.ms")
        self._sweep = self.loop.call_later(_SWEEP_S, self._look_at_waiting) if self._waiting else None


class Authentication:
    """The SASL listeners of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        parts: MechanismParts,
        dispatcher: RequestHandler,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
    ) -> None:
        """Raises ``ConfigError`` where a mechanism cannot be made, of keys that cannot be read, say."""
        self._config = config
        self._parts = parts
        self._threads = LoginThreads(loop)
        timeout_ms = config.int("tidelog.authentication.timeout.ms")
        self.listeners = {
            name: SaslListener(
                settings, mechanisms_of(settings, parts), dispatcher, self._threads, loop, clock, timeout_ms
            )
            for name, settings in config.sasl.items()
        }

    @classmethod
    async def open(
        cls,
        config: BrokerConfig,
        store: MetadataStore,
        credentials: ScramCredentials,
        dispatcher: RequestHandler,
        clock: Clock,
    ) -> Authentication:
        """The listeners of a broker with these metadata."""
        parts = MechanismParts(credentials, await salt_secret(store), clock)
        return cls(config, parts, dispatcher, asyncio.get_running_loop(), clock)

    def options_changed(self, names: Iterable[str]) -> None:
        """Options have changed; a listener whose new ones cannot be used goes on with the old ones."""
        if not any(map(concerns_logins, names)):
            return
        for name, settings in self._config.sasl.items():
            try:
                mechanisms = mechanisms_of(settings, self._parts)
            except ConfigError as error:
                logger.error("Listener %s goes on with its old SASL options: %s", name, error)
            else:
                self.listeners[name].options = LoginOptions.of(settings, mechanisms)

    def close(self) -> None:
        """Nobody logs in any more."""
        for listener in self.listeners.values():
            listener.close()
        self._threads.close()
